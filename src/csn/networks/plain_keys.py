"""The embeddings that the authors of baselines used: four blocks without a linear layer, and pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import he_initialise
from csn.core.parts import KeyOptions, NetworkOptions, image_shape
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions, ConvStack, check_images

BLOCKS = 4


class FourBlocks(nn.Module):
    """Four blocks of convolution, normalisation, ReLU and 2x2 max pooling. Their outputs are the embedding.

    Vinyals et al. (2016), Snell et al. (2017) and Finn et al. (2017) use it. It reduces 28 x 28 pixels to 1 x 1.
    """

    def __init__(self, image: tuple[int, int, int], options: CNNOptions) -> None:
        super().__init__()
        self.image = image
        self.blocks = ConvStack(
            image[0], options.filters, BLOCKS, norm=options.norm, precision=options.precision, ceil=False
        )
        he_initialise(self.modules())

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, filters * (h // 16) * (w // 16))."""
        check_images(x, self.image)
        return self.blocks(x).flatten(1)


@dataclass(frozen=True)
class FourBlocksOptions(KeyOptions):
    """Four blocks of convolution, with the filters and the normalisation of the network `cnn`.

    size: numbers in an embedding, which some learners must know; 0 for the number that the poolings leave,
        filters * (h // 16) * (w // 16).
    """

    name: ClassVar[str] = "four-blocks"
    size: int = 0

    def build(self, network: NetworkOptions, spec: InputSpec) -> nn.Module:
        """Build the key function. It reads images only."""
        if not isinstance(network, CNNOptions):
            raise ValueError(f"key {self.name} works with the network cnn, got {network.name}: set network.name=cnn")
        image = image_shape(spec, f"key {self.name}")
        size = network.filters * math.prod(side // 2**BLOCKS for side in image[1:])
        if not size or self.size not in (0, size):
            raise ValueError(
                f"{network.filters} filters on {image[1]} x {image[2]} pixels leave {size} numbers after {BLOCKS} "
                f"poolings, got key.size={self.size}: "
                + (f"set key.size={size}" if size else "images need 16 pixels on a side")
            )
        return FourBlocks(image, network)


class Pixels(nn.Module):
    """Images as numbers, averaged over areas: (examples, channels, h, w) -> (examples, channels * side * side)."""

    def __init__(self, image: tuple[int, int, int], side: int) -> None:
        super().__init__()
        self.image, self.side = image, side

    def forward(self, x: Tensor) -> Tensor:
        """Flatten each image after the pooling."""
        check_images(x, self.image)
        return F.adaptive_avg_pool2d(x, self.side).flatten(1)


@dataclass(frozen=True)
class PixelsOptions(KeyOptions):
    """Pixels of a smaller image, as MANN's controller reads them (Santoro et al., 2016: 20 x 20).

    size: number of pixels, a square for each channel.
    """

    name: ClassVar[str] = "pixels"
    asks_network: ClassVar[bool] = False
    size: int = 400

    def build(self, network: NetworkOptions, spec: InputSpec) -> nn.Module:
        """Build the key function. It reads images only."""
        image = image_shape(spec, f"key {self.name}")
        side = math.isqrt(max(self.size, 0) // image[0])
        if side < 1 or image[0] * side * side != self.size:
            raise ValueError(
                f"key.size must be {image[0]} x side x side pixels, got {self.size}: try {image[0] * 20 * 20}"
            )
        return Pixels(image, side)
