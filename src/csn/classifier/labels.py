"""Labels of any hashable kind, as scikit-learn would have them where it can."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d
from torch import Tensor

PLAIN = ({bool}, {int}, {float}, {str})


def as_labels(y: Any, count: int) -> list[Hashable]:
    """One hashable label per example, numpy's scalars as Python's own. A string is the label of a single example."""
    if y is None:
        raise ValueError("learning requires y to be passed, but the target y is None: give one label per example")
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, str | int | float) or not (hasattr(y, "__array__") or hasattr(y, "__iter__")):
        y = [y]
    if isinstance(y, np.ndarray) or hasattr(y, "__array__"):
        y = column_or_1d(np.asarray(y), warn=True)
    if isinstance(y, np.ndarray) and y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    items = [item.item() if isinstance(item, np.generic) else item for item in y]
    for item in items:
        if not isinstance(item, Hashable) or not _whole(item):
            raise ValueError(f"a label must be hashable, got {item!r}: use tuples instead of lists")
        if item is None or item != item:
            raise ValueError(f"{item} is no label: None and NaN stand for what is unknown and cannot be learned")
    if any(isinstance(item, float) for item in items):
        check_classification_targets(np.asarray(items))
    if len(items) != count:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {count} examples need {count} labels, got "
            f"{len(items)}"
        )
    return items


def _whole(item: Hashable) -> bool:
    """Whether it can be hashed, its parts too: a tuple may hold a list."""
    try:
        hash(item)
    except TypeError:
        return False
    return True


def class_array(labels: Iterable[Hashable]) -> np.ndarray:
    """The different labels: sorted where all are numbers or all are strings, else in the order of their appearance."""
    different: list[Any] = list(dict.fromkeys(labels))
    kinds = {type(label) for label in different}
    if kinds in PLAIN and not any(isinstance(label, str) and label.endswith("\0") for label in different):
        return np.array(sorted(different))
    classes = np.empty(len(different), dtype=object)
    classes[:] = different
    return classes
