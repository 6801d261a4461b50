"""Detect pictures that are not pen drawings. The weights for drawings answer them too, with unjustified confidence.

A drawing is ink of one colour on plain paper. So most of its pixels are nearly as bright as the paper or as the ink,
and few of them are coloured. Neither holds for a photograph. The limits were chosen on the training classes of Tiny
ImageNet, on Omniglot, and on scikit-learn's digits, which at 8 x 8 pixels have many pixels between paper and ink.
"""

from __future__ import annotations

import numpy as np

COLOURED = 0.15  # a pixel is coloured if its red, green and blue differ by more than this
MOST_COLOURED = 0.3  # a drawing, even in several inks, has at most this share of coloured pixels
NEAR = 0.08  # a pixel this close to an end of the brightness range counts as paper or ink
LEAST_PLAIN = 0.5  # a drawing has at least this share of paper and ink pixels


def is_foreign(levels: np.ndarray) -> bool:
    """Whether a picture (h, w, channels) in [0, 1] is not a drawing."""
    colours = levels[..., :3]
    if levels.shape[2] >= 3 and float((np.ptp(colours, axis=2) > COLOURED).mean()) > MOST_COLOURED:
        return True
    grey = colours.mean(2)
    low, high = np.quantile(grey, (0.01, 0.99))
    if high - low < 1e-3:
        low, high = float(grey.min()), float(grey.max())
    scaled = ((grey - low) / max(float(high - low), 1e-9)).clip(0, 1)
    plain = float(((scaled < NEAR) | (scaled > 1 - NEAR)).mean())
    return plain < LEAST_PLAIN
