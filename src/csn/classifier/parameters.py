"""The view of a classifier that its parts get: its parameters as scikit-learn stores them, and nothing else."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Parameters(Protocol):
    """The parameters of `FewShotClassifier` as the user gave them. Most are checked in `fit`."""

    model: str
    encoder: Any
    run: Any
    learner: Any
    head: Any
    unknown_threshold: Any
    cache: bool
    batch_size: int
    progress: Any
    device: str


class Compares(Protocol):
    """The part of a fitted classifier that thresholds need."""

    @property
    def labels_(self) -> np.ndarray:
        """The label of every remembered example."""

    def similarity(self, X: Any) -> np.ndarray:
        """(m,) the similarity that a threshold applies to."""
