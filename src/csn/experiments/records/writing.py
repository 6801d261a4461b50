"""What goes into a result file: everything that makes a number checkable."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from csn.engine.evaluate import summarise
from csn.engine.origin import origin
from csn.engine.run import TrainedRun
from csn.experiments.records.files import FORMAT


def json_bytes(content: dict[str, Any]) -> bytes:
    """A result as the bytes of its file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def checkpoint_sha256(folder: Path) -> str:
    """sha256 of the checkpoint of a run's best model."""
    return hashlib.sha256((folder / "best.safetensors").read_bytes()).hexdigest()


def result_content(
    run: TrainedRun,
    setting: dict[str, Any],
    results: dict[str, list[float]],
    started: float,
    calibrations: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """A result file: everything that makes a number checkable.

    Args:
        run: The run that was tested.
        setting: The test tasks, as `setting_of` describes them.
        results: The accuracies of the tasks, by learner.
        started: The start of the test, from `time.monotonic`.
        calibrations: The calibration of each learner, from `Calibration.summary`.
    """
    summary = {
        label: dict(zip(("accuracy", "interval"), summarise(accuracies), strict=True)) | calibrations[label]
        for label, accuracies in results.items()
    }
    return {
        "format": FORMAT,
        "summary": summary,
        "evaluation": setting,
        "config": run.metadata["about"]["config"],
        "trained": history_of(run) | {"run": run.folder.as_posix(), "checkpoint_sha256": checkpoint_sha256(run.folder)},
        **origin(),
        "seconds": round(time.monotonic() - started, 1),
        "accuracies": {label: [round(accuracy, 6) for accuracy in values] for label, values in results.items()},
    }


def history_of(run: TrainedRun) -> dict[str, Any]:
    """How a run was trained: the commands and commits, its length and its validation curve."""
    return {
        **run.origin,
        "tasks": run.metadata["tasks"],
        "validation": run.metadata["validation"],
        **({"perplexity": run.metadata["perplexity"]} if "perplexity" in run.metadata else {}),
        "validation_curve": [[r["tasks"], r["validation"]["accuracy"]] for r in run.log if "validation" in r],
        "seconds": next((r["seconds"] for r in run.log if r["tasks"] >= run.metadata["tasks"]), None),
        "seconds_in_all": run.log[-1]["seconds"] if run.log else None,
    }
