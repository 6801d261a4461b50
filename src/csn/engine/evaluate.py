"""Evaluation: accuracies of a learner on seeded tasks, one number per task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from csn.data.source import EpisodeSource
from csn.episode import check_finite
from csn.learner import Encoded, FewShotLearner

EVALUATION_SEED = 2018  # the same validation and test tasks for every model and training seed
IMAGES_PER_BATCH = 400
KEPT_BYTES = 2**31  # of encoded examples, at most


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
    examples = source.way * (source.shot + source.queries)
    per_batch = max(1, IMAGES_PER_BATCH // examples)
    repeats = tasks * examples > len(source.classes.x)
    encodings = Encodings(learner, source, device) if repeats else None
    accuracies: list[float] = []
    try:
        for first in range(0, tasks, per_batch):
            count = min(per_batch, tasks - first)
            logits = encodings.logits(first, count) if encodings else None
            if logits is None:
                logits = learner(source.batch(first, count).to(device)).logits
            labels = source.labels(count, source.queries).to(device)
            accuracies += task_accuracies(logits, labels).tolist()
            if on_progress:
                on_progress(len(accuracies))
    finally:
        learner.train(training)
    return accuracies


class Encodings:
    """What a learner in evaluation mode makes of a split's examples before it knows their task, each worked out once.

    A thousand tasks ask about a few thousand examples again and again, and nearly all of the time goes into networks
    that see one example at a time. Fewer tasks ask about most examples once, and have no use for it.
    """

    def __init__(self, learner: FewShotLearner, source: EpisodeSource, device: torch.device | str) -> None:
        self.learner, self.source, self.device = learner, source, device
        self._known = np.zeros(len(source.classes.x), dtype=bool)
        self._kept: list[Tensor] | None = None
        self._refused = False

    def logits(self, first: int, tasks: int) -> Tensor | None:
        """(tasks, queries, way) of these episodes; None if there is nothing to encode, or too much to keep."""
        support, query = self.source.batch_rows(first, tasks)
        if self._refused or not self._encode(np.union1d(support, query)):
            self._refused = True
            return None
        labels = self.source.labels(tasks, self.source.shot).to(self.device)
        return self.learner.answer(self._rows(support), labels, self._rows(query), self.source.way)

    def _encode(self, rows: np.ndarray) -> bool:
        """Those of them that are new; whether that can be done."""
        new = rows[~self._known[rows]]
        if len(new) == 0:
            return True
        x = self.source.examples(new).to(self.device)
        check_finite(x)
        encoded = self.learner.encode(x)
        if encoded is not None and self._kept is None:
            self._kept = room_for(encoded, len(self._known))
        if encoded is None or self._kept is None:
            return False
        for kept, part in zip(self._kept, encoded, strict=True):
            kept[torch.from_numpy(new)] = part
        self._known[new] = True
        return True

    def _rows(self, rows: np.ndarray) -> list[Tensor]:
        """(tasks, examples) -> (tasks, examples, ...) each."""
        assert self._kept is not None
        return [kept[torch.from_numpy(rows)] for kept in self._kept]


def room_for(encoded: Encoded, examples: int) -> list[Tensor] | None:
    """Tensors like these with a row for each of so many examples, in the same memory format; None if too large."""
    rows = [part[:1].expand(examples, *part.shape[1:]) for part in encoded]
    if sum(part.numel() * part.element_size() for part in rows) > KEPT_BYTES:
        return None
    return [torch.empty_like(part) for part in rows]


def task_accuracies(logits: Tensor, labels: Tensor) -> Tensor:
    """(b, m, way) and (b, m) -> (b,) fractions of right answers."""
    return (logits.argmax(-1) == labels).double().mean(-1)
