"""What the engine asks of the machine: a device, an allocator that keeps large blocks, and arithmetic that works."""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
import sys

import torch

from csn.base.precision import Precision

_PROBE = """
import torch
with torch.autocast("cpu", torch.bfloat16):
    x = torch.ones(2, 16, 8, 8, requires_grad=True)
    torch.nn.Conv2d(16, 16, 3)(x).sum().backward()
"""
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


def check_precision(precision: Precision) -> None:
    """Raise ValueError if this machine cannot compute in a precision: some processors claim instructions that end the
    process, so another one tries them first."""
    if precision == "bfloat16" and not _has_bfloat16():
        raise ValueError("this machine cannot convolve in bfloat16: leave out model.precision, or set it to float32")


@functools.cache
def _has_bfloat16() -> bool:
    return subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False).returncode == 0


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
