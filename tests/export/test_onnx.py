"""Graphs outside Python answer as the learner does: torch.export, and ONNX in onnxruntime."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from csn import building
from csn.cli.export import open_source
from csn.cli.main import main
from csn.core.model import CSN
from csn.data.images.strokes import load_strokes
from csn.data.source import EpisodeSource
from csn.episode import Examples
from csn.export.graphs import EpisodeGraph, exportable
from csn.export.sentences import padded
from csn.learner import InputSpec
from csn.networks.graft import graft

pytest.importorskip("onnxscript", reason="ONNX is an extra: pip install csn[onnx]")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is an extra: pip install csn[onnx]")
from csn.export.onnx import export_onnx  # noqa: E402

WAY, VOCABULARY, STEPS = 4, 30, 4
SHAPES = {"cnn": (1, 12, 12), "cnn as in plus": (1, 12, 12), "resnet": (3, 16, 16), "ffn": (6,), "lstm": (STEPS,)}
CASES = list(itertools.product(SHAPES, ("df", "gradient")))
QUERIES, AT_ONCE = 2000, 1000


def learner(network: str, conditioning: str, of: Any = None, **options: Any) -> CSN:
    """Its softmax layer is as after some training: at the start it is 0, and there is no gradient."""
    torch.manual_seed(0)
    reads = InputSpec((0,), VOCABULARY) if network == "lstm" else SHAPES[network]
    parts = {"network": of or small(network), "conditioning": conditioning, **options}
    built = building.build("csn", reads=reads, way=WAY, **parts)
    assert isinstance(built, CSN)
    for module in built.modules():
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.normal_(module.weight, std=0.3)
    return built.eval()


def small(network: str) -> object:
    from csn.networks.cnn import CNNOptions
    from csn.networks.ffn import FFNOptions
    from csn.networks.lstm import LSTMOptions
    from csn.networks.resnet import ResNetOptions

    return {
        "cnn": CNNOptions(filters=8),
        "cnn as in plus": CNNOptions(filters=8, norm="batch", shared_stem=True),
        "resnet": ResNetOptions(width=0.125),
        "ffn": FFNOptions(units=16),
        "lstm": LSTMOptions(units=12, embedding=8),
    }[network]


def task(network: str, n: int, m: int, way: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    count = n + m
    x = sentences(count, generator) if network == "lstm" else torch.rand(count, *SHAPES[network], generator=generator)
    return x[:n], torch.arange(n) % way, x[n:]


def sentences(count: int, generator: torch.Generator) -> Tensor:
    """Of unequal length: words around a blank in the middle, PAD on either side."""
    x = torch.zeros(count, STEPS, dtype=torch.int64)
    middle = STEPS // 2
    starts = torch.randint(0, middle, (count,), generator=generator).tolist()
    ends = torch.randint(middle + 2, STEPS + 1, (count,), generator=generator).tolist()
    for row, start, end in zip(x, starts, ends, strict=True):
        row[start:end] = torch.randint(2, VOCABULARY, (end - start,), generator=generator)
        row[middle] = 1
    return x


def expected(model: CSN, support: Tensor, labels: Tensor, queries: Tensor, way: int) -> Tensor:
    with torch.no_grad():
        memory = model.describe(Examples(support[None], labels[None]), way)
        return model.predict(queries[None], memory)[0]


@cache
def opened(path: Path) -> Any:
    return onnxruntime.InferenceSession(path)


def run(path: Path, *inputs: Tensor) -> list[Tensor]:
    session = opened(path)
    names = [given.name for given in session.get_inputs()]
    feed = {name: given.numpy() for name, given in zip(names, inputs, strict=True)}
    return [torch.from_numpy(np.asarray(found)) for found in session.run(None, feed)]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[CSN, str, Path]:
    """A learner that was exported while it trained, with one weight frozen."""
    network, conditioning = request.param
    model = learner(network, conditioning, temperature=10.0).train()
    model.memory_function.weights()[0][0].requires_grad_(False)
    folder = tmp_path_factory.mktemp("onnx")
    files = export_onnx(model, folder, {"csn.threshold": 0.5}, steps=STEPS)
    assert [path.name for path in files] == ["describe.onnx", "predict.onnx", "episode.onnx"]
    return model, network, folder


def test_onnx_graphs_answer_as_the_learner_does(exported):
    model, network, folder = exported
    model.eval()
    for n, m, way in ((4, 3, 4), (7, 5, 3), (2, 1, 2)):  # other numbers than it was traced with
        support, labels, queries = task(network, n, m, way, seed=n)
        wanted = expected(model, support, labels, queries, way)
        (whole,) = run(folder / "episode.onnx", support, labels, queries)
        torch.testing.assert_close(whole[:, :way], wanted, atol=1e-4, rtol=1e-4)
        assert torch.isneginf(whole[:, way:]).all()
        keys, *values = run(folder / "describe.onnx", support, labels)
        logits, attention = run(folder / "predict.onnx", queries, keys, labels, *values)
        torch.testing.assert_close(logits[:, :way], wanted, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(attention.sum(1), torch.ones(m), atol=1e-5, rtol=0.0)


def test_2000_answers_are_those_of_the_learner(exported):
    model, network, folder = exported
    model.eval()
    describe, predict = (folder / f"{name}.onnx" for name in ("describe", "predict"))
    for seed in range(QUERIES // AT_ONCE):
        support, labels, queries = task(network, 9, AT_ONCE, 3, seed)
        wanted = expected(model, support, labels, queries, 3)
        keys, *values = run(describe, support, labels)
        found = run(predict, queries, keys, labels, *values)[0][:, :3]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
        assert torch.equal(found.argmax(1), wanted.argmax(1))


def test_the_shipped_weights_answer_2000_drawings_alike(tmp_path, capsys):
    assert main(["export", "characters", "--to", "onnx", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("wrote") == 3
    model, _ = open_source("characters")
    assert isinstance(model, CSN)
    data = load_strokes(alphabets=10, characters=10, drawings=6)
    tasks = EpisodeSource(data, "test", way=5, shot=2, queries=4, seed=0)
    for index in range(4):
        episodes = [tasks.batch(25 * index + i, 1) for i in range(25)]
        support, labels = episodes[0].support.x[0], episodes[0].support.y[0]  # queries of other classes are as good
        queries = torch.cat([episode.query.x[0] for episode in episodes])
        wanted = expected(model, support, labels, queries, 5)
        keys, *values = run(tmp_path / "describe.onnx", support, labels)
        found = run(tmp_path / "predict.onnx", queries, keys, labels, *values)[0][:, :5]
        torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)
        assert torch.equal(found.argmax(1), wanted.argmax(1))
    about = onnxruntime.InferenceSession(tmp_path / "predict.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(about["csn.opset"]) == 18
    assert "centred" in json.loads(about["csn.preparation"])


def test_the_learner_is_left_as_it_was(exported):
    model, _, _ = exported
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["memory_function.layers.0.weight"]


def test_a_file_says_what_it_takes(exported):
    _, network, folder = exported
    session = onnxruntime.InferenceSession(folder / "describe.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["csn.way"]) == WAY
    assert json.loads(about["csn.input"]) == list(SHAPES[network])
    assert json.loads(about["csn.threshold"]) == 0.5
    inputs = [(given.name, given.shape) for given in session.get_inputs()]
    assert inputs == [("support", ["n", *SHAPES[network]]), ("labels", ["n"])]


@pytest.mark.parametrize("network", ["ffn", "cnn", "resnet", "lstm"])
def test_torch_export_answers_as_the_learner_does(network):
    model = learner(network, "df")
    support, labels, queries = task(network, 5, 3, 3, seed=1)
    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    with torch.no_grad():
        program = torch.export.export(
            EpisodeGraph(padded(model) if network == "lstm" else model),
            (support, labels, queries),
            dynamic_shapes=({0: n}, {0: n}, {0: m}),
            strict=False,
        )
    support, labels, queries = task(network, 8, 2, 4, seed=2)
    wanted = expected(model, support, labels, queries, 4)
    torch.testing.assert_close(program.module()(support, labels, queries), wanted, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"PrototypicalNetwork cannot be exported: graphs are made of CSNs"):
        exportable(building.build("prototypical", reads=(6,), way=3, network="ffn"))
    with pytest.raises(ValueError, match="a support that is described 3 times cannot be exported"):
        exportable(learner("ffn", "df", passes=3))
    sentences = InputSpec((0,), VOCABULARY)
    encoded = building.build("csn", reads=sentences, way=3, network="lstm-ffn")
    with pytest.raises(ValueError, match="among networks for sentences, only lstm can be exported"):
        export_onnx(encoded, tmp_path)
    words = building.build("csn", reads=sentences, way=3, network="lstm", key="words")
    with pytest.raises(ValueError, match=r"cannot be exported: train with key.name=neighbours"):
        export_onnx(words, tmp_path)
    with pytest.raises(ValueError, match="sentences in graphs have 2 to 256 steps, got 1"):
        export_onnx(learner("lstm", "df"), tmp_path, steps=1)
    with pytest.raises(ValueError, match="sentences in graphs have 2 to 256 steps, got 1000000000"):
        export_onnx(learner("lstm", "df"), tmp_path, steps=10**9)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_an_lstm_is_exported_too(tmp_path):
    model = learner("lstm", "df", key="network")
    *_, episode = export_onnx(model, tmp_path, steps=STEPS)
    for n, m in ((6, 4), (2, 1)):
        support, labels, queries = task("lstm", n, m, 2, seed=n)
        (found,) = run(episode, support, labels, queries)
        torch.testing.assert_close(found[:, :2], expected(model, support, labels, queries, 2), atol=1e-5, rtol=1e-5)


class _Counting(torch.nn.Module):
    """A key that reads the number of examples as an int, so that tracing fixes it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True).expand(len(x), 6) + x.new_zeros(len(x), 6)


def test_a_graph_that_takes_one_number_of_examples_only_is_refused(tmp_path):
    model = learner("ffn", "df")
    model.key_function = _Counting()
    with pytest.raises(ValueError, match=r"would take \d+ examples only in support.*use .shape\[0\]"):
        export_onnx(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def strange_sentences(count: int, steps: int, blank: int, random: Random) -> Tensor:
    """Words that are out of vocabulary, without a word beside the blank, or with holes, around a blank at any step."""
    x = torch.zeros(count, steps, dtype=torch.int64)
    for row in x:
        holes = random.choice([0.0, 0.0, 0.4, 1.0])
        for step in range(random.randint(0, blank), random.randint(blank + 1, steps)):
            word = random.choice([2, -random.randint(1, 10**6), *range(3, VOCABULARY)])
            row[step] = 0 if random.random() < holes else word
        row[blank] = 1
    return x


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("until", ["end", "blank"])
@pytest.mark.parametrize("key", ["neighbours", "context", "network"])
def test_strange_sentences_are_answered_alike(key, until, conditioning):
    """400 sentences in tasks of any size, some with classes that have no sentence."""
    from csn.networks.lstm import LSTMOptions

    network = LSTMOptions(units=6, embedding=5, layers=2, until=until)
    model = learner("lstm", conditioning, of=network, key=key, temperature=10.0)
    random, graph = Random(0), EpisodeGraph(padded(model))
    for _ in range(40):
        steps = random.randint(2, 9)
        blank, n = random.randint(0, steps - 1), random.choice([1, 2, 7])
        x = strange_sentences(n + 10, steps, blank, random)
        labels = torch.tensor([*(random.randrange(WAY) for _ in range(n - 1)), random.randint(1, WAY - 1)])
        way = int(labels.max()) + 1
        found = graph(x[:n], labels, x[n:]).detach()
        torch.testing.assert_close(found[:, :way], expected(model, x[:n], labels, x[n:], way), atol=1e-4, rtol=1e-4)
        assert torch.isneginf(found[:, way:]).all()


def test_the_command_takes_weights_of_the_package_and_refuses_what_is_not_there(capsys):
    model, is_run = open_source("characters")
    assert exportable(model) is model
    assert not is_run
    assert main(["export", "runs/nowhere"]) == 2
    assert "give such a folder, or one of characters" in capsys.readouterr().err


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_grafted_network_is_exported(tmp_path, conditioning):
    """Its hooks become part of the graph, and onnxruntime answers as the learner does."""
    torch.manual_seed(0)
    parts = [torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.GELU()]
    network = torch.nn.Sequential(*parts, torch.nn.Flatten(), torch.nn.Linear(4 * 16, WAY))
    key = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 6))
    grafted = {"reads": (1, 8, 8), "conditioning": conditioning, "temperature": 10.0}
    model = graft(network, layers=["1", "3", "5"], way=WAY, key=key, **grafted).eval()
    *_, episode = export_onnx(model, tmp_path)
    images = torch.rand(11, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    support, labels, queries = images[:6], torch.arange(6) % WAY, images[6:]
    (logits,) = run(episode, support, labels, queries)
    shifted = expected(model, support, labels, queries, WAY)
    torch.testing.assert_close(logits, shifted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits, model.base(queries).logits, atol=1e-3)
