"""Batch normalisation for networks whose parameters a task adapts. It uses the statistics of one task's examples.

`n` support examples come first, then the queries. "support" keeps answers inductive. "transductive" is the published
form of MAML: it normalises the queries of a task by their joint statistics, so each answer depends on the other
queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

import torch
from torch import Tensor, nn

Statistics = Literal["support", "transductive"]
STATISTICS: tuple[Statistics, ...] = get_args(Statistics)

_support: ContextVar[int | None] = ContextVar("support", default=None)


@contextmanager
def support_first(examples: int) -> Iterator[None]:
    """Declare that the first `examples` inputs of a network are a task's support and the others its queries."""
    token = _support.set(examples)
    try:
        yield
    finally:
        _support.reset(token)


class TaskNorm(nn.Module):
    """Normalises each channel, then scales and shifts it.

    The support is normalised by its own mean and variance over examples and pixels. With "support", a query is
    normalised by the mean and variance of the support and itself. With "transductive", it is normalised by those of all
    queries.
    """

    def __init__(self, filters: int, statistics: Statistics, eps: float = 1e-5) -> None:
        super().__init__()
        self.statistics, self.eps = statistics, eps
        self.weight = nn.Parameter(torch.ones(filters))
        self.bias = nn.Parameter(torch.zeros(filters))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the examples of one task, its support first: (examples, channels, h, w) -> the same."""
        n = _support.get()
        if n is None:
            raise ValueError(
                f"norm={self.statistics!r} needs the support of a task, and only MAML, Meta-SGD and the Meta-Learner "
                f"LSTM pass it to their network: set network.norm to none, batch or group"
            )
        support, queries = x[:n], x[n:]
        mean, variance = moments(support, (0, 2, 3))
        parts = [self._scaled(support, mean, variance)]
        if len(queries):
            if self.statistics == "transductive":
                mean, variance = moments(queries, (0, 2, 3))
            else:
                mean, variance = joined(mean, variance, n, *moments(queries, (2, 3)))
            parts.append(self._scaled(queries, mean, variance))
        return torch.cat(parts)

    def _scaled(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Normalise x with a mean and a variance of (1, channels, 1, 1) or (examples, channels, 1, 1)."""
        scale = self.weight[:, None, None] * (variance + self.eps).rsqrt()
        return x * scale + (self.bias[:, None, None] - mean * scale)


def moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance over axes. The axes stay, with size 1."""
    mean = x.mean(axes, keepdim=True)
    return mean, (x - mean).square().mean(axes, keepdim=True)


def joined(mean: Tensor, variance: Tensor, n: int, its_mean: Tensor, its_variance: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of n examples and one more of the same size: (1, channels, 1, 1) and (m, channels, 1, 1)."""
    share = 1 / (n + 1)
    apart = its_mean - mean
    return mean + share * apart, (1 - share) * variance + share * its_variance + share * (1 - share) * apart.square()
