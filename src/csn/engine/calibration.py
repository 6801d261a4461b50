"""How well probabilities are calibrated, and how certain an accuracy is if a split has few classes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from csn.data.source import EpisodeSource

BINS = 15


class Calibration:
    """Sums over the answered queries of an evaluation, added in the order of the tasks."""

    def __init__(self) -> None:
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)  # queries, their confidence, and right answers
        self.loss = 0.0
        self.right: list[np.ndarray] = []

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Add the answers to the next b tasks: logits (b, m, way) and labels (b, m)."""
        log_probabilities = logits.double().log_softmax(-1).cpu()
        labels = labels.cpu()
        self.loss -= log_probabilities.gather(-1, labels[..., None]).sum().item()
        confidence, answers = log_probabilities.exp().max(-1)
        right = (answers == labels).double()
        place = (confidence * BINS).long().clamp(max=BINS - 1).flatten()
        for row, values in enumerate((torch.ones_like(confidence), confidence, right)):
            self.bins[row].index_add_(0, place, values.flatten())
        self.right.append(right.numpy())

    @classmethod
    def of_parts(cls, parts: Iterable[Calibration]) -> Calibration:
        """Combine the parts of several processes that shared the tasks, in order."""
        whole = cls()
        for part in parts:
            whole.bins += part.bins
            whole.loss += part.loss
            whole.right += part.right
        return whole

    def summary(self, classes: np.ndarray | None = None) -> dict[str, float | int]:
        """The calibration in numbers.

        nll: the mean negative log likelihood of a query's class.
        ece: the expected calibration error over 15 bins of confidence.
        classes: the number of classes, if the argument is given.
        interval_over_classes: the 95 % interval of the accuracy over classes, if the argument is given.

        Args:
            classes: The class of each query as a number in its split, (tasks, queries).
        """
        queries, confidence, right = self.bins
        total = float(queries.sum())
        found: dict[str, float | int] = {
            "nll": self.loss / total,
            "ece": float((confidence - right).abs().sum()) / total,
        }
        if classes is not None:
            interval = clustered_interval(np.concatenate(self.right).ravel(), classes.ravel())
            found |= {"classes": len(np.unique(classes)), "interval_over_classes": interval}
        return found


def query_classes(source: EpisodeSource, tasks: int) -> np.ndarray:
    """Return the class of each query in a source's first tasks as a number in its split, (tasks, queries)."""
    _, rows = source.batch_rows(0, tasks)
    return np.searchsorted(np.cumsum(source.classes.counts), rows, side="right")


def clustered_interval(values: np.ndarray, clusters: np.ndarray) -> float:
    """Half-width of the 95 % interval of a mean whose values come in clusters (Liang and Zeger, 1986).

    Deviations from the mean are summed within each of C clusters. The variance is C / (C - 1) times the sum of these
    squares, divided by n^2.
    """
    _, places = np.unique(clusters, return_inverse=True)
    sums = np.bincount(places, weights=values - values.mean())
    count = len(sums)
    if count < 2:
        return math.nan
    return 1.96 * math.sqrt(count / (count - 1) * float(np.square(sums).sum())) / len(values)
