"""Answers and their explanations, computed from one state of a memory. Nothing here changes the memory."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
from torch import Tensor

from csn.classifier.explanation import Explanation, Source, weights_of
from csn.classifier.inputs import Prepared
from csn.classifier.labels import class_array
from csn.classifier.sources import Memory
from csn.classifier.taskfile import readable


def answered(memory: Memory, prepared: Prepared, queries: Tensor, threshold: float | None) -> np.ndarray:
    """(m,) labels. With a threshold, an object array that holds None for each unknown query."""
    labels = class_array(memory.labels)[probabilities(memory, queries).argmax(1)]
    if threshold is None:
        return labels
    answers = np.full(len(labels), None, dtype=object)
    known = ~prepared.foreign & (memory.similarity(queries).numpy() >= threshold)
    answers[known] = labels[known]
    return answers


def explanations(
    memory: Memory, prepared: Prepared, queries: Tensor, threshold: float | None, *, sources: bool = True
) -> list[Explanation]:
    """For each query: the answer, and how far each example pushed it unless `sources` are left out."""
    of_classes = probabilities(memory, queries)
    all_pushes: list[dict[int, float]] = memory.pushes(queries) if sources else [{} for _ in queries]
    similarity, names = memory.similarity(queries).tolist(), class_array(memory.labels).tolist()
    found = []
    for i, (values, pushes) in enumerate(zip(of_classes, all_pushes, strict=True)):
        known = threshold is None or (similarity[i] >= threshold and not prepared.foreign[i])
        weights = weights_of(pushes)
        rows = [Source(j, memory.labels[j], weights[j], push, memory.names[j]) for j, push in pushes.items()]
        found.append(
            Explanation(
                names[int(values.argmax())] if known else None,
                dict(zip(names, values.tolist(), strict=True)),
                similarity[i],
                tuple(sorted(rows, key=lambda source: (-source.weight, -source.push))),
            )
        )
    return found


def as_columns(memory: Memory, prepared: Prepared, queries: Tensor, threshold: float | None) -> dict[str, Any]:
    """Answers as the columns of a data frame."""
    most = [max(pushes, key=pushes.__getitem__) if pushes else None for pushes in memory.pushes(queries)]
    return {
        "label": answered(memory, prepared, queries, threshold).tolist(),
        "probability": probabilities(memory, queries).max(1),
        "similarity": memory.similarity(queries).numpy(),
        "most_like": [None if i is None else memory.names[i] or str(i) for i in most],
    }


def probabilities(memory: Memory, queries: Tensor) -> np.ndarray:
    """(m, classes) probabilities in the order of `classes_`."""
    return in_order(memory, memory.log_probabilities(queries).exp().numpy())


def in_order(memory: Memory, columns: np.ndarray) -> np.ndarray:
    """Reorder columns of classes from their order of first appearance to the order of `classes_`."""
    number = {label: c for c, label in enumerate(memory.order)}
    return columns[:, [number[label] for label in class_array(memory.labels).tolist()]]


def left(memory: Memory, label: Hashable, indices: list[Any] | None) -> list[int]:
    """The indices of the examples that remain after a label, or some indices, are forgotten."""
    if indices is None:
        left = [i for i, other in enumerate(memory.labels) if other != label]
        if len(left) == len(memory):
            raise ValueError(f"no remembered example has the label {readable(label)}: see classes_")
        return left
    chosen = np.atleast_1d(np.asarray(indices))
    if chosen.size and (chosen.dtype.kind not in "iu" or int(chosen.min()) < 0 or int(chosen.max()) >= len(memory)):
        raise ValueError(f"indices must be whole numbers in [0, {len(memory)}), got {chosen.tolist()}")
    gone = set(chosen.tolist())
    return [i for i in range(len(memory)) if i not in gone]


def warn_of_photographs(count: int, total: int, what: str) -> None:
    """Warn that some inputs are not drawings.

    Args:
        count: Number of such inputs.
        total: Number of all inputs.
        what: What happened to them.
    """
    warnings.warn(
        f"{count} of {total} inputs are not drawings of ink on plain paper. They are {what}: use encoder='photos' for "
        f"photographs, or set unknown_threshold",
        stacklevel=4,
    )
