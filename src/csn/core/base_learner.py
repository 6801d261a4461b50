"""The interface of a base learner (section 2.1.1): a plain network that knows nothing of tasks, memory or phases."""

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
"""beta_t of every adapted layer, (examples, ...) each; None leaves a layer as it is."""


class BaseOutput(NamedTuple):
    """logits: (examples, C). preactivations: a_t of every adapted layer, (examples, ...) each, the output last."""

    logits: Tensor
    preactivations: tuple[Tensor, ...]


class BaseLearner(nn.Module, ABC):
    """A network in two parts: a stem without conditionally shifted neurons, and a head whose every layer has them.

    The split lets support and query share one call of the stem, and ends backpropagation of eq. 5 at the lowest
    adapted layer.
    """

    way: int
    """Outputs C."""
    activations: tuple[Activation, ...]
    """sigma of every adapted hidden layer."""
    shift_rule: ShiftRule
    input_spec: InputSpec | None = None
    """What it reads, if it says so."""

    @abstractmethod
    def check_input(self, x: Tensor) -> None:
        """Raise ValueError unless x (examples, *input) is what this network was built for."""

    @abstractmethod
    def stem(self, x: Tensor) -> Tensor:
        """Layers below the adapted ones: (examples, *input) -> (examples, *features)."""

    @abstractmethod
    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """The adapted layers; shifts: (examples, ...) for each of them, or None in the description phase."""

    def stem_parts(self) -> Iterable[nn.Module] | None:
        """The modules of the stem, or None if they cannot be told apart from the rest."""
        return None

    def forward(self, x: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 through the whole network."""
        self.check_input(x)
        return self.head(self.stem(x), shifts)


class OverStem(nn.Module):
    """A key function that shares the base learner's stem, as a network of its own: (examples, *input) -> keys."""

    def __init__(self, base: BaseLearner, key_function: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(base.stem_parts() or ())
        self.stem, self.key_function = base.stem, key_function

    def forward(self, x: Tensor) -> Tensor:
        """(examples, *input) -> (examples, d)."""
        keys: Tensor = self.key_function(self.stem(x))
        return keys


def leaf(features: Tensor, base: BaseLearner) -> Tensor:
    """Features without a history, from which a graph starts; a graph that is being traced starts from a parameter.

    Whole numbers have no gradient: a stem that does nothing may hand over word ids.
    """
    if not features.is_floating_point():
        return features
    anchor = next((p for p in base.parameters() if p.requires_grad), None) if torch.compiler.is_compiling() else None
    return features.requires_grad_() if anchor is None else features + 0 * anchor.flatten()[0]


def treats_examples_alone(modules: Iterable[nn.Module]) -> bool:
    """Whether modules, as they are now, show no example to another; each may draw at random for itself."""
    return not any(isinstance(part, _BatchNorm) and part.training for module in modules for part in module.modules())


def he_initialise(modules: Iterable[nn.Module]) -> None:
    """He et al. (2015) for every convolution and linear layer, as in appendix A; biases start at 0."""
    for module in modules:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def start_uniform(output: nn.Linear) -> None:
    """Start a softmax layer at 0: the first descriptions then find uniform predictions, and errors that say y.

    He et al. derive their rule for layers under a rectifier. With it a softmax layer starts out sure of some class;
    the errors of direct feedback vanish wherever it happens to be right, and training keeps that class as a crutch.
    """
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
