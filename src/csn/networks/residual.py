"""A key function for pretraining as a classifier (csn.engine.pretrain): pairs of convolutions with a shortcut.

The paper does not use this network. It works with any base learner, and as the embedding of Matching and Prototypical
Networks.
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

PAIRED = (32, 64, 128, 256, 320)  # filters of the first convolution and of the pairs
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))  # pixels to the right and down
PART = 64  # images at a time
ENLARGED = 1.25  # Networks see objects larger when they train on parts of images than when they are tested on wholes.


class ResidualPair(nn.Module):
    """Two 3x3 convolutions with a 1x1 shortcut: (examples, inputs, h, w) -> relu (examples, filters, h, w)."""

    def __init__(self, inputs: int, filters: int, norm: Norm) -> None:
        super().__init__()
        self.first = NormedConv(inputs, filters, 3, norm)
        self.second = NormedConv(filters, filters, 3, norm)
        self.shortcut = NormedConv(inputs, filters, 1, norm)

    def forward(self, x: Tensor) -> Tensor:
        """h = relu(conv(x)), relu(conv(h) + conv(x))."""
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResidualKey(nn.Module):
    """A key function for pretraining: a 3x3 convolution, then residual pairs, average pooling and a linear layer.

    A 2x2 max pooling comes before each pair. In evaluation, a key may be the mean of the unit-length keys of several
    views of the image. What the keys of all training classes have in common may be subtracted.

    Args:
        image: (channels, height, width).
        size: Numbers in a key, or None for the averages themselves, without the linear layer.
        filters: Filters of the first convolution and of each pair.
        cells: The average pooling leaves `cells` x `cells` places.
        views: The number of views that are moved by a pixel, each to another side.
        mirrored: Whether mirror images are views.
        enlarged: Whether the image enlarged by a quarter is a view.
        root: Whether a key is the square root of the averages in evaluation.
        centred: Whether the mean key of training images is subtracted from a unit-length key in evaluation.
        norm: The normalisation after every convolution.
        precision: The precision of the convolutions.
    """

    centre: Tensor | None

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        size: int | None = 256,
        filters: tuple[int, ...] = PAIRED[:4],
        cells: int = 2,
        views: int = 0,
        mirrored: bool = False,
        enlarged: bool = False,
        root: bool = False,
        centred: bool = False,
        norm: Norm = "batch",
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        if not 0 <= views <= len(SIDES):
            raise ValueError(f"key.views must be a number of sides from 0 to {len(SIDES)}, got {views}")
        if min(image[1:]) < 2 ** (len(filters) - 1):
            raise ValueError(
                f"this key halves its images {len(filters) - 1} times, so images of {tuple(image)} are too small: "
                f"enlarge them (data.image_size)"
            )
        self.image, self.cells, self.precision = image, cells, precision
        if root and size is not None:
            raise ValueError("key.root takes roots of averages, so it needs key.linear=false")
        self.views, self.mirrored, self.enlarged, self.root = views, mirrored, enlarged, root
        self.first = NormedConv(image[0], filters[0], 3, norm)
        self.pairs = nn.ModuleList(ResidualPair(i, o, norm) for i, o in itertools.pairwise(filters))
        self.output = nn.Linear(cells * cells * filters[-1], size) if size else None
        self.register_buffer("centre", torch.zeros(size or cells * cells * filters[-1]) if centred else None)
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, d)."""
        check_images(x, self.image)
        if self.training:
            return self._key(x)
        seen = [x, *(moved_by(x, *side) for side in SIDES[: self.views])]
        if self.mirrored:
            seen.append(x.flip(-1))
        if self.enlarged:
            seen += [larger(view) for view in ([x, x.flip(-1)] if self.mirrored else [x])]
        if len(seen) == 1 and self.centre is None:
            return self._key(x)
        key = torch.stack([F.normalize(self._key(view), dim=-1) for view in seen]).mean(0)
        return key if self.centre is None else F.normalize(key, dim=-1) - self.centre

    @torch.no_grad()
    def centre_on(self, x: Tensor) -> None:
        """Take the mean of the unit-length keys of these images as the centre: (examples, channels, h, w)."""
        assert self.centre is not None
        self.centre = torch.zeros_like(self.centre)
        was_training = self.training
        self.eval()
        self.centre = torch.cat([self(part) for part in x.split(PART)]).mean(0)
        self.train(was_training)

    def _key(self, x: Tensor) -> Tensor:
        with convolving_in(self.precision, x.device):
            h = F.relu(self.first(channels_last(x)))
            for pair in self.pairs:
                h = pair(halve(h))
            h = F.adaptive_avg_pool2d(h, self.cells).flatten(1)
        h = h.to(self.first.convolution.weight.dtype)
        if self.root and not self.training:
            h = h.sqrt()
        return h if self.output is None else self.output(h)


@dataclass(frozen=True)
class ResidualKeyOptions(KeyOptions):
    """A key function of residual pairs, which works with any network.

    size: numbers in a key.
    linear: whether a linear layer makes the key; without it, the averages are the key and decide its size.
    pairs: number of residual pairs, 1 to 4.
    width: factor on the numbers of filters: 32 in the first convolution, then pairs of 64, 128, 256 and 320.
    cells: the last pair is averaged to `cells` x `cells` places.
    views: copies of an image, each moved by one pixel, that are averaged into its key in evaluation, 0 to 4.
    mirrored: whether mirror images are averaged into the key in evaluation too.
    enlarged: whether the image enlarged by a quarter is averaged into the key in evaluation too.
    root: whether a key is the square root of the averages in evaluation; needs linear=false.
    centred: whether the mean key of training images is subtracted in evaluation; needs a pretraining.
    norm: normalisation after every convolution.
    precision: precision of the convolutions.
    """

    name: ClassVar[str] = "residual"
    asks_network: ClassVar[bool] = False
    test_only: ClassVar[tuple[str, ...]] = ("views", "mirrored", "enlarged", "root", "centred")
    size: int = 256
    linear: bool = True
    pairs: int = 3
    width: float = 1.0
    cells: int = 2
    views: int = 0
    mirrored: bool = False
    enlarged: bool = False
    root: bool = False
    centred: bool = False
    norm: Norm = "batch"
    precision: Precision = "float32"

    def build(self, network: NetworkOptions, spec: InputSpec) -> ResidualKey:
        """Build the key function. It does not depend on the network."""
        check_sizes(self, "size", "cells", "pairs")
        if self.pairs >= len(PAIRED):
            raise ValueError(f"key.pairs must be a number from 1 to {len(PAIRED) - 1}, got {self.pairs}")
        filters = tuple(scaled(number, self.width) for number in PAIRED[: self.pairs + 1])
        if not self.linear and self.size != (averages := self.cells**2 * filters[-1]):
            raise ValueError(
                f"without a linear layer a key has {averages} numbers, got {self.size}: set key.size={averages}"
            )
        return ResidualKey(
            image_shape(spec, "key residual"),
            size=self.size if self.linear else None,
            filters=filters,
            cells=self.cells,
            views=self.views,
            mirrored=self.mirrored,
            enlarged=self.enlarged,
            root=self.root,
            centred=self.centred,
            norm=self.norm,
            precision=self.precision,
        )


def moved_by(x: Tensor, right: int, down: int) -> Tensor:
    """Move images by whole pixels: (examples, channels, h, w) -> the same. New pixels at the border are 0."""
    left, top = max(right, 0), max(down, 0)
    padded = F.pad(x, (left, max(-right, 0), top, max(-down, 0)))
    return padded[..., top - down : top - down + x.shape[-2], left - right : left - right + x.shape[-1]]


def larger(x: Tensor) -> Tensor:
    """Enlarge images by a quarter: (examples, channels, h, w) -> (examples, channels, 5/4 h, 5/4 w)."""
    size = [round(side * ENLARGED) for side in x.shape[-2:]]
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)
