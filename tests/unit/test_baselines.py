"""The baselines in numbers: worked out by hand, or by an explicit loop over tasks with autograd."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from csn.baselines.maml import MAML
from csn.baselines.matching import MatchingNetwork, QueryContext, SupportContext
from csn.baselines.prototypical import PrototypicalNetwork
from csn.baselines.siamese import SiameseNetwork, pair_loss
from csn.building import build
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions, GroupNorm
from csn.networks.lstm import LSTMOptions
from csn.networks.neighbours import NeighbourKeyOptions

INF = math.inf


pytestmark = pytest.mark.usefixtures("float64")


def support(x: list[list[float]], y: list[int]) -> Examples:
    return Examples(tensor([x]), tensor([y]))


# Prototypical Networks


def test_prototypes_and_squared_distances_by_hand():
    learner = PrototypicalNetwork(nn.Identity(), 3)
    task = learner.describe(support([[0.0, 0.0], [2.0, 4.0], [5.0, 5.0]], [0, 0, 2]), 3)
    assert task.embeddings.tolist() == [[[1.0, 2.0], [0.0, 0.0], [5.0, 5.0]]]  # eq. 1: (0 + 2) / 2, (0 + 4) / 2
    logits = learner.predict(tensor([[[1.0, 0.0], [5.0, 6.0]]]), task)
    assert logits.tolist() == [[[-4.0, -INF, -41.0], [-32.0, -INF, -1.0]]]


def test_prototypes_by_cosine_by_hand():
    learner = PrototypicalNetwork(nn.Identity(), 2, distance="cosine", temperature=10.0)
    task = learner.describe(support([[3.0, 0.0], [0.0, 2.0], [0.0, 4.0]], [0, 1, 1]))
    assert_close(learner.predict(tensor([[[3.0, 4.0]]]), task), tensor([[[6.0, 8.0]]]))  # 10 * (3/5, 4/5)


def test_unknown_distance_is_named():
    with pytest.raises(ValueError, match=r"'manhattan'.*euclidean, cosine"):
        PrototypicalNetwork(nn.Identity(), 2, distance="manhattan")  # type: ignore[arg-type]


# Matching Networks


def test_matching_attention_by_hand():
    """Cosines 1, 0 and -1 with labels 0, 1, 0."""
    learner = MatchingNetwork(nn.Identity(), 3)
    task = learner.describe(support([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]], [0, 1, 0]), 3)
    x = tensor([[[5.0, 0.0]]])
    total = math.e + 1 + 1 / math.e
    assert_close(learner.attend(x, task), tensor([[[math.e, 1.0, 1 / math.e]]]) / total)
    probabilities = tensor([[[(math.e + 1 / math.e) / total, 1 / total, 0.0]]])
    assert_close(learner.predict(x, task).exp(), probabilities)


def test_a_class_without_examples_leaves_no_nan_in_the_gradients():
    torch.manual_seed(0)
    learner = MatchingNetwork(nn.Linear(2, 4), 3)
    episode = Episode(support([[1.0, 0.0], [0.0, 1.0]], [0, 2]), support([[1.0, 0.5]], [2]), 3)
    learner(episode).loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in learner.parameters())


def test_context_of_the_support_is_the_sum_of_both_directions_and_itself():
    torch.manual_seed(0)
    context, x = SupportContext(3), torch.randn(1, 4, 3)
    one_way = nn.LSTM(3, 3, batch_first=True)

    def run(suffix: str, x: Tensor) -> Tensor:
        weights = {n: getattr(context.lstm, n + suffix) for n, _ in one_way.named_parameters()}
        return torch.func.functional_call(one_way, weights, (x,))[0]

    assert_close(context(x), run("", x) + run("_reverse", x.flip(1)).flip(1) + x)


def test_context_of_a_query_equals_eqs_3_to_6_with_the_state_h_and_r_side_by_side():
    torch.manual_seed(0)
    d, steps = 3, 3
    context, f, g = QueryContext(d, steps), torch.randn(1, 1, d), torch.randn(1, 4, d)
    to_x, to_r = context.cell.weight_ih.split(d, dim=1)
    to_state = torch.cat([context.cell.weight_hh, to_r], dim=1)  # W of [h, r]
    bias = context.cell.bias_ih + context.cell.bias_hh
    h = c = torch.zeros(d)
    for _ in range(steps):
        a = torch.stack([h @ g[0, i] for i in range(4)]).softmax(0)
        r = sum(a[i] * g[0, i] for i in range(4))
        i, forget, v, o = (to_x @ f[0, 0] + to_state @ torch.cat([h, r]) + bias).chunk(4)
        c = forget.sigmoid() * c + i.sigmoid() * v.tanh()
        h = o.sigmoid() * c.tanh() + f[0, 0]
    assert_close(context(f, g)[0, 0], h)


def test_negative_context_steps_are_refused():
    with pytest.raises(ValueError, match=r"context_steps.*-1"):
        MatchingNetwork(nn.Identity(), 2, context_steps=-1)


# Siamese networks


def test_siamese_scores_and_logits_by_hand():
    """h = sigmoid of logit(p) = p: a query at (0.5, 0.5), weights -2 and -4, bias 1."""
    learner = SiameseNetwork(nn.Identity(), 3, size=2)
    learner.load_state_dict({"weight": tensor([-2.0, -4.0]), "bias": tensor(1.0)})
    x = tensor([[[0.5, 0.75], [0.25, 0.5], [0.9, 0.1]]]).logit()
    task = learner.describe(Examples(x, tensor([[0, 0, 2]])), 3)
    query = tensor([[[0.0, 0.0]]])
    assert_close(learner.scores(query, task), tensor([[[0.0, 0.5, -1.4]]]))  # 1 - 4/4; 1 - 2/4; 1 - 2 * 0.4 - 4 * 0.4
    assert_close(learner.predict(query, task), tensor([[[0.5, -INF, -1.4]]]))


def test_pair_loss_by_hand():
    """One equal pair with p = 3/4, two unequal ones with p = 1/2 and 1/5: each kind has half of the weight."""
    scores = tensor([0.75, 0.5, 0.2]).logit().view(1, 1, 3)
    loss = pair_loss(scores, tensor([True, False, False]).view(1, 1, 3))
    assert float(loss) == pytest.approx(-(math.log(0.75) + (math.log(0.5) + math.log(0.8)) / 2) / 2)
    assert torch.isfinite(pair_loss(scores, torch.zeros(1, 1, 3, dtype=torch.bool)))


# MAML


def episode(tasks: int = 3, n: int = 5, m: int = 4, inputs: int = 4, way: int = 3) -> Episode:
    g = torch.Generator().manual_seed(1)
    parts = [
        Examples(torch.randn(tasks, k, inputs, generator=g), torch.randint(way, (tasks, k), generator=g))
        for k in (n, m)
    ]
    return Episode(parts[0], parts[1], way)


def maml(seed: int = 0, *, hidden: bool = True, **options: object) -> MAML:
    torch.manual_seed(seed)
    layers = [nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)] if hidden else [nn.Linear(4, 3)]
    return MAML(nn.Sequential(*layers), 3, **options)  # type: ignore[arg-type]


def test_one_step_of_a_linear_model_by_its_closed_form():
    """dL/dW = (softmax(W x + b) - y) x^T, averaged over the support."""
    learner, tasks = maml(hidden=False, inner_rate=0.3), episode()
    W, b = learner.network[0].weight, learner.network[0].bias
    adapted = learner.describe(tasks.support, 3).parameters
    for i in range(tasks.tasks):
        x, y = tasks.support.x[i], F.one_hot(tasks.support.y[i], 3)
        error = (x @ W.T + b).softmax(-1) - y
        assert_close(adapted["0.weight"][i], W - 0.3 * error.T @ x / len(x), rtol=0, atol=1e-12)
        assert_close(adapted["0.bias"][i], b - 0.3 * error.mean(0), rtol=0, atol=1e-12)


def loop(learner: MAML, tasks: Episode, steps: int, alpha: Tensor | float, second: bool) -> Tensor:
    """MAML as its paper writes it: task by task, step by step, torch.autograd only."""
    losses = []
    for i in range(tasks.tasks):
        theta = dict(learner.network.named_parameters())
        for _ in range(steps):
            logits = torch.func.functional_call(learner.network, theta, (tasks.support.x[i],))
            loss = F.cross_entropy(logits, tasks.support.y[i])
            gradients = torch.autograd.grad(loss, list(theta.values()), create_graph=second)
            theta = {name: p - alpha * g for (name, p), g in zip(theta.items(), gradients, strict=True)}
        logits = torch.func.functional_call(learner.network, theta, (tasks.query.x[i],))
        losses.append(F.cross_entropy(logits, tasks.query.y[i]))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("order", ["first", "second"])
def test_meta_gradients_equal_an_explicit_loop(order, steps):
    learner, tasks = maml(order=order, inner_steps=steps, inner_rate=0.4, rate="one"), episode()
    loss = learner(tasks).loss
    expected = loop(learner, tasks, steps, learner.rates[0], order == "second")
    assert_close(loss, expected, rtol=0, atol=1e-12)
    names, parameters = zip(*learner.named_parameters(), strict=True)
    for name, found, wanted in zip(
        names, torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        assert_close(found, wanted, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize("steps", [1, 3])
def test_second_order_meta_gradients_equal_those_of_the_package_higher(steps):
    higher = pytest.importorskip("higher", reason="the peer to compare MAML with: pip install higher")
    learner, tasks = maml(inner_steps=steps, inner_rate=0.4), episode()
    network, losses = learner.network, []
    optimizer = torch.optim.SGD(network.parameters(), lr=0.4)
    for i in range(tasks.tasks):
        with higher.innerloop_ctx(network, optimizer, copy_initial_weights=False) as (adapted, inner):
            for _ in range(steps):
                inner.step(F.cross_entropy(adapted(tasks.support.x[i]), tasks.support.y[i]))
            losses.append(F.cross_entropy(adapted(tasks.query.x[i]), tasks.query.y[i]))
    theirs, ours = torch.stack(losses).mean(), learner(tasks).loss
    assert_close(ours, theirs, rtol=0, atol=1e-12)
    parameters = list(network.parameters())
    for found, wanted in zip(*(torch.autograd.grad(loss, parameters) for loss in (ours, theirs)), strict=True):
        assert_close(found, wanted, rtol=0, atol=1e-10)


def test_second_order_meta_gradient_of_a_scalar_model_by_hand():
    """Two outputs (w x, 0): L = softplus(-w x) for class 0. Everything is a derivative of that in one number w."""

    class Scalar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(tensor(0.3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.w * x, 0 * x], dim=-1)

    alpha, w, xs, xq = 0.5, 0.3, 2.0, -1.5

    def slope(w: float, x: float) -> float:
        return -x / (1 + math.exp(w * x))

    def curvature(w: float, x: float) -> float:
        return x * x * math.exp(w * x) / (1 + math.exp(w * x)) ** 2

    stepped = w - alpha * slope(w, xs)
    tasks = Episode(support([[xs]], [0]), support([[xq]], [0]), 2)
    for order, factor in (("first", 1.0), ("second", 1 - alpha * curvature(w, xs))):
        learner = MAML(Scalar(), 2, inner_rate=alpha, order=order)
        learner(tasks).loss.backward()
        assert float(learner.describe(tasks.support).parameters["w"].detach()) == pytest.approx(stepped, abs=1e-12)
        assert float(learner.network.w.grad) == pytest.approx(slope(stepped, xq) * factor, abs=1e-12)


def test_first_and_second_order_agree_in_the_loss_and_differ_in_its_gradient():
    losses, gradients = [], []
    for order in ("first", "second"):
        learner = maml(order=order)
        losses.append(learner(episode()).loss)
        gradients.append(torch.autograd.grad(losses[-1], learner.network[0].weight)[0])
    assert_close(*losses, rtol=0, atol=1e-12)
    assert not torch.allclose(*gradients, rtol=1e-2, atol=0)


def test_every_number_may_have_its_own_rate():
    learner, tasks = maml(rate="each", inner_rate=0.1), episode()
    assert [rate.shape for rate in learner.rates] == [p.shape for p in learner.network.parameters()]
    with torch.no_grad():
        learner.rates[0].zero_()
    adapted = learner.describe(tasks.support, 3).parameters
    assert torch.equal(adapted["0.weight"], learner.network[0].weight.expand(3, -1, -1))
    assert not torch.allclose(adapted["0.bias"], learner.network[0].bias)


def test_more_steps_in_evaluation_than_in_training():
    learner, tasks = maml(inner_steps=1, test_steps=4), episode()
    assert_close(learner.train()(tasks).loss, loop(learner, tasks, 1, 0.4, True), rtol=0, atol=1e-12)
    assert_close(learner.eval()(tasks).loss, loop(learner, tasks, 4, 0.4, True), rtol=0, atol=1e-12)


def test_outputs_beyond_the_way_take_no_part():
    learner, tasks = maml(hidden=False), episode(way=2)
    adapted = learner.describe(tasks.support, 2).parameters
    assert torch.equal(adapted["0.weight"][:, 2], learner.network[0].weight[2].expand(3, -1))


def test_maml_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"no batch norm.*group"):
        build("maml", reads=(1, 12, 12), way=3, network=CNNOptions(filters=8, norm="batch"))
    with pytest.raises(ValueError, match=r"at least one step, got 0"):
        maml(inner_steps=0)
    with pytest.raises(ValueError, match=r"'third'.*first, second"):
        maml(order="third")
    with pytest.raises(ValueError, match=r"(?s)images.*another preset"):
        build("maml", reads=InputSpec((7,), 20), way=3, network="lstm")


# What they are built from


def test_group_norm_equals_torchs():
    torch.manual_seed(0)
    ours, theirs, x = GroupNorm(2, 6), nn.GroupNorm(2, 6), torch.randn(3, 6, 4, 5)
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("learner", ["prototypical", "matching", "siamese"])
def test_embedding_learners_read_sentences_too(learner):
    network, key = LSTMOptions(embedding=5), NeighbourKeyOptions(size=6)
    model = build(learner, reads=InputSpec((7,), 20), way=3, network=network, key=key)
    x = torch.randint(3, 20, (2, 3, 7))
    x[..., 3] = 1  # the blank
    y = tensor([[0, 1, 2]] * 2)
    assert model(Episode(Examples(x, y), Examples(x, y), 3)).logits.shape == (2, 3, 3)
