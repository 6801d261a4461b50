"""Writes FOLDER.md, FOLDER.csv and FOLDER.png: the result files of a folder as Markdown, as numbers and as a picture.

Ablations have a picture for each data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from csn.engine.evaluate import EVALUATION_SEED
from csn.experiments.markdown import OVERHEAD_KINDS, accuracy_table, arms_table
from csn.experiments.records.checks import TRAINED
from csn.experiments.records.files import result_paths, results_in
from csn.experiments.records.result import Result
from csn.experiments.records.statistics import by_seed, over_seeds, pooled
from csn.experiments.tables.arms import Arm, arm, arms_of, in_order
from csn.experiments.tables.plan import ABLATION
from csn.plots.ablation import ArmMark, ablation_figure
from csn.plots.accuracies import Mark, accuracy_figure
from csn.plots.drawing import png
from csn.printable import csv_text

ARM_COLUMNS = ("arm", "against_baseline", "against_baseline_interval")


def table_files(folder: Path, *, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """The files FOLDER/FOLDER.md, .csv and pictures of a folder with result files; none if it has no result file.

    `skip` is called with the reason if a file is left out.
    """
    found: list[Result] = []
    for path in result_paths(folder):
        try:
            found += [result for result in results_in(path) if result.learner == TRAINED]
        except ValueError as error:
            skip(f"left out: {error}")
    if not found:
        return {}
    name = folder.name
    found.sort(key=lambda result: result.place)
    if name == ABLATION:
        found = in_order(found)
        page, numbers, pictures = arms_table(found, folder), arms_csv(found), _ablation_pictures(found)
    else:
        page, numbers = accuracy_table(found, folder), _csv([_values(result) for result in found])
        pictures = _pictures(name, [result for result in found if result.test_seed == EVALUATION_SEED])
    files = {f"{name}.md": f"{page}\n".encode(), f"{name}.csv": numbers.encode(), **pictures}
    return {folder / file: content for file, content in files.items()}


def all_table_files(folder: Path, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """The table files of every folder of results that has a table already."""
    files: dict[Path, bytes] = {}
    for path in sorted(folder.rglob("*.md")):
        if path.stem == path.parent.name:
            files |= table_files(path.parent, skip=skip)
    return files


def arms_csv(found: Sequence[Result]) -> str:
    """One line per result of an ablation, with its difference to the baseline of the same seed.

    The paper's accuracies are left out, because the paper trained longer.
    """
    rows = {}
    for of in arms_of(found):
        for result in of.seeds:
            against = of.by_seed.get(result.seed)
            own = (arm(result), *(("", "") if against is None else map(_per_cent, against)))
            rows[result.path] = _values(result, dict(zip(ARM_COLUMNS, own, strict=True))) | {"paper": ""}
    return _csv([rows[result.path] for result in found])


def _values(result: Result, of_arm: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A line by columns. Training tasks and seconds are those up to the model that was chosen."""
    trained, config = result.content["trained"], result.config
    mean, interval = map(_per_cent, result.accuracy)
    return {
        **{"data": result.data, "tasks": result.size, "sampling": result.sampling},
        **{"model": config.preset, "recipe": config.recipe, "changes": "; ".join(result.changes)},
        **{"paper": result.published, "accuracy": mean, "interval": interval, **(of_arm or {})},
        **{"training_tasks": trained["tasks"], "seconds": trained["seconds"]},
        **{"tasks_in_all": result.tasks_in_all, "seconds_in_all": trained["seconds_in_all"]},
        **{"seed": config.train.seed, "commit": trained["commit"], "file": result.path.name},
    }


def _per_cent(part: float) -> str:
    return f"{100 * part:.2f}"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    return csv_text([rows[0], *(row.values() for row in rows)])


def _pictures(name: str, found: Sequence[Result]) -> dict[str, bytes]:
    marks = [_mark(seeds) for seeds in by_seed(found)]
    return {f"{name}.png": png(accuracy_figure(marks, title=f"Reproduction of {name}"), about=_in_words(marks))}


def _ablation_pictures(found: Sequence[Result]) -> dict[str, bytes]:
    arms: dict[str, list[ArmMark]] = {}
    for each in arms_of(found):
        arms.setdefault(each.seeds[0].data, []).append(_arm_mark(each))
    title = "Ablation on {}: accuracy, and differences with 95 % intervals"
    return {
        f"{ABLATION}-{data}.png": png(ablation_figure(marks, title=title.format(data)), about=_in_words(marks))
        for data, marks in arms.items()
    }


def _in_words(marks: Iterable[tuple[Any, ...]]) -> str:
    """What a picture shows, with one line per mark. A test compares these lines with the results."""
    return "\n".join(", ".join(_plain(value) for value in mark) for mark in marks)


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_plain, value))
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _mark(seeds: Sequence[Result]) -> Mark:
    result, accuracy, over = seeds[0], pooled(seeds), over_seeds([each.accuracy.mean for each in seeds])
    label = result.model.replace("`", "")
    return Mark(
        data=result.data,
        tasks=result.tasks,
        label=label if over is None else f"{label} ({over.seeds} seeds)",
        accuracy=100 * accuracy.mean,
        interval=100 * (accuracy if over is None else over).interval,
        paper=result.published,
    )


def _arm_mark(of: Arm) -> ArmMark:
    """An arm of an ablation as a line of the panel of its model, in the column of its kind of conditioning."""
    result = of.seeds[0]
    model, dash, kind = result.config.preset.rpartition("-")
    kind = OVERHEAD_KINDS.get(kind, "") if dash else ""
    parts = (model if kind else result.config.preset, result.config.recipe, result.pretraining, result.tasks)
    mark = ArmMark(
        panel=", ".join(filter(None, parts)),
        kind=kind,
        label=arm(result),
        accuracy=100 * pooled(of.seeds).mean,
        chance=100 / result.content["evaluation"]["way"],
        paper=of.paper,
    )
    if of.difference is None:
        return mark
    by_seed = tuple(100 * each.mean for each in of.by_seed.values())
    mark = mark._replace(difference=100 * of.difference.mean, interval=100 * of.interval, by_seed=by_seed)
    return mark._replace(covered=of.covered, verdict=of.verdict)
