"""A cell of a table: one training and its tests, and whether their result files exist."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csn.config import Config, DataConfig, config_from_json, merge
from csn.data.registry import data_entry
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.lengthen import LENGTH as LENGTHENED
from csn.engine.lengthen import config_in, lengthened
from csn.experiments.records.files import read_result
from csn.experiments.records.protocol import QUERIES

RANDOM_TASKS = {5: 1000, 20: 400}  # test tasks by way: a larger task has more queries
# Options for which the command of a training has its own flags, and options of the length of training and validation.
STATED = ("train.tasks=", "train.seed=", "data.name=", "data.way=", "data.shot=")
LENGTH = ("tasks", "validate_every", "validation_tasks")
STUDIES = ("ablation", "equal-budgets")  # tables of several data sets


@dataclass(frozen=True)
class EvaluationTasks:
    """Test tasks: their size and how they are drawn."""

    way: int
    shot: int
    sampling: str = "random"
    seed: int = EVALUATION_SEED

    @property
    def tasks(self) -> int | None:
        """The number of tasks; None for one per group of classes."""
        if self.sampling == "all-inclusive":
            return None
        return next((tasks for way, tasks in RANDOM_TASKS.items() if self.way <= way), min(RANDOM_TASKS.values()))

    @property
    def suffix(self) -> str:
        """The part of a result file's name that says how the tasks are drawn."""
        other_tasks = "" if self.seed == EVALUATION_SEED else f"-tasks{self.seed}"
        return ("" if self.sampling == "random" else f"-{self.sampling}") + other_tasks

    @property
    def size(self) -> str:
        """The size as names have it: 5w1s."""
        return f"{self.way}w{self.shot}s"


@dataclass(frozen=True)
class Cell:
    """One training and its test tasks.

    arm: the name of its arm, if it belongs to an ablation.
    variant: the options that the user changed.
    problem: why the user's changes do not fit this cell; "" if they do.
    minutes: minutes of training instead of a number of tasks; 0 for none.
    seeds: how many trainings its row asks for.
    """

    table: str
    config: Config
    changes: tuple[str, ...]
    tests: tuple[EvaluationTasks, ...]
    arm: str = ""
    variant: str = ""
    problem: str = ""
    minutes: float = 0
    seeds: int = 1

    @property
    def name(self) -> str:
        """The name of its run: data, size, preset, recipe, differences and seed."""
        return self._name_with(self.size)

    @property
    def size(self) -> str:
        """The size of its training tasks, as in 5w1s."""
        return f"{self.config.data.way}w{self.config.data.shot}s"

    @property
    def model_key(self) -> tuple[str, ...]:
        """What cells of the same model share, whatever their seed and arm."""
        return self.config.data.name, self.size, self.config.preset, self.config.recipe, self.variant

    def result(self, test: EvaluationTasks) -> str:
        """A test's result file, below the folder of all results."""
        return f"{self.folder}/{self._name_with(test.size)}{test.suffix}.json"

    @property
    def folder(self) -> str:
        """The folder of its result files. It is named after the training data, or after a study of several."""
        return self.table if self.table in STUDIES else self.config.data.label

    def _name_with(self, size: str) -> str:
        parts = [self.config.data.label, size, self.config.preset, self.config.recipe]
        parts += [part.replace(" ", "-") for part in (self.arm, self.variant) if part]
        seed = self.config.train.seed
        return "-".join([*parts, *([f"seed{seed}"] if seed else [])])

    def trained_for(self, **length: int) -> Cell:
        """This cell with another length of training: tasks, validate_every, validation_tasks."""
        others = (change for change in self.changes if change.partition("=")[0] not in {f"train.{n}" for n in length})
        changes = (*others, *(f"train.{name}={value}" for name, value in length.items()))
        return dataclasses.replace(self, config=merge(self.config, {"train": length}), changes=changes)

    def with_length_of_run(self, runs: Path) -> Cell | None:
        """This cell with the length of its run, or None if no run has begun. A run keeps the options it began with."""
        folder = runs / self.name
        try:
            config = config_in(folder)
        except ValueError as error:
            file = folder / "config.json"
            raise ValueError(f"{file} cannot be read ({error}): remove {folder} to train again") from error
        if config is None:
            return None
        if other := _other_options(config, self.config):
            raise ValueError(
                f"{folder} is a run of other options ({'; '.join(other)}): remove it, or give other --runs"
            )
        return self.as_long_as(config)

    def lengthened_as(self, longer: Cell, changes: Sequence[str]) -> Cell:
        """This cell, whose run has begun, with the length that `changes` ask for if it is longer; else unchanged."""
        named = changed_names(changes)
        tasks, wanted = self.config.train.tasks, longer.config
        if "train.tasks" not in named or wanted.train.tasks <= tasks:
            return self
        if lengthened(self.config, wanted) == self.config:
            raise ValueError(
                f"{self.name} began with {tasks:,} tasks and cannot go on to {wanted.train.tasks:,}, because its "
                f"learning rate falls towards its end or its last step was smaller: remove its run to train again, or "
                f"leave out --set train.tasks"
            )
        length = [name for name in LENGTHENED if f"train.{name}" in named]
        return self.trained_for(**{name: getattr(wanted.train, name) for name in length})

    def with_length_of_result(self, results: Path) -> Cell | None:
        """This cell with the training length recorded in its result file, or None if there is no file."""
        of_files = (self._trained_by(results / self.result(test), test) for test in self.tests)
        found = next((config for config in of_files if config is not None), None)
        return None if found is None else self.as_long_as(found)

    def as_long_as(self, other: Config, named: Sequence[str] = ()) -> Cell:
        """This cell with the length of another training. Options in `named` stay, because the user asked for them."""
        lengths = {name: getattr(other.train, name) for name in LENGTH if f"train.{name}" not in named}
        as_it_is = all(getattr(self.config.train, name) == value for name, value in lengths.items())
        return self if as_it_is else self.trained_for(**lengths)

    def missing(self, results: Path, *, again: bool = False) -> list[EvaluationTasks]:
        """The tests that have no result file yet.

        A result of the same options counts, however long it trained, because the length depends on the budget. A file
        with other contents is refused, so that it is not lost, or counts as missing if the test is done `again`.
        """
        missing, problems = [], []
        for test in self.tests:
            try:
                missing += [test] if self._trained_by(results / self.result(test), test) is None else []
            except ValueError as error:
                problems.append(str(error))
                missing.append(test)
        if problems and not again:
            raise ValueError("\n".join(problems))
        return missing

    def _trained_by(self, path: Path, test: EvaluationTasks) -> Config | None:
        """The configuration in a result file of this cell and test, of any length, or None if there is no file."""
        if not path.exists():
            return None
        remedy = "move or rename it, or replace it with --again"
        content = read_result(path, remedy)
        if "summary" not in content:
            raise ValueError(f"{path} is no result of csn evaluate: {remedy}")
        try:
            config = config_from_json(json.dumps(content["config"]))
        except ValueError as error:
            raise ValueError(f"{path} is of another version of csn ({error}): {remedy}") from error
        if other := _other_options(config, self.config):
            raise ValueError(f"{path} is of other options ({'; '.join(other)}): {remedy}")
        if other := _other_tasks(content["evaluation"], config, test):
            raise ValueError(f"{path} is of another test ({'; '.join(other)}): {remedy}")
        return config


def changed_names(changes: Iterable[str]) -> list[str]:
    """The names of options such as train.tasks=8."""
    return [change.partition("=")[0].strip() for change in changes]


def _other_options(its: Config, own: Config) -> list[str]:
    """How one training differs from another, except in its length: ["tasks_per_step=4, here 1"]."""
    options = [
        {
            f"{section}.{name}" if section in ("data", "pretrain", "key") or name == "name" else name: value
            for section, values in merge(config, {"train": dict.fromkeys(LENGTH, 1)}).as_dict().items()
            for name, value in (values.items() if isinstance(values, dict) else [(section, values)])
        }
        for config in (its, own)
    ]
    return _otherwise(*options)


def _other_tasks(evaluation: dict[str, Any], config: Config, test: EvaluationTasks) -> list[str]:
    """How the tasks of a result differ from those of a test.

    Older files do not say everything, and fingerprints are not compared because the data are not loaded.
    """
    wanted = {"data": config.data.label, "split": "test", "way": test.way, "shot": test.shot, "sampling": test.sampling}
    wanted |= {} if test.tasks is None else {"tasks": test.tasks}
    wanted |= {"queries": queries_of(config), "seed": test.seed, "attention": config.learner.attention}
    its = {"sampling": "random"} | evaluation
    # Data by a path are called after it, with or without what follows a dot.
    return _otherwise(its | {"data": DataConfig(its["data"]).label}, wanted)


def queries_of(config: Config) -> int:
    """Queries per class of a test task."""
    return QUERIES["images" if data_entry(config.data.name).text is None else "sentences"]


def _otherwise(its: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """The names with different values. A missing name counts as equal."""
    return [f"{name}={its[name]}, here {value}" for name, value in own.items() if its.get(name, value) != value]
