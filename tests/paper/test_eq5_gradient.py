"""Eq. 5: the gradient of each support example's own loss with respect to its own preactivations."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, tensor
from torch.testing import assert_close

from csn.core.base_learner import BaseLearner
from csn.core.conditioning import ErrorGradient
from csn.core.neurons import TANH
from csn.networks.cnn import CNN
from csn.networks.ffn import FFN
from csn.networks.resnet import ResNet

BASES = {
    "ffn": lambda: (FFN(4, 5, units=6, dropout=0.0), (4,)),
    "ffn-tanh": lambda: (FFN(4, 5, units=6, dropout=0.0, activation=TANH), (4,)),
    "cnn": lambda: (CNN((1, 12, 12), 5, filters=4), (1, 12, 12)),
    "cnn-batchnorm": lambda: (CNN((1, 12, 12), 5, filters=4, norm="batch").eval(), (1, 12, 12)),
    "resnet": lambda: (ResNet((3, 16, 16), 5, width=0.1), (3, 16, 16)),
    "resnet-batchnorm": lambda: (ResNet((3, 16, 16), 5, width=0.1, norm="batch").eval(), (3, 16, 16)),
}


def prepared(name: str) -> tuple[BaseLearner, tuple[int, ...]]:
    """A base learner, as after some training, and the shape of its input."""
    base, shape = BASES[name]()
    torch.nn.init.normal_(base.output.weight)
    return base, shape


def gradients(base: BaseLearner, x: Tensor, y: Tensor, way: int) -> list[Tensor]:
    """(b, n, ...) of every adapted layer, from the code: x (b * n, *input), y (b, n)."""
    features = base.stem(x).detach().requires_grad_()
    infos = ErrorGradient(p=None)(base.head(features), y, base.activations, way)
    return [info.dense().squeeze(-1) for info in infos]


@pytest.mark.parametrize("way", [5, 3])
@pytest.mark.parametrize("name", BASES)
def test_every_gradient_is_that_of_one_example_alone(float64, name, way):
    torch.manual_seed(0)
    base, shape = prepared(name)
    b, n = 2, 4
    x, y = torch.randn(b * n, *shape), torch.randint(way, (b, n))

    found = gradients(base, x, y, way)

    for task in range(b):
        for i in range(n):
            output = base(x[None, task * n + i])
            log_probability = output.logits[0, :way].log_softmax(-1)[y[task, i]]  # the classes of the task only
            expected = torch.autograd.grad(-log_probability, output.preactivations)
            assert len(found) == len(expected)
            for layer, gradient in zip(found, expected, strict=True):
                assert_close(layer[task, i], gradient[0], rtol=0, atol=1e-13)


def test_output_gradient_by_hand():
    base = FFN(2, 3, layers=1, dropout=0.0)
    base.output.weight.data = tensor([[0.0, 0.0], [math.log(2), 0.0], [math.log(5), 0.0]])
    (found,) = gradients(base, tensor([[1.0, 7.0], [0.0, 7.0]]), tensor([[2, 0]]), 3)
    # y_hat = (1, 2, 5) / 8 and (1, 1, 1) / 3, minus the true label
    assert_close(found, tensor([[[1 / 8, 2 / 8, -3 / 8], [-2 / 3, 1 / 3, 1 / 3]]]))


def test_outputs_beyond_the_way_of_the_task_have_no_gradient(float64):
    base, shape = prepared("ffn")
    *_, output = gradients(base, torch.randn(4, *shape), tensor([[0, 1, 1, 0]]), 2)
    assert (output[..., 2:] == 0).all()
    assert (output[..., :2] != 0).all()


@pytest.mark.parametrize("name", ["cnn", "cnn-batchnorm"])
def test_given_the_features_an_example_is_independent_of_its_batch_even_in_training_mode(float64, name):
    torch.manual_seed(0)
    base, shape = prepared(name)
    base.train()
    features, y = base.stem(torch.randn(4, *shape)).detach(), tensor([[0, 1, 2, 3]])
    others = features.clone()
    others[1:] = torch.randn_like(others[1:])

    def of_first(batch: Tensor) -> list[Tensor]:
        infos = ErrorGradient(p=None)(base.head(batch.requires_grad_()), y, base.activations, 5)
        return [info.dense()[0, 0] for info in infos]

    for alone, together in zip(of_first(features), of_first(others), strict=True):
        assert_close(alone, together, rtol=0, atol=1e-14)


def test_information_has_two_numbers_or_the_raw_one():
    assert (ErrorGradient().size(5), ErrorGradient().p, ErrorGradient(p=None).size(5)) == (2, 7.0, 1)


def test_the_loss_of_eq5_is_not_averaged_over_examples(float64):
    """Twice the same support gives the same gradients, not halved ones."""
    base, shape = prepared("ffn")
    x, y = torch.randn(3, *shape), tensor([[0, 1, 2]])
    once = gradients(base, x, y, 5)
    twice = gradients(base, torch.cat([x, x]), torch.cat([y, y], 1), 5)
    for a, b in zip(once, twice, strict=True):
        assert_close(torch.cat([a, a], 1), b)


def test_cross_entropy_of_the_whole_way_matches_torch(float64):
    base, shape = prepared("ffn")
    x, y = torch.randn(1, *shape), tensor([[3]])
    output = base(x)
    expected = torch.autograd.grad(F.cross_entropy(output.logits, y[0]), output.preactivations)
    for layer, gradient in zip(gradients(base, x, y, 5), expected, strict=True):
        assert_close(layer[0], gradient)
