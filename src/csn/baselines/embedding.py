"""The common base of learners that compare the embedding of a query with those of the support.

`b` tasks, `n` support examples, `m` queries, `C` ways, `d` size of an embedding.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.memory import log_scale
from csn.episode import (
    Episode,
    Examples,
    check_examples,
    check_finite,
    check_same_tasks,
    check_support,
    check_way,
    support_way,
)
from csn.learner import Encoded, FewShotLearner


class Embedded(NamedTuple):
    """The embeddings of a support (b, n, d), their labels (b, n) and the task's way."""

    embeddings: Tensor
    labels: Tensor
    way: int


class EmbeddingLearner(FewShotLearner[Any]):
    """One network embeds support and query. A subclass defines what is kept of a support and how queries compare to it.

    In training, a batch norm in the network uses the joint statistics of support and query. In evaluation it uses its
    running averages, so each query is answered independently.

    Args:
        embedding: (examples, *input) -> (examples, d).
        way: The largest number of classes.
        temperature: None, or the initial value of a learned scale on the comparison.
    """

    def __init__(self, embedding: nn.Module, way: int, *, temperature: float | None = None) -> None:
        super().__init__()
        self.embedding, self.way = embedding, way
        self.log_scale = log_scale(temperature)

    @property
    def embedding_network(self) -> nn.Module:
        """The network whose outputs are compared."""
        return self.embedding

    @property
    def scale(self) -> Tensor | float:
        """The factor on the comparison."""
        return 1.0 if self.log_scale is None else self.log_scale.exp()

    def remember(self, embeddings: Tensor, labels: Tensor, way: int) -> Any:
        """Make the Task of a support from embeddings (b, n, d) and labels (b, n). It needs a field `embeddings`."""
        return Embedded(embeddings, labels, way)

    @abstractmethod
    def compare(self, queries: Tensor, task: Any) -> Tensor:
        """Embeddings (b, m, d) of queries -> logits (b, m, way)."""

    def describe(self, support: Examples, way: int | None = None) -> Any:
        """Embed the support."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        return self.remember(self._embed(support.x), support.y, way)

    def predict(self, x: Tensor, task: Any) -> Tensor:
        """Embed the queries and compare: (b, m, *input) -> logits (b, m, way)."""
        return self.compare(self._queries(x, task), task)

    def episode_logits(self, episode: Episode) -> Tensor:
        """Both phases, with support and query in one call of the network."""
        return self.compare(*self._embed_episode(episode))

    def encode(self, x: Tensor) -> tuple[Tensor]:
        """The embeddings: (examples, *input) -> (examples, d)."""
        return (self.embedding(x),)

    def answer(self, support: Encoded, labels: Tensor, queries: Encoded, way: int) -> Tensor:
        """Compare embeddings."""
        check_way(way, self.way)
        return self.compare(queries[0], self.remember(support[0], labels, way))

    def _embed(self, x: Tensor) -> Tensor:
        """(b, n, *input) -> (b, n, d)."""
        return self.embedding(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    def _queries(self, x: Tensor, task: Any) -> Tensor:
        """(b, m, *input) -> (b, m, d). Raise ValueError if these are not queries for this task."""
        check_finite(x)
        check_same_tasks(x, task.embeddings)
        return self._embed(x)

    def _embed_episode(self, episode: Episode) -> tuple[Tensor, Any]:
        """Embeddings (b, m, d) of the queries, and the Task."""
        support, query = episode.support, episode.query
        check_support(support, episode.way, self.way)
        embeddings = self._embed(torch.cat([support.x, query.x], dim=1))
        task = self.remember(embeddings[:, : len(support)], support.y, episode.way)
        return embeddings[:, len(support) :], task


def by_class(labels: Tensor, way: int) -> Tensor:
    """Tell which support examples are of which class: (b, n) -> (b, n, C) bool."""
    return labels.unsqueeze(-1) == torch.arange(way, device=labels.device)


def as_sequence(embeddings: Tensor, labels: Tensor, outputs: int, *, shuffled: bool) -> Tensor:
    """Append one-hot labels to embeddings: (b, n, d) and (b, n) -> (b, n, d + outputs).

    Args:
        embeddings: (b, n, d).
        labels: (b, n).
        outputs: Numbers in a one-hot label.
        shuffled: Whether to shuffle the examples of each task independently.
    """
    x = torch.cat([embeddings, F.one_hot(labels, outputs).to(embeddings.dtype)], dim=-1)
    if not shuffled:
        return x
    order = torch.rand(x.shape[:2], device=x.device).argsort(dim=1)
    return x.gather(1, order.unsqueeze(-1).expand_as(x))
