"""TABLE.md, TABLE.csv and TABLE.png: the result files of a table's cells, as Markdown, numbers and a picture."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from csn.drawing import png
from csn.reproduce import ABLATION, Cell, arm, plan, results_of, tables
from csn.result_pictures import Mark, accuracy_figure
from csn.result_tables import accuracy_table, arms_table
from csn.results import Result, by_seed, changes_of, pooled

SEEDS = 5  # trainings of a cell that a table looks for
CSV_COLUMNS = (
    *("data", "tasks", "formed", "model", "recipe", "changes", "paper", "accuracy", "interval"),
    *("training_tasks", "seconds", "seed", "commit", "file"),
)


def table_files(
    table: str, folder: Path, *, data: str | None = None, more: Sequence[Cell] = (), skip: Callable[[str], None]
) -> dict[Path, bytes]:
    """The files of a table from the results that are there; none without any. data: in place of the table's own;
    more: cells that are not in its plan; skip: is told of files that cannot be read."""
    cells = [*plan(table, seeds=SEEDS, data=data), *more]
    folder = folder / ABLATION if table == ABLATION else folder
    found = results_of(cells, folder, skip)
    if not found:
        return {}
    name = table if data is None else cells[0].config.data.label
    table_of, mark_of = (arms_table, _arm_mark) if table == ABLATION else (accuracy_table, _mark)
    marks = [mark_of(seeds) for seeds in by_seed(found)]
    picture = accuracy_figure(marks, title=f"Reproduction of {name}", bars=table == ABLATION)
    return {
        folder / f"{name}.md": table_of(found, ".").encode(),
        folder / f"{name}.csv": _csv(found).encode(),
        folder / f"{name}.png": png(picture),
    }


def all_table_files(folder: Path, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """Anew, the files of every table that a folder of results already has."""
    files: dict[Path, bytes] = {}
    for path in [*folder.glob("*.md"), *folder.glob(f"{ABLATION}/*.md")]:
        for table in [path.stem] if path.stem in tables() else tables():
            data = None if path.stem == table else path.stem
            files |= table_files(table, folder, data=data, skip=skip) if data is None or table != ABLATION else {}
    return files


def _csv(found: Sequence[Result]) -> str:
    """One line a result; accuracies in per cent."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for result in found:
        trained, config = result.content["trained"], result.content["config"]
        row = [result.data, result.size, result.formed, config["preset"], config["recipe"]]
        row += ["; ".join(changes_of(config)), result.published]
        row += [f"{100 * result.accuracy.mean:.2f}", f"{100 * result.accuracy.interval:.2f}"]
        row += [trained["tasks"], trained["seconds"], config["train"]["seed"], trained["commit"], result.path.name]
        writer.writerow(row)
    return file.getvalue()


def _mark(seeds: Sequence[Result]) -> Mark:
    """A result, perhaps of several seeds, as a line of the picture."""
    result, accuracy = seeds[0], pooled(seeds)
    number = re.match(r"[\d.]+", result.published)
    return Mark(
        group=f"{result.data} {result.tasks}",
        label=result.model.replace("`", ""),
        accuracy=100 * accuracy.mean,
        interval=100 * accuracy.interval,
        paper=float(number[0]) if number else None,
    )


def _arm_mark(seeds: Sequence[Result]) -> Mark:
    """An arm of an ablation as a bar among those of its model; the paper trained longer, so none of its numbers."""
    result = seeds[0]
    group = f"{result.data}, {result.preset}"
    return _mark(seeds)._replace(group=group, label=arm(result), paper=None)
