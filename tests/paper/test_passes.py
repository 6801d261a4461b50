"""Repeated description in a network: one pass equals the paper's, and further passes are checked neuron by neuron."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.building import build
from csn.core.conditioning import preprocess_gradient
from csn.core.memory import GatedValues, TaskMemory
from csn.core.model import CSN
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.ffn import FFNOptions
from csn.networks.lstm import LSTMOptions


def model(passes: int, conditioning: str = "df", **options: object) -> CSN:
    torch.manual_seed(0)
    options = {"conditioning": conditioning, "passes": passes, **options}
    return trained(build("csn", reads=(5,), way=3, network=FFNOptions(units=7, layers=3), **options))


def trained(made: CSN) -> CSN:
    """A model whose output layer has weights as after some training."""
    torch.manual_seed(1)
    torch.nn.init.normal_(made.base.output.weight, std=0.5)
    return made.double().eval()


def support(n: int = 6) -> Examples:
    x = torch.randn(2, n, 5, generator=torch.Generator().manual_seed(2)).double()
    return Examples(x, torch.arange(n).expand(2, n) % 3)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_one_pass_is_the_papers_to_the_bit(conditioning: str) -> None:
    torch.manual_seed(0)
    plain = trained(build("csn", reads=(5,), way=3, network=FFNOptions(units=7, layers=3), conditioning=conditioning))
    x, once = support(), model(1, conditioning)
    assert torch.equal(plain.predict(x.x, plain.describe(x)), once.predict(x.x, once.describe(x)))


def written_by_hand(made: CSN, x: Examples, memory: TaskMemory, conditioning: str) -> list[Tensor]:
    """V + g(I) - g(rest) of every layer, example by example and neuron by neuron, from a memory of one pass."""
    b, n = x.y.shape
    g, base = made.memory_function, made.base
    layers = [layer.dense().clone() for layer in memory.values]
    keys = F.normalize(memory.keys, dim=-1)
    for i in range(b):
        for j in range(n):
            alpha = (keys[i] @ keys[i, j]).softmax(-1)
            shifts = tuple((alpha[:, None] * layer.dense()[i]).sum(0)[None].detach() for layer in memory.values)
            features = base.stem(x.x[i, j : j + 1])
            output = base.head(features.detach().requires_grad_(), shifts)
            loss = F.cross_entropy(output.logits, x.y[i, j : j + 1])
            error = output.logits.softmax(-1)[0] - F.one_hot(x.y[i, j], 3)
            gradients = torch.autograd.grad(loss, output.preactivations)
            unshifted = base.head(features).preactivations
            for t, layer in enumerate(layers):
                for neuron in range(layer.shape[-1]):
                    if conditioning == "gradient":
                        info = preprocess_gradient(gradients[t][0, neuron])
                        rest = preprocess_gradient(torch.zeros((), dtype=torch.float64))
                    elif t == len(layers) - 1:
                        info, rest = error.roll(-neuron), torch.zeros(3, dtype=torch.float64)
                    else:
                        info, rest = (unshifted[t][0, neuron] > 0) * error, torch.zeros(3, dtype=torch.float64)
                    layer[i, j, neuron] += g(info) - g(rest)
    return layers


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_second_pass_describes_what_error_is_left(conditioning: str) -> None:
    x = support()
    once, twice = model(1, conditioning), model(2, conditioning)
    assert all(torch.equal(a, b) for a, b in zip(once.parameters(), twice.parameters(), strict=True))
    expected = written_by_hand(twice, x, once.describe(x), conditioning)
    for found, by_hand in zip(twice.describe(x).values, expected, strict=True):
        torch.testing.assert_close(found.dense(), by_hand, atol=1e-9, rtol=1e-7)


def test_the_exact_cheap_form_is_kept() -> None:
    layers = model(4).describe(support()).values
    assert [isinstance(layer, GatedValues) for layer in layers] == [True, True, False]
    assert torch.equal(layers[0].gate, model(1).describe(support()).values[0].gate)  # type: ignore[union-attr]


def test_passes_take_the_error_on_the_support_down() -> None:
    """Shifts only at the output, g of slope -1, and attention rows that sum to 1 make each pass a safe step."""
    x, losses = support(9), []
    for passes in (1, 2, 4, 8, 32):
        made = model(passes, g="simple", shifted="output", guard=False, temperature=5.0)
        weight, bias = made.memory_function.weights()[0]
        torch.nn.init.zeros_(weight)
        torch.nn.init.zeros_(bias)
        with torch.no_grad():
            weight[0, 0] = -1.0  # of its own class's error
            logits = made.predict(x.x, made.describe(x))
        losses.append(float(F.cross_entropy(logits.flatten(0, 1), x.y.flatten())))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_it_trains_describes_under_inference_mode_and_answers_each_query_alone(conditioning: str) -> None:
    torch.manual_seed(0)
    options = {"way": 4, "conditioning": conditioning, "passes": 3}
    examples = Examples(torch.rand(2, 4, 1, 28, 28), torch.arange(4).expand(2, 4))
    check(build("csn", reads=(1, 28, 28), network=CNNOptions(filters=4), **options), examples)
    words = torch.tensor([[0, 3, 1, 4, 0], [5, 6, 1, 7, 8], [0, 0, 1, 4, 5], [3, 3, 1, 3, 3]]).expand(2, 4, 5)
    lstm = build("csn", reads=InputSpec((5,), 9), network=LSTMOptions(units=6, embedding=4), **options)
    if conditioning == "df":
        check(lstm, Examples(words, examples.y))
    else:
        with pytest.raises(ValueError, match="need the gradients of shifted neurons"):
            lstm.describe(Examples(words, examples.y))


def check(made: CSN, examples: Examples) -> None:
    made(Episode(examples, examples, 4)).loss.backward()
    used = [p for part in (made.memory_function, made.key_function) for p in part.parameters()]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in used)
    with torch.inference_mode():
        task = made.eval().describe(examples)
        together = made.predict(examples.x, task)
        alone = torch.cat([made.predict(examples.x[:, j : j + 1], task) for j in range(4)], dim=1)
    torch.testing.assert_close(alone, together, atol=1e-4, rtol=1e-4)


def test_fewer_than_one_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="passes must be 1 or more, got 0"):
        model(0)
