"""Eq. 6: (log|x| / p, sgn x) where |x| >= e^-p, else (-1, e^p x); p = 7."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from csn.core.conditioning import ErrorGradient, SparseInfo, preprocess_gradient

EDGE = math.exp(-7)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, (-1.0, 0.0)),
        (1.0, (0.0, 1.0)),
        (-1.0, (0.0, -1.0)),
        (math.exp(-3.5), (-0.5, 1.0)),
        (-math.exp(-3.5), (-0.5, -1.0)),
        (math.exp(7), (1.0, 1.0)),
        (0.5 * EDGE, (-1.0, 0.5)),
        (-0.25 * EDGE, (-1.0, -0.25)),
        (1.001 * EDGE, (-1 + math.log(1.001) / 7, 1.0)),
        (-0.999 * EDGE, (-1.0, -0.999)),
    ],
)
def test_numbers_by_hand(x, expected):
    assert_close(preprocess_gradient(tensor([x], dtype=torch.float64)), tensor([expected], dtype=torch.float64))


def test_zero_is_minus_one_and_zero_exactly():
    assert preprocess_gradient(tensor([0.0])).tolist() == [[-1.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_edge_itself_belongs_to_the_logarithm(dtype, sign):
    edge = sign * torch.exp(tensor(-7.0, dtype=dtype))
    below = torch.nextafter(edge, tensor(0.0, dtype=dtype))
    at, under = preprocess_gradient(torch.stack([edge, below]))
    assert at[1] == sign
    assert_close(at[0], tensor(-1.0, dtype=dtype))
    assert under[0] == -1
    assert_close(under[1], tensor(sign, dtype=dtype))
    assert abs(under[1]) <= 1


def test_p_is_a_parameter():
    assert_close(preprocess_gradient(tensor([math.exp(-1), math.exp(-3)]), p=2.0)[0], tensor([-0.5, 1.0]))
    assert_close(preprocess_gradient(tensor([math.exp(-3)]), p=2.0)[0], tensor([-1.0, math.exp(-1)]))


def test_shape_gains_a_last_axis_of_two():
    assert preprocess_gradient(torch.zeros(2, 3, 4)).shape == (2, 3, 4, 2)


@given(st.floats(-1e6, 1e6, allow_subnormal=False))
def test_the_formula_everywhere(x):
    first, second = preprocess_gradient(tensor([x], dtype=torch.float64))[0].tolist()
    if abs(x) >= EDGE * (1 + 1e-12):
        assert (first, second) == (pytest.approx(math.log(abs(x)) / 7, abs=1e-12), math.copysign(1, x))
    elif abs(x) < EDGE * (1 - 1e-12):
        assert (first, second) == (-1.0, pytest.approx(x * math.exp(7), abs=1e-12))


def test_its_own_gradients_are_finite_everywhere():
    x = tensor([0.0, -0.0, 1e-30, EDGE, -EDGE, 2 * EDGE, -1.0, 1e6], requires_grad=True)
    preprocess_gradient(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_gradient_conditioning_uses_it():
    info = ErrorGradient().output_info(tensor([[[math.exp(-3.5), 0.0]]]))
    assert isinstance(info, SparseInfo)
    assert_close(info.dense(), tensor([[[[-0.5, 1.0], [-1.0, 0.0]]]]))
