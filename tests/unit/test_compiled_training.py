"""csn train --compile: the numbers of a plain training, one line where a compiler fails, a stop where it is strict."""

from __future__ import annotations

import functools
import json

import pytest
import torch

from csn.building import build
from csn.cli.main import main
from csn.config import TrainConfig
from csn.data.registry import load_data
from csn.data.source import EpisodeSource
from csn.engine import compiling
from csn.engine.train import Trainer
from csn.networks.cnn import CNNOptions

COMPILE = torch.compile


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    """A graph is made, but no machine code of it."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(COMPILE, backend="aot_eager"))
    yield
    torch._dynamo.reset()


def losses(tmp_path, conditioning: str, compile_: str) -> list[float]:
    data = load_data("strokes")
    source, validation = (EpisodeSource(data, split, way=3, shot=1, queries=1, seed=0) for split in ("train", "val"))
    torch.manual_seed(0)
    network = CNNOptions(filters=4, norm="batch")  # statistics that a trial must leave alone
    learner = build("csn", reads=(1, 28, 28), way=3, network=network, conditioning=conditioning)
    config = TrainConfig(tasks=6, tasks_per_step=2, validate_every=100, validation_tasks=2, compile=compile_)  # type: ignore[arg-type]
    trainer = Trainer(learner, config, source, validation, tmp_path / compile_)
    found: list[float] = []
    trainer.run(lambda report: found.append(getattr(report, "loss", 0.0)))
    return found


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_graph_trains_as_the_learner_does(tmp_path, conditioning):
    plain, graph = (losses(tmp_path, conditioning, how) for how in ("off", "strict"))
    assert plain == pytest.approx(graph, rel=1e-4)


def failing(*arguments: object, **options: object) -> object:
    def graph(tasks: object) -> object:
        raise RuntimeError("\n  no compiler here\nmore of it")

    return graph


def test_where_a_compiler_fails_training_goes_on_with_a_warning(tmp_path, monkeypatch):
    plain = losses(tmp_path, "df", "off")
    monkeypatch.setattr(torch, "compile", failing)
    with pytest.warns(RuntimeWarning, match=r"^torch.compile fails on this step \(no compiler here\); training goes"):
        assert losses(tmp_path, "df", "on") == plain


def test_strict_stops_there(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", failing)
    with pytest.raises(ValueError, match=r"fails on this step \(no compiler here\): leave out --compile strict"):
        losses(tmp_path, "df", "strict")


@pytest.mark.filterwarnings("default")
def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch, "compile", failing)
    command = ["train", "adacnn-df", "--data", "strokes", "--tasks", "1", "--set", "network.filters=4"]
    command += ["--set", "train.validation_tasks=2", "--out", str(tmp_path / "run")]
    assert main([*command, "--compile"]) == 0
    out = capsys.readouterr()
    assert [line for line in (out.out + out.err).splitlines() if "compile" in line] == [
        "torch.compile fails on this step (no compiler here); training goes on without it"
    ]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["compile"] == "on"
    command[-1] = str(tmp_path / "other")
    assert main([*command, "--compile", "strict"]) == 2
    assert "fails on this step (no compiler here)" in capsys.readouterr().err


def test_a_trial_leaves_nothing_behind():
    torch.manual_seed(0)
    network = CNNOptions(filters=4, norm="batch", dropout=(0.2, 0.0, 0.0))
    learner = build("csn", reads=(1, 28, 28), way=3, network=network)
    episode = EpisodeSource(load_data("strokes"), "train", way=3, shot=1, queries=1, seed=0).batch(0, 2)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    drawn = torch.get_rng_state()
    compiling.compiled(learner, episode, strict=True)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.state_dict().items())
    assert all(parameter.grad is None for parameter in learner.parameters())
