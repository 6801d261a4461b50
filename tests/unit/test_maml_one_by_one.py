"""MAML and the Meta-Learner LSTM task by task, as on a CPU: the values and gradients of all tasks at once."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from csn.baselines.maml import MAML
from csn.building import build
from csn.episode import Episode, Examples
from csn.networks.cnn import CNNOptions

KINDS = {
    "first": ("maml", {"order": "first", "inner_steps": 2}),
    "meta-sgd": ("maml", {"order": "first", "rate": "each"}),
    "second": ("maml", {"order": "second"}),
    "meta-lstm": ("meta-lstm", {"inner_steps": 2}),
}


@pytest.mark.parametrize("norm", ["group", "none", "support", "transductive"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_over_tasks_changes_nothing(monkeypatch, kind, norm):
    torch.manual_seed(0)
    name, options = KINDS[kind]
    learner = build(name, reads=(1, 8, 8), way=3, network=CNNOptions(filters=8, norm=norm), **options).double()
    labels = torch.arange(3).expand(2, -1)
    support, query = (Examples(torch.rand(2, 3, 1, 8, 8, dtype=torch.float64), labels) for _ in range(2))
    found = []
    for one_by_one in (MAML._goes_one_by_one, lambda self, x: False):
        monkeypatch.setattr(MAML, "_goes_one_by_one", one_by_one)
        learner.zero_grad()
        output = learner(Episode(support, query, 3))
        output.loss.backward()
        with torch.inference_mode():
            answers = learner(Episode(support, query, 3)).logits.clone()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learner.parameters()]
        found.append([output.logits.detach(), answers, *(gradient.clone() for gradient in gradients)])
    for one, other in zip(*found, strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert any(bool(gradient.abs().max() > 1e-6) for gradient in found[0][2:])
