"""Resizing by exact area averages."""

from __future__ import annotations

import numpy as np


def area_matrix(before: int, after: int) -> np.ndarray:
    """(after, before): row i averages the stretch of the input that output pixel i covers, fractions of pixels too.

    The exact area average rather than pillow's filters: its box gives output pixels 3 or 4 whole inputs in turn (105 /
    28 = 3.75), so strokes would get thicker and thinner along a line, and Lanczos rings beside them. This one keeps
    the amount of ink and commutes with quarter turns.
    """
    edges = np.arange(after + 1) * (before / after)
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: np.ndarray = np.maximum(overlap, 0) * (after / before)
    return weights.astype(np.float32)
