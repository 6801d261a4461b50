"""What the parts of a classifier know of it: its parameters, as scikit-learn keeps them, and nothing else."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Parameters(Protocol):
    """The parameters of `FewShotClassifier`, as they were given; most are checked when it is fitted."""

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
    """A fitted classifier, as far as thresholds are concerned."""

    @property
    def labels_(self) -> np.ndarray:
        """The label of every remembered example."""

    def similarity(self, X: Any) -> np.ndarray:
        """What a threshold cuts."""
