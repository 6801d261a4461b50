"""Tasks of many sizes, and drawings by other hands with other pens."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.testing import assert_close

from csn.data.images.augment import affine, augment, pen
from csn.data.images.strokes import load_strokes
from csn.data.source import Dataset, EpisodeSource
from csn.data.varied import VariedSource


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_strokes(alphabets=5, characters=8)


def varied(data: Dataset, *, way: int = 4, shot: int = 3) -> VariedSource:
    return VariedSource(data, "train", way=way, shot=shot, queries=2, seed=0)


def test_every_size_occurs_and_one_shot_most_often(data):
    batches = [varied(data).batch(first, 2) for first in range(0, 1200, 2)]
    ways = Counter(episode.way for episode in batches)
    shots = Counter(episode.support.y.shape[1] // episode.way for episode in batches)
    assert sorted(ways) == [2, 3, 4]
    assert min(ways.values()) > 150  # a third of 600 each
    assert sorted(shots) == [1, 2, 3]
    assert shots[1] > 270  # log 2 / log 4 = a half
    assert all(episode.query.y.shape == (2, 2 * episode.way) for episode in batches)


def test_a_batch_is_a_function_of_its_place_and_drawn_as_tasks_of_its_size_are(data):
    for first in (0, 7, 100):
        episode = varied(data).batch(first, 3)
        shot = episode.support.y.shape[1] // episode.way
        alone = EpisodeSource(data, "train", way=episode.way, shot=shot, queries=2, seed=0).batch(first, 3)
        for batch in (varied(data).batch(first, 3), alone):
            assert torch.equal(batch.support.x, episode.support.x)
            assert torch.equal(batch.query.x, episode.query.x)


def test_sizes_that_the_data_cannot_fill_are_refused_at_once(data):
    with pytest.raises(ValueError, match="need 2 classes of 21 examples"):
        varied(data, way=3, shot=20)


def test_a_pen_makes_strokes_wider_or_thinner_and_nothing_else(data):
    torch.manual_seed(0)
    images = data.splits["train"].x[:200].float().div(255)
    drawn = pen(images, 1.0)
    wider = (drawn >= images).flatten(1).all(1)
    thinner = (drawn <= images).flatten(1).all(1)
    assert bool((wider | thinner).all())
    assert 60 < int(wider.sum()) < 140
    assert_close(pen(images, 0.0), images)
    near = torch.nn.functional.max_pool2d(images, 3, stride=1, padding=1) > 0
    assert not bool(drawn[~near].any())  # at most a pixel beyond the stroke
    assert bool((drawn.amax((1, 2, 3)) > 0.4).all())  # and none is erased


def test_augmented_tasks_keep_labels_shape_and_range(data):
    episode = varied(data).batch(0, 2)
    changed = augment(episode, 1.0)
    assert torch.equal(changed.query.y, episode.query.y)
    assert changed.support.x.shape == episode.support.x.shape
    assert not torch.equal(changed.support.x, episode.support.x)
    assert 0 <= float(changed.query.x.min()) <= float(changed.query.x.max()) <= 1 + 1e-6
    assert_close(affine(episode.query.x, 0.0), episode.query.x, rtol=0, atol=1e-5)
