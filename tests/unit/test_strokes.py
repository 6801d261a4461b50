"""The embedded stroke characters: the same everywhere, stable as the set grows, and neither trivial nor hopeless."""

from __future__ import annotations

import hashlib

import pytest
import torch

from csn.data.images.strokes import load_strokes
from csn.data.source import SPLITS, Dataset, EpisodeSource


def digest(data: Dataset) -> str:
    return hashlib.sha256(b"".join(data.splits[split].x.numpy().tobytes() for split in SPLITS)).hexdigest()


def by_name(data: Dataset) -> dict[str, torch.Tensor]:
    """Drawings (e, 1, 28, 28) of every class."""
    return {
        name: drawings
        for classes in data.splits.values()
        for name, drawings in zip(classes.names, classes.x.split(classes.counts.tolist()), strict=True)
    }


@pytest.fixture(scope="module")
def small() -> Dataset:
    return load_strokes(alphabets=5, characters=4, drawings=3)


@pytest.fixture(scope="module")
def twenty() -> Dataset:
    return load_strokes(alphabets=20, characters=10)


def test_same_seed_same_bytes_on_every_machine(small: Dataset) -> None:
    assert digest(small) == "e3448fdae1a9c3f03c02b96d93cb8cb62cf3be1e035fbcc06c6b1ddb624e8a35"


def test_another_seed_draws_other_characters(small: Dataset) -> None:
    assert digest(load_strokes(seed=1, alphabets=5, characters=4, drawings=3)) != digest(small)


@pytest.mark.parametrize("more", [{"alphabets": 8}, {"characters": 6}, {"drawings": 7}])
def test_a_larger_set_keeps_what_was_there(small: Dataset, more: dict[str, int]) -> None:
    grown = load_strokes(**{"alphabets": 5, "characters": 4, "drawings": 3, **more})
    split_of = {name: split for split, classes in grown.splits.items() for name in classes.names}
    drawings = by_name(grown)
    for split, classes in small.splits.items():
        assert all(split_of[name] == split for name in classes.names)
    for name, expected in by_name(small).items():
        assert torch.equal(drawings[name][:3], expected), name


def test_shapes_names_and_types(small: Dataset) -> None:
    assert small.name == "strokes"
    for split, alphabets in {"train": [0, 1, 2], "test": [3], "val": [4]}.items():
        classes = small.splits[split]  # type: ignore[index]
        assert classes.x.dtype == torch.uint8
        assert classes.x.shape == (len(alphabets) * 4 * 3, 1, 28, 28)
        assert classes.counts.tolist() == [3] * (len(alphabets) * 4)
        assert classes.names == tuple(f"alphabet-{a:03d}/character-{c:02d}" for a in alphabets for c in range(4))


def test_whole_alphabets_are_held_out(twenty: Dataset) -> None:
    alphabets = {split: {name.split("/")[0] for name in classes.names} for split, classes in twenty.splits.items()}
    assert {split: len(names) for split, names in alphabets.items()} == {"train": 16, "val": 1, "test": 3}
    assert len(set.union(*alphabets.values())) == 20


def test_every_drawing_is_a_thin_line_inside_the_box(twenty: Dataset) -> None:
    for classes in twenty.splits.values():
        ink = classes.x[:, 0]
        assert (ink.flatten(1).max(1).values > 150).all()
        mean = ink.float().mean((1, 2)) / 255
        assert mean.min() > 0.004
        assert mean.max() < 0.35
        assert 0.06 < mean.mean() < 0.10  # Omniglot: 0.08
        edge = torch.ones(28, 28, dtype=torch.bool)
        edge[1:-1, 1:-1] = False
        assert (ink[:, edge] == 0).all()


def test_no_two_drawings_are_alike(twenty: Dataset) -> None:
    drawings = [image.tobytes() for classes in twenty.splits.values() for image in classes.x.numpy()]
    assert len(set(drawings)) == len(drawings) == 20 * 10 * 20


def test_drawings_of_a_class_are_close_but_not_trivially(twenty: Dataset) -> None:
    """Nearest neighbour on raw pixels, 5-way 1-shot: chance is 20 %, Omniglot 43 %."""
    episodes = EpisodeSource(twenty, "train", way=5, shot=1, queries=5, seed=0).batch(0, 200)
    support, query = episodes.support.x.flatten(2), episodes.query.x.flatten(2)
    nearest = torch.cdist(query, support).argmin(-1)  # (b, m): support j is the example of class j
    accuracy = (nearest == episodes.query.y).float().mean().item()
    assert 0.35 < accuracy < 0.60


@pytest.mark.parametrize("bad", [{"seed": -1}, {"alphabets": 4}, {"characters": 0}, {"drawings": 0}])
def test_senseless_arguments_are_refused(bad: dict[str, int]) -> None:
    (name,) = bad
    with pytest.raises(ValueError, match=f"{name} >= .*, got {bad[name]}"):
        load_strokes(**bad)
