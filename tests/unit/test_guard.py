"""How many photographs are told from drawings, and how many drawings are taken for photographs."""

from __future__ import annotations

import numpy as np

from csn.classifier.guard import is_foreign
from csn.data.registry import load_data


def share(name: str, every: int) -> float:
    """Of the test images of a data set, every so many of them, those that are taken for no drawings."""
    examples = load_data(name).splits["test"]
    images = examples.at(np.arange(0, len(examples.x), every)).permute(0, 2, 3, 1).numpy()
    return float(np.mean([is_foreign(image) for image in images]))


def test_photographs_are_told_from_drawings(real_data):
    assert share("tiny-imagenet-fewshot", 5) >= 0.95
    assert share("omniglot", 25) <= 0.01
