"""g along lines: the cheap form of eqs. 6 and 7 for layers of many neurons equals g, values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

import csn.core.shortcuts.rowwise
from csn.core.conditioning import DenseInfo, LayerInfo, ScaledInfo, SparseInfo
from csn.core.memory import MemoryFunction
from csn.core.shortcuts.piecewise import pieces, preprocessed

EXACT = {"rtol": 0, "atol": 1e-12}


def some_g(size: int, layers: int = 3, bias: bool = True) -> MemoryFunction:
    g = MemoryFunction(size, units=7, layers=layers, bias=bias)
    for parameter in g.parameters():
        torch.nn.init.normal_(parameter)  # biases too, so that there are many breakpoints
    return g


def wide_gradients(*shape: int) -> Tensor:
    """Of both signs and every magnitude, on both sides of e^-7."""
    return torch.randn(*shape).sign() * torch.exp(20 * torch.rand(*shape) - 15)


@pytest.mark.parametrize(("layers", "bias"), [(4, True), (3, True), (2, True), (1, True), (3, False), (1, False)])
@pytest.mark.parametrize("kind", ["scaled", "gradient"])
def test_many_neurons_equal_g_one_by_one(float64, monkeypatch, kind, layers, bias):
    monkeypatch.setattr(csn.core.shortcuts.rowwise, "CHUNK", 10)
    torch.manual_seed(0)
    scaled = ScaledInfo(torch.rand(2, 3, 5, 40), torch.randn(2, 3, 4))
    info: LayerInfo = scaled if kind == "scaled" else SparseInfo(wide_gradients(2, 3, 5, 40), 7.0)
    g = some_g(info.dense().shape[-1], layers, bias)
    found, expected = info.values(g).dense(), g(info.dense())
    assert_close(found, expected, **EXACT)
    weight = torch.randn_like(expected)
    for a, b in zip(*(torch.autograd.grad((v * weight).sum(), g.parameters()) for v in (found, expected)), strict=True):
        assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_the_corners_of_eq6(float64):
    torch.manual_seed(1)
    g, edge = some_g(2), math.exp(-7)
    x = tensor([0.0, edge, -edge, edge / 2, -edge / 2, 1.0, -1.0, 1e-300, -1e-300, 1e300, -1e300])
    assert_close(preprocessed(g, x, 7.0), g(DenseInfo(SparseInfo(x, 7.0).dense()).info), **EXACT)


def test_breakpoints_by_hand(float64):
    """g(r) = relu(r - 1) - relu(2 - r): pieces meet at 1 and 2."""
    g = MemoryFunction(1, units=2, layers=2)
    g.layers[0].weight.data, g.layers[0].bias.data = tensor([[1.0], [-1.0]]), tensor([-1.0, 2.0])
    g.layers[1].weight.data, g.layers[1].bias.data = tensor([[1.0, -1.0]]), tensor([0.0])
    breaks, slope, offset = pieces(g, tensor([[0.0]]), tensor([[1.0]]), tensor([[-3.0, 5.0]]))
    assert_close(breaks, tensor([[1.0, 2.0]]))
    assert_close(slope, tensor([[1.0, 2.0, 1.0]]))
    assert_close(offset, tensor([[-2.0, -3.0, -1.0]]))


def test_single_precision_stays_close():
    torch.manual_seed(2)
    g, x = some_g(2), wide_gradients(5000)
    assert_close(preprocessed(g, x, 7.0), g(SparseInfo(x, 7.0).dense()), rtol=1e-4, atol=1e-4)
