"""Checkpoints: whole or not at all, trusted or refused; a resumed run equals an uninterrupted one to the bit."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from csn.building import build
from csn.config import TrainConfig
from csn.core.parts import NetworkKey
from csn.core.shortcuts import products
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine.checkpoint import (
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
    write_atomically,
)
from csn.engine.reports import StepReport
from csn.engine.train import Trainer, model_tensors
from csn.networks.cnn import CNNOptions

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(7), "c.d": torch.tensor([True, False])}
METADATA = {"tasks": 3, "about": {"name": "x", "rates": [0.1, None]}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "model.safetensors"
    save_checkpoint(path, TENSORS, METADATA)
    return path


def assert_intact(path: Path) -> None:
    tensors, metadata = load_checkpoint(path)
    assert metadata == METADATA
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_round_trip(saved):
    assert_intact(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(saved, monkeypatch, step):
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(saved, {"a": torch.zeros(1)}, {})
    monkeypatch.undo()
    assert_intact(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["model.safetensors"]


def test_the_new_file_is_on_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("fsync"), fsync(number)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_atomically(tmp_path / "file", b"content")
    assert order[:2] == ["fsync", "replace"]
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("mask", [0x01, 0x20, 0xFF])
def test_no_flipped_byte_goes_unnoticed(saved, mask):
    content = saved.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= mask
        saved.write_bytes(damaged)
        try:
            assert_intact(saved)  # a byte that means nothing, such as padding, may change
        except ValueError:
            continue
        assert content[position : position + 1].isspace()


def test_no_truncation_goes_unnoticed(saved):
    content = saved.read_bytes()
    for length in (*range(0, len(content), 7), len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(ValueError, match="truncated or not a csn checkpoint"):
            load_checkpoint(saved)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no checkpoint .*nowhere"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="there is no checkpoint"):
        load_checkpoint(tmp_path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign"
    for content in (b"", b"hello", b"\x89PNG" * 100, safetensors.torch.save(TENSORS)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="truncated or not a csn checkpoint"):
            load_checkpoint(path)


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("csn.engine.checkpoint.FORMAT", 99)
    save_checkpoint(tmp_path / "new", TENSORS, METADATA)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format 99, but this version of csn reads 1"):
        load_checkpoint(tmp_path / "new")


def test_layouts_other_than_contiguous_are_saved_by_value(tmp_path):
    tensor = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    save_checkpoint(tmp_path / "file", {"t": tensor}, {})
    assert torch.equal(load_checkpoint(tmp_path / "file")[0]["t"], tensor)


def small_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    return net.to(memory_format=torch.channels_last)


OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state_goes_round_in_the_layout_of_its_parameters(tmp_path, name):
    def step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        net(torch.randn(2, 3, 3, 3)).square().sum().backward()
        optimizer.step()

    net = small_net()
    optimizer = OPTIMIZERS[name](net.parameters())
    for seed in range(3):
        step(net, optimizer, seed)
    save_checkpoint(tmp_path / "file", optimizer_tensors(optimizer), {})

    other = small_net()
    other.load_state_dict(net.state_dict())
    restored = OPTIMIZERS[name](other.parameters())
    restore_optimizer(restored, load_checkpoint(tmp_path / "file")[0])

    for old, new in zip(net.parameters(), other.parameters(), strict=True):
        assert optimizer.state[old].keys() == restored.state[new].keys()
        for slot, value in optimizer.state[old].items():
            copy = restored.state[new][slot]
            assert torch.equal(copy, value)
            assert copy.stride() == value.stride()
    for seed in (7, 8):
        step(net, optimizer, seed)
        step(other, restored, seed)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def toy() -> Dataset:
    rng = np.random.default_rng(0)

    def split(prefix: str) -> ClassExamples:
        x = torch.from_numpy(rng.integers(0, 256, (6 * 8, 1, 12, 12), dtype=np.uint8))
        return ClassExamples(x, np.full(6, 8), tuple(f"{prefix}{c}" for c in range(6)))

    return Dataset("toy", {"train": split("train"), "val": split("val")})


DATA = toy()
TRAIN = TrainConfig(tasks=20, tasks_per_step=2, validate_every=7, validation_tasks=4, clip=10.0, schedule="cosine")
ABOUT = {"name": "toy"}


def trainer(folder: Path, config: TrainConfig, **model: object) -> Trainer:
    torch.manual_seed(config.seed)
    network = CNNOptions(filters=8, dropout=(0.2, 0.3, 0.3), norm=model.pop("norm", "none"))  # type: ignore[arg-type]
    learner = build("csn", reads=(1, 12, 12), way=3, network=network, key=NetworkKey(size=8), guard=False, **model)
    sources = [EpisodeSource(DATA, split, way=3, shot=1, queries=2, seed=1) for split in ("train", "val")]
    return Trainer(learner, config, *sources, folder, about=ABOUT)


def everything(trained: Trainer) -> dict[str, Tensor]:
    tensors = model_tensors(trained.learner) | optimizer_tensors(trained.optimizer)
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(
    "model", [{"conditioning": "df", "norm": "batch"}, {"conditioning": "gradient"}], ids=["df-batch", "gradient"]
)
def test_ten_tasks_resumed_for_ten_more_equal_twenty_to_the_bit(tmp_path, optimizer, model):
    config = dataclasses.replace(TRAIN, optimizer=optimizer, augment=0.5)
    straight, reports = trainer(tmp_path / "straight", config, **model), []
    assert straight.run(reports.append) == "finished"

    first, found = trainer(tmp_path / "cut", config, **model), []
    assert first.run(found.append, should_stop=lambda: first.tasks >= 10) == "interrupted"
    assert first.tasks == 10
    second = trainer(tmp_path / "cut", config, **model)
    with torch.no_grad():
        for parameter in second.learner.parameters():
            parameter.fill_(torch.nan)  # nothing may come from anywhere but the file
    second.resume()
    torch.manual_seed(12345)  # nor from where the generator happens to stand
    assert second.tasks == 10
    assert second.run(found.append) == "finished"

    assert found == reports
    assert (second.tasks, second.best, second.since_best) == (straight.tasks, straight.best, straight.since_best)
    expected, result = everything(straight), everything(second)
    assert expected.keys() == result.keys()
    for name, tensor in expected.items():
        assert torch.equal(result[name], tensor), name


def test_dropout_and_seed_matter_to_what_is_compared():
    """Otherwise the test above could pass with the same numbers everywhere."""
    losses = []
    for change in ({}, {"seed": 1}):
        run = trainer(Path("unused"), dataclasses.replace(TRAIN, **change), conditioning="df")
        losses.append(run._step().loss)
    assert losses[0] != losses[1]
    run = trainer(Path("unused"), TRAIN, conditioning="df")
    nn.init.normal_(run.learner.base.output.weight)
    episode = run.training.batch(0, 2)
    assert run.learner.train()(episode).loss != run.learner(episode).loss


def test_a_run_is_reproducible_and_reports_every_step_and_validation(tmp_path):
    runs = []
    for name in ("a", "b"):
        reports = []
        trainer(tmp_path / name, TRAIN, conditioning="df").run(reports.append)
        runs.append(reports)
    assert runs[0] == runs[1]
    assert [r.tasks for r in runs[0] if isinstance(r, StepReport)] == list(range(2, 21, 2))
    assert [r.tasks for r in runs[0] if not isinstance(r, StepReport)] == [8, 14, 20]  # past 7, past 14, at the end


def test_the_best_model_is_kept(tmp_path):
    run, reports = trainer(tmp_path, TRAIN, conditioning="df"), []
    run.run(reports.append)
    validations = [r for r in reports if not isinstance(r, StepReport)]
    _, metadata = load_checkpoint(tmp_path / "best.safetensors")
    assert metadata["validation"] == max(r.accuracy for r in validations) == run.best
    assert metadata["tasks"] == next(r.tasks for r in validations if r.accuracy == run.best)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    trainer(tmp_path, TRAIN, conditioning="df").run(should_stop=lambda: True)
    other = trainer(tmp_path, TRAIN, conditioning="df")
    other.about = {"name": "another"}
    with pytest.raises(ValueError, match="belongs to another configuration"):
        other.resume()


def test_resuming_beside_a_damaged_best_model_is_refused(tmp_path):
    config = TrainConfig(tasks=8, tasks_per_step=2, validate_every=4, validation_tasks=4)
    trainer(tmp_path, config).run()
    best = tmp_path / "best.safetensors"
    best.write_bytes(best.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"best\.safetensors is truncated"):
        trainer(tmp_path, config).resume()


def test_resuming_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no checkpoint"):
        trainer(tmp_path, TRAIN).resume()


@pytest.mark.parametrize("name", ["tasks", "tasks_per_step", "validate_every", "validation_tasks"])
def test_counts_below_one_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=rf"train\.{name} must be at least \d, got 0"):
        trainer(tmp_path, dataclasses.replace(TRAIN, **{name: 0}))


def test_a_validation_without_an_interval_is_refused_before_training(tmp_path):
    """One task has no 95 % interval; to learn that after the first hours of training is too late."""
    with pytest.raises(ValueError, match="validation_tasks must be at least 2, got 1"):
        trainer(tmp_path, dataclasses.replace(TRAIN, validation_tasks=1))


def test_tensors_that_share_memory_are_saved_as_any_others(tmp_path):
    number = torch.tensor(2.0)
    save_checkpoint(tmp_path / "x.safetensors", {"a": number, "b": number, "c": torch.arange(6.0)[::2]}, {})
    tensors, _ = load_checkpoint(tmp_path / "x.safetensors")
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {"a": 2.0, "b": 2.0, "c": [0.0, 2.0, 4.0]}


def test_a_resumed_run_multiplies_as_it_began(tmp_path, monkeypatch):
    """Whatever is faster where it goes on; a checkpoint from before this was said was torch's."""
    began = trainer(tmp_path, TRAIN)
    monkeypatch.setattr(products, "_probed", "onednn" if products._is_right() else "torch")
    expected = products.chosen()
    began.run(should_stop=lambda: began.tasks >= 2)
    monkeypatch.setattr(products, "_probed", "torch")
    resumed = trainer(tmp_path, TRAIN)
    resumed.resume()
    assert resumed.products == expected
    tensors, metadata = load_checkpoint(resumed.last)
    del metadata["products"]
    save_checkpoint(resumed.last, tensors, metadata)
    resumed.resume()
    assert resumed.products == "torch"
    products.choose(None)
