"""Pickled arrays, read without running anything that the file asks for.

A pickle is a program that may import and call whatever it names. This reader knows a handful of names (the
functions that put a NumPy array together, and plain containers) and refuses every other before it is looked up, so that
the worst a hostile file can do is not to load.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

# The functions as NumPy itself names them when it writes an array or a number: its private module moved with NumPy 2.
_ARRAY: Any = np.empty(1).__reduce_ex__(2)[0]
_BUFFER: Any = np.empty(1).__reduce_ex__(5)[0]
_SCALAR: Any = np.int64(0).__reduce__()[0]


def _latin1(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes: as text, to be encoded again."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): _latin1,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _ARRAY for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _SCALAR for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _BUFFER for core in ("core", "_core")},
}


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that admits the names above and nothing else: no code of the file's choice can run."""

    def find_class(self, module: str, name: str) -> Any:
        """A known function or class; anything else is refused unseen."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return _KNOWN[module, name]


def read_plain_pickle(path: Path) -> Any:
    """The arrays and containers of a pickled file; ValueError if it holds, or asks for, anything else."""
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise ValueError(f"{path} is damaged, or no pickle of plain arrays: {error}") from error
    except (MemoryError, OverflowError) as error:
        raise ValueError(f"{path} claims more than memory can hold: {error}") from error
