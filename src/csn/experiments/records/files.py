"""Result files: how they are read and written, and what they must say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from csn.config import config_from_json
from csn.engine.checkpoint import checkpoint_sha256
from csn.engine.evaluate import summarise
from csn.engine.origin import origin
from csn.engine.run import TrainedRun
from csn.experiments.records.checks import problem_of_result
from csn.experiments.records.result import Result

FORMAT = 2  # of a result file
MODELS = "models"  # a folder next to result files, with checkpoints that are kept for every reader


def result_paths(folder: Path) -> list[Path]:
    """The result files in a folder and those below it, in the order of their names."""
    return sorted(path for path in folder.rglob("*.json") if MODELS not in path.relative_to(folder).parts)


def read_results(folder: Path) -> list[Result]:
    """Every accuracy of the result files in a folder and those below it, in the order of their tables."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} of result files: make some with csn evaluate RUN --out FILE")
    results = []
    for path in result_paths(folder):
        results += results_in(path)
    return sorted(results, key=lambda result: result.place)


def results_in(path: Path) -> list[Result]:
    """The accuracies of one file. A comparison or benchmark has rows instead, and gives none.

    Options that did not exist when the file was written have their defaults.
    """
    content = read_result(path, "move it away, or remove it")
    if "summary" not in content:
        return []
    try:
        config = config_from_json(json.dumps(content["config"]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is of another version of csn ({error}): evaluate again, or remove it") from error
    content = content | {"config": config.as_dict()}
    return [Result(path, content, learner, config) for learner in content["summary"]]


def read_result(path: Path, remedy: str = "give one that is") -> dict[str, Any]:
    """The contents of a result file, which are checked for what every reader needs.

    `remedy` is what the message advises if it is not a result file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror or error}): check the path") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no result file of csn evaluate or a benchmark ({error}): {remedy}") from error
    if not isinstance(content, dict) or not (
        {"summary", "evaluation", "config", "trained"} <= set(content) or "rows" in content
    ):
        raise ValueError(f"{path} is no result file of csn evaluate or a benchmark: {remedy}")
    if "summary" in content and (form := content.get("format", 1)) != FORMAT:
        older = " (that of csn 0.1, whose configurations have a section 'model')" if form == 1 else ""
        raise ValueError(
            f"{path} has format {form!r}{older}, this version of csn reads {FORMAT}: use the version that wrote it, or "
            f"evaluate again"
        )
    if "summary" in content and (problem := problem_of_result(content)):
        raise ValueError(f"{path} {problem}: evaluate again, or remove it")
    return content


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
        "trained": run.history | {"run": run.folder.as_posix(), "checkpoint_sha256": checkpoint_sha256(run.folder)},
        **origin(),
        "seconds": round(time.monotonic() - started, 1),
        "accuracies": {label: [round(accuracy, 6) for accuracy in values] for label, values in results.items()},
    }


def json_bytes(content: dict[str, Any]) -> bytes:
    """A result as the bytes of its file."""
    return (json.dumps(content, indent=1) + "\n").encode()
