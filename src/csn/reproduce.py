"""The paper's tables as cells: a training each, and the tests of it. `csn reproduce` trains what has no result yet.

A cell is made by the commands anyone could type, `csn train` and `csn evaluate`; this module knows which, and whether
their result files are there. tables.toml has the rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from csn.build import DATASETS
from csn.config import Config, DataConfig, config_from_json, load_preset, merge, parse_option
from csn.engine.lengthen import LENGTH, lengthened
from csn.engine.naming import has_named, named_alike
from csn.engine.train import check_counts
from csn.results import Result, changes_of, read_result

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ABLATION = "ablation"
BASELINE = "baseline"  # the arm of an ablation that changes nothing
RANDOM_TASKS = {5: 1000, 20: 400}  # tested on, by ways: a larger task has more queries
# Options that a command has words of its own for, or that say how long to train and how often to look.
_WORDS = {"train.seed": "--seeds", "data.name": "--data", "data.way": "--rows", "data.shot": "--rows"}
_STATED = ("train.tasks=", "train.seed=", "data.name=", "data.way=", "data.shot=")
_LENGTH = ("tasks", "validate_every", "validation_tasks")
_SIZE = re.compile(r"(\d+)w(\d+)s")


@dataclass(frozen=True)
class Asked:
    """Tasks of a size, formed in a way."""

    way: int
    shot: int
    formed: str = "random"

    @property
    def tasks(self) -> int | None:
        """How many; None for as many as there are groups of classes."""
        if self.formed == "all-inclusive":
            return None
        return next((tasks for way, tasks in RANDOM_TASKS.items() if self.way <= way), min(RANDOM_TASKS.values()))

    @property
    def suffix(self) -> str:
        """Of a result file's name."""
        return "" if self.formed == "random" else f"-{self.formed}"

    def options(self) -> list[str]:
        """Of `csn evaluate`."""
        how = ["--tasks", str(self.tasks)] if self.tasks else []
        how += [f"--{self.formed}"] if self.formed != "random" else []
        return ["--way", str(self.way), "--shot", str(self.shot), *how]


@dataclass(frozen=True)
class Cell:
    """One training, and what it is tested on. arm: of an ablation; variant: what the user changed."""

    table: str
    config: Config
    changes: tuple[str, ...]
    tests: tuple[Asked, ...]
    arm: str = ""
    variant: str = ""

    @property
    def name(self) -> str:
        """Of its run: data, size, preset, recipe, what sets it apart, seed."""
        return self._name_with(_size(self))

    @property
    def kin(self) -> tuple[str, ...]:
        """What it has in common with its other seeds and arms."""
        data = self.config.data
        return data.name, f"{data.way}w{data.shot}s", self.config.preset, self.config.recipe, self.variant

    def result(self, test: Asked) -> str:
        """The name of a test's result file."""
        return self._name_with(f"{test.way}w{test.shot}s") + test.suffix + ".json"

    def _name_with(self, size: str) -> str:
        parts = [self.config.data.label, size, self.config.preset, self.config.recipe]
        parts += [part.replace(" ", "-") for part in (self.arm, self.variant) if part]
        seed = self.config.train.seed
        return "-".join([*parts, *([f"seed{seed}"] if seed else [])])

    def train_command(self, runs: Path, *, threads: int, resume: bool, named: Cell | None = None) -> list[str]:
        """What trains it, without the program's name. named: a cell that has learned the same names."""
        data, train = self.config.data, self.config.train
        command = ["train", self.config.preset, "--recipe", self.config.recipe, "--data", data.name]
        command += ["--way", str(data.way), "--shot", str(data.shot), "--tasks", str(train.tasks)]
        command += ["--seed", str(train.seed)]
        unsaid = [change for change in self.changes if not change.startswith(_STATED)]
        command += [word for change in unsaid for word in ("--set", change)]
        command += ["--named", str(runs / named.name)] if named else []
        return [*command, "--threads", str(threads), "--out", str(runs / self.name), *(["--resume"] if resume else [])]

    def test_command(self, test: Asked, runs: Path, results: Path, *, threads: int) -> list[str]:
        """What tests it."""
        out = str(results / self.result(test))
        return ["evaluate", str(runs / self.name), *test.options(), "--threads", str(threads), "--out", out]

    def trained_for(self, **length: int) -> Cell:
        """The same with another length of training: tasks, validate_every, validation_tasks."""
        others = (change for change in self.changes if change.partition("=")[0] not in {f"train.{n}" for n in length})
        changes = (*others, *(f"train.{name}={value}" for name, value in length.items()))
        return dataclasses.replace(self, config=merge(self.config, {"train": length}), changes=changes)

    def begun(self, runs: Path) -> Cell | None:
        """The same with the length of its run, where one has begun: a run goes on with the options it began with."""
        path = runs / self.name / "config.json"
        if not path.exists():
            return None
        try:
            config = config_from_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}): remove {path.parent} to train it anew") from error
        if _without_length(config) != _without_length(self.config):
            raise ValueError(f"{path.parent} is a run of other options: remove it, or give other --runs")
        return self.as_long_as(config)

    def trained_on(self, asked: Cell, changes: Sequence[str]) -> Cell:
        """This begun cell with the length that was asked for by `changes`, if that is more tasks; else as it is."""
        named = [change.partition("=")[0].strip() for change in changes]
        tasks, wanted = self.config.train.tasks, asked.config
        if "train.tasks" not in named or wanted.train.tasks <= tasks:
            return self
        if lengthened(self.config, wanted) == self.config:
            raise ValueError(
                f"{self.name} began with {tasks:,} tasks and cannot go on to {wanted.train.tasks:,}, for its rate "
                f"falls towards its end or its last step was a smaller one: remove its run to train it anew, or leave "
                f"out --set train.tasks"
            )
        length = [name for name in LENGTH if f"train.{name}" in named]
        return self.trained_for(**{name: getattr(wanted.train, name) for name in length})

    def tested(self, results: Path) -> Cell | None:
        """The same with the length of the training that one of its result files is of, where there is one."""
        of_files = (self._trained_by(results / self.result(test), test) for test in self.tests)
        found = next((config for config in of_files if config is not None), None)
        return None if found is None else self.as_long_as(found)

    def as_long_as(self, other: Config) -> Cell:
        """The same with the length of another training."""
        return self.trained_for(**{name: getattr(other.train, name) for name in _LENGTH})

    def missing(self, results: Path, *, again: bool = False) -> list[Asked]:
        """Tests without a result file of this configuration. again: where one cannot be read, it is made anew.

        How long to train is a matter of the budget: a result of as many options counts, whatever its training tasks.
        """
        missing = []
        for test in self.tests:
            try:
                found = self._trained_by(results / self.result(test), test)
            except ValueError:
                if not again:
                    raise
                found = None
            missing += [test] if found is None else []
        return missing

    def _trained_by(self, path: Path, test: Asked) -> Config | None:
        """What made a result file, if it is one of this configuration, whatever its length, and of this test."""
        if not path.exists():
            return None
        content = read_result(path)
        try:
            config = config_from_json(json.dumps(content["config"]))
        except ValueError:  # an option that no longer exists
            return None
        asked = content["evaluation"]
        same_test = (asked["way"], asked["shot"], asked.get("formed", "random")) == dataclasses.astuple(test)
        same_test &= test.tasks in (None, asked["tasks"]) and asked.get("split", "test") == "test"
        same_test &= asked.get("attention", config.model.attention) == config.model.attention
        return config if same_test and _without_length(config) == _without_length(self.config) else None


def tables() -> dict[str, list[dict[str, Any]]]:
    """The rows of every table."""
    return tomllib.loads((resources.files("csn") / "tables.toml").read_text(encoding="utf-8"))


def plan(
    table: str,
    *,
    rows: Sequence[str] = (),
    seeds: int = 1,
    data: str | None = None,
    changes: Sequence[str] = (),
) -> list[Cell]:
    """The cells of a table. rows: only these presets, recipes, sizes, arms or cells; seeds: trainings of each; data: in
    place of the table's own, for rows that have no other data of their own."""
    known = tables()
    if table not in known:
        raise ValueError(f"there is no table {table!r}: choose one of {', '.join([*known, 'timing'])}")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    if data is not None and data not in DATASETS and (label := DataConfig(data).label) in {*DATASETS, *known}:
        raise ValueError(f"results of {data} would have the names of those of {label} and replace them: rename it")
    changes = _in_one_form(changes)
    for change in changes:
        if word := _WORDS.get(change.partition("=")[0]):
            raise ValueError(f"--set {change} would change what the table is of: use {word}")
    cells = [cell for row in known[table] if not data or "data" not in row for cell in _cells(table, row, changes)]
    if not cells:
        raise ValueError(f"every row of {table} has data of its own: leave out --data")
    cells = [_seeded(cell, seed, data) for cell in cells for seed in range(seeds)]
    labels = {cell.name: _labels(cell) for cell in cells}
    unknown = [row for row in rows if not any(row in found for found in labels.values())]
    if unknown:
        names = sorted({label for found in labels.values() for label in found})
        raise ValueError(f"{table} has no row {', '.join(map(repr, unknown))}: there are {', '.join(names)}")
    kinds = [set(rows) & kind for kind in _kinds(cells)]
    chosen = [cell for cell in cells if all(not kind or kind & labels[cell.name] for kind in kinds)]
    if not chosen:
        raise ValueError(f"no cell of {table} is all of {', '.join(rows)}: `--dry-run` without --rows lists the cells")
    return chosen


def named_by(cell: Cell, others: Iterable[Cell], runs: Path) -> Cell | None:
    """Another cell whose network has learned the names that this one's would learn: once is enough for a table."""
    for other in others if cell.config.naming.epochs else ():
        if other.name != cell.name and has_named(runs / other.name):
            with contextlib.suppress(OSError, ValueError):  # what it was trained by, not what is planned
                path = runs / other.name / "config.json"
                if named_alike(cell.config, config_from_json(path.read_text(encoding="utf-8"))):
                    return other
    return None


def arm(result: Result) -> str:
    """The name of a result among the arms of an ablation; of one that the plan does not have, what it changes."""
    return _arms().get(_change(result), "") or ", ".join(_change(result)[2:]) or BASELINE


def in_order(arms: Iterable[Result]) -> list[Result]:
    """Results of ablations as the plan has them, any others after those."""
    order = list(_arms())
    place = {change: number for number, change in enumerate(order)}
    return sorted(arms, key=lambda result: (result.naming, place.get(_change(result), len(order))))


@functools.cache
def _arms() -> dict[tuple[str, ...], str]:
    """The arms of all ablations, by preset, recipe and what they change in the model."""
    cells = plan(ABLATION)
    changes = (changes_of(dataclasses.asdict(cell.config)) for cell in cells)
    return {
        (cell.config.preset, cell.config.recipe, *change): cell.arm for cell, change in zip(cells, changes, strict=True)
    }


def _change(result: Result) -> tuple[str, ...]:
    return result.preset, result.recipe, *changes_of(result.content["config"])


def _in_one_form(changes: Sequence[str]) -> list[str]:
    """Options without spaces around "=", each once and in order: the same ones always make the same cell."""
    last = {}
    for change in changes:
        parse_option(change)  # refuses what is none
        name, _, value = change.partition("=")
        last[name.strip()] = value.strip()
    return [f"{name}={value}" for name, value in sorted(last.items())]


def _cells(table: str, row: dict[str, Any], changes: Sequence[str]) -> Iterable[Cell]:
    """A cell for every preset, recipe and arm of a row and every size that it is trained on."""
    arms = row.get("arms", {"": []}).items()
    for preset, recipe, (arm, own), size in itertools.product(row["presets"], row["recipes"], arms, row["tasks"]):
        way, shot = _read_size(size)
        config = merge(load_preset(preset, recipe), {"data": {"way": way, "shot": shot}})
        config = merge(config, {"data": {"name": row.get("data", table)}})
        all_changes = (*own, *row.get("set", ()), *changes)
        for change in all_changes:
            config = merge(config, parse_option(change))
        check_counts(config.train)
        tests = tuple(
            Asked(*_read_size(asked), formed)
            for asked in row.get("tested", {}).get(size, [size])
            for formed in row.get("formed", ["random"])
        )
        # A training with other options is another cell: it must not take the place of the table's own.
        others = [
            change for change in changes if not change.startswith((*_STATED, *(f"train.{name}=" for name in _LENGTH)))
        ]
        variant = " ".join(change.removeprefix("model.") for change in others)
        yield Cell(table, config, all_changes, tests, arm, variant)


def _seeded(cell: Cell, seed: int, data: str | None) -> Cell:
    config = merge(cell.config, {"train": {"seed": seed}, "data": {} if data is None else {"name": data}})
    return dataclasses.replace(cell, config=config)


def _kinds(cells: Iterable[Cell]) -> list[set[str]]:
    """Labels by kind: cells are chosen by any of one kind, and by all kinds that were named."""
    presets, recipes, sizes, others = set(), set(), set(), set()
    for cell in cells:
        presets.add(cell.config.preset)
        recipes.add(cell.config.recipe)
        sizes.add(_size(cell))
        others |= _labels(cell)
    return [presets, recipes, sizes, others - presets - recipes - sizes]


def _labels(cell: Cell) -> set[str]:
    """What a cell can be called in --rows; its name without the seed is that of all its seeds."""
    names = {cell.name, cell.name.removesuffix(f"-seed{cell.config.train.seed}")}
    return {cell.config.preset, cell.config.recipe, _size(cell), *names, *([cell.arm] if cell.arm else [])}


def _size(cell: Cell) -> str:
    return f"{cell.config.data.way}w{cell.config.data.shot}s"


def _read_size(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text)
    assert match is not None, text
    return int(match[1]), int(match[2])


def _without_length(config: Config) -> Config:
    """A configuration regardless of how long it trains and how often it looks."""
    return merge(config, {"train": dict.fromkeys(_LENGTH, 1)})
