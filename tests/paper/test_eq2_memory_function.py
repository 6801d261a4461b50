"""Eq. 2: V = g(I), one g for every layer, applied to each neuron's information by itself."""

from __future__ import annotations

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from csn.core.conditioning import DenseInfo
from csn.core.memory import MemoryFunction


def g_by_hand() -> MemoryFunction:
    g = MemoryFunction(2, units=2, layers=3)
    weights = [[[1.0, 0.0], [0.0, -1.0]], [[1.0, 1.0], [-1.0, 2.0]], [[2.0, -1.0]]]
    biases = [[0.0, 1.0], [-1.0, 0.0], [0.5]]
    for layer, weight, bias in zip(g.layers, weights, biases, strict=True):
        layer.weight.data, layer.bias.data = tensor(weight), tensor(bias)
    return g


@pytest.mark.parametrize(
    ("info", "value"),
    [
        ([3.0, -2.0], 7.5),  # (3, 3) -> (3 + 3 - 1, -3 + 6) = (5, 3) -> 10 - 3 + 0.5
        ([-1.0, 2.0], 0.5),  # (-1, -1) -> ReLU 0 -> (-1, 0) -> ReLU 0 -> 0.5
        ([0.0, -1.0], 0.5 + 2.0 - 4.0),  # (0, 2) -> (1, 4) -> 2 - 4 + 0.5: the output is linear, it may be negative
    ],
)
def test_three_layer_perceptron_by_hand(info, value):
    assert_close(g_by_hand()(tensor(info)), tensor(value))


def test_perceptron_of_section_4_3_is_linear():
    g = MemoryFunction(3, layers=1)
    g.layers[0].weight.data, g.layers[0].bias.data = tensor([[1.0, -2.0, 3.0]]), tensor([-10.0])
    assert_close(g(tensor([[1.0, 1.0, 1.0], [2.0, 0.0, 5.0]])), tensor([-8.0, 7.0]))


def test_scalar_of_section_4_3_multiplies():
    g = MemoryFunction(1, layers=1, bias=False)
    g.layers[0].weight.data.fill_(-2.5)
    assert [p.numel() for p in g.parameters()] == [1]
    assert_close(g(tensor([[2.0], [-4.0], [0.0]])), tensor([-5.0, 10.0, 0.0]))


def test_one_g_serves_layers_of_every_shape_neuron_by_neuron():
    torch.manual_seed(0)
    g = MemoryFunction(2, units=7)
    for neurons in [(), (4,), (2, 3), (2, 2, 3)]:
        info = torch.randn(2, 3, *neurons, 2)
        values = DenseInfo(info).values(g).dense()
        assert values.shape == (2, 3, *neurons)
        flat = info.reshape(-1, 2)
        for neuron, value in zip(flat, values.reshape(-1), strict=True):
            assert_close(value, g(neuron))


def test_appendix_a_three_layers_of_twenty_units():
    g = MemoryFunction(2)
    assert [tuple(layer.weight.shape) for layer in g.layers] == [(20, 2), (20, 20), (1, 20)]
    assert sum(p.numel() for p in g.parameters()) == (2 * 20 + 20) + (20 * 20 + 20) + (20 + 1)


def test_scale_multiplies_g():
    g, info = g_by_hand(), tensor([[3.0, -2.0], [-1.0, 2.0]])
    g.scale(-1)
    assert_close(g(info), tensor([-7.5, -0.5]))
    g.scale(4)
    assert_close(g(info), tensor([-30.0, -2.0]))


def test_scaled_is_g_of_the_scaled_information_by_hand():
    # s * (6, -4) with s = 0.5 is (3, -2), with s = 0 it is (0, 0): (0, 1) -> (0, 2) -> -2 + 0.5
    assert_close(g_by_hand().scaled(tensor([0.5, 0.0]), tensor([[6.0, -4.0]])), tensor([7.5, -1.5]))


def test_initialise_draws_other_weights_and_forgets_biases():
    g = g_by_hand()
    before = [weight.detach().clone() for weight, _ in g.weights()]
    g.initialise()
    for old, (weight, bias) in zip(before, g.weights(), strict=True):
        assert (weight != old).all()
        assert (bias == 0).all()


@pytest.mark.parametrize("sizes", [(0, 20, 3), (2, 0, 3), (2, 20, 0)])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match=f"at least 1, got {sizes[0]}, {sizes[1]} and {sizes[2]}"):
        MemoryFunction(sizes[0], units=sizes[1], layers=sizes[2])
