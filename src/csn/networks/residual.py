"""A key function to be pretrained as a classifier (csn.engine.pretrain): pairs of convolutions with a shortcut.

It is no network of the paper. It stands beside any base learner, and under Matching and Prototypical Networks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import he_initialise
from csn.core.parts import KeyOptions, NetworkOptions, check_sizes, image_shape
from csn.learner import InputSpec
from csn.networks.cnn import Norm, channels_last, check_images
from csn.networks.precision import Precision, convolving_in
from csn.networks.resnet import NormedConv, halve, scaled

PAIRED = (32, 64, 128, 256)  # filters of the first convolution and of the pairs
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))  # pixels to the right and down


class ResidualPair(nn.Module):
    """Two 3x3 convolutions beside a 1x1: (examples, inputs, h, w) -> relu (examples, filters, h, w)."""

    def __init__(self, inputs: int, filters: int, norm: Norm) -> None:
        super().__init__()
        self.first = NormedConv(inputs, filters, 3, norm)
        self.second = NormedConv(filters, filters, 3, norm)
        self.shortcut = NormedConv(inputs, filters, 1, norm)

    def forward(self, x: Tensor) -> Tensor:
        """h = relu(conv(x)), relu(conv(h) + conv(x))."""
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResidualKey(nn.Module):
    """A key function to be pretrained: a 3x3 convolution, and a pair of them for each further number of filters.

    A 2x2 max pooling comes before each pair. An average of `cells` x `cells` places is followed by a linear layer.
    views: in evaluation a key is the mean of the unit keys of an image and of the image moved by a pixel to so many
    further sides.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        size: int = 256,
        filters: tuple[int, ...] = PAIRED,
        cells: int = 2,
        views: int = 0,
        norm: Norm = "batch",
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        if not 0 <= views <= len(SIDES):
            raise ValueError(f"an image is moved to 0 to {len(SIDES)} sides (key.views), got {views}")
        if min(image[1:]) < 2 ** (len(filters) - 1):
            raise ValueError(
                f"this key halves its images {len(filters) - 1} times, and {tuple(image)} are too small: enlarge them "
                f"(data.image_size)"
            )
        self.image, self.cells, self.views, self.precision = image, cells, views, precision
        self.first = NormedConv(image[0], filters[0], 3, norm)
        self.pairs = nn.ModuleList(ResidualPair(i, o, norm) for i, o in itertools.pairwise(filters))
        self.output = nn.Linear(cells * cells * filters[-1], size)
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, d)."""
        check_images(x, self.image)
        if self.training or not self.views:
            return self._key(x)
        moved = [x, *(moved_by(x, *side) for side in SIDES[: self.views])]
        return torch.stack([F.normalize(self._key(view), dim=-1) for view in moved]).mean(0)

    def _key(self, x: Tensor) -> Tensor:
        with convolving_in(self.precision, x.device):
            h = F.relu(self.first(channels_last(x)))
            for pair in self.pairs:
                h = pair(halve(h))
            h = F.adaptive_avg_pool2d(h, self.cells).flatten(1)
        return self.output(h.to(self.output.weight.dtype))


@dataclass(frozen=True)
class ResidualKeyOptions(KeyOptions):
    """A key function of residual pairs, whatever network it stands beside.

    size: numbers in a key.
    width: multiplies the filters of a convolution of 32 and pairs of 64, 128 and 256.
    cells: places on a side that the last pair is averaged to.
    views: further sides to which an image is moved by a pixel in evaluation, 0 to 4; the key is the mean of all.
    norm: after every convolution.
    precision: in which it convolves.
    """

    name: ClassVar[str] = "residual"
    asks_network: ClassVar[bool] = False
    test_only: ClassVar[tuple[str, ...]] = ("views",)
    size: int = 256
    width: float = 1.0
    cells: int = 2
    views: int = 0
    norm: Norm = "batch"
    precision: Precision = "float32"

    def build(self, network: NetworkOptions, spec: InputSpec) -> ResidualKey:
        """The key function; the network is not asked."""
        check_sizes(self, "size", "cells")
        return ResidualKey(
            image_shape(spec, "key residual"),
            size=self.size,
            filters=tuple(scaled(number, self.width) for number in PAIRED),
            cells=self.cells,
            views=self.views,
            norm=self.norm,
            precision=self.precision,
        )


def moved_by(x: Tensor, right: int, down: int) -> Tensor:
    """(examples, channels, h, w) -> the same, moved by whole pixels; what comes in is 0."""
    left, top = max(right, 0), max(down, 0)
    padded = F.pad(x, (left, max(-right, 0), top, max(-down, 0)))
    return padded[..., top - down : top - down + x.shape[-2], left - right : left - right + x.shape[-1]]
