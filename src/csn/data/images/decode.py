"""Image files -> rows of one array of bytes. Worker processes run this module, so it imports no torch."""

from __future__ import annotations

import functools
import hashlib
import io
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from csn.data.fetch import require
from csn.data.images.modes import in_colour, upright
from csn.data.images.options import FORMATS

MAX_BYTES = 64 << 20  # the largest file that is read
MAX_PIXELS = 32_000_000  # the largest image that is decoded
# One row per file: the digest of its bytes, the size of the image, and why it could not be read (empty if it could).
# digest: UNREAD if another try may succeed, DAMAGED if the bytes of a member of an archive are lost.
RECORD = np.dtype([("digest", "V16"), ("width", "u4"), ("height", "u4"), ("why", "S160")])
UNREAD, DAMAGED = bytes(16), b"damaged".ljust(16)


class Place(NamedTuple):
    """The place of an image's bytes: a file, or a member of a zip archive."""

    path: str
    member: str | None


def decode_rows(places: Sequence[Place], first: int, *, pixels: Path, rows: int, size: int) -> np.ndarray:
    """Decode images into rows first, first + 1, ... of the file `pixels` (rows, 3, size, size); -> (places,) RECORD."""
    require("PIL.Image")  # a missing package is not the fault of the files
    array = np.memmap(pixels, dtype=np.uint8, mode="r+", shape=(rows, 3, size, size))
    records = np.zeros(len(places), dtype=RECORD)
    for i, place in enumerate(places):
        records[i]["digest"] = DAMAGED
        try:
            content = read_bytes(place)
            records[i]["digest"] = hashlib.sha256(content).digest()[:16]
            array[first + i], records[i]["width"], records[i]["height"] = decode(content, size)
        except Exception as error:  # damaged files can raise almost any error in zipfile and pillow
            records[i]["why"] = reason(error).encode(errors="backslashreplace")[:160]
            if may_pass(error):
                records[i]["digest"] = UNREAD
    return records


def reason(error: Exception) -> str:
    """The reason why a file could not be read, in one line."""
    if isinstance(error, MemoryError):
        return "there is not enough memory to read it"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = " ".join(str(error).split())
    if said and isinstance(error, OSError | ValueError | SyntaxError | zipfile.BadZipFile):  # a text for people
        return said
    return f"it is damaged, or of an unknown kind ({type(error).__name__}{': ' * bool(said)}{said})"


def may_pass(error: Exception) -> bool:
    """Whether the machine failed rather than the file. Errors of the system have a number."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


def read_bytes(place: Place) -> bytes:
    """The bytes of an image file. Raise ValueError if there are more than MAX_BYTES."""
    if place.member is None:
        length = Path(place.path).stat().st_size
    else:
        length = _archive(place.path).getinfo(place.member).file_size
    if length > MAX_BYTES:
        raise ValueError(f"an image file may have at most {MAX_BYTES:,} bytes, got {length:,}")
    return Path(place.path).read_bytes() if place.member is None else _archive(place.path).read(place.member)


@functools.lru_cache(maxsize=4)
def _archive(path: str) -> zipfile.ZipFile:
    """An archive, opened once per process. Members are read into memory and never extracted."""
    return zipfile.ZipFile(path)


def close_archives() -> None:
    """Close opened archives, because another file may have the same name next time."""
    _archive.cache_clear()


def decode(content: bytes, size: int) -> tuple[np.ndarray, int, int]:
    """(3, size, size) uint8 in RGB, and width and height before resizing.

    The whole image is fitted to the square, as in the usual copies of Mini-ImageNet. Photographs are turned upright,
    grey images get three equal channels, transparent pixels become white, and of an animation the first frame is read.
    """
    pillow = require("PIL.Image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pillow warns of large images, which are refused below, and of odd metadata
        try:
            opened = pillow.open(io.BytesIO(content), formats=FORMATS)
        except pillow.DecompressionBombError as error:
            raise ValueError(f"an image may have at most {MAX_PIXELS:,} pixels, this one claims more") from error
        except pillow.UnidentifiedImageError as error:
            raise ValueError(f"it is not an image of type {', '.join(FORMATS)}") from error
        with opened as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise ValueError(f"an image may have at most {MAX_PIXELS:,} pixels, got {width} x {height}")
            image.draft("RGB", (2 * size, 2 * size))  # a JPEG several times too large is decoded at a fraction
            image = in_colour(upright(image))
            if image.size != (size, size):
                image = image.resize((size, size), pillow.Resampling.BILINEAR)  # with pillow, averages on the way down
            return np.asarray(image).transpose(2, 0, 1), width, height
