"""csn.graft, what it refuses: each with a sentence that names the layer and the remedy."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from grafted_networks import CASES, IMAGE, WAY, Functional, GroupResNet, flat_key, norms, small_cnn, vectors
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner
from csn.episode import Examples
from csn.networks.graft import check_separate, graft


@pytest.fixture(autouse=True)
def _seeded(float64: None) -> None:
    torch.manual_seed(0)


def test_a_stem_that_something_goes_around_is_refused():
    with pytest.raises(ValueError, match=r"also use .*shortcut"):
        graft(GroupResNet(), layers=["layers.1.act2", "fc"], way=WAY, key=flat_key(64), stem="layers.1.norm2")
    with pytest.raises(ValueError, match="not above the stem"):
        graft(GroupResNet(), layers=["layers.0.act2", "fc"], way=WAY, key=flat_key(64), stem="layers.1.norm1")
    with pytest.raises(ValueError, match=r"unknown layer 'layer\.0'"):
        graft(GroupResNet(), layers=["fc"], way=WAY, key=flat_key(64), stem="layer.0")


def test_batch_norm_above_a_shifted_layer_is_refused_in_training():
    learner = graft(norms("above"), layers=["1", "4", "5"], way=WAY, key=flat_key(6))
    with pytest.raises(ValueError, match=r"'3', a batch norm in training mode, is above the shifted layer"):
        learner(vectors())
    assert torch.isfinite(learner.eval()(vectors()).loss)
    frozen = graft(norms("above"), layers=["1", "4", "5"], way=WAY, key=flat_key(6), frozen_statistics=True)
    frozen.train()(vectors())
    assert int(frozen.base.network[3].num_batches_tracked) == 0
    below = graft(norms("below"), layers=["2", "4", "5"], way=WAY, key=flat_key(6))
    assert torch.isfinite(below.train()(vectors()).loss)


def test_check_separate_finds_what_mixes_examples():
    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)

    def learner(*parts: nn.Module) -> BaseLearner:
        network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), *parts, nn.Linear(5, WAY))
        return graft(network, layers=["1", str(len(network) - 1)], way=WAY, key=flat_key(6)).base

    x = torch.randn(4, 6)
    check_separate(learner(nn.Dropout(0.5)), x)
    with pytest.raises(ValueError, match="mixes the examples"):
        check_separate(learner(Mixing()), x)


BAD = [
    (["act", "6"], r"unknown layer 'act'"),
    (["1", "4", "7"], r"unknown layer '7': There are 0, 1, 2, 3, 4, 5, 6"),
    (["4", "1", "6"], r"'1' runs before '4'|'1' runs more than once in a pass, or after|name layers in the order"),
    (["0", "6"], r"'0' \(Conv2d\) is not an elementwise activation"),
    (["1", "1", "6"], "'1' is named twice"),
    (["1", "4"], "must be the output layer"),
    ([], "at least the output layer"),
    (["1", "5"], r"gives \(80,\) numbers per example, but way=3 needs \(3,\)"),
    (["conv*", "6"], r"no activation module has a name like 'conv\*'"),
]


@pytest.mark.parametrize(("layers", "message"), BAD)
def test_bad_layers_are_named(layers, message):
    with pytest.raises(ValueError, match=message):
        graft(small_cnn(), layers=layers, way=WAY, key=flat_key(64))(CASES["sequential"].episode())


def test_functional_names_are_offered():
    with pytest.raises(ValueError, match=r"unknown layer 'part\.glu': did you mean 'part\.gelu'"):
        graft(Functional(), layers=["part.glu", "fc"], way=WAY, key=flat_key(6))


def test_a_network_that_cannot_be_traced_is_refused():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, WAY)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.relu(x)) if x.sum() > 0 else self.fc(x)

    with pytest.raises(ValueError, match=r"torch\.fx cannot trace this network .*make its activations modules"):
        graft(Branching(), layers=["relu", "fc"], way=WAY, key=flat_key(6))

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, WAY)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.dropout(F.relu(x), training=self.training))

    with pytest.raises(ValueError, match="functional dropout"):
        graft(Dropping(), layers=["relu", "fc"], way=WAY, key=flat_key(6))


def test_a_module_that_is_used_twice_is_refused():
    act = nn.ReLU()
    network = nn.Sequential(nn.Linear(6, 5), act, nn.Linear(5, 5), act, nn.Linear(5, WAY))
    with pytest.raises(ValueError, match="'1' runs more than once"):
        graft(network, layers=["1", "4"], way=WAY, key=flat_key(6))(vectors())


def test_a_layer_that_does_not_run_is_refused():
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(6, WAY), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    with pytest.raises(ValueError, match=r"'fc' runs before 'act'"):
        graft(Skipping(), layers=["act", "fc"], way=WAY, key=flat_key(6))(vectors())


def test_complex_integer_and_misplaced_neurons_are_refused():
    class Cast(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.dtype = dtype

        def forward(self, x: Tensor) -> Tensor:
            return x.to(self.dtype)

    for dtype in (torch.complex128, torch.int64):
        network = nn.Sequential(Cast(dtype), nn.Identity(), Cast(torch.float64), nn.Linear(6, WAY))
        with pytest.raises(ValueError, match=rf"'1' gets a tensor of {dtype}: only real numbers"):
            graft(network, layers=["1", "3"], way=WAY, key=flat_key(6))(vectors())

    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mT

    network = nn.Sequential(Turned(), nn.Identity(), Turned(), nn.Linear(6, WAY))
    with pytest.raises(ValueError, match="the examples must come first"):
        graft(network, layers=["1", "3"], way=WAY, key=flat_key(6))(vectors())


def test_a_key_of_another_batch_size_is_refused():
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(0, keepdim=True)

    with pytest.raises(ValueError, match=r"18 rows for 18 examples; got torch\.float64 \(1, 6\)"):
        graft(Functional(), layers=["fc"], way=WAY, key=Mean())(vectors())


def test_other_bad_arguments():
    with pytest.raises(ValueError, match=r"graft has no option 'temprature': did you mean 'temperature'"):
        graft(small_cnn(), layers=["6"], way=WAY, key=flat_key(64), temprature=10.0)
    with pytest.raises(ValueError, match="way >= 2"):
        graft(small_cnn(), layers=["6"], way=1, key=flat_key(64))
    learner = graft(small_cnn(), layers=["4", "6"], way=WAY, key=flat_key(64), reads=IMAGE)
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8\), got \(1, 9, 9\)"):
        learner.describe(Examples(torch.randn(1, 2, 1, 9, 9), torch.tensor([[0, 1]])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditioning": "DF"}, "conditioning must be one of gradient, df; got 'DF'"),
        ({"g": "smple"}, "g must be one of mlp, simple"),
        ({"attention": "sof"}, "attention must be one of soft, hard"),
        ({"shifted": "some"}, "shifted must be one of"),
        ({"shift_rule": "eq1"}, "shift_rule must be one of"),
        ({"temperature": float("nan")}, "temperature must be a positive number"),
        ({"temperature": float("inf")}, "temperature must be a positive number"),
        ({"temperature": 10**400}, "temperature must be a positive number"),
        ({"way": 2.5}, "a whole way >= 2"),
        ({"way": "3"}, "a whole way >= 2"),
        ({"key": None}, "key is a module or the name of a layer, got NoneType"),
    ],
)
def test_options_that_would_mean_something_else_are_refused(options, message):
    given = {"layers": ["1", "4", "6"], "way": WAY, "key": flat_key(64), **options}
    with pytest.raises(ValueError, match=message):
        graft(small_cnn(), **given)
