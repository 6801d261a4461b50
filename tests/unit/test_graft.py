"""csn.graft, the contract: in networks of all kinds it is eq. 1, and without shifts they stay what they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from grafted_networks import CASES, WAY, Case, flat_key, logits_of
from torch import nn
from torch.testing import assert_close

from csn.core.neurons import TANH
from csn.networks.graft import graft
from csn.networks.hooks import activation_of, is_elementwise

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _seeded(float64: None) -> None:
    torch.manual_seed(0)


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_without_shifts_the_network_answers_as_before_to_the_bit(case, mode):
    """In evaluation nn.TransformerEncoder takes a fused path where nothing hooks it: compare with gradients on."""
    network, learner = case.grafted()
    network.train(mode), learner.train(mode)
    x = case.x(5)
    expected = logits_of(network(x))
    assert torch.equal(logits_of(learner.base.network(x)), expected)
    assert torch.equal(learner.base(x).logits, expected)


def test_the_network_itself_keeps_its_parameters_and_mode(case):
    network, learner = case.grafted()
    state = learner.base.network.state_dict()
    assert state.keys() == network.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_queries_alone_equal_queries_together(case, conditioning):
    _, learner = case.grafted(conditioning=conditioning, temperature=10.0)
    episode = case.episode()
    task = learner.describe(episode.support)
    together = learner.predict(episode.query.x, task)
    alone = torch.cat([learner.predict(x, task) for x in episode.query.x.split(1, dim=1)], dim=1)
    assert_close(alone, together, **EXACT)
    assert_close(learner(episode).logits, together, **EXACT)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_every_layer_is_described_and_shifted(case, conditioning):
    _, learner = case.grafted(conditioning=conditioning)
    memory = learner.describe(case.episode().support)
    plain = learner.base(case.x(5))
    assert len(memory.values) == len(plain.preactivations) == len(learner.base.layers)
    for t, a in enumerate(plain.preactivations):
        shifts = tuple(torch.ones_like(a) if s == t else None for s in range(len(plain.preactivations)))
        assert not torch.allclose(learner.base(case.x(5), shifts).logits, plain.logits)
        assert (memory.values[t].dense() != 0).any()


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_training_reaches_the_network_the_key_and_g(case, conditioning):
    _, learner = case.grafted(conditioning=conditioning, temperature=10.0)
    learner.train()
    learner(case.episode()).loss.backward()
    unused = [name for name, parameter in learner.named_parameters() if parameter.grad is None]
    assert unused == []
    for part in (learner.base, learner.key_function, learner.memory_function):
        assert any((parameter.grad != 0).any() for parameter in part.parameters())


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_frozen_network_trains_only_f_g_and_the_head(case, conditioning):
    torch.manual_seed(0)
    network = case.build().to(torch.float64).requires_grad_(False)
    output = network.get_submodule(case.layers[-1]).requires_grad_(True)
    learner = graft(network, layers=case.layers, way=WAY, key=case.key(), conditioning=conditioning)
    learner(case.episode()).loss.backward()
    reached = {name for name, parameter in learner.named_parameters() if parameter.grad is not None}
    head = {f"base.network.{case.layers[-1]}.{name}" for name, _ in output.named_parameters()}
    others = {name for name, _ in learner.named_parameters() if not name.startswith("base.")}
    assert reached == head | others


def test_eq_5_is_the_gradient_of_each_examples_own_loss(case):
    """By the slow way: one example at a time, and its own loss."""
    _, learner = case.grafted(conditioning="gradient")
    x, y = case.x(4), torch.tensor([0, 1, 2, 1])
    output = learner.base.head(learner.base.stem(x).requires_grad_(not case.words))
    infos = learner.conditioning(output, y[None], learner.base.activations, WAY)
    for i in range(4):
        own = learner.base(x[i : i + 1])
        gradients = torch.autograd.grad(F.cross_entropy(own.logits, y[i : i + 1]), own.preactivations)
        for info, gradient in zip(infos, gradients, strict=True):
            assert_close(info.gradient[0, i], gradient[0], rtol=1e-8, atol=1e-12)


def test_eq_1_by_hand():
    """w1 = 2, w2 = 3: x = 1 gives a1 = 2; with shifts -1 and 0.5 ReLU adds 0, with 4 it adds 4."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[0].weight.fill_(2.0)
        network[2].weight.copy_(torch.tensor([[3.0], [-1.0]]))
    base = graft(network, layers=["1", "2"], way=2, key=flat_key(1)).base
    x = torch.tensor([[1.0], [-1.0]])
    plain = base(x)
    assert_close(plain.preactivations[0], torch.tensor([[2.0], [-2.0]]))
    assert_close(plain.logits, torch.tensor([[6.0, -2.0], [0.0, 0.0]]))
    shifted = base(x, (torch.tensor([[-1.0], [4.0]]), torch.tensor([[0.5, 0.0], [0.0, 1.0]])))
    assert_close(shifted.logits, torch.tensor([[6.5, -2.0], [12.0, -3.0]]))


@pytest.mark.parametrize(("rule", "expected"), [("squashed", 3.0 + 2.0), ("raw", 3.0 + 2.0), ("inside", 5.0)])
def test_the_ablations_of_eq_1_by_hand(rule, expected):
    """a = 3, beta = 2; at a = -3, beta = 2: squashed and raw give 0 + 2, inside relu(-1) = 0."""
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        network[1].weight.fill_(1.0)
    base = graft(network, layers=["0", "1"], way=2, key=flat_key(1), shift_rule=rule).base
    x = torch.tensor([[3.0], [-3.0]])
    logits = base(x, (torch.tensor([[2.0], [2.0]]), None)).logits
    assert_close(logits[:, 0], torch.tensor([expected, 0.0 if rule == "inside" else 2.0]))
    assert_close(x, torch.tensor([[3.0], [-3.0]]))  # an activation in place changes nothing of anybody else


def test_sigma_prime_by_autograd_equals_the_formula():
    a = torch.linspace(-2, 2, 9)
    silu = activation_of("act", nn.SiLU())
    s = torch.sigmoid(a)
    assert_close(silu.derivative(a), s * (1 + a * (1 - s)), rtol=0, atol=1e-14)
    assert_close(activation_of("act", nn.Tanh()).derivative(a), TANH.derivative(a), rtol=0, atol=1e-14)
    with torch.inference_mode():
        assert_close(silu.derivative(a), s * (1 + a * (1 - s)), rtol=0, atol=1e-14)
    assert activation_of("act", nn.ReLU()).binary
    assert not silu.binary


@pytest.mark.parametrize("module", [nn.GELU(), nn.PReLU(), nn.Hardswish(), nn.ELU(inplace=True), nn.Identity()])
def test_elementwise_modules_are_known(module):
    assert is_elementwise(module)


@pytest.mark.parametrize("module", [nn.Softmax(-1), nn.LayerNorm(2), nn.Linear(2, 2), nn.Flatten(), nn.MaxPool2d(2)])
def test_modules_that_mix_neurons_are_no_activations(module):
    assert not is_elementwise(module)
