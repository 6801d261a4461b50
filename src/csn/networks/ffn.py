"""adaFFN: a fully connected network with conditionally shifted neurons in every layer (section 2.1)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts, he_initialise, start_uniform
from csn.core.neurons import RELU, Activation, ShiftRule, shifted_activation, shifted_logits
from csn.core.parts import NetworkOptions
from csn.learner import InputSpec


class FFN(BaseLearner):
    """a_t = W_t h_{t-1} + b_t in each of `layers` layers. The last layer is the output. Inputs are flattened."""

    def __init__(
        self,
        inputs: int,
        way: int,
        *,
        units: int = 128,
        layers: int = 3,
        dropout: float = 0.2,
        activation: Activation = RELU,
        shift_rule: ShiftRule = "squashed",
    ) -> None:
        super().__init__()
        if layers < 1 or units < 1:
            raise ValueError(f"an FFN needs at least one layer of one unit, got {layers} of {units}")
        sizes = [inputs] + [units] * (layers - 1)
        self.inputs, self.way, self.shift_rule, self.input_spec = inputs, way, shift_rule, InputSpec((inputs,))
        self.activations = (activation,) * (layers - 1)
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        self.output = nn.Linear(sizes[-1], way)
        self.dropout = nn.Dropout(dropout)
        he_initialise(self.modules())
        start_uniform(self.output)

    def check_input(self, x: Tensor) -> None:
        """Accept examples of any shape that hold as many numbers as the network reads."""
        numbers = math.prod(x.shape[1:])
        if x.ndim < 2 or numbers != self.inputs:
            raise ValueError(
                f"this network takes {self.inputs} numbers per example, got {numbers} in examples of shape "
                f"{tuple(x.shape[1:])}: build it for this input"
            )

    def stem(self, x: Tensor) -> Tensor:
        """(examples, *input) -> (examples, inputs)."""
        return x.flatten(1)

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 in every layer."""
        h = self.dropout(features)
        preactivations = []
        for t, (layer, sigma) in enumerate(zip(self.hidden, self.activations, strict=True)):
            a = layer(h)
            preactivations.append(a)
            h = self.dropout(shifted_activation(a, shifts[t] if shifts else None, sigma, self.shift_rule))
        a = self.output(h)
        return BaseOutput(shifted_logits(a, shifts[-1] if shifts else None), (*preactivations, a))


class MLPKey(nn.Module):
    """A multi-layer perceptron with a linear output layer. Inputs of any shape are flattened."""

    def __init__(self, inputs: int, *, size: int = 64, units: int = 128, layers: int = 3) -> None:
        super().__init__()
        if layers < 1 or units < 1:
            raise ValueError(f"an MLP needs at least one layer of one unit, got {layers} of {units}")
        self.inputs = inputs
        sizes = [inputs] + [units] * (layers - 1)
        hidden = [module for i, o in itertools.pairwise(sizes) for module in (nn.Linear(i, o), nn.ReLU())]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], size))
        he_initialise(self.modules())

    def forward(self, x: Tensor) -> Tensor:
        """(examples, *input) -> (examples, d)."""
        if x.ndim < 2 or math.prod(x.shape[1:]) != self.inputs:
            raise ValueError(f"this network takes {self.inputs} numbers per example, got {tuple(x.shape[1:])}")
        return self.layers(x)


@dataclass(frozen=True)
class FFNOptions(NetworkOptions):
    """The networks of adaFFN. Inputs of any shape are flattened.

    units: units of every hidden layer.
    layers: number of layers, including the output layer.
    dropout: dropout rate on the input of every layer of the base learner.
    """

    name: ClassVar[str] = "ffn"
    base_class: ClassVar[type[Any]] = FFN
    key_class: ClassVar[type[Any]] = MLPKey
    base_only: ClassVar[tuple[str, ...]] = ("dropout",)
    units: int = 128
    layers: int = 3
    dropout: float = 0.0

    def input_of(self, spec: InputSpec) -> int:
        """The number of numbers in an example."""
        if spec.vocabulary is not None:
            raise ValueError("network ffn does not read sentences: choose lstm or lstm-ffn, or data with images")
        return math.prod(spec.shape)
