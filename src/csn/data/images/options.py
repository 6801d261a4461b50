"""How images of the user's own are read."""

from __future__ import annotations

from typing import Literal

BadFiles = Literal["stop", "skip"]
Redraw = Literal["same", "pen", "any"]
SIZE = 84
"""Pixels on a side that images of the user's own are resized to."""
