"""One picture as many kinds of file: every door for pictures must read each of them as the same picture.

The picture is 60 x 40 pixels: an ink bar at the top and an ink post at the left, on white paper.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

INK, GREY = (200, 30, 30), (81, 81, 81)  # and what is left of the ink without its colours
SPOTS = {"bar": (0.25, 0.5), "post": (0.7, 0.17), "paper": (0.7, 0.6), "corner": (0.04, 0.5)}  # (y, x) of the whole


class Kind(NamedTuple):
    """A file, and the colour of its ink."""

    content: bytes
    ink: tuple[int, int, int] = INK


def scene() -> np.ndarray:
    """(40, 60, 3) uint8."""
    pixels = np.full((40, 60, 3), 255, dtype=np.uint8)
    pixels[5:15, 5:50] = pixels[15:35, 5:15] = INK
    return pixels


def _file(image: Image.Image, kind: str, **options: Any) -> bytes:
    options |= {"quality": 100} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def kinds() -> dict[str, Kind]:
    """The picture by the name of its kind; a name's last part is the ending of the file."""
    image, grey = Image.fromarray(scene()), Image.fromarray(scene()).convert("L")
    later = {"save_all": True, "append_images": [Image.new("RGB", (60, 40), (0, 0, 255))]}  # a second frame, all blue
    deep = np.asarray(grey).astype(np.uint16) * 257
    return (
        {
            "plain.png": Kind(_file(image, "PNG")),
            "palette.png": Kind(_file(image.quantize(8), "PNG")),
            "one bit.png": Kind(_file(grey.point(lambda level: 255 * (level > 128)).convert("1"), "PNG"), (0, 0, 0)),
            "one bit.bmp": Kind(_file(grey.point(lambda level: 255 * (level > 128)).convert("1"), "BMP"), (0, 0, 0)),
            "plain.gif": Kind(_file(image, "GIF")),
            "animated.gif": Kind(_file(image.quantize(4), "GIF", **later)),
            "animated.png": Kind(_file(image, "PNG", **later)),
            "animated.webp": Kind(_file(image, "WEBP", **later)),
            "pages.tiff": Kind(_file(image, "TIFF", **later)),
            "plain.jpg": Kind(_file(image, "JPEG")),
            "progressive.jpg": Kind(_file(image, "JPEG", progressive=True)),
            "grey.jpg": Kind(_file(grey, "JPEG"), GREY),
            "CMYK with Adobe's marker.jpg": Kind(_file(image.convert("CMYK"), "JPEG")),
            "CMYK.tiff": Kind(_file(image.convert("CMYK"), "TIFF")),
            "16 bits.png": Kind(_file(Image.fromarray(deep), "PNG"), GREY),
            "16 bits.tiff": Kind(_file(Image.fromarray(deep), "TIFF"), GREY),
            "8 bits in 16.png": Kind(_file(Image.fromarray(deep // 257), "PNG"), GREY),
            "32 bits.tiff": Kind(_file(Image.fromarray(deep.astype(np.int32)), "TIFF"), GREY),
            "fractions.tiff": Kind(_file(Image.fromarray((deep / 65535).astype(np.float32)), "TIFF"), GREY),
        }
        | _transparent()
        | _turned()
    )


def _transparent() -> dict[str, Kind]:
    """Ink on transparent paper, under which the file says black."""
    paper = (scene() == 255).all(-1)
    clear = np.dstack([np.where(paper[..., None], 0, scene()), np.where(paper, 0, 255)]).astype(np.uint8)
    image, numbers = Image.fromarray(clear), Image.fromarray(np.where(paper, 0, 1).astype(np.uint8), "P")
    numbers.putpalette([0, 0, 0, *INK])
    grey = Image.fromarray(np.dstack([np.where(paper, 0, GREY[0]), clear[..., 3]]).astype(np.uint8), "LA")
    return {
        "transparent.png": Kind(_file(image, "PNG")),
        "transparent.webp": Kind(_file(image, "WEBP", exact=True)),
        "transparent and grey.png": Kind(_file(grey, "PNG"), GREY),
        "palette with many alphas.png": Kind(_file(image.quantize(8), "PNG")),
        "palette with one clear colour.png": Kind(_file(numbers, "PNG", transparency=0)),
        "one clear colour.png": Kind(_file(image.convert("RGB"), "PNG", transparency=(0, 0, 0))),
        "one clear colour.gif": Kind(_file(numbers, "GIF", transparency=0)),
    }


def _turned() -> dict[str, Kind]:
    """Pictures that lie on their side or in a mirror; their metadata say how to set them upright."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "hello"
    lying = Image.fromarray(scene()).transpose(Image.Transpose.ROTATE_90)
    broken = exif.tobytes().replace(b"\x01\x0e", b"\x01\x17")  # a text where a number should be
    found = {
        "turned.jpg": Kind(_file(lying, "JPEG", exif=exif)),
        "turned.png": Kind(_file(lying, "PNG", exif=exif)),
        "turned.webp": Kind(_file(lying, "WEBP", exif=exif.tobytes())),
        "turned.tiff": Kind(_file(lying, "TIFF", exif=exif)),
        "turned with damaged metadata.jpg": Kind(_file(lying, "JPEG", exif=broken)),
    }
    moves = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270")
    for orientation, move in enumerate(moves, 2):
        exif[0x0112] = orientation
        moved = Image.fromarray(scene()).transpose(Image.Transpose[move])
        found[f"orientation {orientation}.jpg"] = Kind(_file(moved, "JPEG", exif=exif))
    return found


def truncated() -> dict[str, bytes]:
    """Files of which the last third is missing."""
    files = kinds()
    names = ("plain.png", "plain.jpg", "progressive.jpg", "plain.gif", "animated.webp", "16 bits.png")
    return {name: files[name].content[: len(files[name].content) * 2 // 3] for name in names}


def assert_scene(pixels: np.ndarray, ink: tuple[int, int, int], *, left: float = 0.0, width: float = 1.0) -> None:
    """Assert that (h, w, 3) uint8 show the picture, or the part of it from `left` on that is `width` wide."""
    height, across, _ = pixels.shape
    for name, (y, x) in SPOTS.items():
        inside = (x - left) / width
        if 0.05 < inside < 0.95:
            expected = (255, 255, 255) if name in ("paper", "corner") else ink
            found = pixels[int(y * height), int(inside * across)].astype(int)
            assert np.abs(found - expected).max() <= 8, f"{name}: {found.tolist()} in place of {list(expected)}"
