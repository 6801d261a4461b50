"""adaCNN: five 3x3 convolutions with ReLU and 2x2 max pooling, and a softmax layer (section 4.1).

Conditionally shifted neurons are in 'the last four layers': convolutions 3 to 5 and the softmax. The neurons of a
convolution have the order (height, width, filters). This is the memory order of channels_last, so no layer is copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts, he_initialise, start_uniform
from csn.core.neurons import RELU, ShiftRule, shifted_activation, shifted_logits
from csn.core.parts import NetworkOptions, image_shape
from csn.learner import InputSpec
from csn.networks.precision import Precision, convolving_in
from csn.networks.task_norm import STATISTICS, TaskNorm

Norm = Literal["none", "batch", "group", "support", "transductive"]


class ConvStack(nn.Module):
    """Blocks of convolution, normalisation, ReLU and pooling: (examples, channels, h, w) -> (examples, filters, ...).

    Args:
        channels: Channels of the input.
        filters: Filters of every convolution.
        layers: Number of blocks.
        norm: The normalisation after every convolution.
        dropout: The dropout rate on the input.
        precision: The precision of the convolutions.
        ceil: Whether pooling keeps a last odd row and column.
    """

    def __init__(
        self,
        channels: int,
        filters: int,
        layers: int,
        *,
        norm: Norm = "none",
        dropout: float = 0.0,
        precision: Precision = "float32",
        ceil: bool = True,
    ) -> None:
        super().__init__()
        self.precision, self.ceil = precision, ceil
        sizes = [channels] + [filters] * layers
        self.convolutions = nn.ModuleList(
            nn.Conv2d(i, o, kernel_size=3, padding=1, bias=norm == "none") for i, o in itertools.pairwise(sizes)
        )
        self.norms = nn.ModuleList(normalisation(norm, filters) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Pool before the ReLU, which then has a quarter of the work. Max pooling and ReLU commute."""
        h = channels_last(self.dropout(x))
        with convolving_in(self.precision, x.device):
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                h = F.relu(pool(norm(convolution(h)), self.ceil))
        return h.to(x.dtype)


class CNN(BaseLearner):
    """The base learner of adaCNN.

    Args:
        image: (channels, height, width).
        way: The number of outputs C.
        filters: Filters of every convolution.
        dropout: Dropout rates on the input, the input of the last convolution and the input of the softmax layer
            (appendix A).
        norm: The normalisation after the two convolutions below the adapted layers. The adapted layers have none, so
            that eq. 5 stays per example.
        precision: The precision of these two convolutions.
        shift_rule: How shifts are added (`csn.core.neurons`).
    """

    stem_layers, adapted_layers = 2, 3

    def __init__(
        self,
        image: tuple[int, int, int],
        way: int,
        *,
        filters: int = 64,
        dropout: tuple[float, float, float] = (0.0, 0.0, 0.0),
        norm: Norm = "none",
        precision: Precision = "float32",
        shift_rule: ShiftRule = "squashed",
    ) -> None:
        super().__init__()
        self.image, self.way, self.shift_rule, self.input_spec = image, way, shift_rule, InputSpec(tuple(image))
        self.activations = (RELU,) * self.adapted_layers
        self.lower = ConvStack(image[0], filters, self.stem_layers, norm=norm, dropout=dropout[0], precision=precision)
        self.adapted = nn.ModuleList(nn.Conv2d(filters, filters, 3, padding=1) for _ in range(self.adapted_layers))
        self.output = nn.Linear(filters * pooled_size(image, self.stem_layers + self.adapted_layers), way)
        self.dropouts = nn.ModuleList([nn.Identity(), nn.Identity(), nn.Dropout(dropout[1])])
        self.output_dropout = nn.Dropout(dropout[2])
        he_initialise(self.modules())
        start_uniform(self.output)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def check_input(self, x: Tensor) -> None:
        """Images of one size."""
        check_images(x, self.image)

    def stem(self, x: Tensor) -> Tensor:
        """The convolutions without shifts: (examples, channels, h, w) -> (examples, filters, h / 4, w / 4)."""
        return self.lower(x)

    def stem_parts(self) -> tuple[nn.Module, ...]:
        """The convolutions without shifts."""
        return (self.lower,)

    def head(self, features: Tensor, shifts: Shifts | None = None) -> BaseOutput:
        """Eq. 1 in the last three convolutions and the softmax layer."""
        x = features
        preactivations = []
        for t, (convolution, dropout) in enumerate(zip(self.adapted, self.dropouts, strict=True)):
            a = convolution(dropout(x)).permute(0, 2, 3, 1)  # (examples, h, w, filters), a view
            preactivations.append(a)
            h = shifted_activation(a, shifts[t] if shifts else None, RELU, self.shift_rule)
            x = pool(h.permute(0, 3, 1, 2))
        a = self.output(self.output_dropout(x.flatten(1)))
        return BaseOutput(shifted_logits(a, shifts[-1] if shifts else None), (*preactivations, a))


class CNNKey(nn.Module):
    """A CNN of the base learner's shape: five convolutions, then a linear layer to the key (section 4.1).

    Args:
        image: (channels, height, width).
        size: Numbers in a key.
        filters: Filters of every convolution.
        layers: Number of convolutions, including those of a shared stem.
        norm: The normalisation after every convolution.
        precision: The precision of the convolutions.
        shared_stem: Whether the base learner's stem replaces the first convolutions. The key function then reads the
            features of the stem.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        size: int = 64,
        filters: int = 64,
        layers: int = 5,
        norm: Norm = "none",
        precision: Precision = "float32",
        shared_stem: bool = False,
    ) -> None:
        super().__init__()
        below = CNN.stem_layers if shared_stem else 0
        self.image = None if shared_stem else image
        self.convolutions = ConvStack(
            filters if below else image[0], filters, layers - below, norm=norm, precision=precision
        )
        self.output = nn.Linear(filters * pooled_size(image, layers), size)
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> (examples, d)."""
        if self.image is not None:
            check_images(x, self.image)
        return self.output(self.convolutions(x).flatten(1))


@dataclass(frozen=True)
class CNNOptions(NetworkOptions):
    """The networks of adaCNN.

    filters: filters of every convolution.
    dropout: dropout rates on the base learner's input and the inputs of its last convolution and its softmax layer.
    norm: normalisation after the convolutions that are never shifted, and after those of the key function; "support"
        and "transductive" are for networks whose parameters a task adapts (`csn.networks.task_norm`).
    precision: precision of these convolutions.
    shared_stem: the key function shares the convolutions that are never shifted.
    """

    name: ClassVar[str] = "cnn"
    base_class: ClassVar[type[Any]] = CNN
    key_class: ClassVar[type[Any]] = CNNKey
    base_only: ClassVar[tuple[str, ...]] = ("dropout",)
    filters: int = 64
    dropout: tuple[float, float, float] = (0.0, 0.0, 0.0)
    norm: Norm = "none"
    precision: Precision = "float32"
    shared_stem: bool = False

    def input_of(self, spec: InputSpec) -> tuple[int, int, int]:
        """The shape of images."""
        return image_shape(spec, "network cnn")


_natively: ContextVar[bool] = ContextVar("natively", default=False)


@contextmanager
def native_norms() -> Iterator[None]:
    """Use torch's own group norm, which is twice as fast. It works only without torch.func.vmap."""
    token = _natively.set(True)
    try:
        yield
    finally:
        _natively.reset(token)


class GroupNorm(nn.GroupNorm):
    """Group normalisation, either of operations that torch.func.vmap supports, or torch's own."""

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels, h, w) -> the same: each group normalised as a layer, a gain and bias per channel."""
        if _natively.get():
            return super().forward(x)
        groups = x.unflatten(1, (self.num_groups, -1))
        normalised = F.layer_norm(groups, groups.shape[2:], eps=self.eps).flatten(1, 2)
        return normalised * self.weight[:, None, None] + self.bias[:, None, None]


def check_images(x: Tensor, image: tuple[int, int, int]) -> None:
    """Raise ValueError unless x (examples, channels, h, w) holds images of the given shape."""
    if tuple(x.shape[1:]) != tuple(image):
        raise ValueError(
            f"this network takes images of shape {tuple(image)}, got {tuple(x.shape[1:])}: resize them, or build "
            f"the network for this size"
        )


def channels_last(x: Tensor) -> Tensor:
    """Do `x.contiguous(memory_format=torch.channels_last)` with operations that torch.func.vmap supports."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def pool(x: Tensor, ceil: bool = True) -> Tensor:
    """2x2 max pooling that keeps odd rows and columns. Five poolings of 28x28 pixels need this: 28-14-7-4-2-1."""
    return F.max_pool2d(x, 2, ceil_mode=ceil)


def pooled_size(image: tuple[int, int, int], layers: int) -> int:
    """Pixels of a feature map that are left after `layers` poolings."""
    _, height, width = image
    for _ in range(layers):
        height, width = -(-height // 2), -(-width // 2)
    return height * width


def normalisation(norm: Norm, filters: int) -> nn.Module:
    """A normalisation layer by name."""
    if norm == "none":
        return nn.Identity()
    if norm == "batch":
        return nn.BatchNorm2d(filters)
    if norm == "group":
        # Eight filters or more in a group: one filter on a map of one pixel would be normalised to a constant.
        groups = next(number for number in range(max(1, filters // 8), 0, -1) if filters % number == 0)
        return GroupNorm(groups, filters)
    if norm in STATISTICS:
        return TaskNorm(filters, norm)
    raise ValueError(f"unknown normalisation {norm!r}: choose none, batch, group, support or transductive")
