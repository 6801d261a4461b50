"""network.precision: half of the bits below the adapted layers and in the key function, ordinary numbers elsewhere."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from csn import registry
from csn.building import build
from csn.cli.main import main
from csn.config import Config, load_preset, merge
from csn.core.parts import NetworkOptions
from csn.data.registry import load_data
from csn.engine import machine
from csn.engine.checkpoint import save_checkpoint
from csn.engine.models import open_model
from csn.engine.train import model_tensors
from csn.episode import Episode, Examples
from csn.experiments import compare
from csn.experiments.tables.plan import plan
from csn.learner import FewShotLearner, InputSpec
from csn.networks.cnn import CNNOptions, ConvStack
from csn.networks.resnet import ResNetOptions

CPU = torch.device("cpu")
IMAGE = (3, 16, 16)
WAY = 3


def network(precision: str, base: str = "resnet") -> NetworkOptions:
    if base == "cnn":
        return CNNOptions(filters=8, norm="batch", precision=precision)
    return ResNetOptions(width=0.1, units=80, norm="batch", precision=precision)


def learner(precision: str, base: str = "resnet", conditioning: str = "df"):
    """The same weights in any precision, the softmax layer as after some training."""
    torch.manual_seed(0)
    built = build(reads=IMAGE, way=WAY, network=network(precision, base), conditioning=conditioning)
    torch.nn.init.normal_(built.base.output.weight, std=0.3)
    return built


def episode() -> Episode:
    """Classes of one colour each."""
    torch.manual_seed(1)
    labels = torch.arange(WAY).repeat(1, 4)
    x = 0.3 * torch.randn(1, 4 * WAY, *IMAGE)
    x[0, torch.arange(4 * WAY), labels[0]] += 1
    return Episode(Examples(x[:, :WAY], labels[:, :WAY]), Examples(x[:, WAY:], labels[:, WAY:]), WAY)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("base", ["cnn", "resnet"])
def test_answers_are_those_of_float32_but_for_rounding(base, conditioning):
    full, half = (learner(precision, base, conditioning).eval() for precision in ("float32", "bfloat16"))
    asked = episode()
    with torch.no_grad():
        exact, rounded = full(asked).logits, half(asked).logits
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)  # it does have fewer bits
    assert_close(rounded, exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("base", ["cnn", "resnet"])
def test_everything_above_the_stem_is_computed_in_float32(base):
    full, half = (learner(precision, base).eval() for precision in ("float32", "bfloat16"))
    x = episode().support.x[0]
    features = half.base.stem(x)
    assert features.dtype == half.key_function(x).dtype == torch.float32
    assert_close(features, full.base.stem(x), rtol=0.05, atol=0.05)
    assert not torch.equal(features, full.base.stem(x))
    for ours, theirs in zip(
        half.base.head(features).preactivations, full.base.head(features).preactivations, strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
@pytest.mark.parametrize("base", ["cnn", "resnet"])
def test_it_learns_with_weights_that_stay_in_float32(base, conditioning):
    half, asked = learner("bfloat16", base, conditioning).train(), episode()
    optimizer = torch.optim.Adam(half.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        loss = half(asked).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float32}


def test_weights_of_one_precision_are_those_of_the_other():
    full, half = learner("float32"), learner("bfloat16")
    for parameter in full.parameters():
        torch.nn.init.normal_(parameter)
    half.load_state_dict(full.state_dict())
    assert all(torch.equal(value, half.state_dict()[name]) for name, value in full.state_dict().items())


def test_float32_leaves_a_callers_own_autocast_alone():
    full = learner("float32").eval()
    with torch.autocast("cpu", torch.bfloat16):
        inside = full.base.stem(episode().support.x[0])
    assert not torch.equal(inside, full.base.stem(episode().support.x[0]))


@pytest.fixture
def without_bfloat16(monkeypatch):
    """A processor that claims instructions which end the process."""
    machine._gains_by_bfloat16.cache_clear()
    monkeypatch.setattr(machine, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    yield
    machine._gains_by_bfloat16.cache_clear()


def test_a_machine_whose_instructions_end_the_process_is_told_so(without_bfloat16):
    with pytest.raises(ValueError, match=r"fail or are not faster on this machine's cpu: .*network\.precision=float32"):
        machine.check_precision("bfloat16", CPU)
    machine.check_precision("float32", CPU)


def test_a_table_whose_cells_cannot_be_trained_here_says_so_first(without_bfloat16, tmp_path, capsys):
    asked = ["reproduce", "mini-imagenet", "--rows", "adaresnet-df", "paper", "5w1s", "--results", str(tmp_path)]
    assert main([*asked, "--runs", str(tmp_path / "runs")]) == 2
    assert "--set network.precision=float32" in " ".join(capsys.readouterr().err.split())
    assert main([*asked, "--dry-run"]) == 0


def test_a_model_that_was_trained_in_bfloat16_is_read_in_float32_elsewhere(without_bfloat16, tmp_path):
    half = learner("bfloat16")
    config = merge(
        Config(), {"network": {"name": "resnet", **dataclasses.asdict(network("bfloat16"))}, "data": {"way": WAY}}
    )
    about = {"config": json.loads(config.to_json()), "input": list(IMAGE)}
    save_checkpoint(tmp_path / "best.safetensors", model_tensors(half), {"about": about})
    with pytest.warns(RuntimeWarning, match="read in float32"):
        opened, _, _ = open_model(tmp_path / "best.safetensors")
    with torch.no_grad():
        assert_close(opened(episode()).logits, learner("float32").eval()(episode()).logits)


def test_the_probe_is_a_program_that_runs():
    run = subprocess.run([sys.executable, "-c", machine._PROBE], capture_output=True, check=False)
    assert run.stderr == b""
    assert run.returncode in (0, 1)  # gains by bfloat16, or not


@pytest.mark.parametrize("learner", ["maml", "meta-lstm"])
def test_networks_that_tasks_adapt_are_refused(learner):
    with pytest.raises(ValueError, match=r"network\.precision=bfloat16 applies to layers that no task adapts"):
        build(learner, reads=IMAGE, way=WAY, network=CNNOptions(filters=8, precision="bfloat16"))


@pytest.mark.parametrize("change", [{"name": "ffn"}, {"name": "lstm"}])
def test_networks_that_do_not_convolve_have_no_such_option(change):
    with pytest.raises(ValueError, match=r"network .* has no option 'precision'"):
        merge(Config(), {"network": {**change, "precision": "bfloat16"}})


def test_learners_say_in_their_options_whether_they_encode():
    for name in registry.names("learner"):
        options = registry.load("learner", name)
        reads = InputSpec((9,), 20) if options.reads == "sentences" else IMAGE
        built = build(name, reads=reads, way=WAY, network=CNNOptions(filters=8) if options.uses_network else None)
        assert (type(built).encode is not FewShotLearner.encode) == options.encodes, name


def test_the_floor_of_a_comparison_has_the_precision_of_what_it_is_for():
    config = merge(load_preset("adacnn-df"), {"network": {"precision": "bfloat16", "filters": 8}})
    floor = compare._floor(config, load_data("strokes"))
    assert {module.precision for module in floor.modules() if isinstance(module, ConvStack)} == {"bfloat16"}


def test_the_wide_adaresnet_of_the_table_convolves_in_bfloat16():
    cells = {cell.name: cell.config.network for cell in plan("mini-imagenet")}
    assert cells["mini-imagenet-5w1s-adaresnet-df-paper"].precision == "bfloat16"
    assert cells["mini-imagenet-5w1s-adaresnet-df-plus"].precision == "float32"
    assert cells["mini-imagenet-5w1s-adacnn-32-df-paper"].precision == "float32"
