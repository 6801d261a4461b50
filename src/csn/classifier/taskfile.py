"""Task files: a classifier's memory as one checked safetensors file. docs/task_format.md describes the format.

Reading a file executes no code and opens no other file. Every number in it is checked before it is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csn import __version__
from csn.core.memory import DenseValues, GatedValues, LayerValues, TaskMemory, join
from csn.engine.checkpoint import load_checkpoint, save_checkpoint

KIND = "csn-task"
WITH_ROWS, WITH_KEYS = 1, 2  # versions
REMEDY = "take another copy, or learn the task again with csn adapt"


@dataclass(frozen=True)
class TaskFile:
    """The content of a task file.

    inputs: (n, *input) as prepared, or None if they are not kept.
    keys: (n, d) if a head answers from them, or None if a learner answers by itself.
    labels: one label per example.
    rows: one memory row per example, or an empty list.
    about: everything else.
    """

    inputs: Tensor | None
    keys: Tensor | None
    labels: list[Hashable]
    rows: list[TaskMemory]
    about: dict[str, Any]


def write_task(path: Path, task: TaskFile) -> None:
    """Write a task, or raise ValueError if JSON cannot carry its labels."""
    for label in task.labels:
        if type(label) not in (str, int, float, bool) or (isinstance(label, float) and not math.isfinite(label)):
            raise ValueError(
                f"a task file can hold labels that are strings, finite numbers or booleans, got {label!r} of type "
                f"{type(label).__name__}: learn the examples with such labels before saving"
            )
    tensors = {name: part for name, part in (("inputs", task.inputs), ("keys", task.keys)) if part is not None}
    version = WITH_ROWS if task.keys is None else WITH_KEYS
    about = task.about | {"kind": KIND, "task_version": version, "csn": __version__, "labels": task.labels}
    if task.rows:
        memory = join(task.rows)
        tensors |= {"keys": memory.keys[0], "slots": memory.labels[0]}
        about["layers"] = []
        for t, layer in enumerate(memory.values):
            packed, description = _pack(layer)
            tensors |= {f"values.{t}.{name}": tensor for name, tensor in packed.items()}
            about["layers"].append(description)
    save_checkpoint(path, tensors, about)


def read_task(path: Path) -> TaskFile:
    """Read a task, or raise ValueError with the reason why the file cannot be trusted."""
    try:
        tensors, about = load_checkpoint(path)
    except RecursionError as error:
        raise ValueError(f"{path} is not a task file: {REMEDY}") from error
    if not isinstance(about, dict) or about.get("kind") != KIND:
        raise ValueError(f"{path} is not a task file of csn but another checkpoint: give a file that `save` wrote")
    if about.get("task_version") not in (WITH_ROWS, WITH_KEYS):
        raise ValueError(f"{path} is a task of version {about.get('task_version')}, this csn reads 1 and 2: upgrade")
    try:
        return _unpacked(tensors, about)
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} does not hold a whole task ({error}): {REMEDY}") from error


def _unpacked(tensors: dict[str, Tensor], about: dict[str, Any]) -> TaskFile:
    labels, inputs = about["labels"], tensors.get("inputs")
    if not isinstance(labels, list) or any(type(label) not in (str, int, float, bool) for label in labels):
        raise ValueError("labels must be strings, numbers or booleans")
    if any(isinstance(label, float) and not math.isfinite(label) for label in labels):
        raise ValueError("labels must be finite")
    if not labels or any(len(t) != len(labels) for name, t in tensors.items() if not name.endswith(".base")):
        raise ValueError(f"every tensor needs {len(labels)} rows, one per label")
    if any(tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ValueError("it holds NaN or infinite values")
    if about["task_version"] == WITH_KEYS:
        keys, _ = tensors["keys"], about["head"]
        if keys.ndim != 2 or not keys.is_floating_point() or not keys.shape[1]:
            raise ValueError(f"keys are (n, d) numbers, got {tuple(keys.shape)} {keys.dtype}")
        return TaskFile(inputs, keys, labels, [], about)
    if inputs is None:
        raise ValueError("it holds no inputs")
    if "layers" not in about:
        return TaskFile(inputs, None, labels, [], about)
    layers = tuple(
        _unpack(
            {
                name: tensors[f"values.{t}.{name}"]
                for name in ("gate", "gain", "base", "dense")
                if f"values.{t}.{name}" in tensors
            },
            description,
        )
        for t, description in enumerate(about["layers"])
    )
    memory = TaskMemory(tensors["keys"][None], layers, tensors["slots"][None].long(), int(about["way"]))
    return TaskFile(inputs, None, labels, [memory.rows([i]) for i in range(len(labels))], about)


def _pack(layer: LayerValues) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """One layer as tensors with a row per example, and the shape of its neurons."""
    if isinstance(layer, DenseValues):
        return {"dense": layer.values[0]}, {"kind": "dense", "neurons": list(layer.values.shape[2:])}
    return (
        {"gate": pack_bits(layer.gate[0].flatten(1)), "gain": layer.gain[0], "base": layer.base},
        {"kind": "gated", "neurons": list(layer.gate.shape[2:])},
    )


def _unpack(tensors: dict[str, Tensor], description: dict[str, Any]) -> LayerValues:
    """The inverse of `_pack`, with a leading axis of one task."""
    neurons = tuple(int(size) for size in description["neurons"])
    if description["kind"] == "dense":
        return DenseValues(tensors["dense"].reshape(-1, *neurons)[None])
    gate = unpack_bits(tensors["gate"], math.prod(neurons)).reshape(-1, *neurons)
    return GatedValues(gate[None], tensors["gain"][None], tensors["base"].reshape(()))


def pack_bits(bits: Tensor) -> Tensor:
    """(n, k) bool -> (n, ceil(k / 8)) uint8. Bit j of byte i holds number 8 i + j of the row."""
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.shape[1] % 8)).unflatten(1, (-1, 8))
    return (padded << torch.arange(8, dtype=torch.uint8, device=bits.device)).sum(-1).to(torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """The inverse of `pack_bits`: (n, ceil(count / 8)) uint8 -> (n, count) bool."""
    if packed.dtype != torch.uint8 or packed.ndim != 2 or packed.shape[1] != -(-count // 8):
        raise ValueError(f"{count} bits need {-(-count // 8)} bytes per row, got {tuple(packed.shape)} {packed.dtype}")
    bits = (packed.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.flatten(1)[:, :count].bool()


def same_form(row: TaskMemory, like: TaskMemory) -> bool:
    """Whether a row from a file has the same shapes and types as a row of the model."""

    def form(memory: TaskMemory) -> list[Any]:
        layers = [(type(layer), *(t for t in vars(layer).values())) for layer in memory.values]
        tensors = [memory.keys, *(t for layer in layers for t in layer[1:])]
        return [layer[0] for layer in layers] + [(tuple(t.shape), t.dtype) for t in tensors]

    return form(row) == form(like)


def readable(label: Hashable) -> str:
    """A label for messages, cut to 60 characters."""
    text = json.dumps(label, ensure_ascii=False) if isinstance(label, str) else repr(label)
    return text if len(text) <= 60 else text[:59] + "…"
