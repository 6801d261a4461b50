"""Single precision within torch's autocast: eqs. 3 and 5 to 7, and g, are computed in it whatever the networks are."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def is_mixed(like: Tensor) -> bool:
    """Whether autocast is at work on the device of a tensor."""
    return torch.is_autocast_enabled(like.device.type)


def in_single(like: Tensor) -> AbstractContextManager[object]:
    """Where autocast, if it is at work, is not."""
    return torch.autocast(like.device.type, enabled=False) if is_mixed(like) else nullcontext()


def single(x: Tensor, mixed: bool) -> Tensor:
    """x in single precision where autocast may have made it half; a network in half precision is left alone."""
    return x.float() if mixed and x.is_floating_point() else x
