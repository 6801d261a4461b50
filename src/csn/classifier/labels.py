"""Labels of any hashable type, in the form that scikit-learn expects where possible."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d
from torch import Tensor

from csn.classifier.collect import names_of

PLAIN_DTYPES = {bool: "b1", int: "i8", float: "f8", str: "U"}
PLAIN = [{kind} for kind in PLAIN_DTYPES]


def as_labels(y: Any, count: int) -> list[Hashable]:
    """One hashable label per example. NumPy scalars become Python values. A single string labels a single example."""
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
    items = [_plain(item) for item in y]
    for item in items:
        if not isinstance(item, Hashable) or not _whole(item):
            raise ValueError(f"a label must be hashable, got {item!r}: use tuples instead of lists")
        if _is_missing(item):
            raise ValueError(f"{item} is not a label: None and NaN mean unknown and cannot be learned")
    if any(isinstance(item, float) for item in items):
        check_classification_targets(np.asarray(items))
    if len(items) != count:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {count} examples need {count} labels, got "
            f"{len(items)}"
        )
    return items


def _plain(item: Any) -> Any:
    """NumPy's booleans, numbers and strings as Python values. Others stay: NumPy would turn dates into numbers."""
    return item.item() if isinstance(item, np.bool_ | np.number | np.str_ | np.bytes_) else item


def names_for(names: Any, X: Any, count: int) -> list[str | None]:
    """The names of the examples: the given ones, or their files."""
    if names is None:
        return names_of(X, count)
    called = [None if name is None else str(name) for name in ([names] if isinstance(names, str) else names)]
    if len(called) != count:
        raise ValueError(f"{count} examples need {count} names, got {len(called)}")
    return called


def _is_missing(item: Any) -> bool:
    """Whether a label is None, NaN, NaT or pandas' NA. NA cannot be compared with anything."""
    try:
        return item is None or bool(item != item)
    except TypeError:
        return True


def _whole(item: Hashable) -> bool:
    """Whether a label can be hashed with all its parts. A tuple that holds a list cannot."""
    try:
        hash(item)
    except TypeError:
        return False
    return True


def class_array(labels: Iterable[Hashable]) -> np.ndarray:
    """The distinct labels: sorted if all are numbers or all are strings, else in order of first appearance."""
    different: list[Any] = list(dict.fromkeys(labels))
    if {type(label) for label in different} in PLAIN:
        array = np.array(sorted(different))
        kind = PLAIN_DTYPES[type(different[0])]  # NumPy turns integers that are too large into floats or unsigned ones
        if array.dtype.str.lstrip("<>|=").startswith(kind) and array.tolist() == sorted(different):
            return array  # not reached by strings that end in NUL, which NumPy cuts off
    return object_array(different)


def object_array(items: Sequence[Any]) -> np.ndarray:
    """(n,) the objects, unchanged. NumPy by itself would turn tuples into rows, and mixed numbers into strings."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array
