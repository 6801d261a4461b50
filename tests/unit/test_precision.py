"""model.precision: half of the bits below the adapted layers and in the key function, ordinary numbers elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from csn.build import build_learner
from csn.config import ModelConfig
from csn.engine import machine
from csn.episode import Episode, Examples
from csn.reproduce.plan import plan

IMAGE = (3, 16, 16)
WAY = 3


def learner(precision: str, base: str = "resnet", conditioning: str = "df"):
    """The same weights in any precision, the softmax layer as after some training."""
    torch.manual_seed(0)
    config = ModelConfig(
        base=base, conditioning=conditioning, filters=8, width=0.1, units=80, norm="batch", precision=precision
    )  # type: ignore[arg-type]
    built = build_learner(config, IMAGE, WAY)
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
def test_adapted_layers_see_ordinary_numbers(base):
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
    half.load_state_dict(full.state_dict())


def test_float32_leaves_a_callers_own_autocast_alone():
    full = learner("float32").eval()
    with torch.autocast("cpu", torch.bfloat16):
        inside = full.base.stem(episode().support.x[0])
    assert not torch.equal(inside, full.base.stem(episode().support.x[0]))


def test_a_machine_whose_instructions_end_the_process_is_told_so(monkeypatch):
    machine._has_bfloat16.cache_clear()
    monkeypatch.setattr(machine, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    try:
        with pytest.raises(ValueError, match=r"cannot convolve in bfloat16: leave out model\.precision"):
            machine.check_precision("bfloat16")
        machine.check_precision("float32")
    finally:
        machine._has_bfloat16.cache_clear()


def test_the_probe_is_a_program_that_runs():
    compile(machine._PROBE, "probe", "exec")
    exec(machine._PROBE, {})


def test_the_wide_adaresnet_of_the_table_convolves_in_bfloat16():
    cells = {cell.name: cell.config.model for cell in plan("mini-imagenet")}
    assert cells["mini-imagenet-5w1s-adaresnet-df-paper"].precision == "bfloat16"
    assert cells["mini-imagenet-5w1s-adaresnet-df-plus"].precision == "float32"
    assert cells["mini-imagenet-5w1s-adacnn-32-df-paper"].precision == "float32"
