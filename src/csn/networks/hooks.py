"""The hooks of a grafted network, which turn its activation modules into conditionally shifted neurons.

The hooks act only while a learner runs the network. Shifts and preactivations of a run live in a context variable, so
threads do not interfere with each other. Outside of a run, the hooks change nothing.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from csn.core.base_learner import Shifts
from csn.core.neurons import RELU, Activation, ShiftRule, shifted_activation, shifted_logits

HALVES = (torch.bfloat16, torch.float16)


class Owner:
    """Identifies the graft to which hooks and calls belong. It holds no data."""


@dataclass
class Call:
    """One run of a grafted network.

    Args:
        owner: The graft that is running.
        examples: The number of examples.
        shifts: beta_t of every layer, or None in the description phase.
        preactivations: a_t of the layers that have run.
        logits: The output, once the output layer has run.
        key: The name of the layer that serves as the key, if its output is wanted.
        caught: The output of that layer, once it has run.
    """

    owner: Owner
    examples: int
    shifts: Shifts | None = None
    preactivations: list[Tensor] = field(default_factory=list)
    logits: Tensor | None = None
    key: str | None = None
    caught: Tensor | None = None


_CALL: contextvars.ContextVar[Call | None] = contextvars.ContextVar("csn_graft", default=None)


class ReachedKey(Exception):  # noqa: N818 - not an error
    """Raised when the layer that serves as the key has run, so that the layers above it are skipped."""


@contextmanager
def calling(call: Call) -> Iterator[None]:
    """Make a run visible to the hooks while it lasts."""
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


class Hook:
    """A hook on one module. It acts only during calls of its own graft."""

    def __init__(self, owner: Owner, name: str) -> None:
        self.owner, self.name = owner, name

    def call(self) -> Call | None:
        """Return the present call, if it belongs to this graft."""
        call = _CALL.get()
        return call if call is not None and call.owner is self.owner else None


class LayerHook(Hook):
    """A hook on a shifted layer.

    Args:
        owner: The graft.
        names: The names of all shifted layers, in the order in which they run.
        index: The position of this layer among them.
    """

    def __init__(self, owner: Owner, names: Sequence[str], index: int) -> None:
        super().__init__(owner, names[index])
        self.names, self.index = tuple(names), index

    def begin(self, call: Call, a: Any) -> Tensor:
        """Check that the layers run in order, and that the preactivations can be shifted."""
        done = len(call.preactivations)
        if self.index < done:
            raise ValueError(
                f"layer {self.name!r} runs more than once in a pass, or after {self.names[done - 1]!r}, which was "
                f"named after it: use one module for each use, and name layers in the order in which they run"
            )
        if self.index > done:
            raise ValueError(
                f"layer {self.name!r} runs before {self.names[done]!r}, which was named before it: name layers in the "
                f"order in which they run"
            )
        if not isinstance(a, Tensor) or not a.is_floating_point():
            what = f"a tensor of {a.dtype}" if isinstance(a, Tensor) else type(a).__name__
            raise ValueError(f"layer {self.name!r} gets {what}: only real numbers can be shifted")
        if a.ndim < 2 or a.shape[0] != call.examples:
            raise ValueError(
                f"layer {self.name!r} has neurons of shape {tuple(a.shape)} for {call.examples} examples: the examples "
                f"must come first (attention layers need batch_first=True)"
            )
        return a


class ActivationHook(LayerHook):
    """Eq. 1 at an activation module, as a pair of hooks: `before` records a_t, `after` adds the shift.

    Args:
        owner: The graft.
        names: The names of all shifted layers, in the order in which they run.
        index: The position of this layer among them.
        sigma: The activation.
        rule: How the shift is added (`csn.core.neurons`).
        last: Whether the neurons of an image have the order (height, width, filters), as channels_last has in memory.
    """

    def __init__(
        self, owner: Owner, names: Sequence[str], index: int, sigma: Activation, rule: ShiftRule, *, last: bool
    ) -> None:
        super().__init__(owner, names, index)
        self.sigma, self.rule, self.last = sigma, rule, last

    def before(self, module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Record a_t. An in-place activation gets a copy, so that it does not overwrite a_t."""
        if (call := self.call()) is None:
            return None
        a = self.begin(call, arguments[0] if arguments else None)
        if call.shifts is None and torch.is_grad_enabled() and not a.requires_grad:
            a = a.detach().requires_grad_()  # nothing below is trained, but eq. 5 needs the gradient of a_t
        channels_first = a
        if self.last and a.ndim == 4:
            a = a.movedim(1, -1)  # views, through which gradients pass: nothing is copied
            channels_first = a.movedim(-1, 1)
        call.preactivations.append(a)
        return (channels_first.clone() if getattr(module, "inplace", False) else channels_first, *arguments[1:])

    def after(self, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """Return h = sigma(a) + sigma(beta), or an ablation. None leaves the output unchanged."""
        call = self.call()
        beta = call.shifts[self.index] if call is not None and call.shifts is not None else None
        if call is None or beta is None:
            return None
        beta = beta.to(output.dtype)
        if self.last and output.ndim == 4:
            beta = beta.movedim(-1, 1)
        if beta.shape != output.shape:
            raise ValueError(
                f"layer {self.name!r} has neurons of shape {tuple(output.shape[1:])}, but had "
                f"{tuple(beta.shape[1:])} when the task was described: give examples of one size"
            )
        if self.rule == "squashed":
            return output + self.sigma(beta)
        a = call.preactivations[self.index]
        return shifted_activation(a.movedim(-1, 1) if self.last and a.ndim == 4 else a, beta, self.sigma, self.rule)


class OutputHook(LayerHook):
    """Eq. 1 at the output layer: a + beta."""

    def __init__(self, owner: Owner, names: Sequence[str], way: int) -> None:
        super().__init__(owner, names, len(names) - 1)
        self.way = way

    def after(self, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """The logits."""
        if (call := self.call()) is None:
            return None
        a = self.begin(call, output)
        if a.shape != (call.examples, self.way):
            raise ValueError(
                f"the output layer {self.name!r} gives {tuple(a.shape[1:])} numbers per example, but way={self.way} "
                f"needs ({self.way},): put torch.nn.Linear(..., {self.way}) in its place"
            )
        call.preactivations.append(a)
        beta = call.shifts[self.index] if call.shifts is not None else None
        call.logits = shifted_logits(a, None if beta is None else beta.to(a.dtype))
        return call.logits


class NormHook(Hook):
    """A hook on a batch norm. Above a shifted layer it must not mix examples: eq. 5 needs each example's own loss."""

    def before(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Raise ValueError if the batch norm would use batch statistics."""
        call = self.call()
        uses_batch = module.training or getattr(module, "running_mean", None) is None
        if call is not None and call.preactivations and uses_batch:
            raise ValueError(
                f"{self.name!r}, a batch norm in training mode, is above the shifted layer "
                f"{len(call.preactivations)} and mixes examples: graft with frozen_statistics=True, or use group norm"
            )


class KeyHook(Hook):
    """A hook on the layer that serves as the key."""

    def after(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        """Record the output, and stop the run."""
        call = self.call()
        if call is not None and call.key == self.name:
            call.caught = output
            raise ReachedKey


def activation_of(name: str, module: nn.Module) -> Activation:
    """Return sigma and sigma' of an elementwise module. A ReLU gets the shortcut for a sigma' of 0 or 1."""
    if not is_elementwise(module):
        raise ValueError(
            f"layer {name!r} ({type(module).__name__}) is not an elementwise activation: name the activation after it, "
            f"and the output layer last"
        )
    if isinstance(module, nn.ReLU):
        return RELU
    sigma = Sigma(module)
    return Activation(type(module).__name__, sigma, sigma.derivative, binary=False)


class Sigma:
    """A module as a function of preactivations, without its hooks."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, a: Tensor) -> Tensor:
        """sigma(a)."""
        return self.module.forward(a.clone() if getattr(self.module, "inplace", False) else a)

    def derivative(self, a: Tensor) -> Tensor:
        """sigma'(a) by autograd. For an elementwise function, it is the gradient of the sum of the outputs."""
        with torch.inference_mode(False), torch.enable_grad():
            a = a.detach().clone()
            a = a.float() if a.dtype in HALVES else a
            (derivative,) = torch.autograd.grad(self(a.requires_grad_()).sum(), a)
        return derivative.detach()


@torch.no_grad()
def is_elementwise(module: nn.Module) -> bool:
    """Whether each output of a module depends only on the input at the same position."""
    sigma = Sigma(copy.copy(module).eval())
    parameter = next(module.parameters(), None)
    a = torch.linspace(-3, 3, 16, dtype=torch.float32 if parameter is None else parameter.dtype)
    kept = torch.arange(16).view(2, 2, 2, 2) % 2 == 0
    a = a.to(torch.device("cpu") if parameter is None else parameter.device).view_as(kept)
    other = torch.where(kept.to(a.device), a, a.flip(0))
    try:
        h, changed = sigma(a), sigma(other)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError):
        return False
    if h.shape != a.shape:
        return False
    return torch.equal(h[kept], changed[kept])
