"""What the engine asks of the machine: a device, and an allocator that keeps large blocks."""

from __future__ import annotations

import ctypes
import platform

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def choose_device(name: str) -> torch.device:
    """cpu, cuda, mps, or auto for the fastest one there is."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if not available.get(name.partition(":")[0], False):
        there = ", ".join(device for device, yes in available.items() if yes)
        raise ValueError(f"device {name!r} is not available: this machine has {there}")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"cannot read the device {name!r} ({error}): give cpu, cuda, cuda:1, mps or auto") from error


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks instead of returning them to the system after every layer; harmless elsewhere."""
    if platform.system() != "Linux":
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            libc.mallopt(option, 2**30)
    except (OSError, AttributeError):
        return  # another libc
