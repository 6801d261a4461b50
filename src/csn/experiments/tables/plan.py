"""The paper's tables as cells: tables.toml has the rows. `csn reproduce` trains what has no result yet."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from csn.config import Config, DataConfig, load_preset, merge, parse_option
from csn.data.registry import DATASETS, data_entry
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.optimizing import check_counts
from csn.experiments.records.files import results_in
from csn.experiments.records.result import option_label
from csn.experiments.tables.cells import LENGTH, STATED, Cell, EvaluationTasks
from csn.presets import read_toml

ABLATION = "ablation"
# Options for which the command has its own flags.
_WORDS = {"train.seed": "--seeds", "data.name": "--data", "data.way": "--rows", "data.shot": "--rows"}
_SIZE = re.compile(r"(\d+)w(\d+)s")
_SEED = re.compile(r"(?P<name>.+)-seed(?P<seed>\d+)")


@functools.cache
def _all() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("tables.toml"))


def tables() -> dict[str, list[dict[str, Any]]]:
    """The rows of every table."""
    return {name: rows for name, rows in _all().items() if isinstance(rows, list)}


def margin_of(data: str) -> float | None:
    """The margin within which two models are level on a data set, as a fraction; None if no margin is stated."""
    points = _all()["margins"].get(data)
    return None if points is None else points / 100


def plan(
    table: str,
    *,
    rows: Sequence[str] = (),
    seeds: int | None = None,
    data: str | None = None,
    changes: Sequence[str] = (),
) -> list[Cell]:
    """The cells of a table.

    Args:
        table: The name of the table.
        rows: Only these presets, recipes, sizes, arms, cells or result files.
        seeds: Trainings of each cell; by default as many as its row says.
        data: Another data set instead of the table's, for rows without their own data and rows that take any data.
        changes: Options that are changed in every cell.
    """
    known = tables()
    if table not in known:
        raise ValueError(
            f"there is no table {table!r}: choose one of {', '.join(known)}; what a task costs (appendix B) is "
            f"measured by python benchmarks/timing.py"
        )
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    if data is not None and data not in DATASETS and (label := DataConfig(data).label) in {*DATASETS, *known}:
        raise ValueError(f"results of {data} would have the names of those of {label} and replace them: rename it")
    changes = _in_one_form(changes)
    for change in changes:
        if word := _WORDS.get(change.partition("=")[0]):
            raise ValueError(f"--set {change} would change what the table is of: use {word}")
    usable = [row for row in known[table] if data is None or "data" not in row or row.get("any_data")]
    cells = [cell for row in usable for cell in _cells(table, row, changes)]
    if not cells:
        raise ValueError(f"every row of {table} has data of its own: leave out --data")
    if data is not None:
        cells = _that_read(cells, data)
    cells = [_seeded(cell, seed, data) for cell in cells for seed in range(seeds or cell.seeds)]
    labels = [_labels(cell) for cell in cells]
    named = {row: Path(row).name.removesuffix(".json") for row in rows}  # of a result file, its cell
    rows = list(named.values())
    unknown = {row: name for row, name in named.items() if not any(name in set().union(*kinds) for kinds in labels)}
    if unknown:
        raise ValueError(f"{table} has no row {', '.join(map(repr, unknown.values()))}: {_known(cells, unknown)}")
    asked = [set(rows) & set().union(*kind) for kind in zip(*labels, strict=True)]
    chosen = [
        cell
        for cell, kinds in zip(cells, labels, strict=True)
        if all(not wanted or wanted & kind for wanted, kind in zip(asked, kinds, strict=True))
    ]
    if not chosen:
        raise ValueError(f"no cell of {table} is all of {', '.join(rows)}: `--dry-run` without --rows lists the cells")
    if problem := next((f"{cell.name}: {cell.problem}" for cell in chosen if cell.problem), ""):
        raise ValueError(f"{problem}; or choose the rows that have it with --rows")
    return chosen


def _that_read(cells: Sequence[Cell], data: str) -> list[Cell]:
    """The cells whose networks read this kind of data, or a ValueError if none does."""
    kind, is_text = ("sentences", True) if data_entry(data).text is not None else ("images", False)
    found = [cell for cell in cells if cell.config.reads_sentences == is_text]
    if not found:
        raise ValueError(f"{data} is of {kind}, which no row of {cells[0].table} reads: give other --data")
    return found


def _known(cells: Sequence[Cell], unknown: Mapping[str, str]) -> str:
    """What --rows may name, in words.

    For a cell with a larger seed, it says which --seeds includes it. For a result file with other data or options, it
    says which command made it.
    """
    for match in filter(None, map(_SEED.fullmatch, unknown.values())):
        if any(match["name"] in kind for cell in cells for kind in _labels(cell)):
            return f"give --seeds {int(match['seed']) + 1} for that seed"
    for path in filter(Path.is_file, map(Path, unknown)):
        for result in results_in(path)[:1]:
            command = result.content["trained"]["command"]
            return f"give the data, options and seed that are its own (--data, --set, --seeds); it is of `{command}`"
    names = sorted(set().union(*({*itertools.chain(*_labels(cell)[:3]), cell.arm} for cell in cells)) - {""})
    return f"there are {', '.join(names)}, and the names of cells (`--dry-run` lists them) and of their result files"


def _in_one_form(changes: Sequence[str]) -> list[str]:
    """Options without spaces around "=", sorted and without repetitions, so that equal options give equal cells."""
    last = {}
    for change in changes:
        parse_option(change)  # refuses what is none
        name, _, value = change.partition("=")
        last[name.strip()] = value.strip()
    return [f"{name}={value}" for name, value in sorted(last.items())]


def _cells(table: str, row: dict[str, Any], changes: Sequence[str]) -> Iterable[Cell]:
    """A cell for every preset, recipe, arm and training size of a row."""
    arms = row.get("arms", {"": []}).items()
    for preset, recipe, (arm, own), size in itertools.product(row["presets"], row["recipes"], arms, row["tasks"]):
        way, shot = _read_size(size)
        config = merge(load_preset(preset, recipe), {"data": {"way": way, "shot": shot}})
        config = merge(config, {"data": {"name": row.get("data", table)}})
        fixed = (*own, *row.get("set", ()))
        config = functools.reduce(merge, map(parse_option, fixed), config)
        variant, problem = "", ""
        try:
            variant = _variant(config, changes)
            config = functools.reduce(merge, map(parse_option, changes), config)
        except ValueError as error:  # an option that another row may have
            problem = str(error)
        check_counts(config.train)
        tests = tuple(
            EvaluationTasks(*_read_size(tested_size), sampling, seed)
            for tested_size in row.get("tested", {}).get(size, [size])
            for sampling in row.get("sampling", ["random"])
            for seed in row.get("task_seeds", [EVALUATION_SEED])
        )
        length = {name: row[name] for name in ("minutes", "seeds") if name in row}
        yield Cell(table, config, (*fixed, *changes), tests, arm, variant, problem, **length)


def _variant(config: Config, changes: Sequence[str]) -> str:
    """The part of a cell's name for changed options, so that it does not replace the table's own cell.

    The length of training does not count, and an option that changes nothing does not count either.
    """
    names = []
    for change in changes:
        changed = merge(config, parse_option(change))
        section, _, name = change.partition("=")[0].partition(".")
        if changed != config and not change.startswith((*STATED, *(f"train.{length}=" for length in LENGTH))):
            value = changed.as_dict()[section][name]
            shown = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            label = option_label(section, name) if section in ("learner", "network") else f"{section}.{name}"
            names.append(f"{label}={shown}")
    return " ".join(names)


def _seeded(cell: Cell, seed: int, data: str | None) -> Cell:
    config = merge(cell.config, {"train": {"seed": seed}, "data": {} if data is None else {"name": data}})
    return dataclasses.replace(cell, config=config)


def _labels(cell: Cell) -> tuple[set[str], ...]:
    """The names of a cell in --rows, by kind: its preset, its recipe, sizes of tasks, and others.

    A cell is chosen if it has one of the named labels of every named kind. A name without the seed stands for all
    seeds, and so do result files.
    """
    own = dataclasses.replace(cell, variant="")  # of changed options too, the table's own name
    called = [_seeded(each, seed, None) for each in (cell, own) for seed in (cell.config.train.seed, 0)]
    files = {Path(each.result(test)).stem for each in called for test in cell.tests}
    sizes = {cell.size, *(test.size for test in cell.tests)}
    others = {*(each.name for each in called), *files, *([cell.arm] if cell.arm else [])}
    return {cell.config.preset}, {cell.config.recipe}, sizes, others


def _read_size(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text)
    assert match is not None, text
    return int(match[1]), int(match[2])
