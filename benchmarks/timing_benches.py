"""Benches: learners side by side on random tasks of one shape, and the points at which their growth is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from csn.building import build_learner
from csn.config import Config, load_preset, merge
from csn.core.model import CSN
from csn.engine.machine import keep_freed_memory
from csn.engine.steps import Step, inference_step, training_step
from csn.episode import Episode
from csn.experiments.timing.floor import floor_of, randomise_output
from csn.learner import InputSpec
from random_tasks import IMAGE, SENTENCE_TASKS, VOCABULARY, WORDS, Peak, peak_of, random_episode, random_sentences

FLOOR = "floor"
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
PHASES = {"train": training_step, "inference": inference_step}
SMALL = {"filters": 4, "units": 8, "embedding": 8}
GRADIENT, DIRECT_FEEDBACK = "adalstm-2-gradient", "adalstm-2-df"


@dataclass(frozen=True)
class Bench:
    """Presets of one recipe, each built for `way` classes, and the random tasks that all of them get.

    floor: the preset of the CSN whose two networks, without adaptation, are the floor. tasks: tasks of a step. words:
    words of a sentence, or None if examples are images. image: channels, height and width. filters: filters of every
    network, or None for those of the presets. small: tiny networks, to try a measurement.
    """

    presets: tuple[str, ...]
    floor: str
    recipe: str
    way: int = 5
    shot: int = 1
    tasks: int = 1
    words: int | None = None
    image: tuple[int, int, int] = IMAGE
    filters: int | None = None
    small: bool = False

    @property
    def contenders(self) -> tuple[str, ...]:
        """The learners, the floor first."""
        return (FLOOR, *self.presets)

    def config(self, name: str) -> Config:
        """The configuration of a contender."""
        config = merge(load_preset(self.floor if name == FLOOR else name, self.recipe), {"data": {"way": self.way}})
        if self.filters is not None:
            config = _resized(config, {"filters": self.filters})
        return _resized(config, SMALL) if self.small else config

    def learner(self, name: str) -> nn.Module:
        """A contender, the same each time."""
        spec = InputSpec(self.image) if self.words is None else InputSpec((self.words,), VOCABULARY)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            learner = build_learner(self.config(name), spec)
            if not isinstance(learner, CSN):
                return learner
            if name == FLOOR:
                return floor_of(learner)
            randomise_output(learner)
            return learner

    def episode(self) -> Episode:
        """The tasks of a step."""
        if self.words is None:
            return random_episode(self.way, self.shot, self.image, self.tasks)
        return random_sentences(self.way, self.shot, self.words, self.tasks)

    def step(self, name: str, phase: str) -> Step:
        """The timed work: a whole training step, or description and prediction."""
        return PHASES[phase](self.learner(name), self.episode())


@dataclass(frozen=True)
class Axis:
    """A field of a bench that grows from point to point."""

    name: str
    field: str
    points: tuple[int, ...]
    bench: Bench

    def at(self, point: int) -> Bench:
        """The bench at a point."""
        return replace(self.bench, **{self.field: point})  # type: ignore[arg-type]


def _resized(config: Config, sizes: Mapping[str, int]) -> Config:
    """The same parts with other sizes, if a part has an option of that name."""
    changes = {
        part: {name: size for name, size in sizes.items() if name in options}
        for part, options in config.as_dict().items()
        if part in ("learner", "network") and options is not None
    }
    return merge(config, changes)


IMAGES = Bench(
    ("metanet", "maml", "adacnn-gradient", "adacnn-df", "matching", "prototypical"), floor="adacnn-df", recipe="plus"
)
# The paper's recipe, because its ratio is compared with ours.
SENTENCES = Bench((GRADIENT, DIRECT_FEEDBACK), floor=DIRECT_FEEDBACK, recipe="paper", tasks=SENTENCE_TASKS, words=WORDS)
BENCHES = {"images": IMAGES, "sentences": SENTENCES}

_GROWING = replace(IMAGES, presets=("maml", "adacnn-gradient", "adacnn-df", "prototypical"))
_SHORT = replace(SENTENCES, presets=("adalstm-1-gradient", "adalstm-1-df"), floor="adalstm-1-df")
AXES = (
    Axis("ways", "way", (5, 10, 20), _GROWING),
    Axis("shots", "shot", (1, 5, 10), _GROWING),
    Axis("tasks a step", "tasks", (1, 4, 16), _GROWING),
    Axis("words of a sentence", "words", (10, 20, 40), _SHORT),
)


def image_bench(*, channels: int, side: int, filters: int | None, recipe: str) -> Bench:
    """The learners of IMAGES on other images, with another width.

    Args:
        channels: Channels of an image.
        side: Pixels of its height and width.
        filters: Filters of every network, or None for those of the presets.
        recipe: The recipe of every preset.
    """
    if channels < 1 or side < 1 or (filters is not None and filters < 1):
        raise ValueError(f"sizes are 1 or more, got {channels} channels, {side} pixels and {filters} filters")
    return replace(IMAGES, image=(channels, side, side), filters=filters, recipe=recipe)


def quick_bench(bench: Bench) -> Bench:
    """Tiny networks."""
    return replace(bench, small=True)


def quick_axes() -> tuple[Axis, ...]:
    """One axis of images and that of sentences, two points each, and of the presets the one whose floor it is."""
    return tuple(
        replace(axis, points=axis.points[:2], bench=replace(axis.bench, presets=(axis.bench.floor,), small=True))
        for axis in (AXES[0], AXES[-1])
    )


@dataclass(frozen=True)
class Plan:
    """What is measured, and how.

    benches: by name. axes: of growth. repeats: interleaved. threads: of torch. clock: a name in CLOCKS. quick: tiny
    networks, and the memory of the floor alone, to see that it works.
    """

    benches: Mapping[str, Bench] = field(default_factory=lambda: BENCHES)
    axes: Sequence[Axis] = AXES
    repeats: int = 11
    threads: int = 1
    clock: str = "wall"
    quick: bool = False

    def __post_init__(self) -> None:
        if self.repeats < 3:
            raise ValueError(f"quartiles need 3 repeats or more, got {self.repeats}: 11 or more are worth reading")
        if self.threads < 1:
            raise ValueError(f"a measurement needs 1 thread or more, got {self.threads}")
        if self.clock == "processor" and self.threads > 1:
            raise ValueError(
                f"processor time adds up what threads spend in turns: leave out --threads, got {self.threads}"
            )

    def made_quick(self) -> Plan:
        """Tiny networks; one axis of images and that of sentences, if any growth is measured."""
        benches = {name: quick_bench(bench) for name, bench in self.benches.items()}
        return replace(self, benches=benches, axes=quick_axes() if self.axes else (), quick=True)


_IN_A_FRESH_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[2])
from timing_benches import own_peak
print(json.dumps(own_peak(*json.loads(sys.argv[1]))))
"""


def peak_memory(bench: Bench, name: str, phase: str, *, threads: int) -> Peak:
    """The peak memory of a contender over two steps, in a separate process so that nothing else counts."""
    arguments = json.dumps([asdict(bench), name, phase, threads])
    command = [sys.executable, "-c", _IN_A_FRESH_PROCESS, arguments, str(Path(__file__).parent)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise ValueError(f"the memory of {name}, {phase}, could not be measured ({why}): free some, and measure again")
    return Peak(*json.loads(done.stdout))


def own_peak(bench: dict[str, Any], name: str, phase: str, threads: int) -> Peak:
    """What `peak_memory` runs in the other process.

    Args:
        bench: fields of a Bench, whose tuples JSON has made lists.
        name: contender.
        phase: train or inference.
        threads: of torch.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()
    fields = {field: tuple(value) if isinstance(value, list) else value for field, value in bench.items()}
    return peak_of(Bench(**fields).step(name, phase))
