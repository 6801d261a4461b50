"""SNAIL (Mishra et al., 2017; first called TCML): temporal convolutions and causal attention over a sequence.

A task is a sequence of embedded support examples with their labels. A query is its last element, without a label. All
layers are causal, so the support does not depend on the query and is computed once. Each layer keeps what a later
element needs, so each query costs one element of the sequence instead of n + 1.

The numbers and sizes of the blocks follow third-party programs, which are based on the appendix for Omniglot.

Shapes: `b` tasks, `n` support examples, `m` queries, `C` ways, `d` size of an embedding, `c` features at a layer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.embedding import EmbeddingLearner, as_sequence
from csn.core.parts import LearnerOptions, Parts


class CausalLayer(nn.Module, ABC):
    """A layer whose output at an element depends on this and earlier elements; it appends `grown` features."""

    grown: int

    @abstractmethod
    def read(self, x: Tensor) -> tuple[Tensor, Any]:
        """Read a sequence: (b, n, c) -> (b, n, c + grown), and the state that later elements need."""

    @abstractmethod
    def read_next(self, x: Tensor, past: Any) -> Tensor:
        """Read elements (b, m, c), each as the next one after the sequence: -> (b, m, c + grown)."""


class DenseBlock(CausalLayer):
    """A convolution over two elements, `dilation` apart: tanh(f) * sigmoid(g) is appended to the input."""

    def __init__(self, features: int, dilation: int, filters: int) -> None:
        super().__init__()
        self.dilation, self.grown = dilation, filters
        self.now, self.before = nn.Linear(features, 2 * filters), nn.Linear(features, 2 * filters, bias=False)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Read the sequence. Keep its element `dilation` before the end, if there is one."""
        n, dilation = x.shape[1], self.dilation
        shifted = F.pad(self.before(x), (0, 0, dilation, 0))[:, :n]
        return self._append(x, self.now(x) + shifted), x[:, n - dilation, None] if dilation <= n else None

    def read_next(self, x: Tensor, past: Tensor | None) -> Tensor:
        """Read the next elements."""
        return self._append(x, self.now(x) if past is None else self.now(x) + self.before(past))

    def _append(self, x: Tensor, preactivations: Tensor) -> Tensor:
        f, g = preactivations.chunk(2, dim=-1)
        return torch.cat([x, f.tanh() * g.sigmoid()], dim=-1)


class AttentionBlock(CausalLayer):
    """Soft attention from each element to itself and earlier elements. The result is appended to the input."""

    def __init__(self, features: int, keys: int, values: int) -> None:
        super().__init__()
        self.grown = values
        self.query, self.key, self.value = (nn.Linear(features, size) for size in (keys, keys, values))

    def read(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read the sequence. Keep its keys and values."""
        keys, values = self.key(x), self.value(x)
        read = F.scaled_dot_product_attention(self.query(x), keys, values, is_causal=True)
        return torch.cat([x, read], dim=-1), (keys, values)

    def read_next(self, x: Tensor, past: tuple[Tensor, Tensor]) -> Tensor:
        """Read the next elements. Each sees the sequence and itself, but no other next element."""
        keys, values = past
        query, own = self.query(x), self.value(x)
        to_self = (query * self.key(x)).sum(-1, keepdim=True)
        scores = torch.cat([query @ keys.mT, to_self], dim=-1) / math.sqrt(keys.shape[-1])
        attention = scores.softmax(-1)  # (b, m, n + 1)
        return torch.cat([x, attention[..., :-1] @ values + attention[..., -1:] * own], dim=-1)


ATTENTION = ((64, 32), (256, 128), (512, 256))  # sizes of keys and values


class Sequence(NamedTuple):
    """The state that a task's support leaves at every layer, its embeddings (b, n, d), and the way."""

    past: tuple[Any, ...]
    embeddings: Tensor
    way: int


class SNAIL(EmbeddingLearner):
    """Attention, temporal convolutions, attention, temporal convolutions, attention, a linear layer to the classes.

    The order of the support matters. In training the support is shuffled, so that no position stands for a label.

    Args:
        embedding: (examples, *input) -> (examples, size).
        way: The largest number of classes.
        size: d.
        length: The sequence length to cover: NK + 1 in the paper, by default way + 1 (one shot). The dilations are
            1, 2, 4, ... until the convolutions reach that far. In the paper they start at 2. Other lengths work too.
        filters: Filters of a convolution.
        attention: Sizes of keys and values of the three attentions.
    """

    def __init__(
        self,
        embedding: nn.Module,
        way: int,
        *,
        size: int = 64,
        length: int | None = None,
        filters: int = 128,
        attention: tuple[tuple[int, int], ...] = ATTENTION,
    ) -> None:
        super().__init__(embedding, way)
        length = way + 1 if length is None else length
        if length < 2:
            raise ValueError(f"a sequence needs at least a support example and a query, got length {length}")
        dilations = [2**i for i in range(math.ceil(math.log2(length)))]
        self.layers = nn.ModuleList()
        features = size + way
        for index, (keys, values) in enumerate(attention):
            for dilation in dilations if index else ():
                features = self._add(DenseBlock(features, dilation, filters), features)
            features = self._add(AttentionBlock(features, keys, values), features)
        self.output = nn.Linear(features, way)

    def _add(self, layer: CausalLayer, features: int) -> int:
        """Append a layer. Return the number of features after it."""
        self.layers.append(layer)
        return features + layer.grown

    def remember(self, embeddings: Tensor, labels: Tensor, way: int) -> Sequence:
        """Run the support through every layer."""
        x = as_sequence(embeddings, labels, self.way, shuffled=self.training)
        past = []
        for layer in self.layers:
            x, left = layer.read(x)  # type: ignore[operator]
            past.append(left)
        return Sequence(tuple(past), embeddings, way)

    def compare(self, queries: Tensor, task: Sequence) -> Tensor:
        """Run each query as the last element of its task's sequence."""
        x = F.pad(queries, (0, self.way))
        for layer, past in zip(self.layers, task.past, strict=True):
            x = layer.read_next(x, past)  # type: ignore[operator]
        return self.output(x)[..., : task.way]


@dataclass(frozen=True)
class SNAILOptions(LearnerOptions):
    """SNAIL.

    length: length of the sequences to cover; by default way + 1.
    """

    name: ClassVar[str] = "snail"
    length: int | None = None

    def build(self, parts: Parts) -> SNAIL:
        """Build it over the key function's outputs."""
        return SNAIL(parts.key_function(), parts.way, size=parts.key_size, **vars(self))
