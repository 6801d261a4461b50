"""Graphs outside Python answer as the learner does: torch.export, and ONNX in onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from csn import building
from csn.cli.export import open_source
from csn.cli.main import main
from csn.core.model import CSN
from csn.episode import Examples
from csn.export.graphs import EpisodeGraph, exportable
from csn.learner import InputSpec
from csn.networks.graft import graft

pytest.importorskip("onnxscript", reason="ONNX is an extra: pip install csn[onnx]")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is an extra: pip install csn[onnx]")
from csn.export.onnx import export_onnx  # noqa: E402

WAY = 4
SHAPES = {"cnn": (1, 12, 12), "resnet": (3, 16, 16), "ffn": (6,)}


def learner(network: str, conditioning: str, **options: object) -> CSN:
    """Its softmax layer is as after some training: at the start it is 0, and there is no gradient."""
    torch.manual_seed(0)
    built = building.build(
        "csn", reads=SHAPES[network], way=WAY, network=small(network), conditioning=conditioning, **options
    )
    assert isinstance(built, CSN)
    for module in built.modules():
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.normal_(module.weight, std=0.3)
    return built.eval()


def small(network: str) -> object:
    from csn.networks.cnn import CNNOptions
    from csn.networks.ffn import FFNOptions
    from csn.networks.resnet import ResNetOptions

    return {"cnn": CNNOptions(filters=8), "resnet": ResNetOptions(width=0.125), "ffn": FFNOptions(units=16)}[network]


def task(shape: tuple[int, ...], n: int, m: int, way: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n + m, *shape, generator=generator)
    return x[:n], torch.arange(n) % way, x[n:]


def expected(model: CSN, support: Tensor, labels: Tensor, queries: Tensor, way: int) -> Tensor:
    with torch.no_grad():
        memory = model.describe(Examples(support[None], labels[None]), way)
        return model.predict(queries[None], memory)[0]


def run(path: Path, *inputs: Tensor) -> list[Tensor]:
    session = onnxruntime.InferenceSession(path)
    names = [given.name for given in session.get_inputs()]
    feed = {name: given.numpy() for name, given in zip(names, inputs, strict=True)}
    return [torch.from_numpy(np.asarray(found)) for found in session.run(None, feed)]


@pytest.fixture(scope="module", params=[("ffn", "df"), ("cnn", "gradient")], ids="-".join)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[CSN, str, Path]:
    """A learner that was exported while it trained, with one weight frozen."""
    network, conditioning = request.param
    model = learner(network, conditioning, temperature=10.0).train()
    model.memory_function.weights()[0][0].requires_grad_(False)
    folder = tmp_path_factory.mktemp("onnx")
    files = export_onnx(model, folder, {"csn.threshold": 0.5})
    assert [path.name for path in files] == ["describe.onnx", "predict.onnx", "episode.onnx"]
    return model, network, folder


def test_onnx_graphs_answer_as_the_learner_does(exported):
    model, network, folder = exported
    model.eval()
    for n, m, way in ((4, 3, 4), (7, 5, 3), (2, 1, 2)):  # other numbers than it was traced with
        support, labels, queries = task(SHAPES[network], n, m, way, seed=n)
        wanted = expected(model, support, labels, queries, way)
        (whole,) = run(folder / "episode.onnx", support, labels, queries)
        torch.testing.assert_close(whole[:, :way], wanted, atol=1e-4, rtol=1e-4)
        assert torch.isneginf(whole[:, way:]).all()
        keys, *values = run(folder / "describe.onnx", support, labels)
        logits, attention = run(folder / "predict.onnx", queries, keys, labels, *values)
        torch.testing.assert_close(logits[:, :way], wanted, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(attention.sum(1), torch.ones(m), atol=1e-5, rtol=0.0)


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


@pytest.mark.parametrize("network", ["cnn", "resnet"])
def test_torch_export_answers_as_the_learner_does(network):
    model = learner(network, "df")
    support, labels, queries = task(SHAPES[network], 5, 3, 3, seed=1)
    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    with torch.no_grad():
        program = torch.export.export(
            EpisodeGraph(model), (support, labels, queries), dynamic_shapes=({0: n}, {0: n}, {0: m}), strict=False
        )
    support, labels, queries = task(SHAPES[network], 8, 2, 4, seed=2)
    wanted = expected(model, support, labels, queries, 4)
    torch.testing.assert_close(program.module()(support, labels, queries), wanted, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"PrototypicalNetwork cannot be exported: graphs are made of CSNs"):
        exportable(building.build("prototypical", reads=(6,), way=3, network="ffn"))
    sentences = building.build("csn", reads=InputSpec((0,), 20), way=3, network="lstm")
    with pytest.raises(ValueError, match="networks of sentences cannot be exported"):
        export_onnx(sentences, tmp_path)


def test_the_command_takes_weights_of_the_package_and_refuses_what_is_not_there(capsys):
    model, is_run = open_source("characters")
    assert exportable(model) is model
    assert not is_run
    assert main(["export", "runs/nowhere"]) == 2
    assert "give the folder of a run, or one of characters" in capsys.readouterr().err


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
    support, labels, queries = task((1, 8, 8), 6, 5, WAY, seed=1)
    (logits,) = run(episode, support, labels, queries)
    shifted = expected(model, support, labels, queries, WAY)
    torch.testing.assert_close(logits, shifted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits, model.base(queries).logits, atol=1e-3)
