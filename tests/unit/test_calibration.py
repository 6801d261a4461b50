"""Calibration and intervals over classes, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from csn.engine.calibration import Calibration, clustered_interval


def test_nll_and_calibration_error_by_hand() -> None:
    calibration = Calibration()
    probabilities = torch.tensor([[[0.9, 0.1], [0.9, 0.1]], [[0.4, 0.6], [0.3, 0.7]]])
    calibration.add(probabilities[:1].log(), torch.tensor([[0, 1]]))
    calibration.add(probabilities[1:].log(), torch.tensor([[1, 1]]))
    found = calibration.summary()
    assert found["nll"] == pytest.approx(-(math.log(0.9) + math.log(0.1) + math.log(0.6) + math.log(0.7)) / 4)
    # 0.9 is in one bin, half of it right; 0.6 and 0.7 in two others: |1.8 - 1|, |0.6 - 1| and |0.7 - 1|, of 4.
    assert found["ece"] == pytest.approx((0.8 + 0.4 + 0.3) / 4)
    assert set(found) == {"nll", "ece"}


def test_an_interval_over_classes_counts_each_class_once() -> None:
    values, classes = np.array([1.0, 1.0, 0.0, 0.0]), np.array([7, 7, 3, 3])
    # The deviations of a class sum to 1 and -1: sqrt(2 / 1 * 2) / 4.
    assert clustered_interval(values, classes) == pytest.approx(1.96 * 2 / 4)
    assert clustered_interval(values, np.array([1, 2, 1, 2])) == pytest.approx(0)
    one, other = Calibration(), Calibration()
    one.add(torch.tensor([[[2.0, 0.0], [2.0, 0.0]]]), torch.tensor([[0, 0]]))
    other.add(torch.tensor([[[2.0, 0.0], [2.0, 0.0]]]), torch.tensor([[1, 1]]))
    found = Calibration.of_parts([one, other]).summary(classes.reshape(2, 2))
    assert (found["classes"], found["interval_over_classes"]) == (2, pytest.approx(1.96 * 2 / 4))


def test_a_certain_answer_is_in_the_last_bin() -> None:
    calibration = Calibration()
    calibration.add(torch.tensor([[[100.0, 0.0]]]), torch.tensor([[0]]))
    assert calibration.summary() == {"nll": pytest.approx(0, abs=1e-9), "ece": pytest.approx(0, abs=1e-9)}
