"""Prototypical Networks (Snell, Swersky and Zemel, 2017): a class is the mean of its examples' embeddings.

`b` tasks, `n` support examples, `m` queries, `C` ways, `d` size of an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.embedding import EmbeddingLearner, by_class
from csn.core.parts import LearnerOptions, Parts

Distance = Literal["euclidean", "cosine"]


class Prototypes(NamedTuple):
    """One embedding per class: embeddings (b, C, d), the number of examples of each class (b, C), and way."""

    embeddings: Tensor
    counts: Tensor
    way: int


class PrototypicalNetwork(EmbeddingLearner):
    """A query gets the class of the nearest prototype.

    distance: the squared Euclidean distance, for which the mean is the best prototype (section 2.3), or the cosine.
    """

    def __init__(
        self,
        embedding: nn.Module,
        way: int,
        *,
        distance: Distance = "euclidean",
        temperature: float | None = None,
    ) -> None:
        super().__init__(embedding, way, temperature=temperature)
        if distance not in get_args(Distance):
            raise ValueError(f"unknown distance {distance!r}: choose one of {', '.join(get_args(Distance))}")
        self.distance = distance

    def remember(self, embeddings: Tensor, labels: Tensor, way: int) -> Prototypes:
        """Eq. 1: c_k = mean of f(x_i) over the examples i of class k, or 0 for a class without examples."""
        members = by_class(labels, way).to(embeddings.dtype)  # (b, n, C)
        counts = members.sum(1)
        return Prototypes(members.mT @ embeddings / counts.clamp_min(1).unsqueeze(-1), counts, way)

    def compare(self, queries: Tensor, task: Prototypes) -> Tensor:
        """Eq. 2 before its softmax: -d(f(x), c_k); -inf for a class without examples."""
        if self.distance == "euclidean":
            # Subtract first: |x|^2 - 2 x.c + |c|^2 is cheaper, but rounding would swallow small distances.
            closeness = -(queries.unsqueeze(2) - task.embeddings.unsqueeze(1)).square().sum(-1)
        else:
            closeness = F.normalize(queries, dim=-1) @ F.normalize(task.embeddings, dim=-1).mT
        return (self.scale * closeness).masked_fill((task.counts == 0).unsqueeze(1), -torch.inf)


@dataclass(frozen=True)
class PrototypicalOptions(LearnerOptions):
    """Prototypical Networks.

    distance: the squared Euclidean distance, or the cosine.
    temperature: none, or the initial value of a learned scale on the comparison.
    """

    name: ClassVar[str] = "prototypical"
    distance: Distance = "euclidean"
    temperature: float | None = None

    def build(self, parts: Parts) -> PrototypicalNetwork:
        """Build it over the key function's outputs."""
        return PrototypicalNetwork(parts.key_function(), parts.way, **vars(self))
