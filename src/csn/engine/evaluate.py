"""Evaluation: accuracies of a learner on seeded tasks, one number per task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csn.data.source import EpisodeSource
from csn.engine.distributed import ALONE, Ranks
from csn.episode import check_finite
from csn.learner import FewShotLearner

EVALUATION_SEED = 2018  # the same validation and test tasks for every model and training seed
IMAGES_PER_BATCH = 400
ENCODED_AT_ONCE = 80  # examples; convolutions are fastest with a few dozen, and larger batches cost memory
REPEATED = 2  # encode examples once if tasks use each of them at least this often on average
KEPT_BYTES = 3 * 2**30  # the most that encoded examples may take


class Accuracy(NamedTuple):
    """The mean over tasks and the half-width of its 95 % interval, as fractions."""

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
    learner: FewShotLearner[Any],
    source: EpisodeSource,
    tasks: int,
    *,
    device: torch.device | str = "cpu",
    on_progress: Callable[[int], None] | None = None,
    on_answers: Callable[[Tensor, Tensor], None] | None = None,
    ranks: Ranks = ALONE,
) -> list[float]:
    """The accuracy on each of the source's first `tasks` episodes, with the learner in evaluation mode.

    Several ranks share the tasks, in whole batches. Every rank returns the accuracies of all tasks.

    Args:
        learner: The learner to evaluate.
        source: The source of the tasks.
        tasks: The number of tasks.
        device: The learner's device.
        on_progress: Called with the number of tasks done.
        on_answers: Called with the logits (b, m, way) and labels (b, m) of each batch.
        ranks: The processes that share the tasks.
    """
    training = learner.training
    learner.eval()
    per_batch = max(1, IMAGES_PER_BATCH // (source.way * (source.shot + source.queries)))
    accuracies: list[float] = []
    try:
        batches = ranks.share(math.ceil(tasks / per_batch))
        start, stop = (min(batch * per_batch, tasks) for batch in (batches.first, batches.stop))
        encodings = encodings_for(learner, source, stop - start, device, first=start)
        for first in range(start, stop, per_batch):
            count = min(per_batch, stop - first)
            if encodings is None:
                logits = learner(source.batch(first, count).to(device)).logits
            else:
                logits = encodings.logits(slice(first - start, first - start + count))
            labels = source.labels(count, source.queries).to(device)
            accuracies += task_accuracies(logits, labels).tolist()
            if on_answers:
                on_answers(logits, labels)
            if on_progress:
                on_progress(min(len(accuracies) * ranks.world, tasks))
    finally:
        learner.train(training)
    return [accuracy for each in ranks.gathered(accuracies) for accuracy in each]


@torch.no_grad()
def encodings_for(
    learner: FewShotLearner[Any], source: EpisodeSource, tasks: int, device: torch.device | str, first: int = 0
) -> Encodings | None:
    """A cache for the encoded examples of a source's episodes, or None if it would not help.

    A thousand tasks use the same few thousand examples again and again, and nearly all of the time goes into networks
    that see one example at a time. There is no cache if tasks share few examples, if the learner encodes nothing, or if
    the encodings would take too much memory.

    Args:
        learner: A learner in evaluation mode.
        source: The source of the tasks.
        tasks: The number of tasks.
        device: The learner's device.
        first: The number of the first task.
    """
    if tasks == 0:
        return None
    support, query = source.batch_rows(first, tasks)
    rows = np.unique(np.concatenate([support, query], axis=1))
    if source.tells_words or support.size + query.size < REPEATED * len(rows):
        return None
    one = learner.encode(source.examples(rows[:1]).to(device))
    if one is None or len(rows) * sum(part.numel() * part.element_size() for part in one) > KEPT_BYTES:
        return None
    kept = [torch.empty_like(part.expand(len(rows), *part.shape[1:])) for part in one]  # keeps the memory format
    return Encodings(learner, source, device, rows, support, query, kept)


class Encodings:
    """The examples of some episodes. Each is encoded when an episode first uses it.

    Args:
        learner: The learner that encodes.
        source: The source of the examples.
        device: The learner's device.
        rows: The rows of all examples, sorted.
        support: The rows of each episode's support, (tasks, examples).
        query: The rows of each episode's queries, (tasks, examples).
        kept: Empty tensors with one row per example, for the encodings.
    """

    def __init__(
        self,
        learner: FewShotLearner[Any],
        source: EpisodeSource,
        device: torch.device | str,
        rows: np.ndarray,
        support: np.ndarray,
        query: np.ndarray,
        kept: list[Tensor],
    ) -> None:
        self.learner, self.source, self.device, self.rows, self.kept = learner, source, device, rows, kept
        self._support, self._query = (np.searchsorted(rows, asked) for asked in (support, query))
        self._known = np.zeros(len(rows), dtype=bool)

    def logits(self, tasks: slice) -> Tensor:
        """The logits of these episodes, (tasks, queries, way)."""
        support, query = self._support[tasks], self._query[tasks]
        self._encode(np.union1d(support, query))
        labels = self.source.labels(len(support), self.source.shot).to(self.device)
        return self.learner.answer(self._of(support), labels, self._of(query), self.source.way)

    def _encode(self, places: np.ndarray) -> None:
        """Encode those of these examples that are not encoded yet."""
        new = places[~self._known[places]]
        for first in range(0, len(new), ENCODED_AT_ONCE):
            some = new[first : first + ENCODED_AT_ONCE]
            x = self.source.examples(self.rows[some]).to(self.device)
            check_finite(x)
            for kept, part in zip(self.kept, self.learner.encode(x) or (), strict=True):
                kept[torch.from_numpy(some)] = part
        self._known[new] = True

    def _of(self, places: np.ndarray) -> list[Tensor]:
        """The encodings of these examples: (tasks, examples) -> (tasks, examples, ...) each."""
        return [kept[torch.from_numpy(places)] for kept in self.kept]


def task_accuracies(logits: Tensor, labels: Tensor) -> Tensor:
    """Fractions of right answers: (b, m, way) and (b, m) -> (b,)."""
    return (logits.argmax(-1) == labels).double().mean(-1)
