"""Eqs. 2-4: the memory function g, the key-value memory it fills, and the attention that reads it.

One memory per task: row i holds the key k'_i, the values V_{t,i} of every adapted layer t and the label of support
example i. `b` tasks, `n` rows, `m` queries, `d` key size, `...` the neurons of a layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attention = Literal["soft", "hard"]


class MemoryFunction(nn.Module):
    """Eq. 2: V = g(I). All layers share one g, which maps the information vector of each neuron to one value.

    g is a multi-layer perceptron with ReLU. layers=1 makes it the perceptron of section 4.3. layers=1, size=1 and
    bias=False make it the learned scalar lambda.

    Args:
        size: Numbers in an information vector.
        units: Width of the hidden layers (appendix A: 20 or 40).
        layers: Number of weight matrices (appendix A: 3).
        bias: Whether the layers have biases.
    """

    def __init__(self, size: int, *, units: int = 20, layers: int = 3, bias: bool = True) -> None:
        super().__init__()
        if size < 1 or units < 1 or layers < 1:
            raise ValueError(f"g needs size, units and layers of at least 1, got {size}, {units} and {layers}")
        sizes = [size] + [units] * (layers - 1) + [1]
        self.size = size
        self.layers = nn.ModuleList(nn.Linear(i, o, bias=bias) for i, o in itertools.pairwise(sizes))
        self.initialise()

    def initialise(self) -> None:
        """Draw new weights as He et al. (2015). Biases start at 0."""
        for weight, bias in self.weights():
            nn.init.kaiming_normal_(weight, nonlinearity="relu")
            if bias is not None:
                nn.init.zeros_(bias)

    def weights(self) -> list[tuple[Tensor, Tensor | None]]:
        """Weight and bias of every layer."""
        return [(layer.weight, layer.bias) for layer in self.layers]  # type: ignore[misc]

    def forward(self, info: Tensor) -> Tensor:
        """(..., size) -> (...)."""
        return self._upper(F.linear(info, *self.weights()[0]))

    def scaled(self, scale: Tensor, info: Tensor) -> Tensor:
        """g(s * e), with the first layer computed as s (W e): W e is computed once and reused for all scales.

        Args:
            scale: s, (...). It is broadcast against the leading axes of `info`.
            info: e, (..., size).

        Returns:
            (...).
        """
        weight, bias = self.weights()[0]
        z = scale.unsqueeze(-1) * F.linear(info, weight)
        return self._upper(z if bias is None else z + bias)

    def _upper(self, z: Tensor) -> Tensor:
        """Apply everything after the first layer: (..., units) -> (...)."""
        for weight, bias in self.weights()[1:]:
            z = F.linear(F.relu(z), weight, bias)
        return z.squeeze(-1)

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Replace g by factor * g."""
        for parameter in self.layers[-1].parameters():
            parameter.mul_(factor)


@dataclass(frozen=True)
class DenseValues:
    """The values of one layer, written out in full: V_t (b, n, ...)."""

    values: Tensor

    def read(self, attention: Tensor) -> Tensor:
        """Eq. 4: beta = alpha^T V. (b, m, n) -> (b, m, ...)."""
        return torch.bmm(attention, self.values.flatten(2)).unflatten(2, self.values.shape[2:])

    def dense(self) -> Tensor:
        """V_t (b, n, ...)."""
        return self.values

    def rows(self, index: Tensor) -> DenseValues:
        """The rows of some examples."""
        return DenseValues(self.values[:, index])


@dataclass(frozen=True)
class GatedValues:
    """The values of one layer in which an example writes only two different values: V_{t,i} = base + gate_{t,i} gain_i.

    The memory of n examples is therefore a bit mask and n + 1 numbers.

    Args:
        gate: (b, n, ...) bool.
        gain: (b, n).
        base: ().
    """

    gate: Tensor
    gain: Tensor
    base: Tensor

    def read(self, attention: Tensor) -> Tensor:
        """Eq. 4: beta = alpha^T V, without writing V out. alpha sums to 1, so `base` is added unchanged."""
        weights = attention * self.gain.unsqueeze(1)
        gate = self.gate.flatten(2).to(weights.dtype)
        return torch.baddbmm(self.base, weights, gate).unflatten(2, self.gate.shape[2:])

    def dense(self) -> Tensor:
        """V_t (b, n, ...)."""
        gain = self.gain.reshape(self.gain.shape + (1,) * (self.gate.ndim - 2))
        return self.base + self.gate * gain

    def rows(self, index: Tensor) -> GatedValues:
        """The rows of some examples."""
        return GatedValues(self.gate[:, index], self.gain[:, index], self.base)


LayerValues = DenseValues | GatedValues


@dataclass(frozen=True)
class TaskMemory:
    """The memory of a batch of tasks, with one row per described example.

    Args:
        keys: (b, n, d).
        values: One `LayerValues` per adapted layer.
        labels: (b, n).
        way: The number of classes of a task.
    """

    keys: Tensor
    values: tuple[LayerValues, ...]
    labels: Tensor
    way: int

    def __len__(self) -> int:
        """Rows of each task."""
        return self.labels.shape[1]

    def attend(self, query_keys: Tensor, scale: Tensor | float = 1.0, kind: Attention = "soft") -> Tensor:
        """Eq. 3: alpha = softmax_i(scale * cos(k_j, k'_i)). (b, m, d) -> (b, m, n).

        Args:
            query_keys: k_j, (b, m, d).
            scale: The factor on the cosines. 1 in the paper.
            kind: "soft" as in eq. 3, or "hard", which puts all weight on the most similar key (appendix A).
        """
        if self.labels.shape[1] == 0:  # len() would become a constant of a traced graph
            raise ValueError("the memory is empty: describe at least one example before predicting")
        cosine = F.normalize(query_keys, dim=-1) @ F.normalize(self.keys, dim=-1).transpose(1, 2)
        if kind == "hard":
            return F.one_hot(cosine.argmax(-1), cosine.shape[-1]).to(cosine.dtype)
        if kind != "soft":
            raise ValueError(f"unknown attention {kind!r}: choose soft or hard")
        return (scale * cosine).softmax(-1)

    def read(self, attention: Tensor) -> tuple[Tensor, ...]:
        """Eq. 4 for every layer: (b, m, n) -> shifts (b, m, ...)."""
        return tuple(values.read(attention) for values in self.values)

    def extended(self, other: TaskMemory) -> TaskMemory:
        """Append the rows of another memory. The model learns further examples this way."""
        return join([self, other])

    def rows(self, index: Tensor | Sequence[int]) -> TaskMemory:
        """Keep only the rows `index` (numbers or a mask) of every task. The model forgets the other examples."""
        index = torch.as_tensor(index, device=self.labels.device)
        index = index.nonzero().squeeze(-1) if index.dtype == torch.bool else index.to(torch.int64)
        values = tuple(layer.rows(index) for layer in self.values)
        return TaskMemory(self.keys[:, index], values, self.labels[:, index], self.way)

    def to(self, device: torch.device | str) -> TaskMemory:
        """The same memory on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def detach(self) -> TaskMemory:
        """The same memory, detached from the autograd graph."""
        return self._map(Tensor.detach)

    def _map(self, move: Callable[[Tensor], Tensor]) -> TaskMemory:
        values = tuple(type(layer)(*(move(tensor) for tensor in vars(layer).values())) for layer in self.values)
        return TaskMemory(move(self.keys), values, move(self.labels), self.way)


def join(memories: Sequence[TaskMemory]) -> TaskMemory:
    """Concatenate the rows of several memories of one model."""
    first = memories[0]
    if any(len(m.values) != len(first.values) or m.keys.shape[0] != first.keys.shape[0] for m in memories):
        raise ValueError("memories can be joined only when they come from the same model and number of tasks")
    return _concatenated(memories, 1)


def side_by_side(memories: Sequence[TaskMemory]) -> TaskMemory:
    """Combine the tasks of several memories of one model into one batch. All memories must have equally many rows."""
    if len({len(memory) for memory in memories}) > 1:
        raise ValueError("tasks can be batched only if they have equally many rows each: predict them one by one")
    return _concatenated(memories, 0)


def _concatenated(memories: Sequence[TaskMemory], dim: int) -> TaskMemory:
    values = tuple(_joined(layers, dim) for layers in zip(*(memory.values for memory in memories), strict=True))
    keys, labels = (torch.cat(parts, dim) for parts in zip(*((m.keys, m.labels) for m in memories), strict=True))
    return TaskMemory(keys, values, labels, max(memory.way for memory in memories))


def _joined(layers: Sequence[LayerValues], dim: int) -> LayerValues:
    """Concatenate the values of one layer from several memories along the tasks (0) or the rows (1)."""
    gated = [layer for layer in layers if isinstance(layer, GatedValues)]
    if len(gated) == len(layers):
        gates, gains = [layer.gate for layer in gated], [layer.gain for layer in gated]
        base = gated[0].base  # all memories share g(0), which depends only on the model
        return GatedValues(torch.cat(gates, dim), torch.cat(gains, dim), base)
    return DenseValues(torch.cat([layer.dense() for layer in layers], dim))


def log_scale(temperature: float | None) -> nn.Parameter | None:
    """Return the logarithm of a learned scale on cosines, which starts at `temperature`, or None for raw cosines."""
    if temperature is None:
        return None
    if not 0 < temperature <= torch.finfo(torch.float32).max:
        raise ValueError(f"the temperature must be a positive number, or None for raw cosines; got {temperature}")
    return nn.Parameter(torch.tensor(math.log(temperature)))
