"""Turn X of any form into a list of texts or photographs. Error messages name the first input that does not fit.

Series and one-column data frames of pandas and polars are accepted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from csn.classifier.inputs import each_item, one_image
from csn.data.images.options import TYPES

LONGEST = 1_000_000  # characters in one text
PICTURES = set(TYPES)
USE_TEXT = 'X holds sentences: use encoder="text"'
USE_PHOTOS = 'X holds pictures: use encoder="photos", or encoder="drawings" for pen drawings'
USE_NONE = "X holds one vector per row: use encoder=None; reshape pictures to (n, height, width[, channels])"


def is_path(item: Any) -> bool:
    """Whether this names a file: a path, a string with a picture's suffix, or the name of an existing file."""
    if isinstance(item, os.PathLike):
        return True
    if not isinstance(item, str) or not item or len(item) > 4096 or "\n" in item or "\0" in item:
        return False
    # Path.is_file raises OSError for a name that is too long for a file, such as a sentence.
    return Path(item).suffix.lower() in PICTURES or os.path.isfile(item)


def as_list(X: Any) -> list[Any]:
    """The rows of X. A data frame must have one column, whose values are returned."""
    if isinstance(X, str | os.PathLike) or hasattr(X, "getbands"):
        return [X]
    if hasattr(X, "columns") and hasattr(X, "shape"):
        if len(X.columns) != 1:
            raise ValueError(
                f"a data frame of {len(X.columns)} columns, {', '.join(map(str, list(X.columns)[:5]))}: give the one "
                f"that holds the examples, e.g. X[{str(X.columns[0])!r}]"
            )
        X = X[X.columns[0]]
    if hasattr(X, "to_list"):  # a series
        return list(X.to_list())
    if isinstance(X, np.ndarray) and X.dtype.kind in "USO" and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if not hasattr(X, "__iter__"):
        raise ValueError(f"expected one example per row, got {type(X).__name__}")
    return [item.item() if isinstance(item, np.str_) else item for item in X]


def texts(X: Any) -> list[str]:
    """The sentences in X. None of them may be empty."""
    if _is_numbers(X):
        shape = tuple(np.shape(X))
        remedy = USE_NONE if len(shape) == 2 else USE_PHOTOS
        raise ValueError(f"expected sentences, got an array of numbers {shape}. {remedy}")
    items = as_list(X)
    if not items:
        raise ValueError("no examples: expected at least one sentence, got an empty list")
    for i, item in enumerate(items):
        if not isinstance(item, str):
            remedy = USE_PHOTOS if _is_picture(item) else "give strings"
            raise ValueError(f"input {i} is not a sentence but {_kind(item)}. {remedy}")
        if not item.strip():
            raise ValueError(f"input {i} is an empty text: leave it out")
        if len(item) > LONGEST:
            raise ValueError(f"input {i} has {len(item):,} characters, the limit is {LONGEST:,}: shorten it")
        try:
            item.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"input {i} holds half a character ({error}): decode its source as UTF-8") from error
        if Path(item[-8:]).suffix.lower() in PICTURES and " " not in item.strip() and is_path(item):
            raise ValueError(f"input {i} names a picture, {item[:60]!r}. {USE_PHOTOS}")
    return items


def photographs(X: Any) -> list[Any]:
    """Pictures as (h, w, channels) arrays, and files as paths, which are opened when they are needed."""
    if _is_numbers(X) and len(np.shape(X)) == 2:
        raise ValueError(f"expected photographs, got a table of numbers {tuple(np.shape(X))}. {USE_NONE}")
    items = as_list(X) if not isinstance(X, Tensor | np.ndarray) or X.dtype == object else list(each_item(X))
    if not items:
        raise ValueError("no examples: expected at least one photograph, got an empty list")
    found: list[Any] = []
    for i, item in enumerate(items):
        if isinstance(item, str | os.PathLike):
            found.append(_file(item, i))
            continue
        try:
            found.append(one_image(item))
        except (ValueError, TypeError) as error:
            raise ValueError(f"input {i} is not a photograph: {error}") from error
    return found


def _file(item: str | os.PathLike[str], i: int) -> Path:
    if not is_path(item):
        raise ValueError(f"input {i} is a text where a photograph is expected, {str(item)[:60]!r}. {USE_TEXT}")
    if not (path := Path(item)).is_file():
        raise ValueError(f"input {i}: there is no file {path}")
    return path


def refuse_texts(X: Any) -> None:
    """Raise ValueError if X holds sentences where vectors or drawings are expected."""
    items: Sequence[Any] = as_list(X) if _may_hold_texts(X) else ()
    for i, item in enumerate(items):
        if isinstance(item, str) and not is_path(item) and any(c.isspace() for c in item.strip()):
            raise ValueError(f"input {i} is a text, {item[:60]!r}. {USE_TEXT}")


def names_of(X: Any, count: int) -> list[str | None]:
    """For each example: its path if it is a file, else None."""
    if not _may_hold_texts(X):
        return [None] * count
    return [os.fspath(item) if is_path(item) else None for item in as_list(X)]


def _may_hold_texts(X: Any) -> bool:
    if isinstance(X, str | os.PathLike):
        return True
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "OUS" and X.ndim == 1
    if hasattr(X, "to_list"):
        return True
    return isinstance(X, list | tuple) and any(isinstance(item, str | os.PathLike) for item in X)


def _is_numbers(X: Any) -> bool:
    if isinstance(X, Tensor):
        return True
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "buifc"
    if hasattr(X, "dtypes") and hasattr(X, "shape") and hasattr(X, "to_numpy"):
        return X.to_numpy().dtype.kind in "buif"
    if isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple) and X[0]:
        return isinstance(X[0][0], int | float)
    return False


def _is_picture(item: Any) -> bool:
    return hasattr(item, "getbands") or isinstance(item, os.PathLike) or np.ndim(item) in (2, 3)


def _kind(item: Any) -> str:
    return f"an array {np.shape(item)}" if isinstance(item, np.ndarray | Tensor) else type(item).__name__
