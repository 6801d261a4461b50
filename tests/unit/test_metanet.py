"""MetaNet against its definition: one example, one query and one weight at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from csn.baselines import coordinates
from csn.baselines.coordinates import CoordinateLSTM
from csn.baselines.metanet import AugmentedNetwork, MetaNet
from csn.core.conditioning import preprocess_gradient
from csn.episode import Examples

IMAGE, WAY = (2, 6, 6), 3


pytestmark = pytest.mark.usefixtures("float64")


def slow(weights: list[Tensor], x: Tensor, head: Tensor | None = None) -> Tensor:
    """The network of one example (channels, h, w) under its slow weights."""
    h = x[None]
    for weight in weights:
        if weight.ndim == 4:
            h = F.max_pool2d(F.conv2d(h, weight, padding=1).relu(), 2, ceil_mode=True)
        else:
            h = F.linear(h.flatten(1), weight)
            if weight is not weights[-1] or head is not None:
                h = h.relu()
    return h if head is None else F.linear(h, head)


def augmented(weights: list[Tensor], fast: list[Tensor], x: Tensor) -> Tensor:
    """Section 3.3 for one example: relu(W x) + relu(W* x) in every layer but the last."""
    h = x[None]
    for weight, quick in zip(weights, fast, strict=True):
        if weight.ndim == 4:
            both = F.conv2d(h, weight, padding=1).relu() + F.conv2d(h, quick, padding=1).relu()
            h = F.max_pool2d(both, 2, ceil_mode=True)
        elif weight is weights[-1]:
            h = F.linear(h.flatten(1), weight) + F.linear(h.flatten(1), quick)
        else:
            h = F.linear(h.flatten(1), weight).relu() + F.linear(h.flatten(1), quick).relu()
    return h[0]


@pytest.mark.parametrize("with_head", [False, True])
def test_gradients_of_each_examples_own_loss_equal_autograd_one_at_a_time(with_head):
    torch.manual_seed(0)
    network = AugmentedNetwork(IMAGE, (5,) if with_head else (5, WAY), filters=4, layers=2)
    head = torch.randn(WAY, 5) if with_head else None
    x, y = torch.randn(4, *IMAGE), torch.tensor([0, 1, 1, 0])
    found = network.loss_gradients(x, y, 2, head)  # a 2-way task of a 3-way network
    for i in range(4):
        loss = F.cross_entropy(slow(network.weights(), x[i], head)[:, :2], y[i : i + 1])
        for layer, wanted in zip(found, torch.autograd.grad(loss, network.weights()), strict=True):
            assert_close(layer[i], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_examples_of_a_group_see_their_own_fast_weights(groups):
    torch.manual_seed(0)
    network = AugmentedNetwork(IMAGE, (5, WAY), filters=4, layers=2)
    fast = [torch.randn(groups, *weight.shape) for weight in network.weights()]
    x = torch.randn(6, *IMAGE)
    found = network(x, fast)
    for i in range(6):
        own = [layer[i // (6 // groups)] for layer in fast]
        assert_close(found[i], augmented(network.weights(), own, x[i]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 20])
def test_the_lstm_over_coordinates_equals_torchs_with_its_gradients(monkeypatch, rows):
    monkeypatch.setattr(coordinates, "CHUNK", 7)
    torch.manual_seed(0)
    module, x = CoordinateLSTM(2, units=5), torch.randn(3, 2, rows)
    nn.init.normal_(module.lstm.bias_hh_l0)
    theirs = module.output(module.lstm(x.mT)[1][0][0]).squeeze(-1)
    assert_close(module(x), theirs, rtol=0, atol=1e-13)
    weights = torch.randn(rows)
    for found, wanted in zip(
        *(torch.autograd.grad((y * weights).sum(), module.parameters()) for y in (module(x), theirs)), strict=True
    ):
        assert_close(found, wanted, rtol=0, atol=1e-12)


def test_a_prediction_by_the_steps_of_algorithm_1():
    torch.manual_seed(0)
    learner = MetaNet(IMAGE, WAY, filters=4, size=5, units=6, parts=2)
    x, y, query = torch.randn(3, *IMAGE), torch.tensor([0, 1, 2]), torch.randn(*IMAGE)
    W, Q = learner.base.weights(), learner.representation.weights()

    def gradients(weights: list[Tensor], part: list[int], head: Tensor | None) -> list[Tensor]:
        losses = [F.cross_entropy(slow(weights, x[i], head), y[i : i + 1]) for i in part]
        return list(torch.autograd.grad(sum(losses) / len(losses), weights))

    parts = [gradients(Q, part, learner.head) for part in ([0, 1], [2])]  # three examples in two parts
    fast_Q = []
    for layer, weight in enumerate(Q):
        sequence = torch.stack([preprocess_gradient(part[layer].flatten(), 7.0) for part in parts])  # (T, weights, 2)
        d = learner.d_convolutions if weight.ndim == 4 else learner.d_linear
        fast_Q.append(d.output(d.lstm(sequence)[1][0][0]).view(weight.shape))
    keys = torch.stack([augmented(Q, fast_Q, example) for example in (*x, query)])
    attention = torch.stack([F.cosine_similarity(keys[-1], key, dim=0) for key in keys[:-1]]).softmax(0)
    fast_W = [torch.zeros_like(weight) for weight in W]
    for i in range(3):
        for layer, gradient in enumerate(gradients(W, [i], None)):
            m = learner.m_convolutions if gradient.ndim == 4 else learner.m_linear
            fast_W[layer] = fast_W[layer] + attention[i] * m(preprocess_gradient(gradient, 7.0))

    task = learner.describe(Examples(x[None], y[None]))
    assert_close(learner.attend(query[None, None], task)[0, 0], attention, rtol=0, atol=1e-12)
    found = learner.predict(query[None, None], task)[0, 0]
    assert_close(found, augmented(W, fast_W, query), rtol=0, atol=1e-10)


def test_what_it_cannot_do_is_named():
    with pytest.raises(ValueError, match=r"at least one part.*got 0"):
        MetaNet(IMAGE, WAY, parts=0)
    with pytest.raises(ValueError, match=r"temperature must be a positive number.*-1"):
        MetaNet(IMAGE, WAY, temperature=-1.0)
