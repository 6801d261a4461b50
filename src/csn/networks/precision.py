"""Convolutions in half of the bits, which takes about half of the time where a machine has instructions for it.

Only layers that are never shifted, and those of the key function, may be computed so. What eqs. 1 to 7 make of their
outputs is computed in ordinary numbers.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]


def convolving_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Where convolutions read and write bfloat16 and add up in float32; weights are kept as they are.

    With "float32" nothing changes, so that a caller's own autocast has its way.
    """
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
