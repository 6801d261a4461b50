"""Pictures that say two sizes: decoders may go by the one that no limit was held against."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib

import pytest
from PIL import Image

from csn.classifier.inputs import open_image
from csn.data.images.decode import decode

SMALL = (16, 16)


def saved(kind: str, mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, SMALL, 1).save(file, kind, **options)
    return file.getvalue()


def png(side: int, *, late: bool) -> bytes:
    content = saved("PNG")
    data = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + data + struct.pack(">I", zlib.crc32(data))
    place = content.index(b"IEND") - 4 if late else content.index(b"IDAT") - 4
    return content[:place] + chunk + content[place:]


def jpeg(side: int, *, late: bool) -> bytes:
    content = saved("JPEG")
    start = content.index(b"\xff\xc0")
    (length,) = struct.unpack(">H", content[start + 2 : start + 4])
    frame = content[start : start + 5] + struct.pack(">HH", side, side) + content[start + 9 : start + 2 + length]
    place = content.index(b"\xff\xda") if late else start
    return content[:place] + frame + content[place:]


def gif(side: int, *, late: bool) -> bytes:
    """A frame that is larger than its screen, or a screen that is larger than its frame."""
    content = bytearray(saved("GIF", "P"))
    place = content.index(b"\x2c") + 5 if late else 6
    content[place : place + 4] = struct.pack("<HH", side, side)
    return bytes(content)


def webp(side: int, *, late: bool) -> bytes:
    """A canvas that is larger than its frames, in a picture of one frame or of several."""
    more = (
        {"save_all": True, "append_images": [Image.new("RGB", SMALL, 9)]}
        if late
        else {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}
    )
    content = bytearray(saved("WEBP", **more))
    place = content.index(b"VP8X") + 12
    content[place : place + 6] = struct.pack("<I", side - 1)[:3] * 2
    return bytes(content)


@pytest.mark.parametrize("side", [13_000, 60_000])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", [png, jpeg, gif, webp])
def test_the_larger_size_is_never_decoded(tmp_path, kind, late, side):
    content = kind(side, late=late)
    (tmp_path / "picture").write_bytes(content)
    for read in (lambda: decode(content, 8)[1:], lambda: open_image(tmp_path / "picture").shape[:2]):
        found = SMALL
        with contextlib.suppress(ValueError, OSError, SyntaxError):  # refused
            found = read()
        assert found == SMALL
