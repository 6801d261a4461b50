"""Decode the pictures that clients send, and make small pictures for clients to show."""

from __future__ import annotations

import base64
import binascii
import io
import struct
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from csn.classifier.inputs import one_image, prepare, to_rgb
from csn.data.images.modes import DAMAGED
from csn.learner import InputSpec
from csn.service.errors import ServiceError
from csn.service.limits import Limits

PICTURE = 96  # longest side of the pictures kept for display
SIGNATURE, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"  # no UTF-8 text begins with either
PHOTO_FORMATS = ("JPEG", "PNG", "WEBP")


class Most(NamedTuple):
    """The largest picture.

    side: pixels on a side.
    pixels: pixels in total.
    """

    side: int
    pixels: int


def from_png(content: bytes, most: Most) -> Image.Image:
    """A decoded PNG. Its header is checked first, so a picture that is too large is never decoded."""
    if content[:8] != SIGNATURE or content[12:16] != b"IHDR" or len(content) < 33:
        raise unusable("the image is not a PNG file")
    width, height = struct.unpack(">II", content[16:24])
    _check_size(width, height, most)
    if _kinds(content).count(b"IHDR") != 1:  # decoders use the last one
        raise unusable("the PNG file has two headers")
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            _check_size(image.width, image.height, most)
            image.load()
            return image
    except Image.DecompressionBombError as error:
        raise unusable("the PNG file claims more pixels than its header says") from error
    except DAMAGED as error:
        raise unusable(f"the PNG file is damaged ({error})") from error


def from_photo(content: bytes, limits: Limits) -> np.ndarray:
    """A photograph (JPEG, PNG or WebP) as (h, w, channels), upright. One that is too large is never decoded."""
    most = Most(limits.photo_side, limits.photo_pixels)
    if content[:8] == SIGNATURE:
        return one_image(from_png(content, most))
    try:
        with Image.open(io.BytesIO(content), formats=PHOTO_FORMATS) as image:
            _check_size(image.width, image.height, most)
            return one_image(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise unusable("the photograph has too many pixels") from error
    except DAMAGED as error:
        raise unusable(f"the photograph is damaged, or not a JPEG, PNG or WebP file ({error})") from error


def _kinds(content: bytes) -> list[bytes]:
    """The types of the chunks of a PNG file, in order."""
    found, place = [], 8
    while place + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        found.append(kind)
        place += 12 + length
    return found


def from_base64(text: str) -> bytes:
    """The content of a base64-encoded file. A prefix `data:image/TYPE;base64,` is optional."""
    head, comma, rest = text.partition(",")
    if comma and head.startswith("data:image/") and head.endswith(";base64"):
        text = rest
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise unusable("the image is not base64") from error


def from_pixels(rows: list[list[float]], most: Most) -> np.ndarray:
    """Rows of numbers as an array (h, w). All rows must have the same length."""
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise unusable("the rows of pixels have different lengths")
    _check_size(width, len(rows), most)
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, and the classifier refuses those
        return np.array(rows, dtype=np.float64).astype(np.float32)


def picture(image: Any) -> bytes:
    """A drawing as a small PNG for display: black ink on transparent paper."""
    side = min(PICTURE, max(image.size if isinstance(image, Image.Image) else image.shape))
    return ink_png(prepare([image], InputSpec((1, side, side)))[0, 0].numpy())


def ink_png(ink: np.ndarray) -> bytes:
    """(h, w) uint8, where 255 is ink, as a PNG."""
    file = io.BytesIO()
    Image.fromarray(np.stack([np.zeros_like(ink), ink], axis=-1), "LA").save(file, "PNG", optimize=True)
    return file.getvalue()


def photo_jpeg(photograph: np.ndarray) -> bytes:
    """The square that the encoder sees of a photograph, as a small JPEG."""
    file = io.BytesIO()
    Image.fromarray(to_rgb(photograph, PICTURE)).save(file, "JPEG", quality=85)
    return file.getvalue()


def is_picture(shown: bytes) -> bool:
    """Whether an example is displayed as a picture. Otherwise it is displayed as text."""
    return shown.startswith((SIGNATURE, JPEG))


def unusable(message: str, kind: str = "image") -> ServiceError:
    """The error for an input that cannot be used. `kind` is "image" or "text"."""
    remedy = "send a picture that fits the task: a PNG drawing with some ink on plain paper, or a photograph"
    remedy = "send a sentence that is not empty" if kind == "text" else remedy
    return ServiceError(422, f"unusable_{kind}", message, remedy)


def _check_size(width: int, height: int, most: Most) -> None:
    if min(width, height) < 1 or max(width, height) > most.side or width * height > most.pixels:
        raise ServiceError(
            422,
            "image_too_large" if min(width, height) else "unusable_image",
            f"the image has {width} x {height} pixels",
            f"send 1 to {most.side} pixels per side and at most {most.pixels:,} in total",
        )
