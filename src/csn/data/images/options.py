"""How images of the user are read."""

from __future__ import annotations

from typing import Literal

BadFiles = Literal["stop", "skip"]
Redraw = Literal["same", "pen", "any"]
TYPES = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
"""The kinds of image files that are read: the endings of their names, and Pillow's names of the formats."""
FORMATS = tuple(dict.fromkeys(TYPES.values()))
SIZE = 84
"""Pixels per side to which images of the user are resized."""
