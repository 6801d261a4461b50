"""A task's memory: learning more is adding rows, forgetting is leaving rows out, exactly."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from csn.core.memory import TaskMemory
from csn.episode import Examples

WAY = 4  # of every learner in conftest.py
EXACT = {"rtol": 0, "atol": 1e-12}


def part(examples: Examples, rows: list[int]) -> Examples:
    return Examples(examples.x[:, rows], examples.y[:, rows])


def assert_same(a: TaskMemory, b: TaskMemory) -> None:
    assert a.way == b.way
    assert torch.equal(a.labels, b.labels)
    assert_close(a.keys, b.keys, **EXACT)
    for mine, theirs in zip(a.values, b.values, strict=True):
        assert_close(mine.dense(), theirs.dense(), **EXACT)


def test_learning_in_two_goes_equals_learning_at_once(csn_case):
    learner, episode = csn_case.learner(), csn_case.episode(shot=2)
    support = episode.support
    halves = [learner.describe(part(support, rows), WAY) for rows in ([0, 1, 2], [3, 4, 5, 6, 7])]
    joined = halves[0].extended(halves[1])
    at_once = learner.describe(support, WAY)
    assert len(joined) == 8
    assert_same(joined, at_once)
    assert_close(learner.predict(episode.query.x, joined), learner.predict(episode.query.x, at_once), **EXACT)


def test_forgotten_rows_are_as_if_never_described(csn_case):
    learner, episode = csn_case.learner(), csn_case.episode(shot=2)
    kept = [0, 2, 3, 7]
    forgotten = learner.describe(episode.support, WAY).rows(kept)
    never = learner.describe(part(episode.support, kept), WAY)
    assert_same(forgotten, never)
    assert_close(learner.predict(episode.query.x, forgotten), learner.predict(episode.query.x, never), **EXACT)


def test_forgetting_a_class_by_a_mask_over_labels(csn_case):
    """`memory.rows(labels != 2)` reads as what it should do."""
    memory = csn_case.learner().describe(csn_case.episode(shot=2).support, WAY)
    kept = memory.rows(memory.labels[0] != 2)
    assert kept.labels[0].tolist() == [0, 0, 1, 1, 3, 3]


def test_a_memory_without_rows_is_refused_when_read(csn_case):
    learner, episode = csn_case.learner(), csn_case.episode()
    memory = learner.describe(episode.support, WAY)
    with pytest.raises(ValueError, match=r"empty|at least one|no rows"):
        learner.predict(episode.query.x, memory.rows([]))


def test_memories_of_other_models_or_batches_are_not_joined(csn_case):
    learner = csn_case.learner()
    one = learner.describe(csn_case.episode(tasks=1).support, WAY)
    two = learner.describe(csn_case.episode(tasks=2).support, WAY)
    with pytest.raises(ValueError, match="same model and number of tasks"):
        one.extended(two)
    with pytest.raises(ValueError, match="same model and number of tasks"):
        one.extended(TaskMemory(one.keys, one.values[:-1], one.labels, WAY))


def test_joining_memories_of_fewer_ways_keeps_the_larger_way(csn_case):
    learner = csn_case.learner()
    small = learner.describe(csn_case.examples(1, [0, 1]), 2)
    large = learner.describe(csn_case.examples(1, [2]), 3)
    assert small.extended(large).way == 3
    assert large.extended(small).way == 3


def test_detached_memory_predicts_the_same_without_its_history(csn_case):
    learner, episode = csn_case.learner(), csn_case.episode()
    memory = learner.describe(episode.support, WAY)
    assert memory.keys.requires_grad
    cut = memory.detach()
    assert not cut.keys.requires_grad
    assert not any(layer.dense().requires_grad for layer in cut.values)
    assert_same(cut, memory.to("cpu"))
    assert torch.equal(learner.predict(episode.query.x, cut), learner.predict(episode.query.x, memory))


def test_one_row_decides_alone(csn_case):
    """With a single row attention is 1: every query gets that row's values as its shifts."""
    learner, episode = csn_case.learner(), csn_case.episode()
    memory = learner.describe(episode.support, WAY).rows([2])
    for shift, layer in zip(memory.read(learner.attend(episode.query.x, memory)), memory.values, strict=True):
        assert_close(shift, layer.dense().expand_as(shift), **EXACT)
