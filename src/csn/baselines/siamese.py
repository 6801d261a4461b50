"""Siamese networks (Koch, Zemel and Salakhutdinov, 2015) learn from pairs whether two examples are of one class.

`b` tasks, `n` support examples, `m` queries, `C` ways, `d` size of an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.embedding import Embedded, EmbeddingLearner, by_class
from csn.core.parts import LearnerOptions, Parts
from csn.episode import Episode
from csn.learner import EpisodeOutput


class SiameseNetwork(EmbeddingLearner):
    """p = sigmoid(sum_j alpha_j |h_1j - h_2j|), the probability that two examples are of one class (section 3.1).

    h consists of `size` sigmoid units on top of the embedding. The sum has a bias. Without it, p would always be 1/2
    for two equal examples. alpha starts negative, so that distance lowers p from the beginning. It also starts large:
    with a small alpha, training saturates h first, and learning stops.
    """

    def __init__(self, embedding: nn.Module, way: int, *, size: int = 64) -> None:
        super().__init__(embedding, way)
        self.weight = nn.Parameter(torch.full((size,), -4 * size**-0.5))
        self.bias = nn.Parameter(torch.tensor(3.0))

    def scores(self, queries: Tensor, task: Embedded) -> Tensor:
        """p of every pair of query and support example, before its sigmoid: (b, m, d) -> (b, m, n)."""
        h1, h2 = queries.sigmoid().unsqueeze(2), task.embeddings.sigmoid().unsqueeze(1)
        return (h1 - h2).abs() @ self.weight + self.bias

    def compare(self, queries: Tensor, task: Embedded) -> Tensor:
        """The score of the most similar example of each class (section 4.3); -inf for a class without examples."""
        return best_of_class(self.scores(queries, task), task)

    def forward(self, episode: Episode) -> EpisodeOutput:
        """The loss of section 3.2 over all pairs of a query and a support example of its task, and the logits."""
        queries, task = self._embed_episode(episode)
        scores = self.scores(queries, task)
        same = episode.query.y.unsqueeze(2) == task.labels.unsqueeze(1)  # (b, m, n)
        return EpisodeOutput(pair_loss(scores, same), best_of_class(scores, task))


def pair_loss(scores: Tensor, same: Tensor) -> Tensor:
    """Section 3.2: cross-entropy of p. Half of the weight is on equal pairs and half on unequal pairs.

    Koch et al. draw pairs of both kinds at random. The pairs of a task have the ratio 1 : C - 1.
    """
    loss = F.binary_cross_entropy_with_logits(scores, same.to(scores.dtype), reduction="none")
    means = [loss[kind].sum() / kind.sum().clamp_min(1) for kind in (same, ~same)]
    return (means[0] + means[1]) / 2


def best_of_class(scores: Tensor, task: Embedded) -> Tensor:
    """(b, m, n) -> (b, m, C): the largest score among the examples of each class."""
    others = ~by_class(task.labels, task.way).unsqueeze(1)  # (b, 1, n, C)
    return scores.unsqueeze(-1).masked_fill(others, -torch.inf).amax(2)


@dataclass(frozen=True)
class SiameseOptions(LearnerOptions):
    """Siamese networks. They have no options."""

    name: ClassVar[str] = "siamese"

    def build(self, parts: Parts) -> SiameseNetwork:
        """Build it over the key function's outputs."""
        return SiameseNetwork(parts.key_function(), parts.way, size=parts.key_size)
