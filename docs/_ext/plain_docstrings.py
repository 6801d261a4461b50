"""Docstrings are plain text with `code`: characters that mean something else to reStructuredText are escaped."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_CODE = re.compile(r"(`+[^`]+`+)")
_SPECIAL = re.compile(r"(\*|\||(?<=\w)_(?!\w))")


def escape(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape stars, bars and underscores at the end of a word, but not in code."""
    for number, line in enumerate(lines):
        parts = _CODE.split(line)
        lines[number] = "".join(part if place % 2 else _SPECIAL.sub(r"\\\1", part) for place, part in enumerate(parts))


def setup(app: Sphinx) -> dict[str, Any]:
    """Escape before napoleon reads the sections of a docstring."""
    app.connect("autodoc-process-docstring", escape, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
