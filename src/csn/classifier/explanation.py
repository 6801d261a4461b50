"""The result of `FewShotClassifier.explain`: the examples that a prediction came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """A remembered example that a prediction came from.

    index: index of the example in `labels_`.
    label: label of the example.
    weight: its share in the answer, from 0 to 1: its attention (eq. 3), or its share of all positive pushes.
    push: how far it moved the answer's logit above the mean of all logits; negative if it spoke against the answer.
    With a learner that shifts its own layers, the attention again.
    name: the file that it came from, or None.
    """

    index: int
    label: Any
    weight: float
    push: float = 0.0
    name: str | None = None


@dataclass(frozen=True)
class Explanation:
    """A prediction and the examples that it came from.

    label: the predicted class, or None if the input is unknown.
    probabilities: the probability of every class.
    similarity: see `FewShotClassifier.similarity`.
    sources: the examples, largest weight first. Their weights sum to one.
    """

    label: Any
    probabilities: dict[Any, float]
    similarity: float
    sources: tuple[Source, ...]


def weights_of(pushes: dict[int, float]) -> dict[int, float]:
    """The positive pushes, scaled to sum to one."""
    total = sum(push for push in pushes.values() if push > 0)
    return {i: max(push, 0.0) / total if total > 0 else 1 / len(pushes) for i, push in pushes.items()}
