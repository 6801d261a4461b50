"""What a prediction came from: the answer of `FewShotClassifier.explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """A remembered example that a prediction came from: its index, its label and the attention it got."""

    index: int
    label: Any
    weight: float


@dataclass(frozen=True)
class Explanation:
    """What a prediction came from. label: None if unknown; sources: largest weight first, weights sum to one.

    probabilities: of every class. similarity: the best cosine between the input's key and a remembered one.
    """

    label: Any
    probabilities: dict[Any, float]
    similarity: float
    sources: tuple[Source, ...]
