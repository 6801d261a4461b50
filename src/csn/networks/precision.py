"""Optional bfloat16 convolutions: about twice as fast where the hardware supports them.

Only layers that are never shifted and the layers of the key function can use bfloat16. Eqs. 1-7 are always computed in
float32.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]


def convolving_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which convolutions read and write bfloat16 and accumulate in float32.

    Weights keep their type. "float32" changes nothing, so an autocast of the caller stays in effect.
    """
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
