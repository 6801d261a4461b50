"""How images of the user's own are read."""

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
"""Kinds of image files that are read: endings of their names, and what Pillow calls them."""
FORMATS = tuple(dict.fromkeys(TYPES.values()))
SIZE = 84
"""Pixels on a side that images of the user's own are resized to."""
