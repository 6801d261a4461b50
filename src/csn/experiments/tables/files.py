"""TABLE.md, TABLE.csv and TABLE.png: the result files of a table's cells, as Markdown, numbers and a picture; of the
ablations a picture for each data set."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from csn.config import DataConfig, config_from_json
from csn.data.registry import DATASETS
from csn.experiments.pages import OVERHEAD_KINDS, accuracy_table, arms_table, tasks_in_all
from csn.experiments.records.files import Result, by_seed, changes_of, pooled, results_in
from csn.experiments.tables.arms import Arm, arms_of
from csn.experiments.tables.cells import Asked, Cell
from csn.experiments.tables.plan import ABLATION, ablations, arm, plan, tables
from csn.plots.ablation import ArmMark, ablation_figure
from csn.plots.accuracies import Mark, accuracy_figure
from csn.plots.drawing import png

# In the name of a result file, after the cell's: options that were changed, which have "=", and the seed.
_CHANGED = re.compile(r"(-[\w.]+=.+?)?(-seed\d+)?")
# Training tasks and seconds are those up to the model that was chosen.
CSV_COLUMNS = (
    *("data", "tasks", "formed", "model", "recipe", "changes", "paper", "accuracy", "interval"),
    *("training_tasks", "seconds", "tasks_in_all", "seconds_in_all", "seed", "commit", "file"),
)
ARM_COLUMNS = ("arm", "against_baseline", "against_baseline_interval")  # before those of the training


def table_files(table: str, folder: Path, *, data: str | None = None, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """The files of a table from the results that are there; none without any. data: in place of the table's own. A
    table of data has the rows of all tables for them, whichever was asked for; skip: is told of files left out."""
    if table == ABLATION:
        return _files(table, ablations(folder / ABLATION), folder / ABLATION, skip)
    data = data or table
    cells = plan(data) if data in tables() else []
    for other in tables():
        if other not in (ABLATION, data):
            with contextlib.suppress(ValueError):  # no row of it reads such data
                cells += plan(other, data=data)
    return _files(DataConfig(data).label, cells, folder, skip)


def all_table_files(folder: Path, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """Anew, the files of every table that a folder of results already has."""
    files: dict[Path, bytes] = {}
    for name in [path.stem for path in [*folder.glob("*.md"), *folder.glob(f"{ABLATION}/{ABLATION}.md")]]:
        known = name in tables()
        data = None if known else _data_called(name, folder)
        files |= table_files(name if known else "", folder, data=data, skip=skip)
    return files


def _data_called(label: str, folder: Path) -> str:
    """What `--data` was for a table of this name: a data set, or the path that its results were trained on."""
    for path in [] if label in DATASETS else sorted(folder.glob(f"{label}-*.json")):
        with contextlib.suppress(ValueError):  # of no use
            for result in results_in(path):
                name = str(result.content["config"]["data"]["name"])
                if DataConfig(name).label == label:
                    return name
    return label


def _files(name: str, cells: Sequence[Cell], folder: Path, skip: Callable[[str], None]) -> dict[Path, bytes]:
    """Of the results of cells."""
    found = results_of(cells, folder, skip)
    if not found:
        return {}
    if name == ABLATION:
        texts, pictures = (f"{arms_table(found, '.')}\n", arms_csv(found)), _ablation_pictures(found)
    else:
        texts, pictures = (f"{accuracy_table(found, '.')}\n", accuracy_csv(found)), _pictures(name, found)
    files = {f"{name}.{kind}": text.encode() for kind, text in zip(("md", "csv"), texts, strict=True)} | pictures
    return {folder / file: content for file, content in files.items()}


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


def accuracy_csv(found: Iterable[Result]) -> str:
    """One line a result; accuracies in per cent."""
    return _csv(CSV_COLUMNS, map(_values, found))


def arms_csv(found: Sequence[Result]) -> str:
    """The same of an ablation, with each result's difference to the baseline of its seed. The paper trained longer, so
    that its accuracies belong beside none of them."""
    training = CSV_COLUMNS.index("training_tasks")
    rows = {result.path: _values(result) for result in found}
    for of in arms_of(found):
        for result in of.seeds:
            against = of.by_seed.get(result.seed)
            values = (arm(result), *(("", "") if against is None else map(_per_cent, against)))
            rows[result.path] |= dict(zip(ARM_COLUMNS, values, strict=True)) | {"paper": ""}
    return _csv((*CSV_COLUMNS[:training], *ARM_COLUMNS, *CSV_COLUMNS[training:]), rows.values())


def _values(result: Result) -> dict[str, Any]:
    """Of a line, by column."""
    trained, config = result.content["trained"], result.content["config"]
    mean, interval = map(_per_cent, result.accuracy)
    values = [result.data, result.size, result.formed, config["preset"], config["recipe"]]
    values += ["; ".join(changes_of(config)), result.published, mean, interval]
    values += [trained["tasks"], trained["seconds"], tasks_in_all(result), trained["seconds_in_all"]]
    values += [config["train"]["seed"], trained["commit"], result.path.name]
    return dict(zip(CSV_COLUMNS, values, strict=True))


def _per_cent(part: float) -> str:
    return f"{100 * part:.2f}"


def _csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _pictures(name: str, found: Sequence[Result]) -> dict[str, bytes]:
    """TABLE.png."""
    marks = [_mark(seeds) for seeds in by_seed(found)]
    return {f"{name}.png": png(accuracy_figure(marks, title=f"Reproduction of {name}"), about=_in_words(marks))}


def _ablation_pictures(found: Sequence[Result]) -> dict[str, bytes]:
    """A picture for each data set that has arms."""
    arms: dict[str, list[ArmMark]] = {}
    for each in arms_of(found):
        arms.setdefault(each.seeds[0].data, []).append(_arm_mark(each))
    title = "Ablation on {}: accuracy, and differences with 95 % intervals"
    return {
        f"{ABLATION}-{data}.png": png(ablation_figure(marks, title=title.format(data)), about=_in_words(marks))
        for data, marks in arms.items()
    }


def _in_words(marks: Iterable[tuple[Any, ...]]) -> str:
    """What a picture shows, a line a mark: by this a committed one can be held to its results, whatever drew it."""
    return "\n".join(", ".join(_plain(value) for value in mark) for mark in marks)


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_plain, value))
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _mark(seeds: Sequence[Result]) -> Mark:
    """A result, perhaps of several seeds, as a line of the picture."""
    result, accuracy = seeds[0], pooled(seeds)
    return Mark(
        data=result.data,
        tasks=result.tasks,
        label=result.model.replace("`", ""),
        accuracy=100 * accuracy.mean,
        interval=100 * accuracy.interval,
        paper=result.published,
    )


def _arm_mark(of: Arm) -> ArmMark:
    """An arm of an ablation as a line of the panel of its model, in the column of its kind of conditioning."""
    result = of.seeds[0]
    model, dash, kind = result.preset.rpartition("-")
    kind = OVERHEAD_KINDS.get(kind, "") if dash else ""
    parts = (model if kind else result.preset, result.recipe, result.pretraining, result.tasks)
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
    mark = mark._replace(difference=100 * of.difference.mean, interval=100 * of.difference.interval)
    return mark._replace(by_seed=by_seed, covered=of.covered)
