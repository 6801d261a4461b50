"""Fine-tuning: gradient descent fits a linear or cosine classifier to the support. The network does not change.

This is the obvious first approach (Chen et al., 2019, call the variants Baseline and Baseline++). The head of a task
starts the same for all classes and is fitted by full-batch gradient descent. The gradients are written out, so the
inner loop needs no autograd and runs for all tasks at once. Neither the order of the support nor the numbering of the
classes matters.

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

Head = Literal["linear", "cosine"]


class FittedHead(NamedTuple):
    """Weights (b, C, d) and biases (b, C) of the classifiers, embeddings (b, n, d), counts (b, C) and way."""

    weight: Tensor
    bias: Tensor
    embeddings: Tensor
    counts: Tensor
    way: int


class FineTuned(EmbeddingLearner):
    """A network with a head that is fitted to each support.

    In training, the head is fitted to the support as in a test. The network then takes a step on the queries while the
    head stays fixed. No gradient flows through the fitting, so this is not meta-learning.

    Args:
        embedding: (examples, *input) -> (examples, d).
        way: The largest number of classes.
        head: "linear" is W x + b, starting from 0. "cosine" is scale * cos(w_c, x), starting from the class means.
        steps: Steps of gradient descent.
        rate: The step size, in units of the largest stable one, 1 / mean |x|^2. It therefore does not depend on the
            scale of the embeddings.
        temperature: The initial scale of the cosine head, which is learned.
    """

    def __init__(
        self,
        embedding: nn.Module,
        way: int,
        *,
        head: Head = "linear",
        steps: int = 100,
        rate: float = 1.0,
        temperature: float = 10.0,
    ) -> None:
        if head not in get_args(Head):
            raise ValueError(f"unknown head {head!r}: choose one of {', '.join(get_args(Head))}")
        if steps < 1 or rate <= 0:
            raise ValueError(f"fitting a head needs at least one step and a positive rate, got {steps} and {rate}")
        super().__init__(embedding, way, temperature=temperature if head == "cosine" else None)
        self.head, self.steps, self.rate = head, steps, rate

    @torch.no_grad()
    def remember(self, embeddings: Tensor, labels: Tensor, way: int) -> FittedHead:
        """Fit a head to the support."""
        members = by_class(labels, way).to(embeddings.dtype)  # (b, n, C), one-hot
        counts = members.sum(1)
        fit = self._fit_linear if self.head == "linear" else self._fit_cosine
        return FittedHead(*fit(embeddings, members, counts), embeddings, counts, way)

    def compare(self, queries: Tensor, task: FittedHead) -> Tensor:
        """Apply the head to the queries. A class without examples gets -inf."""
        if self.head == "linear":
            logits = torch.baddbmm(task.bias.unsqueeze(1), queries, task.weight.mT)
        else:
            logits = self.scale * (F.normalize(queries, dim=-1) @ F.normalize(task.weight, dim=-1).mT)
        return logits.masked_fill((task.counts == 0).unsqueeze(1), -torch.inf)

    def _fit_linear(self, x: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Descent on the mean cross-entropy of W x + b: dL/dW = (softmax - y) x^T / n."""
        one = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)  # the bias as the weight of a 1
        step = self.rate / one.square().sum(-1).mean(-1)[:, None, None] / x.shape[1]
        weight = torch.zeros_like(counts).unsqueeze(-1) * one[:, :1]  # (b, C, d + 1)
        for _ in range(self.steps):
            error = (one @ weight.mT).softmax(-1) - y  # (b, n, C)
            weight = weight - step * (error.mT @ one)
        return weight[..., :-1], weight[..., -1]

    def _fit_cosine(self, x: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Descent on the mean cross-entropy of s cos(w_c, x), w_c of unit length: dcos/dw = x - cos w."""
        x = F.normalize(x, dim=-1)
        weight = F.normalize(y.mT @ x, dim=-1)
        step = self.rate / x.shape[1]
        for _ in range(self.steps):
            cosine = x @ weight.mT
            error = (self.scale * cosine).softmax(-1) - y
            gradient = error.mT @ x - (error * cosine).sum(1).unsqueeze(-1) * weight
            weight = F.normalize(
                weight - step * gradient, dim=-1
            )  # in units of the scale, which multiplies every gradient
        return weight, torch.zeros_like(counts)


@dataclass(frozen=True)
class FineTunedOptions(LearnerOptions):
    """Fine-tuning of a classifier on fixed embeddings.

    head: "linear" or "cosine".
    steps: steps of gradient descent.
    rate: step size, in units of the largest stable one.
    temperature: initial scale of the cosine head.
    """

    name: ClassVar[str] = "finetune"
    head: Head = "linear"
    steps: int = 100
    rate: float = 1.0
    temperature: float = 10.0

    def build(self, parts: Parts) -> FineTuned:
        """Build it over the key function's outputs."""
        return FineTuned(parts.key_function(), parts.way, **vars(self))
