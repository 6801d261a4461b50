"""The threshold below which an input is unknown: a number, the weights' own, or the task's own."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import Any

import numpy as np

from csn.classifier.parameters import Parameters
from csn.classifier.pretrained import shipped_threshold
from csn.classifier.sources import Memory

LOST = 0.1  # the share of a task's own examples that would be unknown to the others of their class
LEAST = 4  # examples that have another of their class, before a task has a threshold of its own
SHIPPED = {"text": 0.25, "photos": 0.38}  # keep 95 % at 5-way 1-shot of what the heads' scalars were chosen on


def threshold_of(classifier: Parameters, memory: Memory | None) -> float | None:
    """`unknown_threshold` as a number; None to answer always."""
    threshold: Any = classifier.unknown_threshold
    if threshold is None:
        return None
    if isinstance(threshold, str):
        if threshold == "calibrated":
            return _calibrated(classifier, memory)
        if threshold != "own":
            raise ValueError(f"unknown_threshold is a number, 'own', 'calibrated' or None, got {threshold!r}")
        return own_threshold(classifier, memory)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.number) or math.isnan(threshold):
        raise ValueError(f"unknown_threshold is a number, 'own', 'calibrated' or None, got {threshold!r}")
    return float(threshold)


def own_threshold(classifier: Parameters, memory: Memory | None) -> float | None:
    """A quantile of how alike the task's examples are to others of their class; with one a class, the shipped one."""
    if memory is not None and has_own_threshold(memory):
        return float(np.quantile(memory.same_class_similarity(), LOST))
    try:
        shipped = _calibrated(classifier, memory)
    except ValueError:
        warnings.warn(
            "one example a class does not show how unlike examples of a class are: every input is answered. Learn two "
            "or more of each, or give unknown_threshold a number",
            stacklevel=3,
        )
        return None
    if memory is not None and len(memory):
        warnings.warn(
            f"one example a class does not show how unlike examples of a class are: the threshold is that of the "
            f"encoder, {shipped:.2f}, found on other data. Learn two or more of each",
            stacklevel=3,
        )
    return shipped


def has_own_threshold(memory: Memory) -> bool:
    """Whether enough examples have another of their class for a task to have a threshold of its own."""
    return sum(count for count in Counter(memory.labels).values() if count > 1) >= LEAST


def _calibrated(classifier: Parameters, memory: Memory | None) -> float:
    """The threshold that came with the weights, for as many examples as most classes have."""
    encoder = classifier.encoder
    if classifier.run is None and classifier.learner is None and isinstance(encoder, str):
        if encoder in SHIPPED:
            return SHIPPED[encoder]
        if encoder == "drawings":
            shots = Counter(memory.labels).values() if memory is not None else ()
            return shipped_threshold(classifier.model, int(np.median(list(shots) or [1])))
    raise ValueError(
        "unknown_threshold='calibrated' is for weights of the package: use 'own', or find a number with "
        "csn.classifier.thresholds.calibrate_unknown"
    )
