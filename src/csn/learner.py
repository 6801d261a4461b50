"""FewShotLearner: what CSN and every baseline are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.episode import Episode, Examples, SupportOf

Task = TypeVar("Task")
"""Whatever a learner makes of a support set. State lives here, never in the module."""

Encoded = Sequence[Tensor]
"""What a learner works out of examples before it knows their task, one row per example in each of the tensors."""


@dataclass(frozen=True)
class InputSpec:
    """What a learner reads.

    shape: of one example; three numbers (channels, height, width) mean images, one channel means ink.
    vocabulary: the words of a learner that reads word ids, or how many they are.
    """

    shape: tuple[int, ...]
    vocabulary: tuple[str, ...] | int | None = None

    @property
    def is_image(self) -> bool:
        """Images, kept as bytes."""
        return len(self.shape) == 3 and self.vocabulary is None

    @property
    def words(self) -> int:
        """The number of words; 0 where there are none."""
        return self.vocabulary if isinstance(self.vocabulary, int) else len(self.vocabulary or ())


class EpisodeOutput(NamedTuple):
    """loss: () the task loss of section 2.2, averaged over queries; logits: (b, m, way)."""

    loss: Tensor
    logits: Tensor


class FewShotLearner(nn.Module, ABC, Generic[Task]):
    """Describes a task from its support, then predicts its queries, each on its own.

    A subclass says here what else it can do; nothing is guessed from its attributes.
    """

    way: int
    """The largest number of classes C it can tell apart."""
    support_of: ClassVar[SupportOf] = "examples"
    """What a support shows it: examples of the classes, or their names (an oracle)."""
    attends: ClassVar[bool] = False
    """A task is one memory row per support example; `attend` says which rows an answer comes from."""
    attention: str | None = None
    """How it reads its memory, "soft" or "hard", if it has one."""
    passes: int = 1
    """How often a support is described. After more than once, a row of memory depends on the other examples."""
    input_spec: InputSpec | None = None
    """What it reads, if that is known."""

    @abstractmethod
    def describe(self, support: Examples, way: int | None = None) -> Task:
        """The description phase; `way` defaults to the largest label + 1."""

    @abstractmethod
    def predict(self, x: Tensor, task: Task) -> Tensor:
        """The prediction phase: (b, m, *input) -> logits (b, m, way)."""

    def episode_logits(self, episode: Episode) -> Tensor:
        """Both phases; a learner may override it where doing them together is cheaper."""
        return self.predict(episode.query.x, self.describe(episode.support, episode.way))

    @property
    def embedding_network(self) -> nn.Module | None:
        """The network whose outputs are compared, and that can be pretrained; None if there is no such network."""
        return None

    def embed(self, x: Tensor) -> Tensor | None:
        """What is compared: (examples, *input) -> (examples, d), or None if this learner compares nothing."""
        network = self.embedding_network
        return None if network is None else network(x)

    def attend(self, x: Tensor, task: Task) -> Tensor | None:
        """How much of each answer comes from each support example: (b, m, n), or None if that cannot be told."""
        return None

    def encode(self, x: Tensor) -> Encoded | None:
        """Task-independent encodings of examples, one row each, or None if this learner has none.

        In evaluation mode a test encodes an example once, however many of its tasks have it.
        """
        return None

    def answer(self, support: Encoded, labels: Tensor, queries: Encoded, way: int) -> Tensor:
        """Both phases from encoded examples: (b, n, ...) each with labels (b, n), and (b, m, ...) -> (b, m, way)."""
        raise NotImplementedError(f"{type(self).__name__} encodes no examples")

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Loss and logits of a batch of tasks: what the engine calls and DDP wraps."""
        logits = self.episode_logits(episode)
        return EpisodeOutput(F.cross_entropy(logits.flatten(0, 1), episode.query.y.flatten()), logits)


@contextmanager
def out_of_inference_mode() -> Iterator[None]:
    """Where gradients can be taken; results keep a graph, and its memory, only where the caller keeps graphs."""
    keeps_graph = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(keeps_graph):
        yield


def ordinary(x: Tensor) -> Tensor:
    """x without its history; a tensor of torch's inference mode, of which no graph may know, as a copy."""
    if torch.compiler.is_compiling():  # which has its own view of inference mode, and breaks the graph at the question
        return x.detach()
    return x.clone() if x.is_inference() else x.detach()
