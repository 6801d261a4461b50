"""A data set of random 7 x 7 bitmaps, enlarged four times. Each example has a few flipped pixels."""

from __future__ import annotations

import numpy as np
import torch

from csn.data.registry import DataEntry, LoadOptions
from csn.data.source import ClassExamples, Dataset, Split

CLASSES: dict[Split, int] = {"train": 60, "val": 20, "test": 20}
EXAMPLES = 20  # per class


def load(options: LoadOptions) -> Dataset:
    """x: (examples, 1, 28, 28) uint8, the examples of a class one after the other."""
    rng = np.random.default_rng(0)
    splits = {}
    for split, classes in CLASSES.items():
        glyphs = rng.random((classes, 1, 7, 7)) < 0.4
        turned = rng.random((classes, EXAMPLES, 7, 7)) < 0.08
        pixels = (glyphs ^ turned).reshape(-1, 1, 7, 7).repeat(4, 2).repeat(4, 3)
        names = tuple(f"{split} glyph {number}" for number in range(classes))
        x = torch.from_numpy(255 * pixels.astype(np.uint8))
        splits[split] = ClassExamples(x, np.full(classes, EXAMPLES), names)
    return Dataset("glyphs", splits)


ENTRY = DataEntry("100 random glyphs of 49 squares; made up, no download", load)
