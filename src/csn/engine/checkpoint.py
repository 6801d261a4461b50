"""Checkpoints: one safetensors file with JSON inside, written atomically and verified by csn's own checksum."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

FORMAT = 1


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: after a crash, either the whole new file or the whole old file exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# The files that a run keeps rewriting. Result files are not among them: another process may write one during training.
WRITTEN = ("config.json", "origin.json", "vocabulary.json", "log.jsonl", "best.safetensors", "last.safetensors")


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of a run that was killed while it wrote. The caller must hold the folder's lock."""
    for name in WRITTEN:
        for path in folder.glob(f".{name}.????????"):
            path.unlink(missing_ok=True)


def save_checkpoint(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write named tensors and a JSON-able dictionary as one file."""
    # Copies, because safetensors refuses tensors that share memory, as the layers of a task do.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # A flipped byte in a safetensors file loads silently, so the file carries a digest of its tensors.
    header = {"format": FORMAT, "sha256": digest(tensors, metadata), "metadata": metadata}
    write_atomically(path, safetensors.torch.save(tensors, metadata={"csn": json.dumps(header)}))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and metadata of a checkpoint. Raise ValueError with the reason if it cannot be trusted."""
    if not path.is_file():
        raise ValueError(f"there is no checkpoint {path}: train a model first, or check the path")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["csn"], parse_constant=_refused)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        version, expected, metadata = header["format"], header["sha256"], header["metadata"]
        if not isinstance(metadata, dict):
            raise TypeError("its metadata is not a JSON object")
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is truncated or not a csn checkpoint ({error}): take another copy or train again"
        ) from error
    if version != FORMAT:
        raise ValueError(f"{path} has checkpoint format {version}, but this version of csn reads {FORMAT}: upgrade csn")
    if digest(tensors, metadata) != expected:
        raise ValueError(f"{path} was altered after it was written (checksum mismatch): take another copy")
    return tensors, metadata


def _refused(number: str) -> float:
    raise ValueError(f"it holds the number {number}")


def digest(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> str:
    """sha256 of named tensors (names, types, shapes, bytes) and a JSON-able dictionary."""
    total = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state as named tensors: optimizer.INDEX.NAME."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{name}": torch.as_tensor(value)
        for index, slots in state.items()
        for name, value in slots.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state from `optimizer_tensors`, each tensor in the memory layout of its parameter."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".")
            like = parameters[int(index)]
            if tensor.shape == like.shape and name != "step":
                tensor = torch.empty_like(like, requires_grad=False).copy_(tensor)
            state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def checkpoint_sha256(folder: Path) -> str:
    """sha256 of the checkpoint of a run's best model."""
    return hashlib.sha256((folder / "best.safetensors").read_bytes()).hexdigest()
