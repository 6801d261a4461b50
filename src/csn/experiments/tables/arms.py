"""Arms of an ablation and their baselines. A baseline equals its arm except for what the arm changes.

Tables, pictures and numbers of ablations all take their differences from here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from csn.engine.evaluate import Accuracy
from csn.experiments.records.published import published, size_in_names
from csn.experiments.records.result import Result, changed_options
from csn.experiments.records.statistics import (
    OverSeeds,
    Verdict,
    by_seed,
    difference,
    other_tasks,
    over_seeds,
    without_seed,
)
from csn.experiments.tables.plan import ABLATION, margin_of, plan

BASELINE = "baseline"  # the arm of an ablation that changes nothing


class Arm(NamedTuple):
    """The trainings of an arm, one per seed, and their differences to the baseline of the same seeds.

    There is a difference of all seeds together (None without a baseline), and one for each seed of the baseline.
    """

    seeds: Sequence[Result]
    difference: Accuracy | None
    by_seed: Mapping[int, Accuracy]

    @property
    def over_seeds(self) -> OverSeeds | None:
        """The difference over seeds, or None for a single seed."""
        return over_seeds([each.mean for each in self.by_seed.values()])

    @property
    def interval(self) -> float:
        """The interval of its difference, over seeds if there are several, else over tasks."""
        assert self.difference is not None
        return self.difference.interval if self.over_seeds is None else self.over_seeds.interval

    @property
    def verdict(self) -> Verdict:
        """Whether the arm differs from its baseline or is level with it over seeds; "" if neither is shown."""
        over = self.over_seeds
        return over.verdict(margin_of(self.seeds[0].data)) if over is not None else ""

    @property
    def covered(self) -> str:
        """How many of its seeds have a baseline, if some have none; else ""."""
        return "" if len(self.by_seed) == len(self.seeds) else f"{len(self.by_seed)} of {len(self.seeds)} seeds"

    @property
    def paper(self) -> str:
        """How far the paper's arm is above its baseline, in points or in the paper's words.

        It is "" if the data or the recipe are not the paper's.
        """
        result = self.seeds[0]
        config = result.config
        others = result.data != config.data.name or config.recipe != "paper" or result.pretraining
        if others or not result.read_as_trained:
            return ""
        cells = published().get(result.data, {}).get(config.preset, {})
        size = size_in_names(result.size, result.sampling)
        said = cells.get(f"{size} {'; '.join(result.changes)}", "")
        try:
            return f"{float(said) - float(cells[size].split(' ± ')[0]):+.2f}"
        except ValueError:  # words
            return said


def arms_of(rows: Iterable[Result]) -> list[Arm]:
    """The results of an ablation as arms, in their order. Differences are taken task by task."""
    arms = by_seed(rows)
    return [_against(seeds, _baseline_of(seeds[0], arms)) for seeds in arms]


def _against(seeds: Sequence[Result], baseline: Sequence[Result]) -> Arm:
    shared = {each.seed for each in seeds} & {each.seed for each in baseline}
    ours, theirs = ([each for each in group if each.seed in shared] for group in (seeds, baseline))
    single = {one.seed: difference([one], [other]) for one, other in zip(ours, theirs, strict=True)}
    return Arm(seeds, difference(ours, theirs) if shared else None, single)


def _baseline_of(result: Result, arms: Sequence[list[Result]]) -> list[Result]:
    """The trainings that equal an arm except for the arm's own options, and have the same test tasks.

    The arm's own options are those that the plan gives it; other changes may be common to all arms. If the plan lacks
    the arm, all of its changes are its own.
    """
    config = result.content["config"]
    changed = changed_options(result.config)
    model = result.config.preset, result.config.recipe
    planned = [set(change[2:]) for change in _arms() if change[:2] == model]
    nearest = max((own for own in planned if own <= changed.keys()), key=len, default=set[str]())
    common = set.intersection(*planned) if planned else set[str]()
    for own in (nearest - common, changed.keys()):
        wanted = {name: dict(part) if isinstance(part, dict) else part for name, part in config.items()}
        for section, name, its in (changed[change] for change in own):
            wanted[section] = wanted[section] | {name: its} if name else its
        for other in arms if own and result.read_as_trained else ():
            same = without_seed(other[0].content["config"]) == without_seed(wanted)
            if same and other[0].read_as_trained and not other_tasks(result, other[0]):
                return other
    return []


def arm(result: Result) -> str:
    """The name of a result's arm, or the options that it changes if the plan has no such arm."""
    return _arms().get(_change(result), "") or ", ".join(_change(result)[2:]) or BASELINE


def in_order(arms: Iterable[Result]) -> list[Result]:
    """Results of ablations in the order of the plan, followed by any others."""
    order = list(_arms())
    place = {change: number for number, change in enumerate(order)}
    return sorted(arms, key=lambda result: (result.pretraining, place.get(_change(result), len(order))))


@functools.cache
def _arms() -> dict[tuple[str, ...], str]:
    """The arms of all ablations, by preset, recipe and the options that they change."""
    planned = ((cell.config, cell.arm) for cell in plan(ABLATION))
    return {(config.preset, config.recipe, *changed_options(config)): arm for config, arm in planned}


def _change(result: Result) -> tuple[str, ...]:
    return result.config.preset, result.config.recipe, *result.changes
