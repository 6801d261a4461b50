"""What several trainings say together: intervals over tasks and over seeds, differences, and equivalence.

An interval over tasks says how precisely the accuracy of these trained models is known. Only an interval over seeds
covers another training. So whether two models differ, or are level, is decided over seeds alone.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from scipy.special import stdtrit  # quantiles of Student's t

from csn.engine.evaluate import Accuracy, summarise
from csn.experiments.records.result import Result

Verdict = Literal["differs", "level", ""]


class OverSeeds(NamedTuple):
    """A mean over trainings that differ in their seeds, with its standard error."""

    mean: float
    error: float
    seeds: int

    @property
    def interval(self) -> float:
        """Half-width of the 95 % t interval."""
        return float(stdtrit(self.seeds - 1, 0.975)) * self.error

    @property
    def differs(self) -> bool:
        """Whether the 95 % interval leaves out 0."""
        return abs(self.mean) > self.interval

    def verdict(self, margin: float | None) -> Verdict:
        """The verdict on a difference: "level", "differs", or "" if neither is shown.

        It is level if two one-sided t tests at 5 % find the mean within `margin` of 0 (TOST).
        """
        if margin is not None and abs(self.mean) + float(stdtrit(self.seeds - 1, 0.95)) * self.error < margin:
            return "level"
        return "differs" if self.differs else ""


def over_seeds(values: Sequence[float]) -> OverSeeds | None:
    """The mean and standard error of one number per seed, or None for a single seed."""
    if len(values) < 2:
        return None
    return OverSeeds(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)), len(values))


def by_seed(results: Iterable[Result]) -> list[list[Result]]:
    """Group results of the same tasks that differ only in the seed of their training."""
    together: dict[str, list[Result]] = {}
    for result in results:
        together.setdefault(_all_but_seed(result), []).append(result)
    groups = [same for alike in together.values() for same in _by_fingerprint(alike)]
    for group in groups:
        group.sort(key=lambda result: result.seed)
        for one, other in itertools.pairwise(group):
            if one.seed == other.seed:
                raise ValueError(
                    f"{one.path} and {other.path} are of one training, with seed {one.seed}: keep one of them"
                )
    return groups


def _all_but_seed(result: Result) -> str:
    """The learner, its training and its test tasks as text, without the seed."""
    config, evaluation = result.content["config"], result.content["evaluation"]
    attention = evaluation.get("attention", config["learner"].get("attention", "soft"))
    return json.dumps([result.learner, _tasks_of(result), attention, without_seed(config)], sort_keys=True)


def without_seed(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration that is the same for every seed of a training."""
    return config | {"train": config["train"] | {"seed": None}}


def _by_fingerprint(results: Sequence[Result]) -> list[list[Result]]:
    """Group results by the fingerprint of their data. Files without one join the others if these all agree."""
    prints = dict.fromkeys(result.content["evaluation"].get("fingerprint") for result in results)
    if len(prints.keys() - {None}) < 2:
        return [list(results)]
    return [[each for each in results if each.content["evaluation"].get("fingerprint") == one] for one in prints]


def pooled(seeds: Sequence[Result]) -> Accuracy:
    """The mean of several trainings over tasks and seeds, with its interval over tasks."""
    return seeds[0].accuracy if len(seeds) == 1 else summarise(_task_means(seeds))


def difference(these: Sequence[Result], those: Sequence[Result]) -> Accuracy:
    """How far these results are above those. Differences are taken task by task, so that hard tasks cancel out."""
    if other := other_tasks(these[0], those[0]):
        raise ValueError(
            f"{these[0].path} and {those[0].path} are not of the same tasks ({', '.join(other)}): evaluate both on the "
            f"same ones"
        )
    return summarise([a - b for a, b in zip(_task_means(these), _task_means(those), strict=True)])


def _task_means(seeds: Sequence[Result]) -> list[float]:
    tasks = zip(*(each.content["accuracies"][each.learner] for each in seeds), strict=True)
    return [math.fsum(task) / len(seeds) for task in tasks]


def other_tasks(one: Result, other: Result) -> list[str]:
    """The names of the settings in which the tasks of two results differ. Older files lack some settings."""
    ours, theirs = _tasks_of(one), _tasks_of(other)
    prints = {each.content["evaluation"].get("fingerprint") for each in (one, other)} - {None}
    return [name for name in ours if ours[name] != theirs[name]] + (["fingerprint"] if len(prints) > 1 else [])


def _tasks_of(result: Result) -> dict[str, Any]:
    evaluation = result.content["evaluation"]
    names = ("data", "split", "way", "shot", "queries", "seed", "tasks")
    return {name: evaluation.get(name) for name in names} | {"sampling": result.sampling}
