"""Section 2.2 with detached feedback: skipping the gradient of the support's stem changes no number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from csn.building import build
from csn.core.model import CSN
from csn.episode import Episode, Examples
from csn.networks.cnn import CNNOptions
from csn.networks.resnet import ResNetOptions

NETWORKS = {
    "cnn": (CNNOptions(filters=8, dropout=(0.0, 0.3, 0.3)), (1, 16, 16)),
    "resnet": (ResNetOptions(width=0.125, units=32), (1, 16, 16)),
    "batch norm": (CNNOptions(filters=8, norm="batch"), (1, 16, 16)),
}
ALONE = {"cnn", "resnet"}


def step(learner: CSN, tasks: Episode) -> list[Tensor]:
    torch.manual_seed(1)
    learner.zero_grad()
    output = learner(tasks)
    output.loss.backward()
    return [output.logits.detach(), *(parameter.grad.clone() for parameter in learner.parameters())]  # type: ignore[union-attr]


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_is_that_of_one_call_for_support_and_queries(monkeypatch, network, conditioning):
    options, image = NETWORKS[network]
    torch.manual_seed(0)
    learner = build("csn", reads=image, way=3, network=options, conditioning=conditioning).double()
    torch.nn.init.normal_(learner.base.output.weight)
    labels = torch.arange(3).expand(2, -1)
    support, query = (Examples(torch.rand(2, 3, *image, dtype=torch.float64), labels) for _ in range(2))
    tasks, calls = Episode(support, query, 3), []
    stem = learner.base.stem
    monkeypatch.setattr(learner.base, "stem", lambda x: calls.append((len(x), torch.is_grad_enabled())) or stem(x))
    found = step(learner, tasks)
    assert calls == ([(6, False), (6, True)] if network in ALONE else [(12, True)])
    monkeypatch.setattr(learner.base, "stem_parts", lambda: None)
    for one, other in zip(found, step(learner, tasks), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_end_to_end_feedback_has_a_gradient_there():
    options, image = NETWORKS["cnn"]
    learner = build("csn", reads=image, way=3, network=options, feedback="end-to-end")
    labels, calls = torch.arange(3)[None], []
    stem = learner.base.stem
    learner.base.stem = lambda x: calls.append(len(x)) or stem(x)  # type: ignore[method-assign]
    learner(Episode(*(Examples(torch.rand(1, 3, *image), labels) for _ in range(2)), 3))
    assert calls == [6]


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_dropout_below_draws_for_each_example_alone(monkeypatch, conditioning):
    """Dropout masks of support and queries may be drawn separately. The gradient is that of the queries alone."""
    options = CNNOptions(filters=8, dropout=(0.2, 0.0, 0.0))
    torch.manual_seed(0)
    learner = build("csn", reads=(1, 16, 16), way=3, network=options, conditioning=conditioning).double()
    torch.nn.init.normal_(learner.base.output.weight)
    labels = torch.arange(3)[None]
    x = torch.rand(2, 1, 3, 1, 16, 16, dtype=torch.float64)
    tasks, drawn = Episode(Examples(x[0], labels), Examples(x[1], labels), 3), []
    stem = learner.base.stem

    def watched(images: Tensor) -> Tensor:
        drawn.append(stem(images))
        return drawn[-1]

    monkeypatch.setattr(learner.base, "stem", watched)
    logits = step(learner, tasks)[0]
    assert [features.requires_grad for features in drawn] == [False, True]
    assert not torch.equal(drawn[0], stem(x[0, 0]))  # some of it was dropped
    support, queries = ([learner.key_function(x[i, 0])[None], drawn[i][None]] for i in (0, 1))
    torch.testing.assert_close(learner.answer(support, labels, queries, 3), logits, rtol=1e-12, atol=1e-14)
