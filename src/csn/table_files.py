"""TABLE.md, TABLE.csv and TABLE.png: the result files of a table's cells, as Markdown, numbers and a picture."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from csn.config import config_from_json
from csn.drawing import png
from csn.reproduce import ABLATION, Asked, Cell, ablations, arm, plan, tables
from csn.result_pictures import Mark, accuracy_figure
from csn.result_tables import accuracy_table, arms_table
from csn.results import Result, by_seed, changes_of, pooled, results_in

# In the name of a result file, after the cell's: options that were changed, which have "=", and the seed.
_CHANGED = re.compile(r"(-[\w.]+=.+?)?(-seed\d+)?")
CSV_COLUMNS = (
    *("data", "tasks", "formed", "model", "recipe", "changes", "paper", "accuracy", "interval"),
    *("training_tasks", "seconds", "seed", "commit", "file"),
)


def table_files(table: str, folder: Path, *, data: str | None = None, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """The files of a table from the results that are there; none without any. data: in place of the table's own, and
    then the rows of all tables for it; skip: is told of files that are left out."""
    if table == ABLATION:
        return _files(table, ablations(folder / ABLATION), folder / ABLATION, skip)
    if data is None or data == table:
        return _files(table, plan(table), folder, skip)
    cells = [cell for each in tables() if each != ABLATION for cell in plan(each, data=data)]
    return _files(cells[0].config.data.label, cells, folder, skip)


def all_table_files(folder: Path, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """Anew, the files of every table that a folder of results already has."""
    files: dict[Path, bytes] = {}
    for name in [path.stem for path in [*folder.glob("*.md"), *folder.glob(f"{ABLATION}/{ABLATION}.md")]]:
        known = name in tables()
        files |= table_files(name if known else "", folder, data=None if known else name, skip=skip)
    return files


def _files(name: str, cells: Sequence[Cell], folder: Path, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """Of the results of cells."""
    found = results_of(cells, folder, skip)
    if not found:
        return {}
    table_of, mark_of = (arms_table, _arm_mark) if name == ABLATION else (accuracy_table, _mark)
    marks = [mark_of(seeds) for seeds in by_seed(found)]
    picture = accuracy_figure(marks, title=f"Reproduction of {name}", bars=name == ABLATION)
    return {
        folder / f"{name}.md": table_of(found, ".").encode(),
        folder / f"{name}.csv": _csv(found).encode(),
        folder / f"{name}.png": png(picture),
    }


def results_of(cells: Iterable[Cell], folder: Path, skip: Callable[[str], None] = lambda why: None) -> list[Result]:
    """Every result of these cells that is there, of any seed: by data and size of the tasks, then in the order of the
    cells, and below those of each size the ones of changed options. skip: is told why a file is left out."""
    files = sorted(folder.glob("*.json"), key=lambda path: (len(path.name), path.name))  # seed 10 after seed 9
    found, told = dict[Path, tuple[str, Result]](), set[Path]()
    asked = [(each, test) for each in cells for test in each.tests]
    for cell, test in asked:
        for path, changed in _named_like(cell.result(test), test.suffix + ".json", files):
            try:
                result = results_in(path)[0]
                if result.formed != test.formed and path.stem.endswith(result.formed):
                    continue  # the name of another test of this cell begins like this one's
                _check_of(result, cell, test)
                found.setdefault(path, (changed, result))
            except (ValueError, IndexError) as error:
                if path not in told:
                    skip(f"left out: {error or path}")
                told.add(path)
    own_first = sorted(found.values(), key=lambda each: (each[1].data, *each[1].place[:3], each[0] != ""))
    return [result for _, result in own_first]


def _named_like(name: str, ending: str, files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """The files of a cell's test by their names, which may have changed options and a seed before the ending; with
    those options. Whatever else a name goes on with, such as an arm, is another cell."""
    beginning = name.removesuffix(ending)
    for path in files:
        if path.name.startswith(beginning) and path.name.endswith(ending):
            match = _CHANGED.fullmatch(path.name[len(beginning) : -len(ending)])
            if match is not None:
                yield path, match[1] or ""


def _check_of(result: Result, cell: Cell, test: Asked) -> None:
    """Raise ValueError unless a file holds what its name says."""
    config, asked = config_from_json(json.dumps(result.content["config"])), result.content["evaluation"]
    held = (config.preset, config.recipe, config.data.label, config.data.way, config.data.shot)
    data = cell.config.data
    wanted = (cell.config.preset, cell.config.recipe, data.label, data.way, data.shot)
    if (*held, asked["way"], asked["shot"], result.formed) != (*wanted, test.way, test.shot, test.formed):
        raise ValueError(f"{result.path} is of another training or test than its name says: rename or remove it")


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
    group = ", ".join([result.data, result.preset, result.recipe, *([result.naming] if result.naming else [])])
    return _mark(seeds)._replace(group=group, label=arm(result), paper=None)
