"""What a prediction came from: the answer of `FewShotClassifier.explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """A remembered example that a prediction came from.

    index: of the example.
    label: of the example.
    weight: its part in the answer, from 0 to 1: the attention it got (eq. 3), or its part in all that spoke for it.
    push: by how much it moved the answer's logit above the mean of all logits, below 0 where it spoke against it; with
    a learner that shifts its own layers, the attention again.
    name: its file, if it came from one.
    """

    index: int
    label: Any
    weight: float
    push: float = 0.0
    name: str | None = None


@dataclass(frozen=True)
class Explanation:
    """What a prediction came from. label: None if unknown; sources: largest weight first, weights sum to one.

    probabilities: of every class. similarity: see `FewShotClassifier.similarity`.
    """

    label: Any
    probabilities: dict[Any, float]
    similarity: float
    sources: tuple[Source, ...]


def weights_of(pushes: dict[int, float]) -> dict[int, float]:
    """What speaks for an answer, as parts of one."""
    total = sum(push for push in pushes.values() if push > 0)
    return {i: max(push, 0.0) / total if total > 0 else 1 / len(pushes) for i, push in pushes.items()}
