"""Section 2.2: the task loss and the reach of its gradients. The information is a constant by default."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from csn.building import build
from csn.core.model import CSN
from csn.episode import Episode, Examples
from csn.networks.cnn import CNNOptions
from csn.networks.ffn import FFNOptions

SHAPES = {"ffn": (6,), "cnn": (1, 12, 12)}
NETWORKS = {"ffn": FFNOptions(units=9), "cnn": CNNOptions(filters=8)}
pytestmark = pytest.mark.usefixtures("float64")


def setup(
    base: str, conditioning: str, temperature: float | None = 10.0, feedback: str = "detached"
) -> tuple[CSN, Episode]:
    torch.manual_seed(1)
    options = {"conditioning": conditioning, "temperature": temperature, "feedback": feedback}
    model = build("csn", reads=SHAPES[base], way=3, network=NETWORKS[base], **options)
    torch.nn.init.normal_(model.base.output.weight, std=0.5)  # as after some training
    for _, bias in model.memory_function.weights():
        torch.nn.init.normal_(bias, std=0.3)  # biases of 0 put g(0) on the kinks of its ReLUs
    y = torch.arange(3).repeat(2, 2)
    x = torch.randn(2, 2, 6, *SHAPES[base])
    return model, Episode(Examples(x[0], y), Examples(x[1], y), 3)


CASES = [(base, conditioning) for base in SHAPES for conditioning in ("gradient", "df")]


@pytest.mark.parametrize(("base", "conditioning"), CASES)
def test_loss_is_the_cross_entropy_of_the_queries_by_nested_loops(base, conditioning):
    model, episode = setup(base, conditioning)
    output = model(episode)
    losses = []
    for task in range(2):
        for j in range(6):
            exponentials = [math.exp(v) for v in output.logits[task, j].tolist()]
            losses.append(-math.log(exponentials[episode.query.y[task, j]] / sum(exponentials)))
    assert output.loss.item() == pytest.approx(sum(losses) / len(losses), abs=1e-12)


@pytest.mark.parametrize(("base", "conditioning"), CASES)
def test_gradients_reach_every_parameter_of_base_f_and_g(base, conditioning):
    model, episode = setup(base, conditioning)
    model(episode).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name


def frozen_loss(model: CSN, described_by: CSN, episode: Episode) -> Tensor:
    """The loss of `model` with the memory values that `described_by` wrote."""
    memory = described_by.describe(episode.support, episode.way)
    keys = model.describe(episode.support, episode.way).keys
    attention = model._attend(
        model.key_function(episode.query.x.flatten(0, 1)), type(memory)(keys, *list(vars(memory).values())[1:])
    )
    shifts = tuple(beta.flatten(0, 1) for beta in memory.read(attention))
    logits = model.base(episode.query.x.flatten(0, 1), shifts).logits
    return F.cross_entropy(logits, episode.query.y.flatten())


def numerical(parameter: Tensor, index: int, loss, step: float = 1e-6) -> float:
    """A central difference of loss() with respect to one number of a parameter."""
    flat = parameter.data.view(-1) if parameter.is_contiguous() else None
    assert flat is not None
    before = flat[index].item()
    flat[index] = before + step
    above = loss()
    flat[index] = before - step
    below = loss()
    flat[index] = before
    return (above - below) / (2 * step)


def largest(gradient: Tensor, count: int = 3) -> list[int]:
    """Find the places with a gradient large enough to measure."""
    return gradient.flatten().abs().topk(min(count, gradient.numel())).indices.tolist()


@pytest.mark.parametrize(("base", "conditioning"), CASES)
def test_gradients_of_f_g_and_scale_against_numerical_differences_of_the_whole_episode(base, conditioning):
    model, episode = setup(base, conditioning)
    model(episode).loss.backward()
    parameters = {name: p for name, p in model.named_parameters() if not name.startswith("base.") and p.is_contiguous()}
    assert {name.split(".")[0] for name in parameters} == {"key_function", "memory_function", "log_scale"}
    for name, parameter in parameters.items():
        for index in largest(parameter.grad):
            measured = numerical(parameter, index, lambda: model(episode).loss.item())
            assert parameter.grad.flatten()[index].item() == pytest.approx(measured, rel=1e-4, abs=1e-8), name


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_gradients_of_the_base_are_those_with_the_memory_held_fixed(conditioning):
    """Information is detached: the base learner is trained as a predictor, not as a describer."""
    model, episode = setup("ffn", conditioning)
    model(episode).loss.backward()
    describer = copy.deepcopy(model)
    assert_close(frozen_loss(model, describer, episode), model(episode).loss)
    through_memory = 0.0
    for parameter in model.base.parameters():
        for index in largest(parameter.grad):
            found = parameter.grad.flatten()[index].item()
            held = numerical(parameter, index, lambda: frozen_loss(model, describer, episode).item())
            assert found == pytest.approx(held, rel=1e-4, abs=1e-8)
            total = numerical(parameter, index, lambda: model(episode).loss.item())
            through_memory = max(through_memory, abs(total - held))
    assert through_memory > 1e-4  # so that the two could be told apart


@pytest.mark.parametrize("base", SHAPES)
def test_gradients_of_the_base_end_to_end_are_those_of_the_whole_episode(base):
    """Gradients flow through the error into the base learner, in the description phase too."""
    model, episode = setup(base, "df", feedback="end-to-end")
    model(episode).loss.backward()
    for parameter in filter(Tensor.is_contiguous, model.base.parameters()):
        for index in largest(parameter.grad):
            measured = numerical(parameter, index, lambda: model(episode).loss.item())
            assert parameter.grad.flatten()[index].item() == pytest.approx(measured, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("base", SHAPES)
def test_end_to_end_changes_gradients_and_nothing_else(base):
    followed, episode = setup(base, "df", feedback="end-to-end")
    given, _ = setup(base, "df")
    assert_close(followed(episode).logits, given(episode).logits)
    memory = followed.describe(episode.support, episode.way)
    assert_close(followed.predict(episode.query.x, memory), given(episode).logits)
    both = [torch.autograd.grad(model(episode).loss, list(model.parameters())) for model in (followed, given)]
    differ = [not torch.allclose(a, b) for a, b in zip(*both, strict=True)]
    of_base = [name.startswith("base.") for name, _ in given.named_parameters()]
    assert differ == of_base
    with torch.no_grad():
        assert not followed.describe(episode.support, episode.way).keys.requires_grad


@pytest.mark.parametrize(("base", "conditioning"), CASES)
def test_description_information_is_detached_but_values_and_keys_are_not(base, conditioning):
    model, episode = setup(base, conditioning)
    memory = model.describe(episode.support, episode.way)
    tensors = [tensor for layer in memory.values for tensor in vars(layer).values() if tensor.is_floating_point()]
    total = sum(tensor.sum() for tensor in tensors)
    to_base = torch.autograd.grad(total, list(model.base.parameters()), allow_unused=True, retain_graph=True)
    assert all(gradient is None for gradient in to_base)
    to_g = torch.autograd.grad(total, list(model.memory_function.parameters()))
    assert all((gradient != 0).any() for gradient in to_g)
    to_f = torch.autograd.grad(memory.keys.sum(), list(model.key_function.parameters()))
    assert all((gradient != 0).any() for gradient in to_f)


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_description_leaves_no_gradient_behind(conditioning):
    model, episode = setup("cnn", conditioning)
    model.describe(episode.support, episode.way)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_no_grad_gives_the_same_logits_without_a_graph(conditioning):
    model, episode = setup("cnn", conditioning)
    with torch.no_grad():
        logits = model(episode).logits
    assert not logits.requires_grad
    assert_close(logits, model(episode).logits.detach())


def test_the_describing_base_learner_is_unshifted():
    """In the description phase beta is 0: the values come from a forward pass without shifts."""
    model, episode = setup("ffn", "df")
    memory = model.describe(episode.support, episode.way)
    output = model.base(episode.support.x.flatten(0, 1))
    for layer, a in zip(memory.values[:-1], output.preactivations[:-1], strict=True):
        assert torch.equal(layer.gate, (a > 0).view_as(layer.gate))
