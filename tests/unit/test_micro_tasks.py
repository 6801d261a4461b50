"""Gradients accumulated over parts of a step equal those of the whole step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from csn.building import build
from csn.config import TrainConfig
from csn.core.model import CSN
from csn.core.parts import NetworkKey
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine.train import Trainer, model_tensors
from csn.networks.ffn import FFNOptions
from csn.networks.graft import graft

CONFIG = TrainConfig(tasks=14, tasks_per_step=6, optimizer="sgd", validate_every=100, validation_tasks=2)


def built_in() -> CSN:
    """adaFFN."""
    return build("csn", reads=(4,), way=3, network=FFNOptions(units=8), key=NetworkKey(size=4)).double()


def grafted() -> CSN:
    """A network of somebody else with shifted neurons."""
    network = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    return graft(network, layers=["1", "2"], way=3, key=nn.Linear(4, 4), conditioning="gradient").double()


def trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[], CSN] = built_in, **options: object
) -> tuple[dict[str, Tensor], list[object]]:
    """Weights after 6 + 6 + 2 tasks in double precision, and what was reported."""
    rng = np.random.default_rng(0)

    def split(prefix: str) -> ClassExamples:
        x = torch.from_numpy(rng.random((5 * 6, 4)))
        return ClassExamples(x, np.full(5, 6), tuple(f"{prefix}{c}" for c in range(5)))

    data = Dataset("toy", {"train": split("train"), "val": split("val")})
    torch.manual_seed(0)
    learner = start()
    if start is built_in:
        nn.init.normal_(learner.base.output.weight)
    sources = [EpisodeSource(data, part, way=3, shot=1, queries=2, seed=1) for part in ("train", "val")]
    monkeypatch.setattr(Trainer, "_validate", lambda self: None)
    trainer, reports = Trainer(learner, replace(CONFIG, **options), *sources, folder), []  # type: ignore[arg-type]
    trainer.run(lambda report: reports.append(report) if report else None)
    return model_tensors(learner), reports


@pytest.mark.parametrize("micro_tasks", [1, 2, 3, 6])
def test_parts_of_a_step_add_up_to_it(tmp_path, monkeypatch, micro_tasks):
    """The last step has two tasks: parts of three do not fill it."""
    whole, reports = trained(tmp_path / "whole", monkeypatch)
    parts, others = trained(tmp_path / "parts", monkeypatch, micro_tasks=micro_tasks)
    assert len(reports) == 3
    assert_close(torch.tensor(others, dtype=torch.float64), torch.tensor(reports, dtype=torch.float64))
    for name, tensor in whole.items():
        assert_close(parts[name], tensor, rtol=1e-12, atol=1e-13)
    start = build("csn", reads=(4,), way=3, network=FFNOptions(units=8), key=NetworkKey(size=4))
    assert not torch.equal(whole["model.base.output.weight"], model_tensors(start)["model.base.output.weight"])


def test_parts_of_a_step_add_up_to_it_in_a_grafted_network(tmp_path, monkeypatch):
    whole, _ = trained(tmp_path / "whole", monkeypatch, grafted)
    parts, _ = trained(tmp_path / "parts", monkeypatch, grafted, micro_tasks=2)
    for name, tensor in whole.items():
        assert_close(parts[name], tensor, rtol=1e-12, atol=1e-13)
    torch.manual_seed(0)
    assert not torch.equal(whole["model.base.network.0.weight"], grafted().base.network[0].weight)


def test_a_step_is_split_only_where_that_is_asked_for(tmp_path, monkeypatch):
    whole, _ = trained(tmp_path / "whole", monkeypatch)
    same, _ = trained(tmp_path / "same", monkeypatch, micro_tasks=6)
    assert all(torch.equal(same[name], tensor) for name, tensor in whole.items())


@pytest.mark.parametrize("micro_tasks", [4, 0, -1, 7])
def test_parts_that_do_not_divide_a_step_are_refused(tmp_path, monkeypatch, micro_tasks):
    with pytest.raises(ValueError, match=rf"micro_tasks must divide train.tasks_per_step, got {micro_tasks} and 6"):
        trained(tmp_path, monkeypatch, micro_tasks=micro_tasks)
