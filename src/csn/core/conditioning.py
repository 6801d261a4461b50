"""Section 2.3: what the description phase tells each neuron about the task.

Conditioning information comes per support example i and neuron l: two numbers from the loss gradient (eqs. 5-6), or the
C-dimensional output error scaled by sigma' (eq. 7). It is first-order information: gradients and sigma' are constants
to training; the error may be one too, or lead back to the base learner that made it.

The classes below ending in Info hold the information of one layer in the cheapest exact form; `dense` writes it out as
the paper prints it and `values` applies eq. 2 to it. `b` tasks, `n` support examples, `C` ways, `...` neurons, `k`
numbers per neuron.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from csn.core.base_learner import BaseOutput
from csn.core.memory import DenseValues, GatedValues, LayerValues, MemoryFunction
from csn.core.neurons import Activation
from csn.core.shortcuts import piecewise
from csn.core.shortcuts.rowwise import apply_rowwise, is_large


class LayerInfo(Protocol):
    """Information of one layer."""

    def dense(self) -> Tensor:
        """I_t (b, n, ..., k)."""

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2: V_t = g(I_t)."""


@dataclass(frozen=True)
class DenseInfo:
    """Information written out: (b, n, ..., k)."""

    info: Tensor

    def dense(self) -> Tensor:
        """I_t (b, n, ..., k)."""
        return self.info

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2, neuron by neuron."""
        return DenseValues(apply_rowwise(g, self.info))


@dataclass(frozen=True)
class SparseInfo:
    """Gradient information, where most gradients may be exactly 0 (behind max pooling and ReLU).

    gradient: (b, n, ...) raw.
    """

    gradient: Tensor
    p: float | None

    def dense(self) -> Tensor:
        """I_t (b, n, ..., k)."""
        return self._rows(self.gradient)

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2 at the neurons with a gradient; all others share one value. Where most have one, g along eq. 6.

        How many have one is known to the processor alone: a graph, and another device, take them all.
        """
        if torch.compiler.is_compiling() or self.gradient.device.type != "cpu":
            return DenseValues(apply_rowwise(g, self.dense()))
        flat = self.gradient.flatten()
        live = flat.nonzero().squeeze(-1)
        if self.p is not None and is_large(flat) and 2 * len(live) > len(flat):
            return DenseValues(piecewise.preprocessed(g, self.gradient, self.p))
        written = apply_rowwise(g, self._rows(torch.cat([flat[live], flat.new_zeros(1)])))
        values = written[-1].expand(flat.shape).index_put((live,), written[:-1])
        return DenseValues(values.view_as(self.gradient))

    def _rows(self, gradient: Tensor) -> Tensor:
        return gradient.unsqueeze(-1) if self.p is None else preprocess_gradient(gradient, self.p)


@dataclass(frozen=True)
class GatedInfo:
    """Eq. 7 where sigma' is 0 or 1: I_{t,i,l} is 0 or the error e_i. gate: (b, n, ...) bool, error: (b, n, C)."""

    gate: Tensor
    error: Tensor

    def dense(self) -> Tensor:
        """I_t (b, n, ..., C)."""
        return _outer(self.gate.to(self.error.dtype), self.error)

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2 at n + 1 points: V_{t,i} = g(0) + 1[a_{t,i} > 0] (g(e_i) - g(0))."""
        return self.gated(*self.points(g))

    def points(self, g: MemoryFunction) -> tuple[Tensor, Tensor]:
        """g(e_i) - g(0) for every example (b, n), and g(0) ()."""
        written = g(F.pad(self.error.flatten(0, 1), (0, 0, 0, 1)))  # every e_i, and 0
        off = written[-1]
        return (written[:-1] - off).view(self.error.shape[:2]), off

    def gated(self, gain: Tensor, off: Tensor) -> LayerValues:
        """Eq. 2 from g at its n + 1 points."""
        return GatedValues(self.gate, gain, off)


@dataclass(frozen=True)
class ScaledInfo:
    """Eq. 7 with a smooth sigma: I_{t,i,l} = s e_i. scale: (b, n, ...) = sigma'(a), error: (b, n, C)."""

    scale: Tensor
    error: Tensor

    def dense(self) -> Tensor:
        """I_t (b, n, ..., C)."""
        return _outer(self.scale, self.error)

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2 with g's first layer as s (W e_i): one projection per example; many neurons, g along the line s e_i."""
        if not torch.compiler.is_compiling() and is_large(self.scale):  # the number of pieces depends on the numbers
            values = piecewise.scaled(g, self.scale.flatten(0, 1), self.error.flatten(0, 1))
            return DenseValues(values.view_as(self.scale))
        return DenseValues(g.scaled(self.scale, _beside(self.error, self.scale)))


class ErrorGradient:
    """Eqs. 5-6: the gradient of each support example's own loss with respect to its preactivations.

    p: the paper's 7; None leaves the gradient as it is (for the learned scalar of section 4.3).
    """

    needs_graph, end_to_end = True, False

    def __init__(self, p: float | None = 7.0) -> None:
        self.p = p

    def size(self, way: int) -> int:
        """Numbers per neuron."""
        return 1 if self.p is None else 2

    def __call__(
        self, output: BaseOutput, labels: Tensor, activations: Sequence[Activation], way: int
    ) -> tuple[LayerInfo, ...]:
        """Information per adapted layer; output of b * n examples with its graph, labels (b, n)."""
        # The loss is summed, and no layer above mixes examples, so each row's gradient is that of its own loss.
        gradients = torch.autograd.grad(self.loss(output.logits, labels, way), output.preactivations)
        # A network in half precision has gradients in half precision; g has not.
        return tuple(SparseInfo(_by_task(g.to(output.logits.dtype), labels), self.p) for g in gradients)

    def loss(self, logits: Tensor, labels: Tensor, way: int) -> Tensor:
        """The sum of each example's own loss: cross-entropy; logits (b * n, C), labels (b, n)."""
        return F.cross_entropy(logits[:, :way], labels.flatten(), reduction="sum")

    def output_info(self, error: Tensor) -> LayerInfo:
        """The output layer's information for errors y_hat - y (b, n, C): the error is the gradient there."""
        return SparseInfo(error, self.p)

    def rest(self, like: Tensor) -> Tensor:
        """What a neuron without a gradient is told: (k,)."""
        return SparseInfo(like.new_zeros(()), self.p).dense()


class DirectFeedback:
    """Eq. 7: I_{t,i,l} = sigma'(a_{t,l}) (y_hat'_i - y'_i), for all layers at once and without backpropagation.

    end_to_end: whether training follows the error into the base learner that made it, or takes it as given, which saves
        a backward pass over the support (docs/decisions/mechanism.md).
    """

    needs_graph = False

    def __init__(self, *, end_to_end: bool = False) -> None:
        self.end_to_end = end_to_end

    def size(self, way: int) -> int:
        """Numbers per neuron."""
        return way

    def __call__(
        self, output: BaseOutput, labels: Tensor, activations: Sequence[Activation], way: int
    ) -> tuple[LayerInfo, ...]:
        """Information per adapted layer; output of b * n examples, labels (b, n)."""
        logits = output.logits if self.end_to_end else output.logits.detach()
        return self.layers(output, self.error(logits, labels, way), activations)

    def layers(self, output: BaseOutput, error: Tensor, activations: Sequence[Activation]) -> tuple[LayerInfo, ...]:
        """Information per adapted layer for errors y_hat - y (b, n, C); output of b * n examples."""
        hidden = zip(output.preactivations[:-1], activations, strict=True)
        return (
            *(self._hidden(_by_task(a.detach(), error[..., 0]), error, sigma) for a, sigma in hidden),
            self.output_info(error),
        )

    def error(self, logits: Tensor, labels: Tensor, way: int) -> Tensor:
        """y_hat - y: logits (b * n, C), labels (b, n) -> (b, n, C)."""
        predicted = F.pad(logits[:, :way].softmax(-1), (0, logits.shape[1] - way))
        return _by_task(predicted, labels) - F.one_hot(labels, logits.shape[1])

    def _hidden(self, a: Tensor, error: Tensor, sigma: Activation) -> LayerInfo:
        return GatedInfo(a > 0, error) if sigma.binary else ScaledInfo(sigma.derivative(a), error)

    def output_info(self, error: Tensor) -> LayerInfo:
        """The output layer's information for errors y_hat - y (b, n, C).

        There sigma' = 1 would hand every neuron the same vector, a shift that softmax ignores. So neuron l sees the
        error rolled until its own class comes first: (e_l, e_{l+1}, ..., e_{l-1}).
        """
        C = error.shape[-1]
        class_of = torch.arange(C, device=error.device)
        return DenseInfo(error[..., (class_of[:, None] + class_of) % C])

    def rest(self, like: Tensor) -> Tensor:
        """What a neuron that is off is told: (C,), C being the size of g's first layer `like` (units, C)."""
        return like.new_zeros(like.shape[-1])


Conditioning = ErrorGradient | DirectFeedback


def write(infos: Sequence[LayerInfo], g: MemoryFunction) -> tuple[LayerValues, ...]:
    """Eq. 2 for the layers of one network: the gated ones share their errors, and with them what g makes of these."""
    points = next((info.points(g) for info in infos if isinstance(info, GatedInfo)), None)
    return tuple(info.gated(*points) if points and isinstance(info, GatedInfo) else info.values(g) for info in infos)


def preprocess_gradient(gradient: Tensor, p: float = 7.0) -> Tensor:
    """Eq. 6 (Andrychowicz et al., 2016): (...) -> (..., 2).

    (log|x| / p, sgn x) where |x| >= e^-p, else (-1, e^p x). The clamp keeps log away from 0.
    """
    magnitude = gradient.abs()
    floor = math.exp(-p)
    big = magnitude >= floor
    log = magnitude.clamp_min(floor).log() / p
    return torch.stack([torch.where(big, log, -1.0), torch.where(big, gradient.sign(), gradient / floor)], dim=-1)


def _by_task(x: Tensor, labels: Tensor) -> Tensor:
    """(b * n, ...) -> (b, n, ...)."""
    return x.reshape(*labels.shape, *x.shape[1:])


def _beside(vectors: Tensor, neurons: Tensor) -> Tensor:
    """(b, n, k) -> (b, n, 1, ..., 1, k), so that it broadcasts along the neurons (b, n, ...)."""
    return vectors.reshape(*vectors.shape[:2], *(1,) * (neurons.ndim - 2), vectors.shape[-1])


def _outer(scale: Tensor, error: Tensor) -> Tensor:
    """s e_i for every neuron: (b, n, ...) and (b, n, k) -> (b, n, ..., k)."""
    return scale.unsqueeze(-1) * _beside(error, scale)
