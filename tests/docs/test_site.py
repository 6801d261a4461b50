"""The site builds without a warning. Its tutorials are left out here: `make docs` runs them."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

for needed in ("sphinx", "furo", "myst_parser", "sphinx_gallery", "matplotlib"):
    pytest.importorskip(needed, reason=f"the site needs {needed}: pip install csn[docs]")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, from a copy of nothing: what the tutorials' gallery writes beside the pages is ignored by git."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-D", "plot_gallery=0"]
    command += ["-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert run.returncode == 0, run.stderr
    return folder / "html"


class Page(HTMLParser):
    """The links of a page, what they may lead to, and its pictures without words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.mute: list[str] = []
        self.viewport = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if place := given.get("id"):
            self.anchors.add(place)
        if tag in ("a", "link", "img", "script", "iframe") and (link := given.get("href") or given.get("src")):
            self.links.append(link)
        # The gallery's small pictures stand next to the titles that say what they show.
        if tag == "img" and not given.get("alt") and not ("alt" in given and "_thumb." in (given.get("src") or "")):
            self.mute.append(given.get("src") or "")
        self.viewport |= tag == "meta" and given.get("name") == "viewport"


@functools.cache
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if path.name != "draw.html" and "_static" not in path.parts)


def test_the_first_page_learns_drawings_and_has_three_doors(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert 'src="draw.html"' in text
    assert 1_000_000 < (site / "draw.html").stat().st_size < 4_000_000
    for door in ("Use it", "Research with it", "Extend it"):
        assert f"<strong>{door}</strong>" in text
    assert (site / "search.html").exists()
    assert (site / "searchindex.js").stat().st_size > 10_000


def test_every_local_link_leads_somewhere(site: Path) -> None:
    broken = []
    for path in pages(site):
        for link in page(path).links:
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:|//", link):
                continue
            found = (path.parent / unquote(target.partition("?")[0])) if target else path
            if not found.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif anchor and found.suffix == ".html" and unquote(anchor) not in page(found.resolve()).anchors:
                broken.append(f"{path.relative_to(site)}: {link} (no such heading)")
    assert broken == []
    assert len(pages(site)) > 50


def test_pictures_have_alternative_texts_and_pages_fit_a_phone(site: Path) -> None:
    for path in pages(site):
        assert page(path).mute == [], path
        assert page(path).viewport, path


def test_equations_need_no_network(site: Path) -> None:
    text = (site / "how-it-works.html").read_text(encoding="utf-8")
    assert text.count("<math") > 20
    scripts = [link for path in pages(site) for link in page(path).links if re.match(r"https?:.*\.(js|css)", link)]
    assert scripts == []


def test_the_reference_says_what_the_docstrings_say(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    assert "Learns classes from a few examples each" in text
    assert 'id="csn.FewShotClassifier.partial_fit"' in text
