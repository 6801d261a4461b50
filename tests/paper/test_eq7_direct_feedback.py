"""Eq. 7: I_{t,i,l} = sigma'(a_{t,l}) (y_hat'_i - y'_i); at the output each neuron sees its own class first."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from csn.core.base_learner import BaseLearner, BaseOutput
from csn.core.conditioning import DirectFeedback
from csn.core.neurons import RELU, TANH
from csn.networks.cnn import CNN
from csn.networks.ffn import FFN

BASES = {
    "ffn-relu": lambda: (FFN(4, 4, units=5, dropout=0.0), (4,)),
    "ffn-tanh": lambda: (FFN(4, 4, units=5, dropout=0.0, activation=TANH), (4,)),
    "cnn": lambda: (CNN((1, 12, 12), 4, filters=3), (1, 12, 12)),
}


def prepared(name: str) -> tuple[BaseLearner, tuple[int, ...]]:
    """A base learner, as after some training, and the shape of its input."""
    base, shape = BASES[name]()
    torch.nn.init.normal_(base.output.weight)
    return base, shape


def derivative(name: str, a: float) -> float:
    return float(a > 0) if name == "relu" else 1 / math.cosh(a) ** 2


@pytest.mark.parametrize("way", [4, 2])
@pytest.mark.parametrize("name", BASES)
def test_information_of_every_neuron_by_nested_loops(float64, name, way):
    torch.manual_seed(0)
    base, shape = prepared(name)
    b, n, C = 2, 3, base.way
    x, y = torch.randn(b * n, *shape), torch.randint(way, (b, n))
    output = base(x)

    *hidden, last = [info.dense() for info in DirectFeedback()(output, y, base.activations, way)]

    assert len(hidden) == len(base.activations)
    for task in range(b):
        for i in range(n):
            row = task * n + i
            exponentials = [math.exp(v) for v in output.logits[row, :way].tolist()]
            y_hat = [v / sum(exponentials) for v in exponentials] + [0.0] * (C - way)
            error = [p - float(c == y[task, i]) for c, p in enumerate(y_hat)]
            for t, sigma in enumerate(base.activations):
                a = output.preactivations[t][row].flatten().tolist()
                expected = [[derivative(sigma.name, v) * e for e in error] for v in a]
                assert_close(hidden[t][task, i].reshape(-1, C), tensor(expected))
            rolled = [[error[(l + k) % C] for k in range(C)] for l in range(C)]  # noqa: E741 (the paper's letter)
            assert_close(last[task, i], tensor(rolled))


def test_by_hand():
    logits = tensor([[math.log(1), math.log(2), math.log(5)]])  # y_hat = (1, 2, 5) / 8
    output = BaseOutput(logits, (tensor([[-1.0, 0.0, 3.0]]), logits))
    hidden, last = DirectFeedback()(output, tensor([[1]]), (RELU,), 3)
    e = [1 / 8, -6 / 8, 5 / 8]
    assert_close(hidden.dense(), tensor([[[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], e]]]))
    assert_close(last.dense(), tensor([[[e, [-6 / 8, 5 / 8, 1 / 8], [5 / 8, 1 / 8, -6 / 8]]]]))


def test_tanh_scales_by_its_slope():
    logits = torch.zeros(1, 2)
    output = BaseOutput(logits, (tensor([[0.0, math.atanh(0.5)]]), logits))
    hidden, _ = DirectFeedback()(output, tensor([[0]]), (TANH,), 2)
    assert_close(hidden.dense(), tensor([[[[-0.5, 0.5], [-0.375, 0.375]]]]))  # slopes 1 and 1 - 0.25


def test_it_has_as_many_numbers_as_classes_and_needs_no_graph():
    assert DirectFeedback().size(20) == 20
    assert not DirectFeedback.needs_graph
    logits = torch.zeros(2, 3, requires_grad=True)
    hidden, last = DirectFeedback()(BaseOutput(logits, (logits, logits)), tensor([[0, 1]]), (RELU,), 3)
    assert not hidden.dense().requires_grad
    assert not last.dense().requires_grad
