"""adaResNet: four residual blocks, a 1x1 convolution and two fully connected layers (sections 2.4 and 4.1).

Conditionally shifted neurons are at the outputs of the last two blocks and in both fully connected layers. Neurons of a
block have the order (height, width, filters). This is the memory order of channels_last, so no layer is copied.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts, he_initialise, start_uniform
from csn.core.neurons import RELU, ShiftRule, shifted_activation, shifted_logits
from csn.core.parts import NetworkOptions, image_shape
from csn.learner import InputSpec
from csn.networks.cnn import Norm, channels_last, check_images, normalisation
from csn.networks.precision import Precision, convolving_in

FILTERS, FEATURES, UNITS = (64, 96, 128, 256), 1024, 512  # of the blocks, the 1x1 convolution, the hidden FC layer
SMALLEST_SIDE = 2 ** len(FILTERS)


def scaled(number: int, width: float) -> int:
    """Multiply a number of filters or units by a width. The result is a multiple of 8, which suits vector units."""
    if number < 1:
        raise ValueError(f"network.units must be 1 or more, got {number}")
    if not 0 < width < math.inf:
        raise ValueError(f"network.width multiplies the filters and must be above 0, got {width}")
    return max(8, 8 * round(number * width / 8))


class NormedConv(nn.Module):
    """A convolution, 'optionally followed by a batch normalization': (examples, i, h, w) -> (examples, o, h, w)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, norm: Norm) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=norm == "none")
        self.norm = normalisation(norm, outputs)

    def forward(self, x: Tensor, *, alone: bool = False) -> Tensor:
        """Convolve, then normalise.

        Args:
            x: (examples, inputs, h, w).
            alone: Whether batch norm uses its running statistics in training too, so that examples do not mix.
        """
        a = self.convolution(x)
        if alone and isinstance(self.norm, nn.BatchNorm2d):
            norm = self.norm
            return F.batch_norm(a, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        return self.norm(a)


class ResBlock(nn.Module):
    """Section 2.4: h1 = relu(conv(x)), h2 = relu(conv(h1)), h3 = conv(h2), h4 = conv(x), a = h3 + h4."""

    def __init__(self, inputs: int, filters: int, norm: Norm) -> None:
        super().__init__()
        self.first = NormedConv(inputs, filters, 3, norm)
        self.second = NormedConv(filters, filters, 3, norm)
        self.third = NormedConv(filters, filters, 3, norm)
        self.shortcut = NormedConv(inputs, filters, 1, norm)

    def forward(self, x: Tensor, *, alone: bool = False) -> Tensor:
        """(examples, inputs, h, w) -> a (examples, filters, h, w)."""
        h = F.relu(self.first(x, alone=alone))
        h = F.relu(self.second(h, alone=alone))
        return self.third(h, alone=alone) + self.shortcut(x, alone=alone)


class BlockStack(nn.Module):
    """Residual blocks with pooling and ReLU after all but the last: (examples, channels, h, w) -> a of the last."""

    def __init__(self, channels: int, filters: tuple[int, ...], norm: Norm, precision: Precision = "float32") -> None:
        super().__init__()
        self.precision = precision
        self.blocks = nn.ModuleList(ResBlock(i, o, norm) for i, o in itertools.pairwise((channels, *filters)))

    def forward(self, x: Tensor) -> Tensor:
        """Pool before the ReLU, which then has a quarter of the work. Max pooling and ReLU commute."""
        with convolving_in(self.precision, x.device):
            a = self.blocks[0](channels_last(x))
            for block in self.blocks[1:]:
                a = block(F.relu(halve(a)))
        return a.to(x.dtype)


class ResNet(BaseLearner):
    """The base learner of adaResNet.

    Batch norm below the lowest adapted preactivations is ordinary. Above them, it would mix examples into each other's
    gradients (eq. 5). The description phase therefore uses running statistics there, which the prediction phase of
    training collects.

    Args:
        image: (channels, height, width), with 16 pixels or more on a side.
        way: The number of outputs C.
        width: The factor on every number of filters and units.
        units: Units of the hidden fully connected layer, before `width`.
        dropout: Dropout rates on the input and on the inputs of the two fully connected layers (appendix A).
        norm: The normalisation after every convolution.
        precision: The precision of the blocks below the lowest adapted preactivations.
        shift_rule: How shifts are added (`csn.core.neurons`).
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        way: int,
        *,
        width: float = 1.0,
        units: int = UNITS,
        dropout: tuple[float, float, float] = (0.0, 0.0, 0.0),
        norm: Norm = "none",
        precision: Precision = "float32",
        shift_rule: ShiftRule = "squashed",
    ) -> None:
        super().__init__()
        check_side(image)
        self.image, self.way, self.shift_rule, self.input_spec = image, way, shift_rule, InputSpec(tuple(image))
        self.activations = (RELU,) * 3
        *lower, last = (scaled(filters, width) for filters in FILTERS)
        features, units = scaled(FEATURES, width), scaled(units, width)
        self.input_dropout = nn.Dropout(dropout[0])
        self.lower = BlockStack(image[0], tuple(lower), norm, precision)
        self.block = ResBlock(lower[-1], last, norm)
        self.features = NormedConv(last, features, 1, norm)
        self.hidden_dropout, self.hidden = nn.Dropout(dropout[1]), nn.Linear(features, units)
        self.output_dropout, self.output = nn.Dropout(dropout[2]), nn.Linear(units, way)
        he_initialise(self.modules())
        start_uniform(self.output)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def check_input(self, x: Tensor) -> None:
        """Images of one size."""
        check_images(x, self.image)

    def stem(self, x: Tensor) -> Tensor:
        """Run everything up to a of the third block, the lowest adapted layer: -> (examples, filters, h / 4, w / 4)."""
        return self.lower(self.input_dropout(x))

    def stem_parts(self) -> tuple[nn.Module, ...]:
        """Three blocks."""
        return self.input_dropout, self.lower

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 at the outputs of blocks 3 and 4 and in the fully connected layers."""
        third, fourth, hidden, output = shifts or (None,) * 4
        a3 = features.permute(0, 2, 3, 1)  # (examples, h, w, filters), a view
        h = shifted_activation(a3, third, RELU, self.shift_rule)
        alone = shifts is None
        a4 = self.block(halve(h.permute(0, 3, 1, 2)), alone=alone).permute(0, 2, 3, 1)
        h = shifted_activation(a4, fourth, RELU, self.shift_rule)
        h = F.relu(self.features(halve(h.permute(0, 3, 1, 2)), alone=alone)).mean((2, 3))
        a5 = self.hidden(self.hidden_dropout(h))
        h = shifted_activation(a5, hidden, RELU, self.shift_rule)
        a6 = self.output(self.output_dropout(h))
        return BaseOutput(shifted_logits(a6, output), (a3, a4, a5, a6))


class ResNetKey(nn.Module):
    """A key function of the base learner's shape: blocks, 1x1 convolution, a hidden layer, a linear one to the key.

    Args:
        image: (channels, height, width).
        size: Numbers in a key.
        width: The factor on every number of filters and units.
        units: Units of the hidden layer, before `width`.
        norm: The normalisation after every convolution.
        precision: The precision of the blocks.
        shared_stem: Whether the base learner's stem replaces all blocks but the last. The key function then reads the
            features of the stem.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        size: int = 64,
        width: float = 1.0,
        units: int = UNITS,
        norm: Norm = "none",
        precision: Precision = "float32",
        shared_stem: bool = False,
    ) -> None:
        super().__init__()
        check_side(image)
        self.image = None if shared_stem else image
        *lower, last = filters = tuple(scaled(number, width) for number in FILTERS)
        self.blocks = (
            BlockStack(lower[-1], (last,), norm, precision)
            if shared_stem
            else BlockStack(image[0], filters, norm, precision)
        )
        self.features = NormedConv(filters[-1], scaled(FEATURES, width), 1, norm)
        self.hidden = nn.Linear(scaled(FEATURES, width), scaled(units, width))
        self.output = nn.Linear(scaled(units, width), size)
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, d)."""
        if self.image is None:
            x = F.relu(halve(x))  # the stem ends before pooling and ReLU
        else:
            check_images(x, self.image)
        h = F.relu(self.features(F.relu(halve(self.blocks(x))))).mean((2, 3))
        return self.output(F.relu(self.hidden(h)))


@dataclass(frozen=True)
class ResNetOptions(NetworkOptions):
    """The networks of adaResNet.

    width: factor on every number of filters and units.
    units: units of the hidden fully connected layer, before `width`.
    dropout: dropout rates on the base learner's input and the inputs of its two fully connected layers.
    norm: normalisation after every convolution.
    precision: precision of the blocks that are never shifted.
    shared_stem: the key function shares the blocks below the adapted layers.
    """

    name: ClassVar[str] = "resnet"
    base_class: ClassVar[type[Any]] = ResNet
    key_class: ClassVar[type[Any]] = ResNetKey
    base_only: ClassVar[tuple[str, ...]] = ("dropout",)
    width: float = 1.0
    units: int = UNITS
    dropout: tuple[float, float, float] = (0.0, 0.0, 0.0)
    norm: Norm = "none"
    precision: Precision = "float32"
    shared_stem: bool = False

    def input_of(self, spec: InputSpec) -> tuple[int, int, int]:
        """The shape of images."""
        return image_shape(spec, "network resnet")


def halve(x: Tensor) -> Tensor:
    """2x2 max pooling as in TCML. It drops an odd last row or column: 84-42-21-10-5."""
    return F.max_pool2d(x, 2)


def check_side(image: tuple[int, int, int]) -> None:
    """Raise ValueError if four poolings would leave nothing of an image."""
    if min(image[1:]) < SMALLEST_SIDE:
        raise ValueError(
            f"adaResNet halves its images {len(FILTERS)} times, so it needs {SMALLEST_SIDE} pixels or more on a side, "
            f"got {tuple(image)}: enlarge them (data.image_size), or choose adaCNN"
        )
