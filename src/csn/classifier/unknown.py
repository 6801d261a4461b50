"""The threshold below which an input is unknown: a number, the one shipped with the weights, or the task's own."""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np

from csn.classifier.parameters import Parameters
from csn.classifier.pretrained import for_shots, shipped_threshold
from csn.classifier.sources import Memory

LOST = 0.1  # share of the task's own examples that the own threshold would call unknown
LEAST = 4  # a task gets its own threshold from this many examples that share their class with another
# By examples per class. Each keeps 95 % of the known inputs of 5-way tasks (benchmarks/unknown.py --thresholds).
SHIPPED = {
    "text": {1: 0.235, 2: 0.338, 5: 0.414, 10: 0.486},
    "photos": {1: 0.299, 2: 0.365, 5: 0.433, 10: 0.482},
}


def is_number(value: object) -> bool:
    """Whether a value is a number that a float can hold, and not NaN. JSON has whole numbers of any size."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return False
    return not math.isnan(value) if isinstance(value, float) else abs(value) <= sys.float_info.max


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
    if not is_number(threshold):
        raise ValueError(f"unknown_threshold is a number, 'own', 'calibrated' or None, got {threshold!r}")
    return float(threshold)


def own_threshold(classifier: Parameters, memory: Memory | None) -> float | None:
    """A quantile of the task's held-out similarities. With one example per class, the shipped threshold."""
    if memory is not None and has_own_threshold(memory):
        return float(np.quantile(memory.held_out_similarity, LOST))
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
    """The threshold shipped with the weights, for the median number of examples per class.

    Heads without shifts have that of one example, which keeps more of their known inputs.
    """
    encoder = classifier.encoder
    counts = Counter(memory.labels).values() if memory is not None else ()
    shots = int(np.median(list(counts) or [1])) if classifier.head not in ("centroid", "logistic") else 1
    if classifier.run is None and classifier.learner is None and isinstance(encoder, str):
        if encoder in SHIPPED:
            return for_shots(SHIPPED[encoder], shots)
        if encoder == "drawings":
            return shipped_threshold(classifier.model, shots)
    raise ValueError(
        "unknown_threshold='calibrated' works only with the package's own weights: use 'own', or find a number with "
        "csn.classifier.thresholds.calibrate_unknown"
    )
