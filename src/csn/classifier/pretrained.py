"""Trained learners and their input specs: shipped with the package, from a run, or the user's own."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from csn.engine.checkpoint import digest, load_checkpoint
from csn.engine.models import input_spec, open_model, read_vocabulary
from csn.learner import FewShotLearner, InputSpec

if TYPE_CHECKING:
    from csn.engine.run import TrainedRun

SUFFIX = ".safetensors"
INK = InputSpec((1, 28, 28))


def shipped_names() -> list[str]:
    """The names of the models whose weights come with the package."""
    folder = resources.files("csn.classifier") / "weights"
    return (
        sorted(path.name.removesuffix(SUFFIX) for path in folder.iterdir() if path.name.endswith(SUFFIX))
        if (folder.is_dir())
        else []
    )


def open_shipped(name: str) -> tuple[FewShotLearner[Any], InputSpec]:
    """A model that comes with the package, by name."""
    with _shipped(name) as path:
        return _open(path, None)


def shipped_thresholds(name: str) -> dict[int, float]:
    """By examples per class: the calibrated similarity below which a packaged model should answer unknown.

    More examples bring a class closer to a known drawing.
    """
    with _shipped(name) as path:
        found = load_checkpoint(path)[1]["unknown_thresholds"]
    return {int(shot): float(threshold) for shot, threshold in found.items()}


def shipped_threshold(name: str, shots: int = 1) -> float:
    """The threshold of a packaged model for so many examples per class."""
    return for_shots(shipped_thresholds(name), shots)


def for_shots(thresholds: dict[int, float], shots: int) -> float:
    """The threshold that was calibrated for the largest number of examples per class up to `shots`."""
    return thresholds[max(shot for shot in thresholds if shot <= max(shots, 1))]


def shipped_run(name: str, *, attention: str | None = None) -> TrainedRun:
    """The run that produced a packaged model, as far as the file of weights records it."""
    from csn.engine.run import TrainedRun  # imported late: it loads the whole training code, which no classifier needs

    with _shipped(name) as path:
        learner, config, metadata = open_model(path, attention=attention)
        origin = {key: metadata[key] for key in ("command", "commit", "date", "machine")}
        return TrainedRun(path, config, learner, metadata, origin, log=[])


def _shipped(name: str) -> AbstractContextManager[Path]:
    """The file of a model that comes with the package."""
    if name not in shipped_names():
        raise ValueError(
            f"no weights named {name!r} come with this package, it has: {', '.join(shipped_names()) or 'none'}. Choose "
            f"one of them, or use your own model with run= or learner="
        )
    return resources.as_file(resources.files("csn.classifier") / "weights" / f"{name}{SUFFIX}")


def open_folder(folder: Path) -> tuple[FewShotLearner[Any], InputSpec]:
    """The best model of a run."""
    words = folder / "vocabulary.json"
    return _open(folder / f"best{SUFFIX}", words if words.exists() else None)


def own(learner: FewShotLearner[Any]) -> tuple[FewShotLearner[Any], InputSpec | None]:
    """A copy of a learner, so that further training of the original does not change the classifier."""
    return copy.deepcopy(learner).eval(), learner.input_spec


def fingerprint(learner: FewShotLearner[Any]) -> str:
    """sha256 of a learner's kind, way and every weight."""
    about = {"kind": type(learner).__name__, "way": learner.way, "attention": learner.attention}
    return digest({name: tensor for name, tensor in learner.state_dict().items() if torch.is_tensor(tensor)}, about)


def _open(path: Path, words: Path | None) -> tuple[FewShotLearner[Any], InputSpec]:
    learner, _, metadata = open_model(path)
    about = metadata["about"]
    vocabulary: tuple[str, ...] | int | None = input_spec(about).vocabulary
    if vocabulary is not None and words is not None:
        vocabulary = read_vocabulary(words, about)
    return learner, InputSpec(tuple(about["input"]), vocabulary)
