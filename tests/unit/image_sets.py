"""Small sets of images for tests: every image of one colour that tells its class and its number."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

Files = dict[str, bytes]


def picture(
    red: int, green: int = 0, *, width: int = 10, height: int = 12, kind: str = "PNG", mode: str = "RGB"
) -> bytes:
    """An image file of one colour; grey ones have the brightness `red`."""
    colour: int | tuple[int, ...] = red if mode == "L" else (red, green, 0, 128)[: len(mode)]
    file = io.BytesIO()
    Image.new(mode, (width, height), colour).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


def photograph(seed: int, *, side: int = 40) -> bytes:
    """A JPEG of noise: a few thousand bytes, so that it can be cut off in the middle."""
    noise = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


def classes(prefix: str, labels: list[str], images: int = 3, *, first: int = 0) -> Files:
    """`prefix`/label/0.png ...: red is the class (from `first` on, times 10), green the number of the image."""
    return {
        f"{prefix}{label}/{number}.png": picture(10 * (first + c), number)
        for c, label in enumerate(labels)
        for number in range(images)
    }


def split_folders(images: int = 3) -> Files:
    """Two classes in each of train/, val/ and test/."""
    return {
        **classes("train/", ["ant", "bee"], images),
        **classes("val/", ["cat", "dog"], images, first=2),
        **classes("test/", ["eel", "fox"], images, first=4),
    }


def write(folder: Path, files: Files) -> Path:
    """The files in a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def pack(path: Path, files: Files) -> Path:
    """The files in a zip archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
