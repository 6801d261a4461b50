"""benchmarks/unknown.py in small: shares that can be worked out by hand, and a committed table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from csn.core.repeated import HeadOptions

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import encoders
import unknown
from encoded_sets import Vectors


def made_up(spread: float = 0.7) -> Vectors:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 20)
    x = rng.normal(size=(12, 16))[y] + spread * rng.normal(size=(240, 16))
    return Vectors(torch.from_numpy(x.astype(np.float32)), y, HeadOptions())


def test_the_share_caught_by_hand():
    known = torch.arange(11.0)  # the tenth percentile is 1
    assert unknown.caught(known, torch.tensor([0.5, 0.9, 1.5, 7.0])) == 0.5


def test_thresholds_keep_what_they_promise():
    data = made_up()
    shipped = unknown.thresholds(data, count=10)
    assert list(shipped) == [1, 2, 5, 10]
    assert shipped[1] < shipped[5]
    row = unknown.measured(data, shipped, 5, 5, 10)
    assert row["calibrated kept"].mean == pytest.approx(unknown.KEEP, abs=0.03)
    assert 0.75 < row["own kept"].mean < 1
    assert min(row["mean"].mean, row["example"].mean, row["after"].mean) > 0.85
    assert "own kept" not in unknown.measured(data, shipped, 5, 1, 3)
    assert len(unknown.table([{"set": "made up", "split": "val"} | row]).splitlines()) == 3


def test_a_model_measured_again_keeps_the_others():
    data = made_up()
    whole = encoders.measured("made up", data, 4, 2, 4, ["csn", "centroid", "logistic"])
    earlier = {"rows": [whole], "commit": "0" * 40}
    found = encoders.compared(encoders.measured("made up", data, 4, 2, 4, ["csn"]), earlier)["models"]
    assert list(found) == ["csn", "centroid", "logistic"]
    assert found["csn"]["accuracies"] == whole["models"]["csn"]["accuracies"]
    assert found["csn"]["over_logistic"] == whole["models"]["csn"]["over_logistic"]
    other = encoders.measured("made up", data, 4, 2, 3, ["csn"])  # other tasks: nothing to keep
    assert list(encoders.compared(other, earlier)["models"]) == ["csn"]
