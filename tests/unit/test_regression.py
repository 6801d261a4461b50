"""Regression: eqs. 5-7 with the squared error, by hand and by loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from csn.core.base_learner import BaseOutput
from csn.core.conditioning import preprocess_gradient
from csn.core.neurons import RELU, TANH
from csn.core.regression import Measurements, SquaredErrorFeedback, SquaredErrorGradient, regressor
from csn.networks.ffn import FFN, MLPKey

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


def tasks(n: int = 4, seed: int = 1) -> Measurements:
    generator = torch.Generator().manual_seed(seed)
    return Measurements(torch.randn(2, n, 3, generator=generator), torch.randn(2, n, generator=generator))


def small(conditioning: str = "df", **options: object):
    torch.manual_seed(0)
    learner = regressor(
        FFN(3, 1, units=5, dropout=0.0),
        MLPKey(3, size=4, units=6),
        conditioning=conditioning,
        temperature=5.0,
        **options,
    )
    nn.init.normal_(learner.base.output.weight)
    return learner


def test_eq_7_by_hand():
    """y_hat = 2.0 and -1.0, y = 0.5 and 1.0: errors 1.5 and -2.0, at neurons with a > 0 alone."""
    logits = tensor([[2.0], [-1.0]])
    output = BaseOutput(logits, (tensor([[1.0, -1.0], [-3.0, 2.0]]), logits))
    hidden, last = SquaredErrorFeedback()(output, tensor([[0.5, 1.0]]), (RELU,), 1)
    assert_close(hidden.dense(), tensor([[[[1.5], [0.0]], [[0.0], [-2.0]]]]))
    assert_close(last.dense(), tensor([[[[1.5]], [[-2.0]]]]))


def test_eq_7_by_hand_with_a_smooth_sigma():
    """tanh'(0) = 1 and tanh'(a) = 1 - tanh(a)^2."""
    logits = tensor([[2.0]])
    output = BaseOutput(logits, (tensor([[0.0, 1.0]]), logits))
    hidden, _ = SquaredErrorFeedback()(output, tensor([[0.5]]), (TANH,), 1)
    slope = 1 - torch.tanh(tensor(1.0)) ** 2
    assert_close(hidden.dense(), torch.stack([tensor(1.5), 1.5 * slope]).view(1, 1, 2, 1))


def test_eqs_5_and_6_by_hand():
    """y_hat = w a with w = 3: (y_hat - y)^2 / 2 has the gradients y_hat - y at the output and 3 (y_hat - y) at a."""
    a = tensor([[2.0], [1.0]], requires_grad=True)
    logits = 3 * a
    infos = SquaredErrorGradient()(BaseOutput(logits, (a, logits)), tensor([[5.0, 5.0]]), (RELU,), 1)
    gradients = tensor([[[3.0], [-6.0]]]), tensor([[[1.0], [-2.0]]])
    for info, gradient in zip(infos, gradients, strict=True):
        assert_close(info.dense(), preprocess_gradient(gradient))


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_both_phases_by_loops(conditioning):
    """Eqs. 1-7, one example and one neuron at a time."""
    learner, support, query = small(conditioning), tasks(), tasks(3, seed=2)
    found = learner.predict(query.x, learner.describe(support))
    weights = [(layer.weight, layer.bias) for layer in (*learner.base.hidden, learner.base.output)]
    g, scale = learner.memory_function, learner.log_scale.exp()

    def run(x: Tensor, shifts: list[Tensor] | None) -> list[Tensor]:
        preactivations = []
        for t, (weight, bias) in enumerate(weights):
            a = weight @ x + bias
            preactivations.append(a)
            x = a.relu() if shifts is None else a.relu() + shifts[t].relu()
        if shifts is not None:
            preactivations[-1] = preactivations[-1] + shifts[-1]
        return preactivations

    for task in range(2):
        rows = []
        for x, y in zip(support.x[task], support.y[task], strict=True):
            a = run(x, None)
            error = a[-1] - y
            if conditioning == "df":
                infos = [(a_t > 0).double().unsqueeze(-1) * error for a_t in a[:-1]] + [error.view(1, 1)]
            else:
                gradients = torch.autograd.grad(error.square().sum() / 2, a)
                infos = [preprocess_gradient(gradient) for gradient in gradients]
            rows.append([torch.stack([g(neuron) for neuron in info]) for info in infos])
        keys = learner.key_function(support.x[task])
        for j, x in enumerate(query.x[task]):
            own = learner.key_function(x[None])[0]
            alpha = (scale * torch.cosine_similarity(own[None], keys)).softmax(0)
            beta = [sum(w * row[t] for w, row in zip(alpha, rows, strict=True)) for t in range(len(weights))]
            assert_close(found[task, j], run(x, beta)[-1][0], **EXACT)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_queries_alone_equal_queries_together(conditioning):
    learner, support, query = small(conditioning), tasks(), tasks(5, seed=2)
    memory = learner.describe(support)
    together = learner.predict(query.x, memory)
    assert together.shape == (2, 5)
    alone = torch.cat([learner.predict(x, memory) for x in query.x.split(1, dim=1)], dim=1)
    assert_close(alone, together, **EXACT)
    assert_close(learner(support, query), (together - query.y).square().mean(), **EXACT)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("seed", range(5))
def test_g_starts_by_moving_predictions_towards_y(conditioning, seed):
    torch.manual_seed(seed)
    learner = regressor(FFN(3, 1, units=5), MLPKey(3, size=4, units=6), conditioning=conditioning)
    info = learner.conditioning.output_info(tensor([[[-1.0], [1.0]]]))
    low, high = info.values(learner.memory_function).dense().flatten()
    assert low - high >= 2 - 1e-9


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_it_learns_constants(conditioning):
    """Every task is a number of its own; the answer without a support has a mean squared error of 1."""
    learner = small(conditioning)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(3)

    def draw(count: int) -> list[Measurements]:
        level = torch.randn(count, 1, generator=generator)
        return [Measurements(torch.randn(count, 4, 3, generator=generator), level.expand(count, 4)) for _ in range(2)]

    for _ in range(150):
        optimizer.zero_grad()
        learner(*draw(16)).backward()
        optimizer.step()
    with torch.no_grad():
        assert learner(*draw(200)) < 0.1


def test_bad_measurements_are_named():
    with pytest.raises(ValueError, match=r"got x \(4, 3\) and y \(4,\)"):
        Measurements(torch.zeros(4, 3), torch.zeros(4))
    with pytest.raises(ValueError, match=r"y\.float\(\)"):
        Measurements(torch.zeros(1, 4, 3), torch.zeros(1, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="way=1"):
        regressor(FFN(3, 2), MLPKey(3))
    with pytest.raises(ValueError, match="conditioning must be one of df, gradient; got 'DF'"):
        regressor(FFN(3, 1), MLPKey(3), conditioning="DF")
    learner = small()
    with pytest.raises(ValueError, match="the support is empty"):
        learner.describe(Measurements(torch.zeros(1, 0, 3), torch.zeros(1, 0)))
    with pytest.raises(ValueError, match="NaN"):
        learner.describe(Measurements(torch.zeros(1, 1, 3), torch.full((1, 1), torch.nan)))
    with pytest.raises(ValueError, match=r"2 tasks were described"):
        learner.predict(torch.zeros(1, 1, 3), learner.describe(tasks()))
