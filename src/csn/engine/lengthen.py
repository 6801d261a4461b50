"""Training a run beyond its end.

At a constant learning rate, a shorter training equals the beginning of a longer one to the bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from csn.config import Config, config_from_json, merge
from csn.engine.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from csn.engine.origin import origin

LENGTH = ("tasks", "validate_every")  # options in which a longer training may differ


def config_in(folder: Path) -> Config | None:
    """The configuration of the run in a folder, or None if there is none."""
    path = folder / "config.json"
    return config_from_json(path.read_text(encoding="utf-8")) if path.exists() else None


def lengthened(config: Config, wanted: Config) -> Config:
    """A configuration with the wanted length if its training is the beginning of the wanted one, else unchanged."""
    its, longer = config.train, wanted.train
    # If the last step has fewer tasks than the others, the longer training has no such step.
    is_beginning = its.schedule == "constant" and its.tasks < longer.tasks and its.tasks % its.tasks_per_step == 0
    return merge(config, {"train": {name: getattr(longer, name) for name in LENGTH}}) if is_beginning else config


def restate(folder: Path, config: Config, about: dict[str, Any]) -> None:
    """Rewrite the files of a run so that they state its new length and the commands that trained it.

    Nothing changes if the run is not longer than before. config.json is written last, so after a crash the next try
    does everything again.
    """
    path = folder / "config.json"
    try:
        before = config_in(folder) or config
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
