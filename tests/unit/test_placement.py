"""Examples on the device: the table goes there where it fits, and steps gather from it by row numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine import placement
from csn.engine.placement import placed

DEVICE = torch.device("meta")  # the one other device that every machine has


def data() -> Dataset:
    def split(name: str) -> ClassExamples:
        x = torch.randint(0, 256, (12, 1, 4, 4), dtype=torch.uint8)
        return ClassExamples(x, np.full(3, 4), tuple(f"{name}{c}" for c in range(3)))

    return Dataset("set", {"train": split("a"), "val": split("b"), "test": split("c")})


@pytest.mark.parametrize(
    ("where", "free", "on"),
    [
        ("auto", 1e9, "meta"),
        ("auto", 700, "cpu"),
        ("device", 1e9, "meta"),
        ("host", 1e9, "cpu"),
        ("stream", 1e9, "cpu"),
    ],
)
def test_the_table_goes_to_the_device_where_it_fits(monkeypatch, where, free, on):
    monkeypatch.setattr(placement, "free_memory", lambda device: free)  # the two splits take 384 bytes
    found = placed(data(), DEVICE, where)
    assert [found.splits[split].x.device.type for split in ("train", "val", "test")] == [on, on, "cpu"]


@pytest.mark.parametrize("where", ["device", "host"])
def test_steps_find_their_examples_on_the_device(where):
    found = placed(data(), DEVICE, where)
    episode = EpisodeSource(found, "train", way=3, shot=1, queries=2, seed=0).batch(0, 2)
    assert episode.support.x.device == episode.query.x.device == DEVICE
    assert episode.query.x.dtype == torch.float32
    assert episode.query.x.shape == (2, 6, 1, 4, 4)


def test_on_a_processor_nothing_is_moved():
    one = data()
    assert placed(one, torch.device("cpu"), "device") is one


def test_a_table_that_does_not_fit_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(placement, "free_memory", lambda device: 100)
    with pytest.raises(ValueError, match="more than half of the free memory of meta: give --data-on host"):
        placed(data(), DEVICE, "device")
