"""Matching Networks (Vinyals et al., 2016): an average of the support's labels, weighted by attention.

`b` tasks, `n` support examples, `m` queries, `C` ways, `d` size of an embedding. Numbers of equations and sections are
those of their paper. f' and g' are the same network here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.embedding import Embedded, EmbeddingLearner, by_class
from csn.core.parts import LearnerOptions, Parts
from csn.networks.sentences import initialise_lstm


class SupportContext(nn.Module):
    """Appendix A.2: g(x_i, S) = h_i forward + h_i backward + g'(x_i), a bidirectional LSTM over the support.

    It reads the support in the given order, so the order matters.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        initialise_lstm(self.lstm)

    def forward(self, embeddings: Tensor) -> Tensor:
        """(b, n, d) -> (b, n, d)."""
        forward, backward = self.lstm(embeddings)[0].chunk(2, dim=-1)
        return forward + backward + embeddings


class QueryContext(nn.Module):
    """Appendix A.1: f(x, S) = attLSTM(f'(x), g(S), K). Each query reads the support `steps` = K times by itself."""

    def __init__(self, size: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        # LSTM(f', [h, r], c) of eq. 3: the gates are linear in f', h and r, so r can be concatenated with f'.
        self.cell = nn.LSTMCell(2 * size, size)

    def forward(self, queries: Tensor, support: Tensor) -> Tensor:
        """(b, m, d), (b, n, d) -> (b, m, d). h and c start at 0, so the first reading is the mean of g(S)."""
        shape, x = queries.shape, queries.flatten(0, 1)
        h = c = torch.zeros_like(x)
        for _ in range(self.steps):
            a = (h.view(shape) @ support.mT).softmax(-1)  # eq. 6
            r = (a @ support).flatten(0, 1)  # eq. 5
            h, c = self.cell(torch.cat([x, r], dim=-1), (h, c))  # eq. 3
            h = h + x  # eq. 4
        return h.view(shape)


class MatchingNetwork(EmbeddingLearner):
    """P(y | x, S) = sum_i a(x, x_i) y_i, a the softmax of cosines (eq. 1 and section 2.1.1).

    Args:
        embedding: (examples, *input) -> (examples, size).
        way: The largest number of classes.
        size: d.
        context_steps: K > 0 for full context embeddings (section 2.1.2), or 0 to embed each example independently.
        temperature: None for raw cosines as published, or the initial value of a learned scale.
    """

    def __init__(
        self,
        embedding: nn.Module,
        way: int,
        *,
        size: int = 64,
        context_steps: int = 0,
        temperature: float | None = None,
    ) -> None:
        super().__init__(embedding, way, temperature=temperature)
        if context_steps < 0:
            raise ValueError(f"context_steps must be 0 (no context) or more, got {context_steps}")
        self.support_context = SupportContext(size) if context_steps else None
        self.query_context = QueryContext(size, context_steps) if context_steps else None

    def remember(self, embeddings: Tensor, labels: Tensor, way: int) -> Embedded:
        """g(x_i, S) and the labels."""
        if self.support_context is not None:
            embeddings = self.support_context(embeddings)
        return Embedded(embeddings, labels, way)

    def compare(self, queries: Tensor, task: Embedded) -> Tensor:
        """Eq. 1 as log-probabilities: log sum_{i of class k} a(x, x_i); -inf for a class without examples."""
        log_attention = self._log_attention(queries, task).unsqueeze(-1)  # (b, m, n, 1)
        others = ~by_class(task.labels, task.way).unsqueeze(1)  # (b, 1, n, C)
        return log_attention.masked_fill(others, -torch.inf).logsumexp(2)

    def attend(self, x: Tensor, task: Embedded) -> Tensor:
        """The weight of each support example for each query: (b, m, *input) -> (b, m, n)."""
        return self._log_attention(self._queries(x, task), task).exp()

    def _log_attention(self, queries: Tensor, task: Embedded) -> Tensor:
        """Section 2.1.1: log a = log softmax_i(cos(f(x, S), g(x_i, S))). (b, m, d) -> (b, m, n)."""
        if self.query_context is not None:
            queries = self.query_context(queries, task.embeddings)
        cosine = F.normalize(queries, dim=-1) @ F.normalize(task.embeddings, dim=-1).mT
        return (self.scale * cosine).log_softmax(-1)


@dataclass(frozen=True)
class MatchingOptions(LearnerOptions):
    """Matching Networks.

    context_steps: readings of the support by full context embeddings; 0 for none.
    temperature: none for raw cosines, or the initial value of a learned scale.
    """

    name: ClassVar[str] = "matching"
    context_steps: int = 0
    temperature: float | None = None

    def build(self, parts: Parts) -> MatchingNetwork:
        """Build it over the key function's outputs."""
        return MatchingNetwork(parts.key_function(), parts.way, size=parts.key_size, **vars(self))
