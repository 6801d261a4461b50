"""Links from a page to files of the project that are not pages.

Result files are copied into the site, so that each number leads to its file. Everything else leads to the repository.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
SCHEME = "project-file:"
_LINK = re.compile(r"(?<!!)(\[(?:[^\]\[]|\[[^\]]*\])*\]\()((?:\.\./)+[^)\s#]*)(#[^)\s]*)?\)")


def mark(app: Sphinx, page: str, source: list[str]) -> None:
    """Give links that lead out of docs/ a scheme of their own, which MyST leaves alone."""
    folder = Path(app.env.doc2path(page)).parent

    def marked(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(app.srcdir) or not target.is_relative_to(ROOT):
            return link[0]
        return f"{link[1]}{SCHEME}{target.relative_to(ROOT).as_posix()})"

    source[0] = _LINK.sub(marked, source[0])


def resolve(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Turn marked links into addresses: result files in the site, other files in the repository."""
    up = "../" * page.count("/")
    for node in tree.findall(nodes.reference):
        path = node.get("refuri", "")
        if not path.startswith(SCHEME):
            continue
        path = path.removeprefix(SCHEME)
        if path.startswith("results/") and (ROOT / path).is_file():
            node["refuri"] = f"{up}files/{path}"
        else:
            node["refuri"] = f"{REPOSITORY}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"


def copy(app: Sphinx, error: Exception | None) -> None:
    """Put the result files into the site."""
    if error is None and app.builder.format == "html":
        wanted = shutil.ignore_patterns("*.png")
        shutil.copytree(ROOT / "results", app.outdir / "files" / "results", ignore=wanted, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the three steps."""
    app.connect("source-read", mark)
    app.connect("doctree-resolved", resolve)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
