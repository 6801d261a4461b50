"""The start of g (DESIGN 4.1): it raises the output of an example's own class, and not every hidden shift is dead."""

from __future__ import annotations

import functools

import pytest
import torch

import csn.core.initialisation
from csn import building
from csn.config import RECIPES, load_preset
from csn.core.conditioning import DirectFeedback, preprocess_gradient
from csn.core.memory import MemoryFunction
from csn.core.model import CSN, CSNOptions
from csn.networks.ffn import FFN, FFNOptions, MLPKey
from csn.presets import preset_names, read_preset

SEEDS = range(50)


@functools.cache
def build(seed: int, way: int = 5, **options: object) -> CSN:
    torch.manual_seed(seed)
    return building.build(reads=(3,), way=way, network=FFNOptions(units=4), **options)


def error_of(own: int, way: int) -> list[float]:
    """y_hat - y of an example of class `own` under a uniform prediction."""
    return [1 / way - float(c == own) for c in range(way)]


@torch.no_grad()
def d_of(model: CSN) -> float:
    """The value at the output neuron of the own class minus the mean at the others, with loops over classes."""
    way = model.way
    infos, is_own = [], []
    for own in range(way):
        e = error_of(own, way)
        for neuron in range(way):
            if isinstance(model.conditioning, DirectFeedback):
                infos.append(torch.tensor(e[neuron:] + e[:neuron]))
            elif model.conditioning.p is None:
                infos.append(torch.tensor([e[neuron]]))
            else:
                infos.append(preprocess_gradient(torch.tensor(e[neuron])))
            is_own.append(neuron == own)
    values, mask = model.memory_function(torch.stack(infos)), torch.tensor(is_own)
    return float(values[mask].mean() - values[~mask].mean())


@torch.no_grad()
def alive(model: CSN) -> bool:
    """Whether some class's error makes g positive, so that some hidden ReLU(beta) can be."""
    errors = torch.tensor([error_of(own, model.way) for own in range(model.way)])
    return bool((model.memory_function(errors) > 0).any())


@pytest.mark.parametrize("way", [2, 5])
@pytest.mark.parametrize("g", ["mlp", "simple"])
@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_every_start_raises_the_own_class(conditioning, g, way):
    assert min(d_of(build(seed, way, conditioning=conditioning, g=g)) for seed in SEEDS) >= 1 - 1e-5


@pytest.mark.parametrize("g", ["mlp", "simple"])
@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_a_twenty_way_model_is_guarded_within_a_hundred_draws(monkeypatch, conditioning, g):
    monkeypatch.setattr(csn.core.initialisation, "GUARD_DRAWS", 100)
    for seed in range(3):
        assert d_of(build(seed, 20, conditioning=conditioning, g=g)) > 0


@pytest.mark.parametrize("g", ["mlp", "simple"])
def test_every_direct_feedback_start_has_a_live_hidden_shift(g):
    assert all(alive(build(seed, conditioning="df", g=g)) for seed in SEEDS)


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_without_the_guard_about_half_start_the_wrong_way(conditioning):
    negative = sum(d_of(build(seed, conditioning=conditioning, guard=False)) < 0 for seed in SEEDS)
    assert 15 <= negative <= 35


def test_without_the_guard_some_direct_feedback_starts_are_dead():
    dead = sum(not alive(build(seed, conditioning="df", guard=False)) for seed in SEEDS)
    assert 1 <= dead <= 25


def test_the_same_seed_gives_the_same_start():
    first, second = build(3).state_dict(), build.__wrapped__(3).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_guard_leaves_base_and_key_function_alone():
    guarded, free = build(3), build(3, guard=False)
    for name, parameter in free.named_parameters():
        if not name.startswith("memory_function."):
            assert torch.equal(parameter, guarded.get_parameter(name)), name


def test_a_model_whose_parts_are_in_double_precision_can_be_guarded():
    torch.manual_seed(0)
    parts = FFN(3, 5, units=4).double(), MLPKey(3, units=4).double(), MemoryFunction(5).double()
    assert d_of(CSN(*parts, DirectFeedback()).float()) > 0


@pytest.mark.parametrize("g", ["mlp", "simple"])
@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_a_quiet_start_shifts_nothing_where_there_is_no_error(conditioning, g):
    options = {"conditioning": conditioning, "g": g}
    rest = {("gradient", "mlp"): [-1.0, 0.0], ("gradient", "simple"): [0.0]}.get((conditioning, g), [0.0] * 5)
    for seed in range(5):
        loud, quiet = build(seed, **options), build(seed, quiet=True, **options)
        with torch.no_grad():
            assert abs(float(quiet.memory_function(torch.tensor(rest)))) < 1e-5
        assert d_of(quiet) == pytest.approx(d_of(loud), abs=1e-4)


def test_a_start_that_is_not_quiet_shifts_every_hidden_neuron_without_a_gradient():
    """The option's purpose: without it, the largest of a few starts is several times any preactivation."""
    rest = torch.tensor([-1.0, 0.0])
    with torch.no_grad():
        shifts = [abs(float(build(seed, conditioning="gradient").memory_function(rest))) for seed in SEEDS]
    assert max(shifts) > 2


def test_only_the_wide_adaresnet_by_gradient_starts_quietly():
    learners = {
        (name, recipe): load_preset(name, recipe).learner
        for name in preset_names()
        for recipe in RECIPES
        if recipe != "best" or recipe in read_preset(name)
    }
    quiet = {which for which, learner in learners.items() if isinstance(learner, CSNOptions) and learner.quiet}
    assert quiet == {("adaresnet-gradient", "paper")}
