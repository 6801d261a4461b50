"""Conditionally shifted neurons: eq. 1 and its ablated variants (section 4.3).

Notation: `a` is the preactivation of a layer, `beta` its conditional shift (the same shape), `sigma` its activation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

ShiftRule = Literal["squashed", "raw", "inside"]
SHIFT_RULES: tuple[ShiftRule, ...] = get_args(ShiftRule)
ShiftedLayers = Literal["all", "output", "hidden", "none"]
SHIFTED_LAYERS: tuple[ShiftedLayers, ...] = get_args(ShiftedLayers)


@dataclass(frozen=True)
class Activation:
    """A nonlinearity sigma and its derivative sigma' as functions of the preactivation.

    Args:
        name: The name of the activation.
        function: sigma.
        derivative: sigma'.
        binary: Whether sigma' is always 0 or 1. The direct feedback of conditioning.py exploits this.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    binary: bool

    def __call__(self, a: Tensor) -> Tensor:
        """sigma(a)."""
        return self.function(a)


def _relu_derivative(a: Tensor) -> Tensor:
    return (a > 0).to(a.dtype)


def _tanh_derivative(a: Tensor) -> Tensor:
    s = torch.sigmoid(2 * a)  # tanh(a) = 2 s - 1; on a CPU torch's sigmoid is four times as fast as its tanh
    return 4 * s * (1 - s)


# These use named functions so that learners can be pickled, which joblib's parallel cross-validation requires.
RELU = Activation("relu", torch.relu, _relu_derivative, binary=True)
TANH = Activation("tanh", torch.tanh, _tanh_derivative, binary=False)


def shifted_activation(a: Tensor, beta: Tensor | None, sigma: Activation, rule: ShiftRule = "squashed") -> Tensor:
    """Eq. 1, t != T: h = sigma(a) + sigma(beta); without shifts h = sigma(a).

    Section 4.3 has two ablations. `raw` adds beta itself: h = sigma(a) + beta. `inside` adds beta to the
    preactivations: h = sigma(a + beta).
    """
    if beta is None:
        return sigma(a)
    if rule == "squashed":
        return sigma(a) + sigma(beta)
    if rule == "raw":
        return sigma(a) + beta
    if rule == "inside":
        return sigma(a + beta)
    raise ValueError(f"unknown shift rule {rule!r}: choose one of {', '.join(SHIFT_RULES)}")


def shifted_logits(a: Tensor, beta: Tensor | None) -> Tensor:
    """Eq. 1, t = T, before the softmax: a + beta."""
    return a if beta is None else a + beta


def shifted_layers(which: ShiftedLayers, layers: int) -> tuple[bool, ...]:
    """Tell for each adapted layer of a network, the output last, whether it is shifted."""
    if which not in SHIFTED_LAYERS:
        raise ValueError(f"shifted layers must be one of {', '.join(SHIFTED_LAYERS)}, got {which!r}")
    return (which in ("all", "hidden"),) * (layers - 1) + (which in ("all", "output"),)
