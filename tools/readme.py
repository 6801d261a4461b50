"""README.md for a package index: the same text, with absolute links and pictures. Hatchling calls it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[(?:[^\]\[]|\[[^\]]*\])*\])\((?!https?:|#|mailto:)([^)]+)\)")


def absolute(text: str, repository: str) -> str:
    """Make the links of a page at the root of the repository absolute: files, folders and pictures."""

    def written(link: re.Match[str]) -> str:
        picture, label, path = link.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}{label}({repository}/{kind}/main/{path})"

    return _LINK.sub(written, text)


class ReadmeHook(MetadataHookInterface):
    """A build hook that puts the text into the metadata of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`, which pyproject.toml declares as dynamic."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata["urls"]["Repository"]
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}
