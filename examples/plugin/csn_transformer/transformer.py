"""A Transformer of one block: attention among the patches of an image, then an adapted feed-forward layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts, start_uniform
from csn.core.neurons import RELU, ShiftRule, shifted_activation, shifted_logits
from csn.core.parts import NetworkOptions, image_shape
from csn.learner import InputSpec
from csn.networks.cnn import check_images


class Transformer(BaseLearner):
    """The neurons of the feed-forward layer, at every patch, and the outputs are conditionally shifted."""

    def __init__(self, image: tuple[int, int, int], way: int, patch: int, units: int, shift_rule: ShiftRule) -> None:
        super().__init__()
        self.image, self.way, self.shift_rule, self.activations = image, way, shift_rule, (RELU,)
        self.patches = nn.Conv2d(image[0], units, patch, stride=patch)
        self.places = nn.Parameter(0.1 * torch.randn((image[1] // patch) * (image[2] // patch), units))
        self.attention = nn.MultiheadAttention(units, 4, batch_first=True)
        self.hidden, self.back = nn.Linear(units, 2 * units), nn.Linear(2 * units, units)
        self.output = nn.Linear(units, way)
        start_uniform(self.output)

    def check_input(self, x: Tensor) -> None:
        """Images of one size."""
        check_images(x, self.image)

    def stem(self, x: Tensor) -> Tensor:
        """Below the adapted layers: (examples, channels, h, w) -> (examples, patches, units)."""
        tokens = self.patches(x).flatten(2).mT + self.places
        return tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 in the feed-forward layer and the output."""
        of_hidden, of_output = shifts or (None, None)
        a = self.hidden(features)  # (examples, patches, 2 units)
        h = features + self.back(shifted_activation(a, of_hidden, RELU, self.shift_rule))
        logits = self.output(h.mean(1))
        return BaseOutput(shifted_logits(logits, of_output), (a, logits))


class TransformerKey(Transformer):
    """The same network as a key function: its outputs are the key."""

    def __init__(self, image: tuple[int, int, int], size: int, patch: int, units: int) -> None:
        super().__init__(image, size, patch, units, "squashed")
        self.output.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """(examples, channels, h, w) -> (examples, size)."""
        return super().forward(x).logits


@dataclass(frozen=True)
class TransformerOptions(NetworkOptions):
    """A small Transformer.

    patch: pixels on a side of a patch.
    units: numbers in a token, a multiple of 4.
    """

    name: ClassVar[str] = "transformer"
    base_class: ClassVar[type[Any]] = Transformer
    key_class: ClassVar[type[Any]] = TransformerKey
    patch: int = 7
    units: int = 64

    def input_of(self, spec: InputSpec) -> tuple[int, int, int]:
        """The shape of images."""
        return image_shape(spec, "network transformer")
