"""Nearest neighbour on the raw input: the simplest baseline. It has nothing to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from csn.core.parts import LearnerOptions, Parts
from csn.episode import Examples, check_examples, check_finite, check_same_tasks, support_way
from csn.learner import FewShotLearner


class Remembered(NamedTuple):
    """The support itself: x (b, n, numbers), y (b, n), way."""

    x: Tensor
    y: Tensor
    way: int


class NearestNeighbour(FewShotLearner[Remembered]):
    """A query gets the label of the support example at the smallest Euclidean distance."""

    def __init__(self, way: int) -> None:
        super().__init__()
        self.way = way

    def describe(self, support: Examples, way: int | None = None) -> Remembered:
        """Keep the support."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        return Remembered(support.x.flatten(2), support.y, way)

    def predict(self, x: Tensor, task: Remembered) -> Tensor:
        """Logits: minus the distance to the nearest example of each class, -inf for a class without examples."""
        check_finite(x)
        check_same_tasks(x, task.y)
        if x.flatten(2).shape[-1] != task.x.shape[-1]:
            raise ValueError(
                f"queries must have as many numbers per example as the support, {task.x.shape[-1]}; got "
                f"{x.flatten(2).shape[-1]}"
            )
        distance = torch.cdist(x.flatten(2), task.x, compute_mode="donot_use_mm_for_euclid_dist")  # (b, m, n)
        logits = distance.new_full((*distance.shape[:2], task.way), -torch.inf)
        return logits.scatter_reduce(2, task.y.unsqueeze(1).expand_as(distance), -distance, "amax")


@dataclass(frozen=True)
class NearestOptions(LearnerOptions):
    """Nearest neighbour on raw inputs, which has no options."""

    name: ClassVar[str] = "nearest"
    uses_network: ClassVar[bool] = False
    uses_key: ClassVar[bool] = False
    encodes: ClassVar[bool] = False

    def build(self, parts: Parts) -> NearestNeighbour:
        """Build it. It has no network."""
        return NearestNeighbour(parts.way)
