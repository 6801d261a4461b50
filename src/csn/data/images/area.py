"""Resizing by exact area averages."""

from __future__ import annotations

import numpy as np


def area_matrix(before: int, after: int) -> np.ndarray:
    """Weights (after, before). Row i averages the input that output pixel i covers, including fractions of pixels.

    Pillow's filters are not used. Its box filter averages 3 or 4 whole inputs (105 / 28 = 3.75), so the width of
    a stroke would vary along its line. Lanczos adds rings next to strokes. The exact area average keeps the amount
    of ink, and it commutes with quarter turns.
    """
    edges = np.arange(after + 1) * (before / after)
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: np.ndarray = np.maximum(overlap, 0) * (after / before)
    return weights.astype(np.float32)
