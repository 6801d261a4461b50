"""Memory-augmented networks (Santoro et al., 2016): an LSTM that writes to the least recently used rows of a memory.

A task is a sequence. The controller reads the support example by example, each with its label. Each query then reads
the memory independently, from the state after the support. Letters are those of section 3.2 of their paper:
keys k, memory M, weights w^r (read), w^w (write), w^u (usage), w^lu (least used), gate alpha, decay gamma.

`b` tasks (or b * m queries), `n` support examples, `m` queries, `C` ways, `d` size of an embedding, `h` heads, `N` rows
of the memory, `s` numbers in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.embedding import EmbeddingLearner, as_sequence
from csn.core.parts import LearnerOptions, Parts, check_sizes


class State(NamedTuple):
    """After a step: controller (b, units) twice, M (b, N, s), w^r (b, h, N), w^u (b, N), what was read (b, h, s)."""

    hidden: Tensor
    cell: Tensor
    memory: Tensor
    read: Tensor
    usage: Tensor
    content: Tensor


class Recall(NamedTuple):
    """Controller (b, units) twice, keys k (b, h, s), w^r (b, h, N) and what was read (b, h, s)."""

    hidden: Tensor
    cell: Tensor
    keys: Tensor
    read: Tensor
    content: Tensor


class Recalled(NamedTuple):
    """The state after the support, its embeddings (b, n, d), and the way."""

    state: State
    embeddings: Tensor
    way: int


class MANN(EmbeddingLearner):
    """A memory-augmented network.

    The order of the support matters. In training the support is shuffled, so that no position stands for a label.

    Args:
        embedding: (examples, *input) -> (examples, size).
        way: The largest number of classes.
        size: d.
        units: Units of the LSTM controller.
        rows: N, rows of the memory.
        row_size: s, numbers in a row.
        heads: h, heads that read and write.
        decay: gamma.
        temperature: None for the softmax of raw cosines as published, which is nearly uniform over 128 rows, or the
            initial value of a learned scale on them.
    """

    def __init__(
        self,
        embedding: nn.Module,
        way: int,
        *,
        size: int = 64,
        units: int = 200,
        rows: int = 128,
        row_size: int = 40,
        heads: int = 4,
        decay: float = 0.99,
        temperature: float | None = None,
    ) -> None:
        super().__init__(embedding, way, temperature=temperature)
        if not 1 <= heads <= rows:
            raise ValueError(f"a memory of {rows} rows needs 1 to {rows} heads, got {heads}")
        self.units, self.rows, self.row_size, self.heads, self.decay = units, rows, row_size, heads, decay
        self.controller = nn.LSTMCell(size + way + heads * row_size, units)
        self.key, self.gate = nn.Linear(units, heads * row_size), nn.Linear(units, heads)
        self.output = nn.Linear(units + heads * row_size, way)

    def remember(self, embeddings: Tensor, labels: Tensor, way: int) -> Recalled:
        """One step for each example of the support."""
        x = as_sequence(embeddings, labels, self.way, shuffled=self.training)
        state = self._start(x)
        for example in x.unbind(1):
            state = self.step(example, state)
        return Recalled(state, embeddings, way)

    def compare(self, queries: Tensor, task: Recalled) -> Tensor:
        """Let each query recall from the state after the support. A query writes nothing."""
        b, m = queries.shape[:2]
        states = State(*(part.repeat_interleave(m, dim=0) for part in task.state))
        recall = self.recall(F.pad(queries, (0, self.way)).flatten(0, 1), states)
        logits = self.output(torch.cat([recall.hidden, recall.content.flatten(1)], dim=-1))
        return logits.view(b, m, self.way)[..., : task.way]

    def recall(self, x: Tensor, state: State) -> Recall:
        """Section 3.1: the controller makes keys, and rows that resemble them are read. x: (b, d + C)."""
        below = torch.cat([x, state.content.flatten(1)], dim=-1)
        hidden, cell = self.controller(below, (state.hidden, state.cell))
        k = self.key(hidden).tanh().unflatten(-1, (self.heads, self.row_size))
        cosine = F.normalize(k, dim=-1) @ F.normalize(state.memory, dim=-1).mT
        read = (self.scale * cosine).softmax(-1)
        return Recall(hidden, cell, k, read, read @ state.memory)

    def step(self, x: Tensor, state: State) -> State:
        """Section 3.2: recall, then write the keys to rows just read before or to the least used ones."""
        hidden, cell, k, read, content = self.recall(x, state)
        alpha = self.gate(hidden).sigmoid().unsqueeze(-1)  # (b, h, 1)
        least = least_used(state.usage, self.heads).unsqueeze(1)  # (b, 1, N), w^lu
        write = alpha * state.read + (1 - alpha) * least
        memory = state.memory * (1 - least).mT + write.mT @ k  # the least used rows are emptied first
        usage = self.decay * state.usage + read.sum(1) + write.sum(1)
        return State(hidden, cell, memory, read, usage, content)

    def _start(self, x: Tensor) -> State:
        """The state before the first example, which is all 0."""
        b = x.shape[0]
        shapes = (
            (b, self.units),
            (b, self.units),
            (b, self.rows, self.row_size),
            (b, self.heads, self.rows),
            (b, self.rows),
            (b, self.heads, self.row_size),
        )
        return State(*(x.new_zeros(shape) for shape in shapes))


def least_used(usage: Tensor, count: int) -> Tensor:
    """w^lu: 1 at the `count` smallest numbers of each row, else 0. (b, N) -> (b, N). No gradient flows through it."""
    smallest = usage.detach().topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(usage).scatter(-1, smallest, 1.0)


@dataclass(frozen=True)
class MANNOptions(LearnerOptions):
    """MANN.

    units: units of the controller.
    rows: rows of the memory.
    row_size: numbers in a row.
    heads: heads that read and write.
    standardise: put a batch norm on the embeddings.
    temperature: none for raw cosines, or the initial value of a learned scale.
    """

    name: ClassVar[str] = "mann"
    units: int = 128
    rows: int = 128
    row_size: int = 40
    heads: int = 4
    standardise: bool = True
    temperature: float | None = None

    def build(self, parts: Parts) -> MANN:
        """Build it over the key function's outputs.

        The embeddings of an untrained network are nearly equal. Without standardisation, all rows of a memory that is
        read by cosines would look alike.
        """
        check_sizes(self, "units", "rows", "row_size", "heads")
        embedding = parts.key_function()
        options = dict(vars(self))
        if options.pop("standardise"):
            embedding = nn.Sequential(embedding, nn.BatchNorm1d(parts.key_size))
        return MANN(embedding, parts.way, size=parts.key_size, **options)
