"""How well probabilities are calibrated, and how sure an accuracy is where a split has few classes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from csn.data.source import EpisodeSource

BINS = 15


class Calibration:
    """Sums over the answered queries of an evaluation, task by task in order."""

    def __init__(self) -> None:
        self.bins = torch.zeros(3, BINS, dtype=torch.float64)  # queries, their confidence, and right answers
        self.loss = 0.0
        self.right: list[np.ndarray] = []

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """(b, m, way) and (b, m): the answers to the next b tasks."""
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
        """Of tasks that several processes shared out, in order."""
        whole = cls()
        for part in parts:
            whole.bins += part.bins
            whole.loss += part.loss
            whole.right += part.right
        return whole

    def summary(self, classes: np.ndarray | None = None) -> dict[str, float | int]:
        """nll: mean negative log likelihood of a query's class. ece: expected calibration error, 15 bins of confidence.

        classes: (tasks, queries) the class of each query in its split; then also how many there are, and the 95 %
        interval of the accuracy over them.
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
    """(tasks, queries) the class of each query of a source's first tasks, as a number in its split."""
    _, rows = source.batch_rows(0, tasks)
    return np.searchsorted(np.cumsum(source.classes.counts), rows, side="right")


def clustered_interval(values: np.ndarray, clusters: np.ndarray) -> float:
    """Half-width of the 95 % interval of a mean whose values come in clusters (Liang and Zeger, 1986): with deviations
    summed within each cluster, the variance is C / (C - 1) times their squares over n^2."""
    _, places = np.unique(clusters, return_inverse=True)
    sums = np.bincount(places, weights=values - values.mean())
    count = len(sums)
    if count < 2:
        return math.nan
    return 1.96 * math.sqrt(count / (count - 1) * float(np.square(sums).sum())) / len(values)
