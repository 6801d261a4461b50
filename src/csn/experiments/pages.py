"""Committed result files as tables: what the paper says, what we measured, and at what cost.

A page marks where a table goes by `<!-- results NAME -->` and `<!-- /results -->`; `fill` writes what is between. A
name is a folder below that of all results ("omniglot"), perhaps with words that choose rows by data, sampling or preset
("penn-treebank random"). A word in front says what to make of them: "grid FOLDER" has a line for each model, "commands
FOLDER" says how each number was made, "arms FOLDER" compares the arms of ablations. The name of a comparison
("compare/omniglot-5w1s", perhaps with some of its learners) or of a benchmark ("benchmarks/overhead") makes the table
of that file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from csn.engine.evaluate import Accuracy
from csn.experiments.records.checks import TRAINED, problem_of_comparison, problem_of_overhead
from csn.experiments.records.files import Result, by_seed, pooled, read_result, read_results
from csn.experiments.tables.arms import Arm, arms_of
from csn.experiments.tables.plan import arm, in_order

_BEGIN, _END = "<!-- results NAME -->", "<!-- /results -->"
_BLOCK = re.compile(r"(<!-- results (?P<name>[^>]*?) -->\n).*?(<!-- /results -->)", re.DOTALL)
# What may be meant as a mark, on its line; quoted as code it is none.
_MARK = re.compile(r"(?<!`)<!--\s*(?P<end>/?)\s*results?\b.*", re.IGNORECASE)
_WELL_FORMED = re.compile(r"<!-- results (?P<name>\S+( \S+)*) -->")


def marked_pages(root: Path) -> list[Path]:
    """README.md and the pages of docs that have a table to fill."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if page.is_file() and _MARK.search(page.read_text(encoding="utf-8"))]


def fill(text: str, folder: Path, page: Path) -> str:
    """A page with its marked tables written anew from a folder of results; page: the folder of the page."""
    _check_marks(text)
    return _BLOCK.sub(lambda mark: f"{mark[1]}{_table(mark['name'], folder, page)}\n{mark[3]}", text)


def _check_marks(page: str) -> None:
    """Raise ValueError unless every table has a name and an end, both written as they should be."""
    begun = ""
    for mark in _MARK.finditer(page):
        well_formed = mark[0].startswith(_END) if mark["end"] else _WELL_FORMED.fullmatch(mark[0])
        if not well_formed:
            raise ValueError(f"cannot read the mark {mark[0]!r}: a table begins with {_BEGIN} and ends with {_END}")
        if not mark["end"] and begun:
            break
        if mark["end"] and not begun:
            raise ValueError(f"{_END} ends no table: write {_BEGIN} before it, or remove it")
        begun = "" if mark["end"] else mark[0]
    if begun:
        raise ValueError(f"the table of {begun!r} has no end: write {_END} after it")


def _table(name: str, folder: Path, page: Path) -> str:
    """What a mark stands for. page: the folder of the page, from which links lead to the files."""
    first, *words = name.split()
    writer, first, words = (first, words[0], words[1:]) if first in WRITERS and words else ("", first, words)
    file = folder / f"{first}.json"
    if file.is_file() and not writer:
        rows = _rows(file)
        if "learner" not in rows[0]:
            _check(file, map(problem_of_overhead, rows))
            return overhead_table(rows)
        by_name = {str(row.get("learner", "")).replace(" ", "-"): row for row in rows}
        if unknown := set(words) - set(by_name):
            raise ValueError(f"{first} has no {', '.join(sorted(unknown))}: there are {', '.join(by_name)}")
        shown = [row for name, row in by_name.items() if not words or name in words]
        _check(file, map(problem_of_comparison, shown))
        return comparison_table(shown, _relative(file.with_suffix(""), page))
    if not (folder / first).is_dir():
        known = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_dir())
        raise ValueError(f"no result file is for {name!r}: there are folders {', '.join(known) or 'without results'}")
    results = read_results(folder / first)
    rows_of = [r for r in results if {r.data, r.sampling, r.preset}.issuperset(words)]
    if not rows_of:
        raise ValueError(f"no result in {folder / first} is of {' and '.join(words) or 'a learner'}")
    return WRITERS[writer](rows_of, page)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a comparison or benchmark."""
    rows = read_result(path).get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} has no rows of names and values: measure again, or name another file")
    return rows


def _check(path: Path, problems: Iterable[str]) -> None:
    if problem := next(filter(None, problems), ""):
        raise ValueError(f"{path} {problem}: measure again, or remove it")


def accuracy_table(rows: Iterable[Result], page: Path) -> str:
    """Markdown: tasks, with their data where there are several, model, the paper's accuracy, ours, training, file."""
    rows = list(rows)
    several = len({result.data for result in rows}) > 1
    lines = ["| tasks | model | paper | csn | trained on | file |", "|---|---|---|---|---|---|"]
    for seeds in by_seed(rows):
        result = seeds[0]
        tasks = f"{result.tasks} of {result.data}" if several else result.tasks
        cells = (tasks, result.name, result.published, over_seeds(seeds), _cost(seeds))
        lines.append(f"| {' | '.join(cells)} | {_links(seeds, page)} |")
    return "\n".join(lines)


def grid_table(rows: Iterable[Result], page: Path) -> str:
    """Markdown: a line a model, a column for each size of tasks; ours, the paper's, and the time of training."""
    models: dict[str, dict[str, str]] = {}
    sizes: dict[str, tuple[Any, ...]] = {}
    of_cell: dict[tuple[str, str], Result] = {}
    for seeds in by_seed(rows):
        result, size = seeds[0], seeds[0].tasks
        published = f"<br>paper {result.published}" if result.published else ""
        minutes = f"<br>{_minutes(seeds)}" if result.learner == TRAINED else ""
        if (other := of_cell.setdefault((result.model, size), result)) is not result:
            lengths = [f"{tasks_in_all(each):,}" for each in (other, result)]
            why = "" if lengths[0] == lengths[1] else f"train both alike, not on {' and '.join(lengths)} tasks, or "
            raise ValueError(
                f"{other.path} and {result.path} are both of {result.model}, {size}: {why}keep one of them"
            )
        models.setdefault(result.model, {})[size] = f"[{over_seeds(seeds)}]({_link(result, page)}){published}{minutes}"
        sizes[size] = result.place[:3]
    columns = sorted(sizes, key=sizes.__getitem__)
    lines = [f"| model | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(cells.get(size, '') for size in columns)} |" for name, cells in models.items()]
    return "\n".join(lines)


def arms_table(rows: Iterable[Result], page: Path) -> str:
    """Markdown, of an ablation: each arm's accuracy, by how much it is above its model's baseline, task by task, and by
    how much the paper's is above its own. Models say their data where there are several."""
    rows = in_order(result for result in rows if result.learner == TRAINED)
    several = len({result.data for result in rows}) > 1
    lines = ["| model | arm | csn | against the baseline | paper | trained on | file |"]
    lines.append("|---|---|---|---|---|---|---|")
    for each in arms_of(rows):
        result = each.seeds[0]
        model = (f"`{result.preset}`", result.recipe, result.pretraining, result.data if several else "", result.tasks)
        cells = [", ".join(filter(None, model)), arm(result), over_seeds(each.seeds)]
        cells += [_against(each), each.paper, _cost(each.seeds)]
        lines.append(f"| {' | '.join(cells)} | {_links(each.seeds, page)} |")
    return "\n".join(lines)


def _against(arm: Arm) -> str:
    """By how much an arm is above its baseline of the same seeds, how many these are if not all, and from where to
    where single ones reach: the interval over tasks knows nothing of other seeds."""
    if arm.difference is None:
        return ""
    single = sorted(100 * each.mean for each in arm.by_seed.values())
    reach = "" if len(single) == 1 else f"by seed {single[0]:+.2f} to {single[-1]:+.2f}"
    more = ", ".join(filter(None, (arm.covered, reach)))
    return _signed(arm.difference) + (f" ({more})" if more else "")


def _cost(seeds: Sequence[Result]) -> str:
    """Up to the models that were chosen, of how many in all, and the time of all; of several seeds, from the least to
    the most."""
    if seeds[0].learner != TRAINED:
        return ""
    chosen = _span(each.content["trained"]["tasks"] for each in seeds)
    return f"{chosen} of {_span(map(tasks_in_all, seeds))} {seeds[0].unit}, {_minutes(seeds)}"


def _minutes(seeds: Sequence[Result]) -> str:
    return f"{_span(round(each.content['trained']['seconds_in_all'] / 60) for each in seeds)} min"


def _span(numbers: Iterable[int]) -> str:
    ends = sorted({*numbers})
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def tasks_in_all(result: Result) -> int:
    """Trained on, those after the chosen model too; a training that was stopped has fewer than it was to have."""
    curve = result.content["trained"]["validation_curve"]
    return int(curve[-1][0] if curve else result.content["trained"]["tasks"])


def _links(seeds: Sequence[Result], page: Path) -> str:
    return ", ".join(f"[result]({_link(each, page)})" for each in seeds)


def _link(result: Result, page: Path) -> str:
    anchor = "" if result.learner == TRAINED else "#" + result.learner.replace(" ", "-")
    return f"{_relative(result.path, page)}{anchor}"


def _relative(path: Path, page: Path) -> str:
    """A path as links of a page in a folder have it."""
    return Path(os.path.relpath(path.resolve(), page.resolve())).as_posix()


def _signed(accuracy: Accuracy) -> str:
    return f"{100 * accuracy.mean:+.2f} ± {100 * accuracy.interval:.2f}"


def over_seeds(seeds: Sequence[Result]) -> str:
    """The pooled accuracy, and from where to where the seeds reach."""
    shown = str(pooled(seeds)).removesuffix(" %")
    means = sorted(100 * each.accuracy.mean for each in seeds)
    return shown if len(seeds) == 1 else f"{shown} ({len(seeds)} seeds, {means[0]:.2f} to {means[-1]:.2f})"


def _commands(rows: Iterable[Result], page: Path) -> str:
    """How each of the numbers was made."""
    lines = []
    for result in rows:
        if result.learner == TRAINED:
            trained = result.content["trained"]
            begun = "".join(f", begun at {_short(part['commit'])}" for part in trained.get("earlier", [])[:1])
            lines.append(
                f"- {result.name}, {result.size}, {result.content['evaluation']['tasks']:,} {result.sampling} tasks: "
                f"validation {100 * trained['validation']:.2f} % after {trained['tasks']:,} of "
                f"{tasks_in_all(result):,} {result.unit}.\n"
                f"  `{trained['command']}` at {_short(trained['commit'])}{begun}, then `{result.content['command']}`."
            )
    return "\n".join(lines)


def _short(commit: str) -> str:
    """A commit as it is usually written, with what is said of it."""
    name, dash, dirty = commit.partition("-")
    return f"`{name[:12]}{dash}{dirty}`"


# What a word before the name of a folder makes of its results.
WRITERS = {"": accuracy_table, "commands": _commands, "grid": grid_table, "arms": arms_table}


# What benchmarks/overhead.py measures; older files lack the second.
OVERHEAD_KINDS = {
    "df": "direct feedback",
    "df-end-to-end": "direct feedback, end to end",
    "gradient": "error gradient",
}


def comparison_table(rows: Iterable[dict[str, Any]], folder: str) -> str:
    """Markdown: accuracy, training tasks and time, and the time of a task as a ratio to the floor."""
    lines = ["| learner | accuracy | training tasks | time | training, x floor | inference, x floor | file |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        accuracy = str(Accuracy(row["accuracy"], row["interval"])).removesuffix(" %")
        ratios = (f"{row['time'][phase][1]:.2f}" if phase in row["time"] else "" for phase in ("train", "inference"))
        training, link, minutes = row["training"], "", ""
        if training["tasks"]:
            minutes = f"{training['seconds'] / 60:.1f} min"
            link = f"[result]({folder}/{row['learner'].replace(':', '-')}.json)"
        cells = (row["learner"], accuracy, f"{training['tasks']:,}", minutes, *ratios, link)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def overhead_table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: the median ratio to the floor with its quartiles, and peak memory."""
    kinds = {kind: name for kind, name in OVERHEAD_KINDS.items() if all(kind in row for row in rows)}
    head = ["tasks", "phase", *kinds.values()]
    if has_memory := all("peak_mb" in row for row in rows):
        head.append(f"peak MB: floor, {', '.join(kinds.values())}")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [str(row["tasks"]), row["phase"]]
        cells += (f"{middle:.2f} ({low:.2f} - {high:.2f})" for low, middle, high in (row[kind] for kind in kinds))
        if has_memory:
            cells.append(", ".join(f"{megabytes:,}" for megabytes in row["peak_mb"].values()))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
