"""Tasks within one alphabet."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from csn.data.alphabets import WithinAlphabet
from csn.data.images.strokes import load_strokes
from csn.data.source import ClassExamples, Dataset


def source(data: Dataset, way: int) -> WithinAlphabet:
    return WithinAlphabet(data, "test", way=way, shot=1, queries=1, seed=0)


def made_of(*sizes: int) -> Dataset:
    """Alphabets of some sizes, two examples a class; an example is its class's number."""
    names = tuple(f"alphabet{a}/{c}" for a, size in enumerate(sizes) for c in range(size))
    x = torch.arange(len(names)).repeat_interleave(2)[:, None]
    return Dataset("made", {"test": ClassExamples(x, np.full(len(names), 2), names)})


def test_a_task_is_of_one_alphabet_and_every_large_enough_one_has_its_turn():
    tasks = source(made_of(3, 5, 4, 2), 4)
    assert sorted(tasks.alphabets) == ["alphabet1", "alphabet2"]
    firsts = {3, 8}
    seen = set()
    for index in range(40):
        classes = tasks.batch(index, 1).support.x.flatten().tolist()
        assert len(set(classes)) == 4
        start = max(first for first in firsts if first <= min(classes))
        assert max(classes) < {3: 8, 8: 12}[start]
        seen |= set(classes)
    assert seen == set(range(3, 12))


def test_generated_characters_have_alphabets():
    data = load_strokes(alphabets=5, characters=8)
    assert source(data, 8).batch(0, 2).support.x.shape[:2] == (2, 8)


def test_too_small_alphabets_and_none_at_all_are_refused():
    with pytest.raises(ValueError, match="need an alphabet of 6 classes; the largest in split 'test' of made has 5"):
        source(made_of(3, 5), 6)
    plain = ClassExamples(torch.zeros(4, 1), np.full(2, 2), ("a", "b"))
    with pytest.raises(ValueError, match="belong to no alphabet"):
        source(Dataset("plain", {"test": plain}), 2)
