"""Models from their checkpoints. The description of a network is checked before the network is built."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from csn.building import build_learner
from csn.config import Config, config_from_json, merge
from csn.engine.checkpoint import load_checkpoint
from csn.engine.machine import usable_precision
from csn.learner import FewShotLearner, InputSpec
from csn.registry import PartError

# The exceptions of building a network from nonsensical options, or of loading tensors that do not fit.
UNBUILT = (ValueError, RuntimeError, ArithmeticError, TypeError, LookupError, AttributeError, MemoryError)
SLACK = 64  # parameter tensors that may be built and thrown away again
MOST_TENSORS = 100_000  # the most that a network to be trained may have


def open_model(path: Path, *, attention: str | None = None) -> tuple[FewShotLearner[Any], Config, dict[str, Any]]:
    """A trained model from its checkpoint alone, ready to predict, with its configuration and metadata.

    Anybody may have written the file. Its checksum shows that it was not altered, but not who made it. Its contents are
    therefore checked, and no network is built that is larger than the tensors in the file.

    Args:
        path: The checkpoint.
        attention: "soft" or "hard" attention instead of the one it was trained with.
    """
    tensors, metadata = load_checkpoint(path)
    about = checked_about(path, metadata)
    try:
        config = config_from_json(json.dumps(about["config"]))
        with bounded(2 * len(tensors) + SLACK, 2 * sum(tensor.numel() for tensor in tensors.values()) + 2**20):
            learner = empty_learner(_as_used(config, attention), input_spec(about))
        learner.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    except PartError:  # a package is missing or broken; the error names it
        raise
    except UNBUILT as error:
        raise ValueError(
            f"{path} does not hold the model that it describes ({_short(error)}): take another copy, or train again"
        ) from error
    return learner.eval(), config, metadata


def checked_about(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint's description of its run. Raise ValueError if a part of it is missing or wrong."""
    if "about" not in metadata:
        raise ValueError(f"{path} holds no trained model: give the checkpoint of a run, e.g. RUN/best.safetensors")
    about = metadata["about"]
    vocabulary = about.get("vocabulary", {"size": 1}) if isinstance(about, dict) else None
    is_whole = (
        isinstance(about, dict)
        and isinstance(about.get("config"), dict)
        and isinstance(about.get("input"), list)
        and 1 <= len(about["input"]) <= 3
        and all(_is_size(side) for side in about["input"])
        and isinstance(vocabulary, dict)
        and _is_size(vocabulary.get("size"))
    )
    if not is_whole:
        raise ValueError(
            f"{path} does not describe its model completely (config, input, vocabulary): take another copy, or train "
            f"again"
        )
    return about


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value < 2**31


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _as_used(config: Config, attention: str | None) -> Config:
    """`config` with another attention, and with a precision that is fast on this machine."""
    if attention is not None and attention != config.learner.attention:
        config = merge(config, {"learner": {"attention": attention}})
    if config.precision != "float32":
        config = merge(config, {"network": {"precision": usable_precision(config.precision)}})
    return config


def empty_learner(config: Config, spec: InputSpec) -> FewShotLearner[Any]:
    """A learner without initialised weights, because they will be loaded."""
    with torch.device("meta"):
        learner = build_learner(config, spec)
    return learner.to_empty(device="cpu")


@contextmanager
def bounded(tensors: int, numbers: int) -> Iterator[None]:
    """Raise ValueError as soon as the modules built in this context have too many parameters.

    Args:
        tensors: The most parameter tensors.
        numbers: The most numbers in all of them together.
    """
    count, size, thread = 0, 0, threading.get_ident()

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, size
        if parameter is None or threading.get_ident() != thread:
            return
        count, size = count + 1, size + parameter.numel()
        if count > tensors or size > numbers:
            raise ValueError(f"the network has more than {tensors} parameter tensors or {numbers} numbers in all")

    handle = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        handle.remove()


def check_size(config: Config, spec: InputSpec) -> None:
    """Raise ValueError if this machine has too little memory to train a learner.

    Training needs memory for parameters, gradients and Adam's two means.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40
    try:
        with bounded(MOST_TENSORS, memory // 16), torch.device("meta"):
            build_learner(config, spec)
    except (RuntimeError, ArithmeticError, TypeError, MemoryError) as error:
        raise ValueError(f"no network can be built with these options ({_short(error)}): make it smaller") from error
    except ValueError as error:
        if "parameter tensors" not in str(error):
            raise
        raise ValueError(f"{error}, and this machine has too little memory for that: make it smaller") from error


def describe_vocabulary(words: tuple[str, ...]) -> dict[str, Any]:
    """The number of words and the sha256 of the ordered words. They identify the meaning of a network's word ids."""
    return {"size": len(words), "sha256": hashlib.sha256(json.dumps(words).encode()).hexdigest()}


def read_vocabulary(path: Path, about: dict[str, Any]) -> tuple[str, ...]:
    """The words of a run from its vocabulary.json. Raise ValueError if they are not those that it was trained on."""
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        words = error
    if not isinstance(words, list) or describe_vocabulary(tuple(words)) != about["vocabulary"]:
        why = f": {_short(words)}" if isinstance(words, Exception) else ""
        raise ValueError(
            f"{path} does not hold the words that the run was trained on{why}. Take another copy of it, or remove it "
            f"and give word numbers"
        )
    return tuple(words)


def input_spec(about: dict[str, Any]) -> InputSpec:
    """The input of a run's network."""
    return InputSpec(tuple(about["input"]), vocabulary_size(about))


def vocabulary_size(about: dict[str, Any]) -> int | None:
    """The number of words that a run's network knows, or None if it reads no words."""
    return about["vocabulary"]["size"] if "vocabulary" in about else None
