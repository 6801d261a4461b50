"""Pickled arrays, read by a stack machine that can call nothing.

A pickle is a program that may import and call anything, and even NumPy's own constructors can be made to read arbitrary
memory. So this module never calls what a file names. It carries out only the operations that build numbers, text and
containers. The few names that NumPy's arrays need are words to which this module gives a meaning, and every other name
is refused. The worst that a hostile file can do is to fail to load.
"""

from __future__ import annotations

import math
import pickletools
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_DTYPE = re.compile(r"[<>|=]?[biuf]\d")
_CORES = ("numpy.core", "numpy._core")  # NumPy 2 renamed its private module
_KEYS = (str, bytes, int, float, bool, type(None))  # hashing nested tuples can take for ever


class _Word(NamedTuple):
    """A name in the file. It does not stand for any object."""

    name: str


class _Made:
    """An array or dtype. The file creates it first and sets its state afterwards; value is None until then."""

    def __init__(self, value: np.ndarray | np.dtype | None = None) -> None:
        self.value = value


_WORDS = {
    ("numpy", "ndarray"): _Word("ndarray"),
    ("numpy", "dtype"): _Word("dtype"),
    ("collections", "OrderedDict"): _Word("OrderedDict"),
    ("_codecs", "encode"): _Word("encode"),
    ("__builtin__", "bytes"): _Word("bytes"),
    **{(f"{core}.multiarray", "_reconstruct"): _Word("reconstruct") for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): _Word("scalar") for core in _CORES},
    **{(f"{core}.numeric", "_frombuffer"): _Word("frombuffer") for core in _CORES},
}


def read_plain_pickle(path: Path) -> Any:
    """The arrays and containers of a pickled file; ValueError if it holds, or asks for, anything else."""
    try:
        with open(path, "rb") as file:
            return _Machine().run(file)
    except (EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is damaged, or no pickle of plain arrays: {error}") from error
    except (MemoryError, OverflowError) as error:
        raise ValueError(f"{path} claims more than memory can hold: {error}") from error


class _Machine:
    """The stack machine of the pickle format. One serves one file."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}

    def run(self, file: BinaryIO) -> Any:
        """What is on top of the stack at the end."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd escapes in the text of a file
            for operation, argument, _ in pickletools.genops(file):
                if operation.name == "STOP":
                    return _plain(self.stack.pop())
                self._step(operation.name, argument)
        raise ValueError("it has no end")

    def _step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONTAINERS:
            _CONTAINERS[name](self)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "GLOBAL":
            self.stack.append(_word(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            self.stack.append(_word(*self.pop(2)))
        elif name == "REDUCE":
            self.stack.append(_reduced(*self.pop(2)))
        elif name == "BUILD":
            made, state = self.pop(2)
            _build(made, state)
            self.stack.append(made)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"it asks for the operation {name}, which no array needs")

    def pop(self, count: int) -> tuple[Any, ...]:
        """The topmost items, the deepest first."""
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("it takes what it never gave")
        return tuple(self.stack.pop() for _ in range(count))[::-1]

    def above_mark(self) -> list[Any]:
        """The items since the latest mark, taken off the stack."""
        height = self.marks.pop()
        items = self.stack[height:]
        del self.stack[height:]
        return items

    def extend(self, items: list[Any]) -> None:
        """Append to the list on top of the stack."""
        found = self.stack[-1]
        if type(found) is not list:
            raise ValueError(f"it appends to a {type(found).__name__}")
        found.extend(_plain(item) for item in items)

    def update(self, items: list[Any]) -> None:
        """Add keys and values in turn to the dictionary on top of the stack."""
        found = self.stack[-1]
        if not isinstance(found, dict) or len(items) % 2:
            raise ValueError(f"it sets items of a {type(found).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            found[_key(key)] = _plain(value)

    def make_dict(self) -> None:
        """A dictionary of what is above the mark."""
        items = self.above_mark()
        self.stack.append({})
        self.update(items)

    def make_tuple(self, items: Any) -> None:
        """A tuple on top of the stack."""
        self.stack.append(tuple(_plain(item) for item in items))


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_LITERALS = frozenset((*_NUMBERS, *_TEXTS, "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"))
_CONTAINERS: dict[str, Callable[[_Machine], None]] = {
    "EMPTY_LIST": lambda machine: machine.stack.append([]),
    "EMPTY_DICT": lambda machine: machine.stack.append({}),
    "EMPTY_TUPLE": lambda machine: machine.make_tuple(()),
    "TUPLE1": lambda machine: machine.make_tuple(machine.pop(1)),
    "TUPLE2": lambda machine: machine.make_tuple(machine.pop(2)),
    "TUPLE3": lambda machine: machine.make_tuple(machine.pop(3)),
    "TUPLE": lambda machine: machine.make_tuple(machine.above_mark()),
    "LIST": lambda machine: machine.stack.append([_plain(item) for item in machine.above_mark()]),
    "DICT": lambda machine: machine.make_dict(),
    "APPEND": lambda machine: machine.extend(list(machine.pop(1))),
    "APPENDS": lambda machine: machine.extend(machine.above_mark()),
    "SETITEM": lambda machine: machine.update(list(machine.pop(2))),
    "SETITEMS": lambda machine: machine.update(machine.above_mark()),
}


def _word(module: Any, name: Any) -> _Word:
    if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in _WORDS:
        requested = (
            f"{module[:60]}.{name[:60]}" if isinstance(module, str) and isinstance(name, str) else "no name at all"
        )
        raise ValueError(f"it asks for {requested}, which no array needs")
    return _WORDS[module, name]


def _plain(item: Any) -> Any:
    """An item as the reader gets it: the array or dtype itself, once its state is set."""
    if not isinstance(item, _Made):
        return item
    if item.value is None:
        raise ValueError("it uses an array before it says what is in it")
    return item.value


def _key(key: Any) -> Any:
    if type(key) not in _KEYS:
        raise ValueError(f"it has a key of type {type(key).__name__}: text and numbers are plain")
    return key


def _reduced(word: Any, arguments: Any) -> Any:
    """What a word means with these arguments. Only the code below is called."""
    if not isinstance(word, _Word) or type(arguments) is not tuple:
        raise ValueError("it calls what is no name")
    if word.name == "dtype":
        return _Made(_dtype(arguments[0]))
    if word.name == "reconstruct":  # (ndarray, (0,), b"b"): empty until its state comes
        return _Made()
    if word.name == "frombuffer":
        raw, dtype, shape, order = arguments
        return _array(raw, dtype, shape, fortran=order == "F")
    if word.name == "scalar":
        dtype, raw = arguments
        return _array(raw, dtype, (), fortran=False)[()]
    if word.name == "encode" and arguments[1:] in (("latin1",), ("latin-1",)):  # how protocol 2 writes bytes
        return _bytes(arguments[0])
    if word.name == "bytes" and not arguments:  # how protocol 2 writes no bytes
        return b""
    if word.name == "OrderedDict" and len(arguments) <= 1:
        return OrderedDict((_key(key), value) for key, value in (arguments[0] if arguments else ()))
    raise ValueError(f"it asks for {word.name} with arguments that no array needs")


def _build(made: Any, state: Any) -> None:
    """Give an array or a dtype its state."""
    if not isinstance(made, _Made) or type(state) is not tuple:
        raise ValueError("it sets the state of what has none")
    if isinstance(made.value, np.dtype):
        made.value = _ordered(made.value, state)
        return
    _, shape, dtype, fortran, raw = state  # the first is a version, 1 since 2005
    made.value = _array(raw, dtype, shape, fortran=bool(fortran))


def _dtype(text: Any) -> np.dtype:
    """The dtype of plain numbers that a text names."""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        requested = repr(text[:60]) if isinstance(text, str) else f"a {type(text).__name__}"
        raise ValueError(f"it asks for the dtype {requested}: plain numbers have i, u, f or b and a size")
    return np.dtype(text)


def _ordered(dtype: np.dtype, state: tuple[Any, ...]) -> np.dtype:
    """A dtype in the byte order of its state: (version, order, subarray, names, fields, ...)."""
    if state[1] not in ("<", ">", "|", "=") or state[2:5] != (None, None, None):
        raise ValueError("it asks for a dtype of fields or of objects, which plain numbers do not have")
    return dtype.newbyteorder(state[1])


def _array(raw: Any, dtype: Any, shape: Any, *, fortran: bool) -> np.ndarray:
    """An array over a copy of bytes. Their number must fit the shape."""
    plain = type(shape) is tuple and len(shape) <= 32 and all(type(size) is int and 0 <= size < 2**48 for size in shape)
    if not isinstance(dtype, np.dtype) or not plain:
        raise ValueError("it has an array without a plain dtype and shape")
    content = _bytes(raw)
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"it has {len(content)} bytes for an array of {shape} of {dtype}")
    flat = np.frombuffer(content, dtype) if content else np.zeros(0, dtype)
    if dtype.kind == "b":
        flat = flat.view(np.uint8) != 0  # only 0 and 1 are valid booleans
    return flat.reshape(shape, order="F" if fortran else "C")


def _bytes(raw: Any) -> bytes:
    """Bytes as Python 3 writes them, or the text that Python 2 and protocol 2 write instead."""
    if isinstance(raw, str):
        return raw.encode("latin1")
    if not isinstance(raw, bytes | bytearray):
        raise ValueError(f"it has {type(raw).__name__} in place of bytes")
    return bytes(raw)
