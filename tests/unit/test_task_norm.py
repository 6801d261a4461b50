"""Normalisation by the examples of one task, as MAML has it."""

from __future__ import annotations

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from csn.building import build
from csn.episode import Examples
from csn.networks.cnn import CNNOptions
from csn.networks.task_norm import TaskNorm, joined, moments, support_first


def images(*rows: list[float]) -> torch.Tensor:
    """One channel, a row of pixels."""
    return tensor(rows)[:, None, None, :]


def test_a_query_goes_by_the_moments_of_the_support_and_itself():
    """Support pixels 0, 2, 0, 2 and query pixels 4, 4: mean 2 and variance 16 / 6 of all six; gain 2, bias 1."""
    norm = TaskNorm(1, "support", eps=0.0)
    with torch.no_grad():
        norm.weight.fill_(2.0)
        norm.bias.fill_(1.0)
    with support_first(2):
        found = norm(images([0.0, 2.0], [0.0, 2.0], [4.0, 4.0], [0.0, 2.0]))
    assert_close(found[:2], images([-1.0, 3.0], [-1.0, 3.0]))  # mean 1, variance 1
    assert_close(found[2], images([1 + 2 * 2 / (16 / 6) ** 0.5] * 2)[0])
    assert_close(found[3], images([-1.0, 3.0])[0])  # a query like the support changes neither moment


def test_joined_moments_are_those_of_all_pixels():
    x = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = joined(*moments(x[:5], (0, 2, 3)), 5, *moments(x[5:], (2, 3)))
    for one, other in zip(found, moments(x, (0, 2, 3)), strict=True):
        assert_close(one, other)


def test_transductive_queries_go_by_their_joint_moments():
    x = torch.randn(7, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    with support_first(4):
        found = TaskNorm(3, "transductive")(x)
    batch_norm = torch.nn.BatchNorm2d(3, track_running_stats=False)
    assert_close(found, torch.cat([batch_norm(x[:4]), batch_norm(x[4:])]))


@pytest.mark.parametrize(("norm", "inductive"), [("support", True), ("transductive", False)])
@pytest.mark.parametrize("name", ["maml", "meta-lstm"])
def test_an_answer_depends_on_other_queries_only_if_it_may(name, norm, inductive):
    torch.manual_seed(0)
    learner = build(name, reads=(1, 8, 8), way=3, network=CNNOptions(filters=8, norm=norm), test_steps=3)
    torch.nn.init.normal_([m for m in learner.network.modules() if isinstance(m, torch.nn.Linear)][-1].weight)
    support, x = Examples(torch.rand(2, 3, 1, 8, 8), torch.arange(3).expand(2, -1)), torch.rand(2, 4, 1, 8, 8)
    learner.eval()
    with torch.no_grad():
        task = learner.describe(support)
        together, alone = learner.predict(x, task), torch.cat([learner.predict(q, task) for q in x.split(1, 1)], 1)
    assert torch.allclose(together, alone, atol=1e-4) == inductive


def test_a_learner_that_tells_no_support_is_refused():
    learner = build("matching", reads=(1, 8, 8), way=3, network=CNNOptions(filters=8, norm="support"))
    with pytest.raises(ValueError, match=r"only MAML.*set network.norm to none, batch or group"):
        learner.describe(Examples(torch.rand(1, 3, 1, 8, 8), torch.arange(3)[None]))
