"""EpisodeSource: episode i is a function of (seed, split, i) alone; supports and queries are what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from csn.data.source import ClassExamples, Dataset, EpisodeSource

COUNTS = {"train": [4, 9, 5, 7, 3, 6], "val": [5, 5, 5], "test": [6, 4, 6, 5]}


def classes(counts: list[int], prefix: str) -> ClassExamples:
    """Row r of the split is the number r, so that an example names itself; class c begins at sum(counts[:c])."""
    x = torch.arange(sum(counts)).unsqueeze(-1)
    return ClassExamples(x, np.array(counts), tuple(f"{prefix}{c}" for c in range(len(counts))))


DATA = Dataset("toy", {split: classes(counts, split) for split, counts in COUNTS.items()})


def source(split: str = "train", way: int = 3, shot: int = 2, queries: int = 2, seed: int = 0) -> EpisodeSource:
    return EpisodeSource(DATA, split, way=way, shot=shot, queries=queries, seed=seed)


def class_of(row: int, split: str = "train") -> int:
    return int(np.searchsorted(np.cumsum(COUNTS[split]), row, side="right"))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**40), first=st.integers(0, 10**9), cuts=st.lists(st.integers(1, 4), min_size=1, max_size=4)
)
def test_batches_cut_differently_hold_the_same_episodes(seed, first, cuts):
    whole = source(seed=seed).batch(first, sum(cuts))
    parts, at = [], first
    for count in cuts:
        parts.append(source(seed=seed).batch(at, count))
        at += count
    assert torch.equal(whole.support.x, torch.cat([part.support.x for part in parts]))
    assert torch.equal(whole.query.x, torch.cat([part.query.x for part in parts]))


def test_the_global_generators_play_no_part():
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    first = source().batch(5, 2).support.x
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    rng = torch.get_rng_state()
    assert torch.equal(first, source().batch(5, 2).support.x)
    assert torch.equal(rng, torch.get_rng_state())


def test_seed_split_and_index_all_matter():
    base = source("val", way=2).batch(0, 20).support.x
    assert not torch.equal(base, source("val", way=2, seed=1).batch(0, 20).support.x)
    assert not torch.equal(base, source("val", way=2).batch(20, 20).support.x)
    same = classes([9] * 5, "a"), classes([9] * 5, "b")
    data = Dataset("twins", {"val": same[0], "test": same[1]})
    val, test = (EpisodeSource(data, split, way=3, shot=1, queries=1, seed=0) for split in ("val", "test"))
    assert not torch.equal(val.batch(0, 20).support.x, test.batch(0, 20).support.x)


@settings(max_examples=40, deadline=None)
@given(
    way=st.integers(2, 4),
    shot=st.integers(1, 3),
    queries=st.integers(1, 2),
    seed=st.integers(0, 99),
    at=st.integers(0, 99),
)
def test_support_and_query_are_disjoint_and_labels_right_in_ragged_classes(way, shot, queries, seed, at):
    drawn = source(way=way, shot=shot, queries=queries, seed=seed)
    episode = drawn.batch(at, 2)
    assert (episode.way, episode.tasks) == (way, 2)
    for task in range(2):
        support, query = episode.support.x[task, :, 0].tolist(), episode.query.x[task, :, 0].tolist()
        assert len({*support, *query}) == way * (shot + queries)  # no row twice
        labels = episode.support.y[task].tolist()
        assert [labels.count(c) for c in range(way)] == [shot] * way
        true = {label: class_of(row) for row, label in zip(support, labels, strict=True)}
        assert len(set(true.values())) == way
        for row, label in zip(support + query, labels + episode.query.y[task].tolist(), strict=True):
            assert class_of(row) == true[label]
        assert all(COUNTS["train"][c] >= shot + queries for c in true.values())


def test_every_class_label_and_example_gets_its_turn():
    seen: dict[int, set[int]] = {}
    labels: dict[int, set[int]] = {}
    episode = source("val", way=3, shot=2, queries=3).batch(0, 200)
    for task in range(200):
        for row, label in zip(episode.support.x[task, :, 0].tolist(), episode.support.y[task].tolist(), strict=True):
            seen.setdefault(class_of(row, "val"), set()).add(row)
            labels.setdefault(class_of(row, "val"), set()).add(label)
    assert {c: len(rows) for c, rows in seen.items()} == {0: 5, 1: 5, 2: 5}
    assert all(found == {0, 1, 2} for found in labels.values())


def test_classes_too_small_are_passed_over():
    episode = source(way=3, shot=4, queries=2).batch(0, 100)  # needs 6: classes 1, 3 and 5
    assert {class_of(row) for row in episode.support.x.flatten().tolist()} == {1, 3, 5}


def test_too_few_classes_or_examples_say_what_is_missing():
    with pytest.raises(ValueError, match=r"7-way.*need 7 classes of 4 examples; split 'train' of toy has 6 classes, 5"):
        source(way=7)
    with pytest.raises(ValueError, match=r"3 classes of 30 examples.*0 of them large enough"):
        source(shot=20, queries=10)


@pytest.mark.parametrize(("way", "shot", "queries"), [(1, 1, 1), (2, 0, 1), (2, 1, 0)])
def test_impossible_tasks_are_refused(way, shot, queries):
    with pytest.raises(ValueError, match=f"got {way}, {shot} and {queries}"):
        source(way=way, shot=shot, queries=queries)


def test_a_split_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"\['val'\], got 'test'"):
        EpisodeSource(Dataset("toy", {"val": DATA.splits["val"]}), "test", way=2, shot=1, queries=1, seed=0)


def test_bytes_become_numbers_from_0_to_1_and_other_inputs_stay():
    x = torch.tensor([0, 51, 102, 255], dtype=torch.uint8).view(4, 1)
    data = Dataset("bytes", {"train": ClassExamples(x, np.array([2, 2]), ("a", "b"))})
    episode = EpisodeSource(data, "train", way=2, shot=1, queries=1, seed=0).batch(0, 1)
    found = torch.cat([episode.support.x, episode.query.x], 1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.flatten().sort().values, torch.tensor([0.0, 0.2, 0.4, 1.0]))
    assert x.flatten().tolist() == [0, 51, 102, 255]
    assert source().batch(0, 1).support.x.dtype == torch.int64


def test_class_examples_must_fit_together():
    with pytest.raises(ValueError, match="2 names, 2 counts that sum to 3, and 4 rows"):
        ClassExamples(torch.zeros(4, 1), np.array([1, 2]), ("a", "b"))
    with pytest.raises(ValueError, match="1 names, 2 counts"):
        ClassExamples(torch.zeros(3, 1), np.array([1, 2]), ("a",))
    with pytest.raises(ValueError, match="unique"):
        ClassExamples(torch.zeros(3, 1), np.array([1, 2]), ("a", "a"))


def test_no_class_is_in_two_splits():
    with pytest.raises(ValueError, match="'a1' of toy is in both 'train' and 'test'"):
        Dataset(
            "toy", {"train": classes([1, 1], "a"), "test": ClassExamples(torch.zeros(1, 1), np.array([1]), ("a1",))}
        )
