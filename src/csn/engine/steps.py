"""Whole steps of a learner, in training and in inference, and their time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from csn.config import TrainConfig
from csn.engine.optimizing import build_optimizer
from csn.episode import Episode

Step = Callable[[], Tensor]
Contender = TypeVar("Contender", bound=Hashable)


def training_step(learner: nn.Module, episode: Episode, config: TrainConfig | None = None) -> Step:
    """One whole step: loss, gradients, optimizer."""
    optimizer = build_optimizer(learner, config or TrainConfig())
    learner.train()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = learner(episode).loss
        loss.backward()
        optimizer.step()
        return loss

    return step


def inference_step(learner: nn.Module, episode: Episode) -> Step:
    """Description and prediction."""
    learner.eval()

    @torch.no_grad()
    def step() -> Tensor:
        return learner(episode).logits

    return step


def ratios(steps: Mapping[Contender, Step], repeats: int, seconds: float = 0.15) -> dict[Contender, list[float]]:
    """The time of each contender divided by the first one's, one ratio per repeat of `seconds` per contender."""
    times = step_times(steps, repeats, seconds)
    return {contender: over(values, times[next(iter(times))]) for contender, values in times.items()}


def over(times: list[float], others: list[float]) -> list[float]:
    """The ratio within each repeat."""
    return [one / other for one, other in zip(times, others, strict=True)]


def step_times(
    steps: Mapping[Contender, Step],
    repeats: int,
    seconds: float = 0.15,
    clock: Callable[[], float] | None = None,
) -> dict[Contender, list[float]]:
    """Seconds of a step of each contender, one number per repeat.

    Contenders take turns within one process, so that other load on the machine affects all of them alike.

    Args:
        steps: The step of each contender.
        repeats: The number of rounds in which the contenders take turns.
        seconds: The time that a repeat takes per contender.
        clock: Wall time by default. Use `time.process_time` if other processes share the machine.
    """
    clock = clock or time.perf_counter
    counts = {}
    for contender, step in steps.items():
        step()
        started = clock()
        step()
        counts[contender] = max(1, round(seconds / max(clock() - started, 1e-9)))
    results: dict[Contender, list[float]] = {contender: [] for contender in steps}
    contenders = list(steps)
    for repeat in range(repeats):
        first = repeat % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            started = clock()
            for _ in range(counts[contender]):
                steps[contender]()
            results[contender].append((clock() - started) / counts[contender])
    return results


def seconds_of_step(step: Step) -> float:
    """Roughly the seconds of a step under the present load: the median of three steps after two warm-up steps."""
    return statistics.median(step_times({"": step}, repeats=3, seconds=0)[""])
