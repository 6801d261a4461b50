"""The threshold below which an input is unknown: a number, the one shipped with the weights, or the task's own."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import Any

import numpy as np

from csn.classifier.parameters import Parameters
from csn.classifier.pretrained import shipped_threshold
from csn.classifier.sources import Memory

LOST = 0.1  # share of the task's own examples that the own threshold would call unknown
LEAST = 4  # a task gets its own threshold from this many examples that share their class with another
# Both keep 95 % of the known inputs at 5-way 1-shot, on the data that the heads' scalars were chosen on.
SHIPPED = {"text": 0.25, "photos": 0.38}


def threshold_of(classifier: Parameters, memory: Memory | None) -> float | None:
    """`unknown_threshold` as a number, or None if every input is answered."""
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
    """A quantile of the similarities within the task's classes. With one example per class, the shipped threshold."""
    if memory is not None and has_own_threshold(memory):
        return float(np.quantile(memory.same_class_similarity(), LOST))
    try:
        shipped = _calibrated(classifier, memory)
    except ValueError:
        warnings.warn(
            "one example per class does not show how much the examples of a class differ: every input is answered. "
            "Learn two or more examples per class, or give unknown_threshold a number",
            stacklevel=3,
        )
        return None
    if memory is not None and len(memory):
        warnings.warn(
            f"one example per class does not show how much the examples of a class differ: the encoder's threshold "
            f"{shipped:.2f}, found on other data, is used. Learn two or more examples per class",
            stacklevel=3,
        )
    return shipped


def has_own_threshold(memory: Memory) -> bool:
    """Whether enough examples share their class with another for a task to have its own threshold."""
    return sum(count for count in Counter(memory.labels).values() if count > 1) >= LEAST


def _calibrated(classifier: Parameters, memory: Memory | None) -> float:
    """The threshold shipped with the weights, for the median number of examples per class."""
    encoder = classifier.encoder
    if classifier.run is None and classifier.learner is None and isinstance(encoder, str):
        if encoder in SHIPPED:
            return SHIPPED[encoder]
        if encoder == "drawings":
            shots = Counter(memory.labels).values() if memory is not None else ()
            return shipped_threshold(classifier.model, int(np.median(list(shots) or [1])))
    raise ValueError(
        "unknown_threshold='calibrated' works only with the package's own weights: use 'own', or find a number with "
        "csn.classifier.thresholds.calibrate_unknown"
    )
