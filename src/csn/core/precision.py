"""Single precision within torch's autocast: eqs. 3 and 5-7 and g always use float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def is_mixed(like: Tensor) -> bool:
    """Whether autocast is enabled on the device of a tensor."""
    return torch.is_autocast_enabled(like.device.type)


def in_single(like: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast is disabled."""
    return torch.autocast(like.device.type, enabled=False) if is_mixed(like) else nullcontext()


def single(x: Tensor, mixed: bool) -> Tensor:
    """Convert x to float32 if autocast may have lowered its precision. Without autocast, x keeps its type."""
    return x.float() if mixed and x.is_floating_point() else x
