"""What every page keeps to: its length, the length of its lines, its spelling, links, and words for its pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "tutorials" not in path.parts),
    *sorted((ROOT / "examples").rglob("*.md")),
]
GENERATED = re.compile(r"<!-- (results|shifts|encoders)\b[^>]*? -->\n.*?<!-- /\1 -->", re.DOTALL)
CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
MOST_OF_A_LINE = 120


def written(page: Path) -> str:
    """A page without what csn fills in."""
    return GENERATED.sub("", page.read_text(encoding="utf-8"))


def words(text: str) -> int:
    return len(text.split())


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as links have them."""
    titles = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_is_not_longer_than_anybody_reads(page: Path) -> None:
    most = 1500 if page.parent.name in ("results", "studies") else 2500
    assert words(written(page)) <= most


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_end_before_the_edge(page: Path) -> None:
    lines = enumerate(written(page).splitlines(), start=1)
    long = [number for number, line in lines if len(line.encode()) > MOST_OF_A_LINE and line.lstrip()[:1] != "|"]
    assert long == [], f"lines of more than {MOST_OF_A_LINE} bytes"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pictures_say_in_words_what_they_show(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for alternative in re.findall(r"!\[([^\]]*)\]\(", text):
        assert words(alternative) >= 3, f"a picture with the text {alternative!r}"
    assert text.count(".. plot::") == text.count(":alt:")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_to_headings_lead_to_headings(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s:]*\.md|)#([^)\s]+)\)", text):
        path = (page.parent / target) if target else page
        assert anchor in anchors(path.read_text(encoding="utf-8")), f"{named(path)} has no heading {anchor}"


def test_readme_is_short() -> None:
    text = CODE.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert words("\n".join(line for line in text.splitlines() if not line.startswith("|"))) <= 900
    assert sum(set(row) <= set("|-") for row in rows) == 1, "one table"
    assert len(rows) - 2 <= 9
    (picture,) = re.findall(r"!\[[^\]]*\]\((\S+\.webp)\)", text)
    assert (ROOT / picture).stat().st_size < 1_000_000


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "studies").glob("*.md")), ids=named)
def test_a_study_begins_with_its_answer(page: Path) -> None:
    if page.name != "index.md":
        assert re.match(r"# .+\?\n\n\*\*Answer\.\*\* ", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=named)
def test_a_page_of_results_has_a_claim_a_picture_and_caveats(page: Path) -> None:
    if page.name == "index.md":
        return
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\n\*\*Claim\.\*\* ", text)
    assert "![" in text
    assert page.name == "ablations.md" or ("## Caveats" in text and "<!-- results " in text)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=named)
def test_a_decision_says_what_we_do_and_why(page: Path) -> None:
    _, *decisions = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert decisions
    for decision in decisions:
        assert "**We do**" in decision, decision.splitlines()[0]
        assert "**Why**" in decision or "**Evidence**" in decision, decision.splitlines()[0]
        assert page.name == "beyond.md" or "**The paper says**" in decision, decision.splitlines()[0]


def test_spelling() -> None:
    pytest.importorskip("codespell_lib", reason="spelling needs codespell: pip install codespell")
    sources = [*PAGES, *sorted((ROOT / "examples" / "tutorials").glob("*.py")), ROOT / "src", ROOT / "docs" / "figures"]
    command = [sys.executable, "-m", "codespell_lib", "--skip", "*.json,*.safetensors,*.js,*.png,*.npz,*.pyc"]
    command += ["--ignore-words-list", "bui", *map(str, sources)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
