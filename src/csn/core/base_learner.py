"""The interface of a base learner (section 2.1.1): a plain network, unaware of tasks, memory and phases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from csn.core.neurons import Activation, ShiftRule
from csn.learner import InputSpec

Shifts = tuple[Tensor | None, ...]
"""beta_t of every adapted layer, (examples, ...) each. None means that the layer is not shifted."""


class BaseOutput(NamedTuple):
    """What a base learner returns.

    Args:
        logits: (examples, C).
        preactivations: a_t of every adapted layer, (examples, ...) each. The output layer comes last.
    """

    logits: Tensor
    preactivations: tuple[Tensor, ...]


class BaseLearner(nn.Module, ABC):
    """A network in two parts: a stem without conditionally shifted neurons, and a head of adapted layers.

    The split lets support and query share one call of the stem. The backpropagation of eq. 5 also ends at the lowest
    adapted layer.
    """

    way: int
    """Outputs C."""
    activations: tuple[Activation, ...]
    """sigma of every adapted hidden layer."""
    shift_rule: ShiftRule
    input_spec: InputSpec | None = None
    """The input that the network expects, or None if it does not say."""

    @abstractmethod
    def check_input(self, x: Tensor) -> None:
        """Raise ValueError unless x (examples, *input) has the form that this network was built for."""

    @abstractmethod
    def stem(self, x: Tensor) -> Tensor:
        """Run the layers below the adapted ones: (examples, *input) -> (examples, *features)."""

    @abstractmethod
    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Run the adapted layers.

        Args:
            features: The output of the stem, (examples, *features).
            shifts: beta_t (examples, ...) for each adapted layer, or None in the description phase.
        """

    def stem_parts(self) -> Iterable[nn.Module] | None:
        """Return the modules of the stem, or None if the network does not separate them from the rest."""
        return None

    def forward(self, x: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Apply eq. 1 through the whole network."""
        self.check_input(x)
        return self.head(self.stem(x), shifts)


class OverStem(nn.Module):
    """A key function that shares the base learner's stem, wrapped as a complete network: (examples, *input) -> keys."""

    def __init__(self, base: BaseLearner, key_function: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(base.stem_parts() or ())
        self.stem, self.key_function = base.stem, key_function

    def forward(self, x: Tensor) -> Tensor:
        """(examples, *input) -> (examples, d)."""
        keys: Tensor = self.key_function(self.stem(x))
        return keys


def leaf(features: Tensor, base: BaseLearner) -> Tensor:
    """Make features a leaf of the autograd graph. While torch.compile traces, the graph starts at a parameter instead.

    Integers have no gradient and are returned unchanged: a stem without layers may pass on word ids.
    """
    if not features.is_floating_point():
        return features
    anchor = next((p for p in base.parameters() if p.requires_grad), None) if torch.compiler.is_compiling() else None
    return features.requires_grad_() if anchor is None else features + 0 * anchor.flatten()[0]


def treats_examples_alone(modules: Iterable[nn.Module]) -> bool:
    """Whether modules in their present mode compute each example independently of the others (dropout is allowed)."""
    return not any(isinstance(part, _BatchNorm) and part.training for module in modules for part in module.modules())


def he_initialise(modules: Iterable[nn.Module]) -> None:
    """Initialise every convolution and linear layer as He et al. (2015), as in appendix A. Biases start at 0."""
    for module in modules:
        if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.is_meta:  # weights to come from a file
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def start_uniform(output: nn.Linear) -> None:
    """Start a softmax layer at 0, so that the first predictions are uniform and the first errors reveal y.

    The rule of He et al. is derived for layers followed by a ReLU. Under that rule, a softmax layer starts out
    confident in an arbitrary class. The errors of direct feedback then vanish wherever that class is correct, and
    training continues to favour it.
    """
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
