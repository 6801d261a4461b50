"""adaFFN: a fully connected network with conditionally shifted neurons in every layer (section 2.1)."""

from __future__ import annotations

import itertools
import math

from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts, he_initialise, start_uniform
from csn.core.neurons import RELU, Activation, ShiftRule, shifted_activation, shifted_logits


class FFN(BaseLearner):
    """a_t = W_t h_{t-1} + b_t; `layers` of them, the last one the output. Inputs of any shape are flattened."""

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
        self.inputs, self.way, self.shift_rule = inputs, way, shift_rule
        self.activations = (activation,) * (layers - 1)
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(sizes))
        self.output = nn.Linear(sizes[-1], way)
        self.dropout = nn.Dropout(dropout)
        he_initialise(self.modules())
        start_uniform(self.output)

    def check_input(self, x: Tensor) -> None:
        """Any shape with the right number of numbers."""
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
