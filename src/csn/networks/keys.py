"""Key functions f (section 2.1.2): input -> key of size d, with a linear output layer."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import he_initialise
from csn.networks.cnn import ConvStack, Norm, check_images, pooled_size
from csn.networks.precision import Precision
from csn.networks.resnet import FEATURES, FILTERS, UNITS, BlockStack, NormedConv, check_side, halve, scaled


class CNNKey(nn.Module):
    """A CNN of the base learner's shape: five convolutions, then a linear layer to the key (section 4.1)."""

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        size: int = 64,
        filters: int = 64,
        layers: int = 5,
        norm: Norm = "none",
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        self.image = image
        self.convolutions = ConvStack(image[0], filters, layers, norm=norm, precision=precision)
        self.output = nn.Linear(filters * pooled_size(image, layers), size)
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, d)."""
        check_images(x, self.image)
        return self.output(self.convolutions(x).flatten(1))


class ResNetKey(nn.Module):
    """A key function of the base learner's shape: blocks, 1x1 convolution, a hidden layer, a linear one to the key."""

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        size: int = 64,
        width: float = 1.0,
        units: int = UNITS,
        norm: Norm = "none",
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        check_side(image)
        self.image = image
        filters = tuple(scaled(number, width) for number in FILTERS)
        self.blocks = BlockStack(image[0], filters, norm, precision)
        self.features = NormedConv(filters[-1], scaled(FEATURES, width), 1, norm)
        self.hidden = nn.Linear(scaled(FEATURES, width), scaled(units, width))
        self.output = nn.Linear(scaled(units, width), size)
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, d)."""
        check_images(x, self.image)
        h = F.relu(self.features(F.relu(halve(self.blocks(x))))).mean((2, 3))
        return self.output(F.relu(self.hidden(h)))


class MLPKey(nn.Module):
    """A multi-layer perceptron with a linear output layer; inputs of any shape are flattened."""

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
