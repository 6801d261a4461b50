"""The place of training examples: one table of bytes on the computing device, or in the host's memory."""

from __future__ import annotations

import dataclasses

import torch

from csn.data.source import Dataset

SHARE = 0.5  # the part of a device's free memory that examples may take


def placed(data: Dataset, device: torch.device, where: str = "auto") -> Dataset:
    """Move training and validation examples to the place where they are kept.

    Args:
        data: A data set. Streamed examples stay where they are.
        device: The device that computes.
        where: "device"; "host", so that each step copies its examples as bytes, pinned and asynchronously; or
            "auto" for the device if the examples fit into half of its free memory.
    """
    if device.type == "cpu" or where == "stream":
        return data
    size = sum(classes.x.nbytes for split, classes in data.splits.items() if split != "test")
    fits = size <= SHARE * free_memory(device)
    if where == "device" and not fits:
        raise ValueError(
            f"{data.name} needs {size >> 20:,} MB, more than half of the free memory of {device}: give --data-on host"
        )
    on = device if where == "device" or (where == "auto" and fits) else torch.device("cpu")
    splits = {
        split: classes if split == "test" else dataclasses.replace(classes, x=classes.x.to(on), device=device)
        for split, classes in data.splits.items()
    }
    return dataclasses.replace(data, splits=splits)


def free_memory(device: torch.device) -> float:
    """Free memory of a device in bytes; infinite if the device does not tell."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")
