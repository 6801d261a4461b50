"""The reports that a training loop sends to its listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class StepReport(NamedTuple):
    """One training step: the tasks seen so far, and the loss and accuracy of this step."""

    tasks: int
    loss: float
    accuracy: float


class ValidationReport(NamedTuple):
    """One validation: the tasks seen so far, the accuracy with its interval, and whether it is the best so far.

    perplexity: a language model's perplexity, by which its best checkpoint is chosen; None for other learners.
    """

    tasks: int
    accuracy: float
    interval: float
    best: bool
    perplexity: float | None = None


Listener = Callable[[StepReport | ValidationReport], None]
