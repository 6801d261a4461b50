"""The page that learns drawings: `csn export characters --to page`, written into the site while it is built."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from csn.cli.main import main


def export(app: Sphinx, error: Exception | None) -> None:
    """Write draw.html beside the first page, which shows it in a frame."""
    if error is None and app.builder.format == "html":
        status = main(["export", "characters", "--to", "page", "--out", str(app.outdir / "draw.html")])
        if status:
            raise RuntimeError(f"csn export characters --to page ended with {status}: the first page needs draw.html")


def setup(app: Sphinx) -> dict[str, Any]:
    """Export after the pages are written."""
    app.connect("build-finished", export)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
