"""FewShotLearner: what CSN and every baseline are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.episode import Episode, Examples, SupportOf, check_query_labels

Task = Any
"""Whatever a learner makes of a support set. State lives here, never in the module."""

Encoded = Sequence[Tensor]
"""What a learner works out of examples before it knows their task, one row per example in each of the tensors."""


class EpisodeOutput(NamedTuple):
    """loss: () the task loss of section 2.2, averaged over queries; logits: (b, m, way)."""

    loss: Tensor
    logits: Tensor


class FewShotLearner(nn.Module, ABC):
    """Describes a task from its support, then predicts its queries, each on its own."""

    way: int
    """The largest number of classes C it can tell apart."""
    reads: SupportOf = "examples"
    """What a support shows it: examples of the classes, or their names (an oracle)."""

    @abstractmethod
    def describe(self, support: Examples, way: int | None = None) -> Task:
        """The description phase; `way` defaults to the largest label + 1."""

    @abstractmethod
    def predict(self, x: Tensor, task: Task) -> Tensor:
        """The prediction phase: (b, m, *input) -> logits (b, m, way)."""

    def episode_logits(self, episode: Episode) -> Tensor:
        """Both phases; a learner may override it where doing them together is cheaper."""
        return self.predict(episode.query.x, self.describe(episode.support, episode.way))

    def encode(self, x: Tensor) -> Encoded | None:
        """What is the same for an example in every task, (examples, *input) -> (examples, ...) each; None for nothing.

        In evaluation mode a test encodes an example once, however many of its tasks have it.
        """
        return None

    def answer(self, support: Encoded, labels: Tensor, queries: Encoded, way: int) -> Tensor:
        """Both phases from encoded examples: (b, n, ...) each with labels (b, n), and (b, m, ...) -> (b, m, way)."""
        raise NotImplementedError(f"{type(self).__name__} encodes no examples")

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Loss and logits of a batch of tasks: what the engine calls and DDP wraps."""
        logits = self.episode_logits(episode)
        check_query_labels(episode)
        return EpisodeOutput(F.cross_entropy(logits.flatten(0, 1), episode.query.y.flatten()), logits)


@contextmanager
def out_of_inference_mode() -> Iterator[None]:
    """Where gradients can be taken; results keep a graph, and its memory, only where the caller keeps graphs."""
    keeps_graph = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(keeps_graph):
        yield


def ordinary(x: Tensor) -> Tensor:
    """x without its history; a tensor of torch's inference mode, of which no graph may know, as a copy."""
    return x.clone() if x.is_inference() else x.detach()
