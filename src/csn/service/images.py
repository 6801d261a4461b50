"""Drawings as clients send them -> what the classifier takes; small pictures for clients to show."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from csn.classifier.inputs import prepare
from csn.learner import InputSpec
from csn.service.errors import ServiceError
from csn.service.limits import Limits

PICTURE = 96  # side of the pictures kept for showing, at most
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def from_png(content: bytes, limits: Limits) -> Image.Image:
    """A decoded PNG. Its headers are read by hand first: a picture that is too large is never decoded."""
    if content[:8] != SIGNATURE or content[12:16] != b"IHDR" or len(content) < 33:
        raise unusable("the image is no PNG file")
    width, height = struct.unpack(">II", content[16:24])
    _check_size(width, height, limits)
    if _kinds(content).count(b"IHDR") != 1:  # decoders go by the last one
        raise unusable("the PNG file has two headers")
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            _check_size(image.width, image.height, limits)
            image.load()
            return image
    except Image.DecompressionBombError as error:
        raise unusable("the PNG file claims more pixels than its header says") from error
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError, struct.error, zlib.error) as error:
        raise unusable(f"the PNG file is damaged ({error})") from error


def _kinds(content: bytes) -> list[bytes]:
    """The kind of every chunk of a PNG file, in order."""
    found, place = [], 8
    while place + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        found.append(kind)
        place += 12 + length
    return found


def from_base64(text: str, limits: Limits) -> Image.Image:
    """A PNG as base64, with or without `data:image/png;base64,` before it."""
    try:
        content = base64.b64decode(text.removeprefix("data:image/png;base64,"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise unusable("the image is no base64") from error
    return from_png(content, limits)


def from_pixels(rows: list[list[float]], limits: Limits) -> np.ndarray:
    """Rows of numbers, all of one length, as (h, w)."""
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise unusable("the rows of pixels have different lengths")
    _check_size(width, len(rows), limits)
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, which the classifier refuses
        return np.array(rows, dtype=np.float64).astype(np.float32)


def picture(image: Any) -> bytes:
    """A drawing as a small PNG to show: black ink on transparent paper."""
    side = min(PICTURE, max(image.size if isinstance(image, Image.Image) else image.shape))
    return ink_png(prepare([image], InputSpec((1, side, side)))[0, 0].numpy())


def ink_png(ink: np.ndarray) -> bytes:
    """(h, w) uint8, 255 is ink -> PNG."""
    file = io.BytesIO()
    Image.fromarray(np.stack([np.zeros_like(ink), ink], axis=-1), "LA").save(file, "PNG", optimize=True)
    return file.getvalue()


def unusable(message: str) -> ServiceError:
    """The answer to a drawing that cannot be used."""
    return ServiceError(422, "unusable_image", message, "send a PNG drawing with some ink on plain paper")


def _check_size(width: int, height: int, limits: Limits) -> None:
    if min(width, height) < 1 or max(width, height) > limits.side or width * height > limits.pixels:
        raise ServiceError(
            422,
            "image_too_large" if min(width, height) else "unusable_image",
            f"the image has {width} x {height} pixels",
            f"send 1 to {limits.side} pixels a side and at most {limits.pixels:,} in all",
        )
