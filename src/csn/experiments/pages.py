"""Fills the tables of pages from committed result files: the paper's numbers, our numbers, and their cost.

A page marks the place of a table with `<!-- results NAME -->` and `<!-- /results -->`, and `fill` writes the table in
between. NAME is a folder of results ("omniglot"). Further words choose rows by data, sampling or preset
("penn-treebank random"). A word in front chooses the kind of table: "grid FOLDER" has a line for each model, and "arms
FOLDER" compares the arms of ablations. NAME may also be a comparison ("compare/omniglot-5w1s", perhaps with some of its
learners) or a benchmark ("benchmarks/overhead").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from csn.experiments.markdown import accuracy_table, arms_table, comparison_table, grid_table, overhead_table, relative
from csn.experiments.records.files import read_result, read_results

# The kind of table that a word before the name of a folder chooses.
WRITERS = {"": accuracy_table, "grid": grid_table, "arms": arms_table}
_BEGIN, _END = "<!-- results NAME -->", "<!-- /results -->"
_BLOCK = re.compile(r"(<!-- results (?P<name>[^>]*?) -->\n).*?(<!-- /results -->)", re.DOTALL)
# Lines that look like a mark. A mark quoted as code does not count.
_MARK = re.compile(r"(?<!`)<!--\s*(?P<end>/?)\s*results?\b.*", re.IGNORECASE)
_WELL_FORMED = re.compile(r"<!-- results (?P<name>\S+( \S+)*) -->")


def marked_pages(root: Path) -> list[Path]:
    """README.md and the pages of docs that have a table to fill."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if page.is_file() and _MARK.search(page.read_text(encoding="utf-8"))]


def fill(text: str, folder: Path, page: Path) -> str:
    """The text of a page with its marked tables rewritten from a folder of results. `page` is the page's own folder."""
    _check_marks(text)
    return _BLOCK.sub(lambda mark: f"{mark[1]}{_table(mark['name'], folder, page)}\n{mark[3]}", text)


def _check_marks(page: str) -> None:
    """Raise ValueError unless every table has a name and an end, both written as they should be."""
    open_mark = ""
    for mark in _MARK.finditer(page):
        well_formed = mark[0].startswith(_END) if mark["end"] else _WELL_FORMED.fullmatch(mark[0])
        if not well_formed:
            raise ValueError(f"cannot read the mark {mark[0]!r}: a table begins with {_BEGIN} and ends with {_END}")
        if not mark["end"] and open_mark:
            break
        if mark["end"] and not open_mark:
            raise ValueError(f"{_END} ends no table: write {_BEGIN} before it, or remove it")
        open_mark = "" if mark["end"] else mark[0]
    if open_mark:
        raise ValueError(f"the table of {open_mark!r} has no end: write {_END} after it")


def _table(name: str, folder: Path, page: Path) -> str:
    """The table of a mark. Links lead from `page`, the folder of the page, to the files."""
    first, *words = name.split()
    writer, first, words = (first, words[0], words[1:]) if first in WRITERS and words else ("", first, words)
    file = folder / f"{first}.json"
    if file.is_file() and not writer:
        return _table_of_rows(file, words, page)
    if not (folder / first).is_dir():
        known = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_dir())
        raise ValueError(f"no result file is for {name!r}: there are folders {', '.join(known) or 'without results'}")
    results = read_results(folder / first)
    rows_of = [r for r in results if {r.data, r.sampling, r.config.preset}.issuperset(words)]
    if not rows_of:
        raise ValueError(f"no result in {folder / first} is of {' and '.join(words) or 'a learner'}")
    return WRITERS[writer](rows_of, page)


def _table_of_rows(file: Path, learners: Sequence[str], page: Path) -> str:
    """The table of a comparison, perhaps with some of its learners only, or of the cost of adaptation."""
    rows = read_result(file).get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{file} has no rows of names and values: measure again, or name another file")
    by_name = {str(row.get("learner", "")).replace(" ", "-"): row for row in rows}
    if unknown := set(learners) - set(by_name):
        raise ValueError(f"{file} has no {', '.join(sorted(unknown))}: there are {', '.join(by_name)}")
    try:
        if "learner" not in rows[0]:
            return overhead_table(rows)
        shown = [row for name, row in by_name.items() if not learners or name in learners]
        return comparison_table(shown, relative(file.with_suffix(""), page))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file} has rows that csn does not write ({error!r}): measure again, or remove it") from error
