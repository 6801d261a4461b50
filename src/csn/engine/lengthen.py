"""Training a run beyond its end: at a constant rate a shorter training is the beginning of a longer one, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from csn.config import Config, config_from_json, merge
from csn.engine.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from csn.engine.origin import origin

LENGTH = ("tasks", "validate_every")  # what a longer training may have otherwise


def lengthened(config: Config, wanted: Config) -> Config:
    """A configuration with the length of the asked one, if it trains for the beginning of that; else as it is."""
    its, longer = config.train, wanted.train
    # A last step of fewer tasks than the others is no step of the longer training.
    is_beginning = its.schedule == "constant" and its.tasks < longer.tasks and its.tasks % its.tasks_per_step == 0
    return merge(config, {"train": {name: getattr(longer, name) for name in LENGTH}}) if is_beginning else config


def restate(folder: Path, config: Config, about: dict[str, Any]) -> None:
    """Let the files of a run say that it is now a longer one, and by which commands it came about.

    Nothing is changed where it is as long as it was. config.json is last: until then the next try does it all again.
    """
    path = folder / "config.json"
    try:
        before = config_from_json(path.read_text(encoding="utf-8")) if path.exists() else config
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): take another copy of it, or delete it") from error
    if before.train.tasks >= config.train.tasks:
        return
    best, made = folder / "best.safetensors", folder / "origin.json"
    if best.exists():
        tensors, metadata = load_checkpoint(best)
        save_checkpoint(best, tensors, metadata | {"about": about})
    earlier = json.loads(made.read_text(encoding="utf-8")) if made.exists() else {}
    history = [*earlier.pop("earlier", []), *([earlier] if earlier else [])]
    write_atomically(made, (json.dumps({**origin(), "earlier": history}, indent=2) + "\n").encode())
    write_atomically(path, config.to_json().encode())
