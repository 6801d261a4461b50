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
from csn.experiments.tables.arms import Arm, arm, arms_of, in_order
from csn.experiments.tables.plan import margin_of

FEW_CLASSES = 50  # with fewer classes, tables show an interval over classes too
# What benchmarks/overhead.py measures; older files lack some of it.
OVERHEAD_KINDS = {
    "df": "direct feedback",
    "df-least": "direct feedback, least floor",
    "df-end-to-end": "direct feedback, end to end",
    "gradient": "error gradient",
    "gradient-least": "error gradient, least floor",
    "limit": "the machine's limit",
}


def table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def accuracy_table(results: Iterable[Result], page: Path) -> str:
    """Markdown: tasks, with their data where there are several, model, the paper's accuracy, ours, training, file."""
    groups = by_seed(results)
    several = len({seeds[0].data for seeds in groups}) > 1
    rows = []
    for seeds in groups:
        tasks = f"{seeds[0].tasks} of {seeds[0].data}" if several else seeds[0].tasks
        cells = (tasks, seeds[0].name, ", ".join(_published(seeds)), accuracy_over_seeds(seeds), _cost(seeds))
        rows.append((*cells, _links(seeds, page)))
    return table(("tasks", "model", "paper", "csn", "trained on", "file"), rows)


def grid_table(results: Iterable[Result], page: Path) -> str:
    """A line per model and a column per size of tasks: our accuracy, the paper's, and the training time.

    Results on a second draw of test tasks are left to the other tables.
    """
    cells: dict[tuple[str, str], Result] = {}
    shown: dict[str, dict[str, str]] = {}
    for seeds in by_seed(each for each in results if each.test_seed == EVALUATION_SEED):
        result = seeds[0]
        if (other := cells.setdefault((result.model, result.tasks), result)) is not result:
            lengths = [f"{each.tasks_in_all:,}" for each in (other, result)]
            why = "" if lengths[0] == lengths[1] else f"train both alike, not on {' and '.join(lengths)} tasks, or "
            raise ValueError(
                f"{other.path} and {result.path} are both of {result.model}, {result.tasks}: {why}keep one of them"
            )
        parts = [f"[{accuracy_over_seeds(seeds)}]({_link(result, page)})", *_published(seeds, "paper ")]
        parts += [_minutes(seeds)] if result.learner == TRAINED else []
        shown.setdefault(result.model, {})[result.tasks] = "<br>".join(parts)
    sizes = list(dict.fromkeys(each.tasks for each in sorted(cells.values(), key=lambda each: each.place[:3])))
    return table(("model", *sizes), ((name, *(of.get(size, "") for size in sizes)) for name, of in shown.items()))


def arms_table(results: Iterable[Result], page: Path) -> str:
    """Markdown of an ablation: each arm's accuracy and its difference to the baseline, next to the paper's difference.

    Differences are taken task by task. Models state their data if the table has several data sets.
    """
    found = in_order(result for result in results if result.learner == TRAINED)
    several = len({result.data for result in found}) > 1
    rows = []
    for each in arms_of(found):
        result, seeds, config = each.seeds[0], each.seeds, each.seeds[0].config
        data = result.data if several else ""
        model = (f"`{config.preset}`", config.recipe, result.pretraining, data, result.tasks)
        cells = (", ".join(filter(None, model)), arm(result), accuracy_over_seeds(seeds), _against(each), each.paper)
        rows.append((*cells, _cost(seeds), _links(seeds, page)))
    return table(("model", "arm", "csn", "against the baseline", "paper", "trained on", "file"), rows)


def _against(arm: Arm) -> str:
    """An arm's difference to the baseline of the same seeds, with its interval over tasks.

    With several seeds it adds: how many seeds have a baseline, if not all; the interval over seeds; whether the arm
    differs from the baseline (bold) or is level with it; and the range of the single seeds.
    """
    if arm.difference is None:
        return ""
    shown, over = signed(arm.difference), arm.over_seeds
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
    return f"{chosen} of {_span(each.tasks_in_all for each in seeds)} {seeds[0].unit}, {_minutes(seeds)}"


def _minutes(seeds: Sequence[Result]) -> str:
    seconds = [each.content["trained"]["seconds_in_all"] for each in seeds]
    if max(seconds) < 60:
        return f"{_span(round(each) for each in seconds)} s"
    return f"{_span(round(each / 60) for each in seconds)} min"


def _span(numbers: Iterable[int]) -> str:
    ends = sorted({*numbers})
    return f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"


def _links(seeds: Sequence[Result], page: Path) -> str:
    return ", ".join(f"[result]({_link(each, page)})" for each in seeds)


def _link(result: Result, page: Path) -> str:
    anchor = "" if result.learner == TRAINED else "#" + result.learner.replace(" ", "-")
    return f"{relative(result.path, page)}{anchor}"


def relative(path: Path, page: Path) -> str:
    """A path relative to the folder of a page, for links."""
    return Path(os.path.relpath(path.resolve(), page.resolve())).as_posix()


def signed(accuracy: Accuracy) -> str:
    """A difference in points, with its interval."""
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


def comparison_table(learners: Iterable[dict[str, Any]], folder: str) -> str:
    """Markdown: accuracy, training tasks and time, and the time of a task as a ratio to the floor."""
    rows = []
    for row in learners:
        accuracy = str(Accuracy(row["accuracy"], row["interval"])).removesuffix(" %")
        ratios = (f"{row['time'][phase][1]:.2f}" if phase in row["time"] else "" for phase in ("train", "inference"))
        training, link, minutes = row["training"], "", ""
        if training["tasks"]:
            minutes = f"{training['seconds'] / 60:.1f} min"
            link = f"[result]({folder}/{row['learner'].replace(':', '-')}.json)"
        rows.append((row["learner"], accuracy, f"{training['tasks']:,}", minutes, *ratios, link))
    header = ("learner", "accuracy", "training tasks", "time", "training, x floor", "inference, x floor", "file")
    return table(header, rows)


def overhead_table(steps: Sequence[dict[str, Any]]) -> str:
    """Markdown: the median ratio to the floor with its quartiles, and peak memory."""
    kinds = {kind: name for kind, name in OVERHEAD_KINDS.items() if all(kind in step for step in steps)}
    has_memory = all("peak_mb" in step for step in steps)
    header = ["tasks", "phase", *kinds.values()]
    if has_memory:
        header.append("peak MB: " + ", ".join({"floor": "floor", **kinds}[kind] for kind in steps[0]["peak_mb"]))
    rows = []
    for step in steps:
        quartiles = (f"{middle:.2f} ({low:.2f} - {high:.2f})" for low, middle, high in (step[kind] for kind in kinds))
        memory = [", ".join(f"{megabytes:,}" for megabytes in step["peak_mb"].values())] if has_memory else []
        rows.append((str(step["tasks"]), step["phase"], *quartiles, *memory))
    return table(header, rows)
