"""Section 2.3: what the description phase tells each neuron about the task.

Each support example i gives each neuron l its own conditioning information: two numbers from the loss gradient
(eqs. 5-6), or the C-dimensional output error scaled by sigma' (eq. 7). The information is first-order: training treats
gradients and sigma' as constants. It may treat the error as a constant too, or backpropagate through the error into the
base learner.

Each class whose name ends in Info holds the information of one layer in the cheapest exact form. `dense` writes it out
as the paper prints it, and `values` applies eq. 2 to it.

Shapes: `b` tasks, `n` support examples, `C` ways, `...` neurons, `k` numbers per neuron.
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
    """Conditioning information of one layer."""

    def dense(self) -> Tensor:
        """I_t (b, n, ..., k)."""

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2: V_t = g(I_t)."""


@dataclass(frozen=True)
class DenseInfo:
    """Information written out in full: (b, n, ..., k)."""

    info: Tensor

    def dense(self) -> Tensor:
        """I_t (b, n, ..., k)."""
        return self.info

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2, neuron by neuron."""
        return DenseValues(apply_rowwise(g, self.info))


@dataclass(frozen=True)
class SparseInfo:
    """Gradient information. Most gradients may be exactly 0, because of max pooling and ReLU.

    Args:
        gradient: The raw gradient, (b, n, ...).
        p: The constant of eq. 6, or None if the raw gradient itself is the information.
    """

    gradient: Tensor
    p: float | None

    def dense(self) -> Tensor:
        """I_t (b, n, ..., k)."""
        return self._rows(self.gradient)

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2 at the neurons with a nonzero gradient; all other neurons share one value.

        If most gradients are nonzero, g is evaluated along the path of eq. 6 (`piecewise`). The number of nonzero
        gradients depends on the data. A compiled graph cannot branch on it, and another device would have to wait for
        it, so both evaluate g at every neuron.
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
    """Eq. 7 with sigma' of 0 or 1: I_{t,i,l} is 0 or the error e_i.

    Args:
        gate: sigma'(a) as booleans, (b, n, ...).
        error: e_i = y_hat'_i - y'_i, (b, n, C).
    """

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
        written = g(F.pad(self.error.flatten(0, 1), (0, 0, 0, 1)))  # every e_i, then 0
        off = written[-1]
        return (written[:-1] - off).view(self.error.shape[:2]), off

    def gated(self, gain: Tensor, off: Tensor) -> LayerValues:
        """Eq. 2 from the values of g at its n + 1 points."""
        return GatedValues(self.gate, gain, off)


@dataclass(frozen=True)
class ScaledInfo:
    """Eq. 7 with a smooth sigma: I_{t,i,l} = s e_i.

    Args:
        scale: s = sigma'(a), (b, n, ...).
        error: e_i = y_hat'_i - y'_i, (b, n, C).
    """

    scale: Tensor
    error: Tensor

    def dense(self) -> Tensor:
        """I_t (b, n, ..., C)."""
        return _outer(self.scale, self.error)

    def values(self, g: MemoryFunction) -> LayerValues:
        """Eq. 2 with the first layer of g computed as s (W e_i), so that each example is projected once.

        A large layer evaluates g along the line s e_i instead (`piecewise`).
        """
        # A compiled graph cannot use the pieces: their number depends on the data.
        if not torch.compiler.is_compiling() and is_large(self.scale):
            values = piecewise.scaled(g, self.scale.flatten(0, 1), self.error.flatten(0, 1))
            return DenseValues(values.view_as(self.scale))
        return DenseValues(g.scaled(self.scale, _beside(self.error, self.scale)))


class ErrorGradient:
    """Eqs. 5-6: the gradient of each support example's own loss with respect to its preactivations.

    Args:
        p: The constant of eq. 6, 7 in the paper. None skips eq. 6 (used with the learned scalar of section 4.3).
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
        """Compute the information of every adapted layer.

        Args:
            output: The output for b * n examples, with its autograd graph.
            labels: (b, n).
            activations: sigma of every adapted hidden layer.
            way: The number of classes of the task.
        """
        # The loss is a sum and no layer above mixes examples, so each row's gradient belongs to its own loss.
        gradients = torch.autograd.grad(self.loss(output.logits, labels, way), output.preactivations)
        # The gradients of a half-precision network are in half precision, but g is not.
        return tuple(SparseInfo(_by_task(g.to(output.logits.dtype), labels), self.p) for g in gradients)

    def loss(self, logits: Tensor, labels: Tensor, way: int) -> Tensor:
        """Sum the cross-entropy of all examples: logits (b * n, C), labels (b, n) -> ()."""
        return F.cross_entropy(logits[:, :way], labels.flatten(), reduction="sum")

    def output_info(self, error: Tensor) -> LayerInfo:
        """Information of the output layer from errors y_hat - y (b, n, C), which are the gradients of its neurons."""
        return SparseInfo(error, self.p)

    def rest(self, like: Tensor) -> Tensor:
        """Information of a neuron whose gradient is 0: (k,)."""
        return SparseInfo(like.new_zeros(()), self.p).dense()


class DirectFeedback:
    """Eq. 7: I_{t,i,l} = sigma'(a_{t,l}) (y_hat'_i - y'_i), for all layers at once and without backpropagation.

    Args:
        end_to_end: Whether training backpropagates through the error into the base learner. Otherwise the error is a
            constant, which saves a backward pass over the support (docs/decisions/mechanism.md).
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
        """Compute the information of every adapted layer.

        Args:
            output: The output for b * n examples.
            labels: (b, n).
            activations: sigma of every adapted hidden layer.
            way: The number of classes of the task.
        """
        logits = output.logits if self.end_to_end else output.logits.detach()
        return self.layers(output, self.error(logits, labels, way), activations)

    def layers(self, output: BaseOutput, error: Tensor, activations: Sequence[Activation]) -> tuple[LayerInfo, ...]:
        """Compute the information of every adapted layer from errors that are known already.

        Args:
            output: The output for b * n examples.
            error: y_hat - y, (b, n, C).
            activations: sigma of every adapted hidden layer.
        """
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
        """Information of the output layer from errors y_hat - y (b, n, C).

        sigma' is 1 there, so eq. 7 would give every output neuron the same vector, hence the same shift, which the
        softmax ignores. Neuron l therefore gets the error rotated so that its own class comes first:
        (e_l, e_{l+1}, ..., e_{l-1}).
        """
        C = error.shape[-1]
        class_of = torch.arange(C, device=error.device)
        return DenseInfo(error[..., (class_of[:, None] + class_of) % C])

    def rest(self, like: Tensor) -> Tensor:
        """Information of a neuron with sigma' = 0: (C,), where `like` (units, C) is the first weight matrix of g."""
        return like.new_zeros(like.shape[-1])


Conditioning = ErrorGradient | DirectFeedback


def write(infos: Sequence[LayerInfo], g: MemoryFunction) -> tuple[LayerValues, ...]:
    """Eq. 2 for the layers of one network. All gated layers share the same errors, so g is applied to them once."""
    points = next((info.points(g) for info in infos if isinstance(info, GatedInfo)), None)
    return tuple(info.gated(*points) if points and isinstance(info, GatedInfo) else info.values(g) for info in infos)


def preprocess_gradient(gradient: Tensor, p: float = 7.0) -> Tensor:
    """Eq. 6 (Andrychowicz et al., 2016): (...) -> (..., 2).

    (log|x| / p, sgn x) where |x| >= e^-p, else (-1, e^p x). The clamp keeps the logarithm finite at 0.
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
    """(b, n, k) -> (b, n, 1, ..., 1, k), which broadcasts along the neurons (b, n, ...)."""
    return vectors.reshape(*vectors.shape[:2], *(1,) * (neurons.ndim - 2), vectors.shape[-1])


def _outer(scale: Tensor, error: Tensor) -> Tensor:
    """s e_i for every neuron: (b, n, ...) and (b, n, k) -> (b, n, ..., k)."""
    return scale.unsqueeze(-1) * _beside(error, scale)
