"""Options for reading your own images."""

from __future__ import annotations

from typing import Literal

BadFiles = Literal["stop", "skip"]
Redraw = Literal["same", "pen", "any"]
Framing = Literal["turned", "cropped"]
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
"""The kinds of image files that are read: endings of their names, and Pillow's names for the formats."""
FORMATS = tuple(dict.fromkeys(TYPES.values()))
SIZE = 84
"""Your own images are resized to this many pixels per side."""
