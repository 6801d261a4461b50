"""network.shared_stem: the base learner and the key function share their first layers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from csn.building import build
from csn.config import load_preset
from csn.core.model import CSN
from csn.core.parts import NetworkOptions
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.engine.train import model_tensors
from csn.episode import Episode, Examples
from csn.networks.cnn import CNNOptions
from csn.networks.residual import ResidualKeyOptions
from csn.networks.resnet import ResNetOptions

IMAGE, WAY = (1, 16, 16), 3
NETWORKS = {
    "cnn": CNNOptions(filters=8, shared_stem=True),
    "resnet": ResNetOptions(width=0.125, units=32, shared_stem=True),
}
LABELS = torch.arange(WAY).expand(2, -1)


def learner(options: NetworkOptions, conditioning: str) -> CSN:
    torch.manual_seed(0)
    built = build("csn", reads=IMAGE, way=WAY, network=options, conditioning=conditioning, temperature=10.0).double()
    assert isinstance(built, CSN)
    torch.nn.init.normal_(built.base.output.weight)  # type: ignore[union-attr, arg-type]
    return built


def tasks() -> Episode:
    torch.manual_seed(1)
    return Episode(*(Examples(torch.rand(2, WAY, *IMAGE, dtype=torch.float64), LABELS) for _ in range(2)), WAY)


def unshared(shared: CSN, options: NetworkOptions, conditioning: str) -> CSN:
    """The same network, with a copy of the stem in its key function."""
    whole = learner(replace(options, shared_stem=False), conditioning)  # type: ignore[type-var]
    state = dict(shared.state_dict())
    if isinstance(options, CNNOptions):
        for index in reversed(range(3)):
            for kind in ("weight", "bias"):
                name = f"key_function.convolutions.convolutions.{{}}.{kind}"
                state[name.format(index + 2)] = state[name.format(index)]
        below, part = "base.lower.", "key_function.convolutions."
    else:
        moved = {n: t for n, t in state.items() if n.startswith("key_function.blocks.blocks.0.")}
        state |= {name.replace("blocks.0.", "blocks.3."): tensor for name, tensor in moved.items()}
        below, part = "base.lower.", "key_function.blocks."
    state |= {part + name.removeprefix(below): tensor for name, tensor in state.items() if name.startswith(below)}
    whole.load_state_dict(state)
    return whole


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("network", NETWORKS)
def test_it_computes_what_two_copies_of_the_stem_would(monkeypatch, network, conditioning):
    options = NETWORKS[network]
    shared = learner(options, conditioning)
    whole = unshared(shared, options, conditioning)
    assert sum(p.numel() for p in shared.parameters()) < sum(p.numel() for p in whole.parameters())
    episode, calls = tasks(), []
    stem = shared.base.stem
    monkeypatch.setattr(shared.base, "stem", lambda x: calls.append(len(x)) or stem(x))
    found, expected = shared(episode), whole(episode)
    assert calls == [4 * WAY]  # once, for both networks and both phases
    assert_close(found.logits, expected.logits)
    assert_close(shared.predict(episode.query.x, shared.describe(episode.support, WAY)), expected.logits)
    assert_close(shared.embed(episode.query.x[0]), whole.embed(episode.query.x[0]))
    found.loss.backward()
    expected.loss.backward()
    named = dict(whole.named_parameters())
    part = "key_function.convolutions." if network == "cnn" else "key_function.blocks."
    for name, parameter in shared.base.lower.named_parameters():  # type: ignore[union-attr]
        both = named[f"base.lower.{name}"].grad + named[part + name].grad
        assert_close(parameter.grad, both, rtol=1e-9, atol=1e-12)


def test_its_weights_are_kept_once(tmp_path):
    shared = learner(NETWORKS["cnn"], "df")
    tensors = model_tensors(shared)
    save_checkpoint(tmp_path / "model.safetensors", tensors, {})
    assert len({tensor.data_ptr() for tensor in tensors.values()}) == len(tensors)
    found, _ = load_checkpoint(tmp_path / "model.safetensors")
    assert found.keys() == tensors.keys()
    network = shared.embedding_network
    assert {id(p) for p in network.parameters()} == {
        id(p) for part in (shared.base.lower, shared.key_function) for p in part.parameters()
    }


@pytest.mark.parametrize("name", ["prototypical", "maml"])
def test_a_learner_without_two_networks_refuses_it(name):
    with pytest.raises(ValueError, match=r"network\.shared_stem needs a .*base learner"):
        build(name, reads=IMAGE, way=WAY, network=NETWORKS["cnn"])


def test_a_key_of_another_shape_refuses_it():
    with pytest.raises(ValueError, match=r"and key\.name=network"):
        build("csn", reads=IMAGE, way=WAY, network=NETWORKS["cnn"], key=ResidualKeyOptions())


def test_only_plus_of_adacnn_shares_it():
    for preset, recipe, shared in [
        ("adacnn-df", "paper", False),
        ("adacnn-df", "plus", True),
        ("adacnn-gradient", "plus", True),
        ("adacnn-df", "best", False),  # its key is a residual network
        ("adaresnet-gradient", "plus", False),
    ]:
        network = load_preset(preset, recipe).network
        assert network is not None
        assert network.shared_stem == shared  # type: ignore[union-attr]
