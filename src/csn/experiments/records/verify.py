"""Verifies result files: their numbers must follow from each other, and their checkpoint must reproduce them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from csn.config import config_from_json
from csn.data.source import Dataset
from csn.engine.checkpoint import checkpoint_sha256
from csn.engine.evaluate import Accuracy, evaluate, summarise
from csn.engine.run import TrainedRun, check_vocabulary, open_run
from csn.experiments.records.checks import TRAINED
from csn.experiments.records.files import MODELS
from csn.experiments.records.protocol import source_of

SLACK = 1e-5  # accuracies are written with six digits


def check_summary(content: dict[str, Any]) -> Accuracy:
    """The stated accuracy, or a ValueError if a learner's accuracy does not follow from the accuracies of the tasks."""
    for learner, summary in content["summary"].items():
        stated = Accuracy(summary["accuracy"], summary["interval"])
        follows = summarise(content["accuracies"][learner])
        if any(abs(a - b) > SLACK for a, b in zip(stated, follows, strict=True)):
            raise ValueError(
                f"the file states {stated} of {learner!r}, but its tasks have a mean of {follows}: it was changed by "
                f"hand, evaluate again"
            )
    return Accuracy(*(content["summary"][TRAINED][name] for name in ("accuracy", "interval")))


def kept_checkpoint(result: Path, content: dict[str, Any]) -> Path | None:
    """The folder models/RUN next to a result file, named after its run, if it has the checkpoint; else None."""
    folder = result.parent / MODELS / Path(content["trained"].get("run", "")).name
    return folder if (folder / "best.safetensors").exists() else None


def checkpoint_of(content: dict[str, Any], folder: Path | None = None) -> TrainedRun | None:
    """The run of a result, or None if its checkpoint is missing.

    A run that is not the result's raises ValueError, and so does a named folder without a checkpoint.
    """
    named, folder = folder, folder or Path(content["trained"].get("run", ""))
    if not (folder / "best.safetensors").exists():
        if named is not None:
            raise ValueError(f"{named} has no checkpoint best.safetensors: name the folder of the run, or none")
        return None
    stated = content["trained"].get("checkpoint_sha256")
    if stated is not None and stated != checkpoint_sha256(folder):
        raise ValueError(f"the model in {folder} is not the one that was evaluated: its sha256 differs")
    run = open_run(folder, attention=content["evaluation"].get("attention"))
    if run.config != config_from_json(json.dumps(content["config"])):
        raise ValueError(
            f"the run in {folder} is of another configuration than the result: name the right one, csn results "
            f"verify RESULT --run RUN"
        )
    if wrong := _otherwise_trained(content["trained"], run):
        raise ValueError(
            f"the file does not say of its training what the run in {folder} does ({', '.join(wrong)}): it was changed "
            f"by hand, evaluate again"
        )
    return run


def is_of(content: dict[str, Any], run: TrainedRun) -> bool:
    """Whether a result describes its training as the run does."""
    same = run.config == config_from_json(json.dumps(content["config"]))
    return same and not _otherwise_trained(content["trained"], run)


def _otherwise_trained(stated: dict[str, Any], run: TrainedRun) -> list[str]:
    """The parts in which a result describes its training differently from the run.

    An interrupted run may have gone on since, so the file's curve may end earlier.
    """
    found = run.history
    wrong = [name for name in ("tasks", "validation", "perplexity") if stated.get(name) != found.get(name)]
    wrong += [name for name in run.origin if stated.get(name, found[name]) != found[name]]
    curve = stated["validation_curve"]
    return wrong + (["validation_curve"] if run.log and curve != found["validation_curve"][: len(curve)] else [])


def ask_again(
    content: dict[str, Any],
    run: TrainedRun,
    data: Dataset,
    *,
    device: torch.device,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[Accuracy, int]:
    """Test the run on the same tasks again: the accuracy, and the number of tasks that came out differently."""
    check_vocabulary(run, data)
    stated, setting = content["accuracies"][TRAINED], content["evaluation"]
    source = source_of(setting, data, run.learner.support_of)
    found = evaluate(run.learner.to(device), source, setting["tasks"], device=device, on_progress=on_progress)
    differing = sum(abs(a - b) > SLACK for a, b in zip(stated, found, strict=True))
    return summarise(found), differing
