"""FewShotLearner: the common interface of CSN and every baseline."""

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
"""The description of a task that a learner derives from a support set. It holds the state; the module holds none."""

Encoded = Sequence[Tensor]
"""Task-independent encodings of examples. Each tensor has one row per example."""


@dataclass(frozen=True)
class InputSpec:
    """The input of a learner.

    Args:
        shape: The shape of one example. Three numbers (channels, height, width) mean images. One channel means ink.
        vocabulary: The words, or their number, if the learner reads word ids.
    """

    shape: tuple[int, ...]
    vocabulary: tuple[str, ...] | int | None = None

    @property
    def is_image(self) -> bool:
        """Whether examples are images, which are stored as bytes."""
        return len(self.shape) == 3 and self.vocabulary is None

    @property
    def words(self) -> int:
        """The number of words, or 0 without a vocabulary."""
        return self.vocabulary if isinstance(self.vocabulary, int) else len(self.vocabulary or ())


class EpisodeOutput(NamedTuple):
    """The result of a batch of tasks.

    Args:
        loss: The task loss of section 2.2, averaged over queries, ().
        logits: (b, m, way).
    """

    loss: Tensor
    logits: Tensor


class FewShotLearner(nn.Module, ABC, Generic[Task]):
    """A learner that describes a task from its support, then predicts each query independently.

    A subclass declares its further abilities with the attributes below.
    """

    way: int
    """The largest number of classes C it can tell apart."""
    support_of: ClassVar[SupportOf] = "examples"
    """What the support contains: examples of the classes, or their names (an oracle)."""
    attends: ClassVar[bool] = False
    """Whether the task holds one memory row per support example, whose influence on an answer `attend` returns."""
    attention: str | None = None
    """How the memory is read, "soft" or "hard", or None without a memory."""
    passes: int = 1
    """How often a support is described. With more than one pass, a memory row depends on the other examples too."""
    input_spec: InputSpec | None = None
    """The input, if it is known."""

    @abstractmethod
    def describe(self, support: Examples, way: int | None = None) -> Task:
        """Run the description phase. `way` defaults to the largest label + 1."""

    @abstractmethod
    def predict(self, x: Tensor, task: Task) -> Tensor:
        """The prediction phase: (b, m, *input) -> logits (b, m, way)."""

    def episode_logits(self, episode: Episode) -> Tensor:
        """Run both phases. A learner may override this if doing both together is cheaper."""
        return self.predict(episode.query.x, self.describe(episode.support, episode.way))

    @property
    def embedding_network(self) -> nn.Module | None:
        """The network whose outputs are compared, and that can be pretrained; None if there is no such network."""
        return None

    def embed(self, x: Tensor) -> Tensor | None:
        """Embed examples, (examples, *input) -> (examples, d). None if this learner compares no embeddings."""
        network = self.embedding_network
        return None if network is None else network(x)

    def attend(self, x: Tensor, task: Task) -> Tensor | None:
        """The weight of each support example in each answer, (b, m, n), or None if it is unknown."""
        return None

    def encode(self, x: Tensor) -> Encoded | None:
        """Task-independent encodings of examples, one row each, or None if this learner has none.

        In evaluation mode, a test encodes each example once, even if many tasks contain it.
        """
        return None

    def answer(self, support: Encoded, labels: Tensor, queries: Encoded, way: int) -> Tensor:
        """Run both phases on encoded examples.

        Args:
            support: (b, n, ...) each.
            labels: (b, n).
            queries: (b, m, ...) each.
            way: The number of classes.

        Returns:
            Logits (b, m, way).
        """
        raise NotImplementedError(f"{type(self).__name__} encodes no examples")

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Compute loss and logits of a batch of tasks. The engine calls this method, and DDP wraps it."""
        logits = self.episode_logits(episode)
        return EpisodeOutput(F.cross_entropy(logits.flatten(0, 1), episode.query.y.flatten()), logits)


@contextmanager
def out_of_inference_mode() -> Iterator[None]:
    """Leave torch's inference mode, so that gradients can be computed. Grad mode itself stays as the caller set it."""
    keeps_graph = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(keeps_graph):
        yield


def ordinary(x: Tensor) -> Tensor:
    """Detach x from the autograd graph. An inference tensor is copied, because no graph may use it."""
    if torch.compiler.is_compiling():  # asking for inference mode would break the compiled graph
        return x.detach()
    return x.clone() if x.is_inference() else x.detach()
