"""Eq. 1: h = sigma(a) + sigma(beta) in hidden layers, softmax(a + beta) at the output; the rules of sec. 4.3."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import tensor
from torch.testing import assert_close

from csn.core.neurons import RELU, TANH, shifted_activation, shifted_logits
from csn.networks.cnn import CNN
from csn.networks.ffn import FFN

A = [-1.0, 2.0, 0.5]
BETA = [3.0, -4.0, 1.0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("squashed", [3.0, 2.0, 1.5]),  # max(a, 0) + max(beta, 0)
        ("raw", [3.0, -2.0, 1.5]),  # max(a, 0) + beta
        ("inside", [2.0, 0.0, 1.5]),  # max(a + beta, 0)
    ],
)
def test_relu_neuron_shifted_by_hand(rule, expected):
    assert_close(shifted_activation(tensor(A), tensor(BETA), RELU, rule), tensor(expected))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("squashed", [math.tanh(a) + math.tanh(b) for a, b in zip(A, BETA, strict=True)]),
        ("raw", [math.tanh(a) + b for a, b in zip(A, BETA, strict=True)]),
        ("inside", [math.tanh(a + b) for a, b in zip(A, BETA, strict=True)]),
    ],
)
def test_tanh_neuron_shifted_by_hand(rule, expected):
    assert_close(shifted_activation(tensor(A), tensor(BETA), TANH, rule), tensor(expected))


def test_squashed_is_the_rule_unless_told_otherwise():
    assert_close(shifted_activation(tensor(A), tensor(BETA), RELU), tensor([3.0, 2.0, 1.5]))


def test_without_shifts_a_neuron_is_plain():
    assert_close(shifted_activation(tensor(A), None, RELU), tensor([0.0, 2.0, 0.5]))
    assert_close(shifted_logits(tensor(A), None), tensor(A))


def test_output_layer_is_softmax_of_the_sum():
    logits = shifted_logits(tensor([0.0, math.log(2)]), tensor([math.log(3), 0.0]))
    assert_close(logits.softmax(-1), tensor([3 / 5, 2 / 5]))


def test_a_negative_shift_lowers_an_output_but_no_relu_neuron():
    assert_close(shifted_logits(tensor([1.0]), tensor([-3.0])), tensor([-2.0]))
    assert_close(shifted_activation(tensor([1.0]), tensor([-3.0]), RELU), tensor([1.0]))


def test_unknown_rule_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"'squashd'.*squashed, raw, inside"):
        shifted_activation(tensor(A), tensor(BETA), RELU, "squashd")


def test_derivatives_by_hand():
    assert RELU.derivative(tensor([-1.0, 0.0, 2.0])).tolist() == [0.0, 0.0, 1.0]
    expected = [1 / math.cosh(a) ** 2 for a in A]
    assert_close(TANH.derivative(tensor(A)), tensor(expected))


@pytest.mark.parametrize("activation", [RELU, TANH], ids=["relu", "tanh"])
@pytest.mark.parametrize("rule", ["squashed", "raw", "inside"])
def test_ffn_is_eq1_layer_by_layer_neuron_by_neuron(float64, activation, rule):
    torch.manual_seed(0)
    base = FFN(4, 3, units=5, layers=3, activation=activation, shift_rule=rule).eval()
    for layer in (*base.hidden, base.output):
        torch.nn.init.normal_(layer.bias)
    torch.nn.init.normal_(base.output.weight)
    x = torch.randn(2, 4)
    shifts = (torch.randn(2, 5), torch.randn(2, 5), torch.randn(2, 3))
    sigma = {"relu": lambda v: max(v, 0.0), "tanh": math.tanh}[activation.name]
    combine = {
        "squashed": lambda a, b: sigma(a) + sigma(b),
        "raw": lambda a, b: sigma(a) + b,
        "inside": lambda a, b: sigma(a + b),
    }[rule]

    output = base(x, shifts)

    for example in range(2):
        h = x[example].tolist()
        for t, layer in enumerate((*base.hidden, base.output)):
            W, bias = layer.weight.tolist(), layer.bias.tolist()
            a = [sum(w * v for w, v in zip(row, h, strict=True)) + c for row, c in zip(W, bias, strict=True)]
            assert_close(output.preactivations[t][example], tensor(a))  # W_t h_{t-1} + b_t, before its own shift
            beta = shifts[t][example].tolist()
            h = [p + q if t == 2 else combine(p, q) for p, q in zip(a, beta, strict=True)]
        assert_close(output.logits[example], tensor(h))


def test_cnn_is_eq1_in_its_adapted_layers(float64):
    torch.manual_seed(0)
    base = CNN((1, 12, 12), 3, filters=4).eval()
    torch.nn.init.normal_(base.output.weight)
    x = torch.randn(2, 1, 12, 12)
    sides = (3, 2, 1)
    shifts = (*(torch.randn(2, side, side, 4) for side in sides), torch.randn(2, 3))  # neurons are (h, w, filters)

    h = x
    for convolution in base.lower.convolutions:
        h = F.max_pool2d(F.conv2d(h, convolution.weight, convolution.bias, padding=1).relu(), 2, ceil_mode=True)
    for convolution, beta in zip(base.adapted, shifts, strict=False):
        a = F.conv2d(h, convolution.weight, convolution.bias, padding=1)
        h = F.max_pool2d(a.relu() + beta.movedim(-1, 1).relu(), 2, ceil_mode=True)
    expected = h.flatten(1) @ base.output.weight.T + base.output.bias + shifts[-1]

    assert_close(base(x, shifts).logits, expected)
