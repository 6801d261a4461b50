"""Save a classifier as a task file and restore it. Everything in a file is checked before it is used."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from csn.classifier.heads import HEADS
from csn.classifier.inputs import prepare
from csn.classifier.keyed import KeyMemory
from csn.classifier.parameters import Parameters
from csn.classifier.remembered import Remembered
from csn.classifier.sources import EncoderSource, LearnerSource, Memory, Source
from csn.classifier.taskfile import TaskFile, same_form
from csn.classifier.unknown import is_number, threshold_of
from csn.learner import FewShotLearner, InputSpec

NAMED = ("drawings", "text", "photos", "vectors")
SCORE = "fit less the others'"  # the kind of similarity that the unknown_threshold of a file applies to


def task_of(classifier: Parameters, memory: Memory, source: Source) -> TaskFile:
    """The task file of a classifier: its memory, and the model that it was made with."""
    own = "learner" if classifier.learner is not None else "run" if classifier.run is not None else None
    encoder: Any = "vectors" if classifier.encoder is None else classifier.encoder
    threshold = classifier.unknown_threshold
    about: dict[str, Any] = {
        "model": None if own or encoder != "drawings" else classifier.model,
        "made_with": own or ("model" if isinstance(encoder, str) and encoder == "drawings" else "encoder"),
        "fingerprint": source.fingerprint,
        "unknown_threshold": "own" if threshold == "own" else threshold_of(classifier, memory),
        "unknown_score": SCORE,
    }
    if any(name is not None for name in memory.names):
        about["names"] = list(memory.names)
    if isinstance(source, LearnerSource):
        assert source.spec is not None
        about |= {"way": source.learner.way, "input": list(source.spec.shape)}
    if isinstance(memory, Remembered):
        return TaskFile(torch.stack(memory.inputs), None, list(memory.labels), memory.first_rows(), about)
    about["head"] = classifier.head or "csn"
    about["encoder"] = encoder if isinstance(encoder, str) and encoder in NAMED else "own"
    inputs = torch.stack(memory.inputs) if memory.inputs else None
    return TaskFile(inputs, memory.keys, list(memory.labels), [], about)


def threshold_in(path: Any, task: TaskFile) -> float | str | None:
    """The `unknown_threshold` of a file. A number for a score that csn no longer has is replaced, with a warning."""
    about = task.about
    threshold: Any = about.get("unknown_threshold")
    if threshold not in (None, "own") and not is_number(threshold):
        raise ValueError(f"{path} does not hold a whole task: its unknown_threshold is {str(threshold)[:60]!r}")
    if about.get("unknown_score") == SCORE or not isinstance(threshold, float | int):
        return threshold
    ours = about.get("made_with") in ("model", "encoder") and about.get("encoder", "drawings") in NAMED[:3]
    instead = "calibrated" if ours else "own"
    warnings.warn(
        f"{path} was made by an earlier csn: its unknown_threshold {threshold:.2f} was for another similarity. "
        f'unknown_threshold="{instead}" is used instead. Set your own number with set_params, and save the task again',
        stacklevel=4,
    )
    return instead


def parameters(path: Any, task: TaskFile, run: Any, learner: Any, encoder: Any) -> dict[str, Any]:
    """The parameters of the classifier that a file was made with."""
    about = task.about
    name, threshold, head = about.get("model"), threshold_in(path, task), about.get("head")
    if head not in HEADS and not (head is None and task.keys is None):
        raise ValueError(f"{path} does not hold a whole task: its head is {head!r}")
    found: dict[str, Any] = {"run": run, "learner": learner, "unknown_threshold": threshold}
    made_with = about.get("encoder", "drawings")
    if about.get("made_with") == "encoder":
        if made_with not in (*NAMED, "own"):
            raise ValueError(f"{path} does not hold a whole task: its encoder is {made_with!r}")
        has_encoder = not (isinstance(encoder, str) and encoder == "drawings")
        if made_with == "own" and not has_encoder:
            raise ValueError(f"{path} was made with your own encoder: give the same encoder= again")
        if made_with != "own" and has_encoder and encoder != (None if made_with == "vectors" else made_with):
            raise ValueError(f"{path} was made with encoder {made_with!r}, not with the given one: leave out encoder=")
        chosen = encoder if made_with == "own" else None if made_with == "vectors" else made_with
        return found | {"encoder": chosen, "head": head}
    if name is None and run is None and learner is None:
        raise ValueError(f"{path} was made with your own model: give the same run= or learner= again")
    if isinstance(name, str):
        found["model"] = name
    return found | {"head": head or "learner"}


def memory_of(path: Any, source: Source, task: TaskFile) -> Memory:
    """The memory that a task file holds. Its weights and shapes must match the model's."""
    older = is_older(source, task)
    if source.fingerprint != task.about.get("fingerprint") and not older:
        raise ValueError(f"{path} was made with other weights: give the run, learner or encoder that it was made with")
    names = task.about.get("names", [None] * len(task.labels))
    if (
        not isinstance(names, list)
        or len(names) != len(task.labels)
        or any(name is not None and not isinstance(name, str) for name in names)
    ):
        raise ValueError(f"{path} does not hold a whole task: its names do not fit its labels")
    if isinstance(source, EncoderSource):
        if task.keys is None:
            raise ValueError(f"{path} holds no keys: it was made with a learner, not with an encoder")
        size = task.keys.shape[1]
        if source.size not in (None, size):
            raise ValueError(f"{path} does not fit its encoder: keys have {size} numbers, not {source.size}")
        keys = task.keys if source.encoder is None else task.keys.float()
        if not bool(torch.isfinite(keys).all()):
            raise ValueError(f"{path} does not fit its encoder: its keys are too large for the encoder's precision")
        return source.extended(source.empty(), keys, task.labels, names)
    if older:
        warnings.warn(
            f"{path} was made with earlier weights of the package: its drawings are described again. Save the task "
            f"again to avoid this",
            stacklevel=3,
        )
        task = TaskFile(task.inputs, None, task.labels, [], task.about | {"way": source.learner.way})
    return _of_learner(path, source, task, names)


def is_older(source: Source, task: TaskFile) -> bool:
    """Whether a task was made with packaged weights that have since been replaced under the same name."""
    return (
        isinstance(source, LearnerSource)
        and source.fingerprint != task.about.get("fingerprint")
        and task.about.get("made_with") == "model"
    )


def _of_learner(path: Any, source: LearnerSource, task: TaskFile, names: list[str | None]) -> Memory:
    inputs, shape, learner = task.inputs, task.about.get("input"), source.learner
    if inputs is None or not isinstance(shape, list) or not all(type(size) is int for size in shape):
        raise ValueError(f"{path} does not hold a whole task: its input shape is {shape!r}")
    wanted = tuple(shape)
    spec = source.spec or InputSpec(wanted)
    empty: Any = source.empty()
    dtype = next((parameter.dtype for parameter in learner.parameters()), torch.empty(0).dtype)
    kept = torch.uint8 if spec.is_image else torch.int64 if spec.vocabulary is not None else dtype
    if wanted != spec.shape or inputs.dtype != kept or (spec.vocabulary is None and inputs.shape[1:] != wanted):
        raise ValueError(f"{path} does not fit its model: inputs are {tuple(inputs.shape[1:])} {inputs.dtype}")
    if spec.vocabulary is not None:
        inputs = prepare(inputs, spec)
    source.spec = spec
    if isinstance(empty, KeyMemory):
        if task.keys is None:  # the file was written by a classifier whose learner answers by itself
            return source.extended(empty, inputs, task.labels, names, now=False)
        like = source.embedded(inputs[:1])
        if task.keys.shape[1:] != like.shape[1:] or task.keys.dtype != like.dtype:
            raise ValueError(f"{path} does not fit its model: its memory has another form")
        return empty.added(list(task.keys), task.labels, names, list(inputs))
    if task.keys is not None:
        return empty.restored(inputs, task.labels, names, [{} for _ in task.labels])
    return _with_rows(path, empty, learner, task, inputs, names)


def _with_rows(
    path: Any, empty: Remembered, learner: FewShotLearner[Any], task: TaskFile, inputs: Any, names: list[str | None]
) -> Memory:
    rows = [{int(row.labels[0, 0]): row.to(empty.device)} for row in task.rows]
    memory = empty.restored(inputs, task.labels, names, rows or [{} for _ in task.labels])
    slots = [memory.order.index(label) % learner.way for label in task.labels]
    if task.about.get("way") != learner.way or (rows and [next(iter(row)) for row in rows] != slots):
        raise ValueError(f"{path} does not fit its labels: rows are written for other outputs")
    if rows and not same_form(task.rows[0], memory._described(inputs[0], 0)[0].to("cpu")):
        raise ValueError(f"{path} does not fit its model: its memory has another form")
    return memory


def width(source: Source, memory: Memory) -> int | None:
    """The number of features of a table, or None if the classifier was not fitted on a table."""
    if isinstance(source, EncoderSource):
        return int(memory.keys.shape[1]) if source.kind == "vectors" and isinstance(memory, KeyMemory) else None
    spec = source.spec
    return spec.shape[0] if spec is not None and len(spec.shape) == 1 and spec.vocabulary is None else None
