"""Evaluation: accuracies of a learner on seeded tasks, one number per task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from csn.data.source import EpisodeSource
from csn.learner import FewShotLearner

EVALUATION_SEED = 2018  # the same validation and test tasks for every model and training seed
IMAGES_PER_BATCH = 400


class Accuracy(NamedTuple):
    """Mean over tasks and the half-width of its 95 % interval, as fractions."""

    mean: float
    interval: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.interval:.2f} %"


def summarise(accuracies: Sequence[float]) -> Accuracy:
    """Mean and 1.96 standard errors over tasks."""
    n = len(accuracies)
    if n < 2:
        raise ValueError(f"an interval needs at least 2 tasks, got {n}")
    mean = math.fsum(accuracies) / n
    variance = math.fsum((accuracy - mean) ** 2 for accuracy in accuracies) / (n - 1)
    return Accuracy(mean, 1.96 * math.sqrt(variance / n))


@torch.no_grad()
def evaluate(
    learner: FewShotLearner,
    source: EpisodeSource,
    tasks: int,
    *,
    device: torch.device | str = "cpu",
    on_progress: Callable[[int], None] | None = None,
) -> list[float]:
    """Accuracy on each of the source's first `tasks` episodes, the learner in evaluation mode."""
    training = learner.training
    learner.eval()
    per_batch = max(1, IMAGES_PER_BATCH // (source.way * (source.shot + source.queries)))
    accuracies: list[float] = []
    try:
        for first in range(0, tasks, per_batch):
            episode = source.batch(first, min(per_batch, tasks - first)).to(device)
            accuracies += task_accuracies(learner(episode).logits, episode.query.y).tolist()
            if on_progress:
                on_progress(len(accuracies))
    finally:
        learner.train(training)
    return accuracies


def task_accuracies(logits: Tensor, labels: Tensor) -> Tensor:
    """(b, m, way) and (b, m) -> (b,) fractions of right answers."""
    return (logits.argmax(-1) == labels).double().mean(-1)
