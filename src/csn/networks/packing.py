"""Sentences of unequal length without their padding, in the order in which a recurrence reads them.

The packed rows hold the first word of every sentence, longest sentence first, then the second word of each sentence
that has one, and so on.

Shapes: `words` is the number of words in all sentences, `H` the units of a layer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Packing:
    """Maps the words of (examples, T) sentences to packed rows.

    Args:
        index: The place of each packed word in the flattened (examples * T), (words,).
        counts: The number of sentences that are still running at each step.
        carried: The packed row of the latest word at each place, (examples * T,). It is `words` before the first word.
        last: The packed row of the last word of each sentence, (examples,).
    """

    index: Tensor
    counts: tuple[int, ...]
    carried: Tensor
    last: Tensor

    def steps(self) -> list[slice]:
        """The packed rows of every step."""
        ends = [sum(self.counts[: step + 1]) for step in range(len(self.counts))]
        return [slice(end - count, end) for end, count in zip(ends, self.counts, strict=True)]

    def packed(self, x: Tensor) -> Tensor:
        """(examples, T, H) -> (words, H)."""
        return _Packed.apply(x.flatten(0, 1), self.index).view(-1, x.shape[-1])

    def carried_along(self, c: Tensor) -> Tensor:
        """States (words + 1, H), the last of them before the first word, -> (examples, T, H). PAD keeps the state."""
        if self.is_full:
            return c[:-1].unflatten(0, (-1, len(self.last))).transpose(0, 1)
        return F.embedding(self.carried, c).unflatten(0, (len(self.last), -1))

    @property
    def is_full(self) -> bool:
        """Whether every place holds a word. Packed rows then are the places, step by step."""
        return len(self.index) == len(self.carried)

    def previous(self, packed: Tensor) -> Tensor:
        """The row of the same sentence one step earlier, for all rows after the first step."""
        if self.counts[0] == self.counts[-1]:
            return packed[: -self.counts[0]]
        steps = self.steps()
        return torch.cat([packed[:0], *(packed[a][: b.stop - b.start] for a, b in itertools.pairwise(steps))])


def pack(real: Tensor) -> Packing:
    """Pack sentences. `real` (examples, T) bool marks their words. Every sentence has at least one."""
    examples = len(real)
    lengths = real.sum(1)
    seat = torch.empty_like(lengths)
    seat[lengths.argsort(descending=True, stable=True)] = torch.arange(examples, device=real.device)
    counts = (lengths[:, None] > torch.arange(int(lengths.max()), device=real.device)).sum(0)
    starts = counts.cumsum(0) - counts
    step = real.cumsum(1) - 1  # (examples, T): the step of the latest word, -1 before the first
    carried = torch.where(step >= 0, starts[step.clamp_min(0)] + seat[:, None], int(lengths.sum()))
    places = real.flatten().nonzero().squeeze(-1)
    index = torch.empty_like(places)
    index[carried.flatten()[places]] = places
    return Packing(index, tuple(counts.tolist()), carried.flatten(), carried[:, -1])


def distinct(ids: Tensor, vocabulary: int) -> tuple[Tensor, Tensor | None]:
    """Find the distinct words: ids (words,) -> the words (distinct,) and the place of each id among them (words,).

    If less than half of the ids repeat another one, return the ids and None, because looking words up has a cost, too.
    """
    if vocabulary > 20 * len(ids):
        return ids, None
    occurs = torch.zeros(vocabulary, dtype=torch.bool, device=ids.device).index_fill_(0, ids, True)
    words = occurs.nonzero().squeeze(-1)
    return (words, (occurs.cumsum(0) - 1)[ids]) if 2 * len(words) <= len(ids) else (ids, None)


class _Packed(torch.autograd.Function):
    """Selects rows of a table, each at most once. The backward pass can therefore copy gradients.

    The backward pass of torch's own indexing adds them up.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        """(rows, H) -> (words, H)."""
        ctx.index, ctx.rows = index, len(table)
        return table.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Copy the gradients back to the selected rows. The other rows get 0."""
        return spread(outputs[0], ctx.index, torch.Size((ctx.rows, outputs[0].shape[1]))), None


def spread(packed: Tensor | None, index: Tensor, shape: torch.Size) -> Tensor | None:
    """Spread packed rows over the sentences: (words, H) -> (examples, T, H), 0 at PAD."""
    if packed is None:
        return None
    return packed.new_zeros(shape).view(-1, shape[-1]).index_copy_(0, index, packed).view(shape)
