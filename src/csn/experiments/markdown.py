"""Results as tables of Markdown: what the paper says, what we measured, and at what cost."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from csn.engine.evaluate import EVALUATION_SEED, Accuracy
from csn.experiments.records.checks import TRAINED
from csn.experiments.records.result import Result
from csn.experiments.records.statistics import by_seed, over_seeds, pooled
from csn.experiments.tables.arms import Arm, arms_of
from csn.experiments.tables.plan import arm, in_order, margin_of

FEW_CLASSES = 50  # with fewer classes, tables show an interval over classes too
# What benchmarks/overhead.py measures; older files lack some of it.
OVERHEAD_KINDS = {
    "df": "direct feedback",
    "df-least": "x the least floor",
    "df-end-to-end": "direct feedback, end to end",
    "gradient": "error gradient",
    "limit": "the machine's limit",
}


def accuracy_table(rows: Iterable[Result], page: Path) -> str:
    """Markdown: tasks, with their data where there are several, model, the paper's accuracy, ours, training, file."""
    rows = list(rows)
    several = len({result.data for result in rows}) > 1
    lines = ["| tasks | model | paper | csn | trained on | file |", "|---|---|---|---|---|---|"]
    for seeds in by_seed(rows):
        result = seeds[0]
        tasks = f"{result.tasks} of {result.data}" if several else result.tasks
        cells = (tasks, result.name, ", ".join(_published(seeds)), accuracy_over_seeds(seeds), _cost(seeds))
        lines.append(f"| {' | '.join(cells)} | {_links(seeds, page)} |")
    return "\n".join(lines)


def grid_table(rows: Iterable[Result], page: Path) -> str:
    """A line per model and a column per size of tasks: our accuracy, the paper's, and the training time.

    Results on a second draw of test tasks are left to the other tables.
    """
    models: dict[str, dict[str, str]] = {}
    sizes: dict[str, tuple[Any, ...]] = {}
    of_cell: dict[tuple[str, str], Result] = {}
    for seeds in by_seed(row for row in rows if row.test_seed == EVALUATION_SEED):
        result, size = seeds[0], seeds[0].tasks
        published = "".join(f"<br>{part}" for part in _published(seeds, "paper "))
        minutes = f"<br>{_minutes(seeds)}" if result.learner == TRAINED else ""
        if (other := of_cell.setdefault((result.model, size), result)) is not result:
            lengths = [f"{tasks_in_all(each):,}" for each in (other, result)]
            why = "" if lengths[0] == lengths[1] else f"train both alike, not on {' and '.join(lengths)} tasks, or "
            raise ValueError(
                f"{other.path} and {result.path} are both of {result.model}, {size}: {why}keep one of them"
            )
        accuracy = f"[{accuracy_over_seeds(seeds)}]({_link(result, page)})"
        models.setdefault(result.model, {})[size] = f"{accuracy}{published}{minutes}"
        sizes[size] = result.place[:3]
    columns = sorted(sizes, key=sizes.__getitem__)
    lines = [f"| model | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(cells.get(size, '') for size in columns)} |" for name, cells in models.items()]
    return "\n".join(lines)


def arms_table(rows: Iterable[Result], page: Path) -> str:
    """Markdown of an ablation: each arm's accuracy and its difference to the baseline, next to the paper's difference.

    Differences are taken task by task. Models state their data if the table has several data sets.
    """
    rows = in_order(result for result in rows if result.learner == TRAINED)
    several = len({result.data for result in rows}) > 1
    lines = ["| model | arm | csn | against the baseline | paper | trained on | file |"]
    lines.append("|---|---|---|---|---|---|---|")
    for each in arms_of(rows):
        result = each.seeds[0]
        model = (f"`{result.preset}`", result.recipe, result.pretraining, result.data if several else "", result.tasks)
        cells = [", ".join(filter(None, model)), arm(result), accuracy_over_seeds(each.seeds)]
        cells += [_against(each), each.paper, _cost(each.seeds)]
        lines.append(f"| {' | '.join(cells)} | {_links(each.seeds, page)} |")
    return "\n".join(lines)


def _against(arm: Arm) -> str:
    """An arm's difference to the baseline of the same seeds, with its interval over tasks.

    With several seeds it adds: how many seeds have a baseline, if not all; the interval over seeds; whether the arm
    differs from the baseline (bold) or is level with it; and the range of the single seeds.
    """
    if arm.difference is None:
        return ""
    shown, over = _signed(arm.difference), arm.over_seeds
    if over is None:
        return shown + (f" ({arm.covered})" if arm.covered else "")
    single = sorted(100 * each.mean for each in arm.by_seed.values())
    notes = [arm.covered, f"± {100 * over.interval:.2f} over {over.seeds} seeds", arm.verdict]
    notes.append(f"by seed {single[0]:+.2f} to {single[-1]:+.2f}")
    return (f"**{shown}**" if arm.verdict == "differs" else shown) + f" ({', '.join(filter(None, notes))})"


def _cost(seeds: Sequence[Result]) -> str:
    """The training tasks up to the chosen model, the tasks in all, and the time of all.

    Several seeds give a range from the least to the most.
    """
    if seeds[0].learner != TRAINED:
        return ""
    chosen = _span(each.content["trained"]["tasks"] for each in seeds)
    return f"{chosen} of {_span(map(tasks_in_all, seeds))} {seeds[0].unit}, {_minutes(seeds)}"


def _minutes(seeds: Sequence[Result]) -> str:
    seconds = [each.content["trained"]["seconds_in_all"] for each in seeds]
    if max(seconds) < 60:
        return f"{_span(round(each) for each in seconds)} s"
    return f"{_span(round(each / 60) for each in seconds)} min"


def _span(numbers: Iterable[int]) -> str:
    ends = sorted({*numbers})
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def tasks_in_all(result: Result) -> int:
    """The number of training tasks, including those after the chosen model. A stopped training has fewer."""
    curve = result.content["trained"]["validation_curve"]
    return int(curve[-1][0] if curve else result.content["trained"]["tasks"])


def _links(seeds: Sequence[Result], page: Path) -> str:
    return ", ".join(f"[result]({_link(each, page)})" for each in seeds)


def _link(result: Result, page: Path) -> str:
    anchor = "" if result.learner == TRAINED else "#" + result.learner.replace(" ", "-")
    return f"{relative(result.path, page)}{anchor}"


def relative(path: Path, page: Path) -> str:
    """A path relative to the folder of a page, for links."""
    return Path(os.path.relpath(path.resolve(), page.resolve())).as_posix()


def _signed(accuracy: Accuracy) -> str:
    return f"{100 * accuracy.mean:+.2f} ± {100 * accuracy.interval:.2f}"


def accuracy_over_seeds(seeds: Sequence[Result]) -> str:
    """The pooled accuracy with its interval over tasks. Several seeds add the interval over seeds and their range."""
    shown = str(pooled(seeds)).removesuffix(" %")
    over = over_seeds([each.accuracy.mean for each in seeds])
    if over is None:
        summary = seeds[0].content["summary"][seeds[0].learner]
        if summary.get("classes", FEW_CLASSES) >= FEW_CLASSES or "interval_over_classes" not in summary:
            return shown
        return f"{shown} (± {100 * summary['interval_over_classes']:.2f} over {summary['classes']} classes)"
    means = sorted(100 * each.accuracy.mean for each in seeds)
    return f"{shown} (± {100 * over.interval:.2f} over {over.seeds} seeds, {means[0]:.2f} to {means[-1]:.2f})"


def _published(seeds: Sequence[Result], paper: str = "") -> list[str]:
    """The paper's number and that of the system's own authors.

    With several seeds it says whether they differ from the paper's number or are level with it.
    """
    result, parts = seeds[0], []
    if result.published:
        stated = float(result.published.split(" ± ")[0]) / 100
        over = over_seeds([each.accuracy.mean - stated for each in seeds])
        verdict = "" if over is None else over.verdict(margin_of(result.data))
        parts.append(paper + result.published + (f" ({verdict})" if verdict else ""))
    return [*parts, f"its authors {result.by_its_authors}"] if result.by_its_authors else parts


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
