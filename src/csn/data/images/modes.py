"""Pillow's pictures of every mode: turned upright, 16 bits and fractions scaled, transparency laid on white."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from csn.data.fetch import require

ORIENTATION = 0x0112  # of the metadata; from 2 on, what sets the picture upright
TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
# What Pillow raises on damaged files, apart from its DecompressionBombError.
DAMAGED: tuple[type[Exception], ...] = (OSError, SyntaxError, ValueError, EOFError, MemoryError, RuntimeError)
DAMAGED += (LookupError, ArithmeticError, TypeError, AttributeError, struct.error, zlib.error)


def upright(image: Any) -> Any:
    """The picture as its metadata says it is to be seen. Metadata that cannot be read turn nothing."""
    image.load()
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except DAMAGED:
        return image
    if not isinstance(orientation, int) or not 2 <= orientation <= 8:
        return image
    return image.transpose(require("PIL.Image").Transpose[TURNS[orientation - 2]])


def has_transparency(image: Any) -> bool:
    """Whether some pixels may be transparent."""
    return image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info


def is_numeric(image: Any) -> bool:
    """Whether pixels are numbers of more than 8 bits, or fractions."""
    return image.mode.startswith(("I", "F"))


def levels(values: np.ndarray) -> np.ndarray:
    """Pixels of any type as float32, scaled so that black is 0 and white is 1. NaN and infinity are refused."""
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("the image holds NaN or infinite values: clean it first")
    low, high = float(values.min()), float(values.max())
    if low < 0:  # no known scale starts below 0, so use the picture's own range
        return np.asarray((values - low) / max(high - low, 1e-12))
    if high <= 1:
        return values
    return np.asarray(values / (255 if high <= 255 else 65535 if high <= 65535 else high))


def in_colour(image: Any) -> Any:
    """An upright picture in mode RGB. Transparent pixels become white."""
    pillow = require("PIL.Image")
    if is_numeric(image):
        image = pillow.fromarray(np.rint(255 * levels(np.asarray(image))).astype(np.uint8))
    elif has_transparency(image):
        image = image.convert("RGBA")
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
