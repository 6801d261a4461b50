"""Off their domain the drawings' weights are sure of themselves: pictures that are no pen drawings are told apart here.

A drawing is one colour of ink on plain paper. So most of it has nearly the paper's brightness, or nearly the ink's,
and little of it has a colour of its own. A photograph has neither. The limits were chosen on the training classes of
Tiny ImageNet, on Omniglot, and on scikit-learn's digits, whose 8 pixels on a side leave many between paper and ink.
"""

from __future__ import annotations

import numpy as np

COLOURED = 0.15  # a pixel whose red, green and blue differ by more has a colour
MOST_COLOURED = 0.3  # of a drawing in inks of several colours
NEAR = 0.08  # of the range of brightness: such a pixel is paper, or ink
LEAST_PLAIN = 0.5  # of a drawing


def is_foreign(levels: np.ndarray) -> bool:
    """Whether (h, w, channels) in [0, 1] is no drawing."""
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
