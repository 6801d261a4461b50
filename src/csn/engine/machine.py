"""The machine's device, and a precision in which it computes correctly and fast."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings

import torch

from csn.allocator import keep_freed_memory as keep_freed_memory
from csn.core.parts import LearnerOptions

# Runs typical convolutions forward and backward in both precisions, and fails if bfloat16 is slower. A processor with
# instructions for bfloat16 takes a third of the time; one that emulates it takes three times as long.
_PROBE = """
import time, torch
torch.set_num_threads(1)
x = torch.ones(8, 64, 16, 16, requires_grad=True).contiguous(memory_format=torch.channels_last)
layers = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.Conv2d(64, 64, 1))
layers = layers.to(memory_format=torch.channels_last)
def seconds(half):
    started = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        layers(x).sum().backward()
    return time.perf_counter() - started
times = [(seconds(False), seconds(True)) for _ in range(10)]
raise SystemExit(min(half for _, half in times) > min(full for full, _ in times))
"""


def choose_device(name: str, local: int | None = None) -> torch.device:
    """Return the device with a name.

    Args:
        name: cpu, cuda, mps, or auto for the fastest one of this machine.
        local: The number of this process on this machine if several processes train together. Each gets its own GPU.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available["mps"] &= local is None
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if name == "cuda" and local is not None and available["cuda"]:
        if local >= torch.cuda.device_count():
            raise ValueError(
                f"process {local + 1} of this machine needs a GPU, and there are {torch.cuda.device_count()}: start as "
                f"many processes as there are GPUs, or give --device cpu"
            )
        torch.cuda.set_device(local)
        name = f"cuda:{local}"
    if not available.get(name.partition(":")[0], False):
        there = ", ".join(device for device, yes in available.items() if yes)
        raise ValueError(f"device {name!r} is not available: this machine has {there}")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"cannot read the device {name!r} ({error}): give cpu, cuda, cuda:1, mps or auto") from error


def check_precision(precision: str, device: torch.device) -> None:
    """Raise ValueError if convolutions in this precision fail on a device, or are slower than in float32."""
    if precision == "bfloat16" and not _gains_by_bfloat16(device.type):
        raise ValueError(
            f"convolutions in bfloat16 fail or are not faster on this machine's {device.type}: use float32, with --set "
            f"network.precision=float32 if a preset or table has bfloat16"
        )


def check_mixed(learner: LearnerOptions, device: torch.device) -> None:
    """Raise ValueError if a learner cannot be trained in mixed precision, or if it is not faster on the device."""
    if not learner.mixes:
        raise ValueError(
            f"learner {learner.name!r} is trained in float32 only, because it computes with gradients of weights or "
            f"reads running text: leave out train.precision"
        )
    if not torch.amp.is_autocast_available(device.type) or not _gains_by_bfloat16(device.type):
        raise ValueError(
            f"train.precision=bf16-mixed fails or is not faster on this machine's {device.type}: train in fp32"
        )


def usable_precision(precision: str) -> str:
    """The precision for a trained model: its own, or float32 if its own is not faster on this machine."""
    if precision == "bfloat16" and not _gains_by_bfloat16("cpu"):
        warnings.warn("bfloat16 is not faster on this machine: the model is read in float32", RuntimeWarning, 2)
        return "float32"
    return precision


@functools.cache
def _gains_by_bfloat16(device: str) -> bool:
    """Whether bfloat16 is faster on this device.

    Some processors claim instructions that crash the process, so a child process tries them first.
    """
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return (
        device == "cpu"
        and subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=False).returncode == 0
    )
