"""csn.graft, in use: adaCNN rebuilt, threads, half precision, the engine, checkpoints, shipped encoders."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from grafted_networks import CASES, IMAGE, WAY, GroupResNet, flat_key, small_cnn
from torch import nn
from torch.testing import assert_close

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.pretrained import open_shipped
from csn.config import TrainConfig
from csn.core.model import CSNOptions
from csn.core.parts import Parts
from csn.data.images.strokes import load_strokes
from csn.data.source import EpisodeSource
from csn.engine.train import Trainer
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.cnn import CNN, CNNKey
from csn.networks.graft import graft
from graft import PlainCNN


@pytest.fixture(autouse=True)
def _seeded(float64: None) -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_adacnn_rebuilt_by_graft_is_adacnn(conditioning, layout):
    """Values and gradients agree to the last bits."""
    torch.manual_seed(0)
    image, filters = (1, 12, 12), 4
    base, key = CNN(image, WAY, filters=filters), CNNKey(image, size=8, filters=filters)
    nn.init.normal_(base.output.weight)
    options = {"conditioning": conditioning, "temperature": 10.0}
    own = CSNOptions(**options).build(Parts(InputSpec(image), WAY, base, key, 8))
    network = PlainCNN(filters, WAY)
    for theirs, ours in ((network.lower, base.lower), (network.convolutions, base.adapted)):
        theirs.load_state_dict(ours.state_dict())
    network.output.load_state_dict(base.output.state_dict())
    network.to(memory_format=layout)
    layers = [*(f"activations.{i}" for i in range(3)), "output"]
    grafted = graft(network, layers=layers, way=WAY, key=copy.deepcopy(key), stem="lower", **options)
    grafted.memory_function.load_state_dict(own.memory_function.state_dict())
    y = torch.arange(WAY).repeat(2, 2)
    episode = Episode(Examples(torch.rand(2, 6, *image), y), Examples(torch.rand(2, 6, *image), y), WAY)
    losses = [learner(episode).loss for learner in (own, grafted)]
    assert_close(losses[1], losses[0], rtol=0, atol=1e-12)
    for loss in losses:
        loss.backward()
    pairs = [
        (base.lower.convolutions[0], network.lower.convolutions[0]),
        *zip(base.adapted, network.convolutions, strict=True),
        (base.output, network.output),
        *zip(own.memory_function.layers, grafted.memory_function.layers, strict=True),
        (key.output, grafted.key_function.network.output),
    ]
    for ours, theirs in pairs:
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert (one.grad != 0).any()
            assert_close(other.grad, one.grad, rtol=1e-9, atol=1e-12)


def test_a_stem_sees_each_example_once_and_changes_nothing():
    """Those of the support without a graph in training, where no gradient comes to them."""
    whole = small_cnn()
    key = flat_key(64)
    case = CASES["sequential"]
    expected = graft(copy.deepcopy(whole), layers=["4", "6"], way=WAY, key=copy.deepcopy(key))
    named = graft(copy.deepcopy(whole), layers=["4", "6"], way=WAY, key=copy.deepcopy(key), stem="2")
    apart = graft(copy.deepcopy(whole[3:]), layers=["4", "6"], way=WAY, key=key, stem=whole[:3])
    for learner in (named, apart):
        learner.memory_function.load_state_dict(expected.memory_function.state_dict())
    episode = case.episode()
    loss = expected(episode).loss
    expected_gradient = torch.autograd.grad(loss, expected.base.network[0].weight)[0]
    for learner in (named, apart):
        first, seen = learner.base.lower.get_submodule("0"), []
        hook = first.register_forward_hook(lambda _, x, y, seen=seen: seen.append((len(y), y.requires_grad)))
        found = learner(episode).loss
        assert seen == [(8, False), (10, True)]
        assert_close(found, loss, rtol=0, atol=1e-13)
        assert_close(torch.autograd.grad(found, first.weight)[0], expected_gradient, rtol=1e-10, atol=1e-13)
        seen.clear()
        with torch.no_grad():
            learner(episode)
        assert [examples for examples, _ in seen] == [18]
        hook.remove()
    names = {f"{part}.{name}" for part in ("0", "3", "6") for name in ("weight", "bias")}
    assert {name.split(".", 1)[-1] for name, _ in named.base.named_parameters()} == names


def test_a_layer_of_the_network_as_the_key():
    network = small_cnn()
    learner = graft(network, layers=["4", "6"], way=WAY, key="2", reads=IMAGE)
    x = torch.randn(3, *IMAGE)
    assert torch.equal(learner.embed(x), network[:3](x).flatten(1))
    assert torch.isfinite(learner(CASES["sequential"].episode()).loss)
    assert not any(name.startswith("key_function") for name in learner.state_dict())
    again = copy.deepcopy(learner)
    nn.init.zeros_(again.base.network[0].weight)
    assert not torch.equal(again.embed(x), learner.embed(x))  # the copy's key is a layer of the copy


def test_patterns_name_every_activation():
    learner = graft(GroupResNet(), layers=["layers.1.*", "fc"], way=WAY, key=flat_key(64))
    assert learner.base.layers == ("layers.1.act1", "layers.1.act2", "fc")


def test_threads_do_not_meet():
    """Two threads on one learner, each with its own task, many times: what each finds is what it finds alone."""
    _, learner = CASES["sequential"].grafted()
    episodes = [CASES["sequential"].episode(queries) for queries in (2, 5)]
    expected = [learner(episode).logits for episode in episodes]
    wrong: list[int] = []

    def ask(index: int) -> None:
        for _ in range(30):
            if not torch.equal(learner(episodes[index]).logits, expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_grafts_of_one_network_do_not_meet():
    network = small_cnn()
    one = graft(network, layers=["4", "6"], way=WAY, key=flat_key(64))
    before = one(CASES["sequential"].episode()).logits
    two = graft(network, layers=["1", "6"], way=WAY, key=flat_key(64), conditioning="gradient")
    assert len(two.describe(CASES["sequential"].episode().support).values) == 2
    assert torch.equal(one(CASES["sequential"].episode()).logits, before)


def test_bfloat16_and_autocast():
    torch.set_default_dtype(torch.float32)
    case = CASES["vit"]
    network = case.build()
    for options in ({"conditioning": "df", "temperature": 10.0}, {"conditioning": "gradient"}):
        learner = graft(copy.deepcopy(network), layers=case.layers, way=WAY, key=case.key(), **options)
        exact = learner(case_float(case.episode())).loss
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = learner(case_float(case.episode())).loss
        assert_close(half.float(), exact, rtol=0.1, atol=0.1)
        learner.base.to(torch.bfloat16)
        loss = learner(case_float(case.episode())).loss
        assert_close(loss, exact, rtol=0.1, atol=0.1)
        loss.backward()
        assert learner.base.network.head.weight.grad.dtype == torch.bfloat16


def case_float(episode: Episode) -> Episode:
    support, query = (Examples(part.x.float(), part.y) for part in (episode.support, episode.query))
    return Episode(support, query, episode.way)


def test_the_result_is_an_ordinary_learner(tmp_path):
    """It trains, validates and resumes in the engine, serves the classifier, and can be copied and pickled."""
    torch.set_default_dtype(torch.float32)
    network = nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.GELU(), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 5))
    layers = ["2", "4"]
    learner = graft(network, layers=layers, way=5, key=flat_key(784), stem="1", reads=(1, 28, 28), temperature=10.0)
    data = load_strokes()
    sources = [EpisodeSource(data, split, way=5, shot=1, queries=2, seed=0) for split in ("train", "val")]
    config = TrainConfig(tasks=16, validate_every=8, validation_tasks=10)
    trainer = Trainer(learner, config, *sources, tmp_path)
    assert trainer.run() == "finished"
    episode = sources[0].batch(0, 1)
    expected = learner.eval()(episode).logits
    for copied in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert torch.equal(copied(episode).logits, expected)
        nn.init.zeros_(copied.base.network.get_parameter("4.weight"))
        assert torch.equal(learner(episode).logits, expected)
    nn.init.zeros_(learner.base.network.get_parameter("4.weight"))
    again = Trainer(learner, config, *sources, tmp_path)
    again.resume()
    assert again.done
    assert torch.equal(learner(episode).logits, expected)
    names = ["a", "b", "c", "d", "e"]
    classifier = FewShotClassifier(learner=learner).fit(episode.support.x[0], names)
    found = classifier.predict(episode.query.x[0])
    assert found.tolist() == [names[c] for c in expected[0].argmax(-1).tolist()]


def test_the_key_network_of_adacnn():
    """Its functional activations are found, and without shifts it gives what it gave."""
    torch.set_default_dtype(torch.float32)
    encoder = CNNKey((1, 28, 28), norm="batch").eval()
    network = nn.Sequential(copy.deepcopy(encoder), nn.Linear(64, 5)).eval()
    alone = copy.deepcopy(network)
    layers = ["0.convolutions.relu_2", "0.convolutions.relu_4", "1"]
    learner = graft(network, layers=layers, way=5, key=encoder, reads=(1, 28, 28), temperature=10.0).eval()
    x = torch.rand(1, 10, 1, 28, 28)
    assert torch.equal(learner.base(x[0]).logits, alone(x[0]))
    memory = learner.describe(Examples(x[:, :5], torch.arange(5)[None]))
    shapes = [tuple(values.dense().shape[2:]) for values in memory.values]
    assert shapes == [(4, 4, 64), (1, 1, 64), (5,)]  # ReLU comes after pooling: 28-14-7-4-2-1
    logits = learner.predict(x[:, 5:], memory)
    assert torch.isfinite(logits).all()
    assert not torch.equal(logits[0], alone(x[0, 5:]))


def test_the_shipped_encoder():
    """The residual network of the weights that csn ships, with shifts in its last two pairs."""
    torch.set_default_dtype(torch.float32)
    encoder = open_shipped("characters")[0].key_function
    encoder.views = 0  # one view of an image, not several: a layer can be shifted in one place alone
    network = nn.Sequential(copy.deepcopy(encoder), nn.Linear(encoder.output.out_features, WAY)).eval()
    alone = copy.deepcopy(network)
    layers = ["0.pairs.1.relu", "0.pairs.1.relu_1", "0.pairs.2.relu_1", "1"]
    learner = graft(network, layers=layers, way=WAY, key=encoder, reads=(1, 28, 28), temperature=10.0).eval()
    x = torch.rand(1, 2 * WAY, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(learner.base(x[0]).logits, alone(x[0]))
        memory = learner.describe(Examples(x[:, :WAY], torch.arange(WAY)[None]))
        assert [tuple(values.dense().shape[2:4]) for values in memory.values[:-1]] == [(7, 7), (7, 7), (3, 3)]
        together = learner.predict(x[:, WAY:], memory)
        singly = torch.cat([learner.predict(query, memory) for query in x[:, WAY:].split(1, dim=1)], dim=1)
    assert_close(singly, together, rtol=1e-4, atol=1e-4)
    assert not torch.equal(together[0], alone(x[0, WAY:]))


def test_the_vectors_of_an_encoder():
    """What the photo and sentence encoders give is the input of a network of one's own; it is its own key."""
    network = nn.Sequential(nn.Linear(384, 16), nn.GELU(), nn.Linear(16, WAY))
    learner = graft(network, layers=["1", "2"], way=WAY, key=nn.Identity(), reads=(384,), temperature=10.0)
    classifier = FewShotClassifier(learner=learner).fit(torch.randn(6, 384), ["a", "b", "c"] * 2)
    assert classifier.predict(torch.randn(2, 384)).shape == (2,)
