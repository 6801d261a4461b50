"""torch.compile: one graph from the images to the loss, with the numbers of the plain model."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from csn.building import build
from csn.core.model import CSN
from csn.core.parts import NetworkOptions
from csn.episode import Episode, Examples
from csn.networks.cnn import CNNOptions
from csn.networks.ffn import FFNOptions
from csn.networks.resnet import ResNetOptions

WAY = 3
NETWORKS = {
    "ffn": (FFNOptions(units=8), (1, 6, 6)),
    "cnn": (CNNOptions(filters=4), (1, 16, 16)),
    "resnet": (ResNetOptions(width=0.0625, units=32), (1, 16, 16)),
}
KINDS = {
    "df": {"conditioning": "df"},
    "df end to end": {"conditioning": "df", "feedback": "end-to-end"},
    "gradient": {"conditioning": "gradient"},
}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(trace_autograd_ops=True):  # eq. 5 asks for gradients within the graph
        yield
    torch._dynamo.reset()


def model(network: NetworkOptions, image: tuple[int, ...], kind: str) -> CSN:
    torch.manual_seed(0)
    learner = build("csn", reads=image, way=WAY, network=network, **KINDS[kind])
    torch.nn.init.normal_(learner.base.output.weight, std=0.3)  # so that gradients reach every layer
    return learner


def episode(image: tuple[int, ...]) -> Episode:
    labels = torch.arange(WAY).expand(2, -1)
    return Episode(*(Examples(torch.rand(2, WAY, *image), labels) for _ in range(2)), WAY)


def step(learner: torch.nn.Module, tasks: Episode) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss and gradients."""
    learner.zero_grad()
    loss = learner(tasks).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_is_one_graph(network, kind):
    learner, tasks = model(*NETWORKS[network], kind), episode(NETWORKS[network][1])
    plain_loss, plain = step(learner, tasks)
    loss, gradients = step(torch.compile(learner, backend="aot_eager", fullgraph=True), tasks)
    assert_close(loss, plain_loss)
    named = {name.removeprefix("_orig_mod."): gradient for name, gradient in gradients.items()}
    assert named.keys() == plain.keys()
    scale = max(float(gradient.abs().max()) for gradient in plain.values())
    for name, gradient in plain.items():
        assert_close(named[name], gradient, atol=1e-5 * scale, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", KINDS)
def test_both_phases_are_graphs_in_inference(kind):
    network, image = NETWORKS["cnn"]
    learner, tasks = model(network, image, kind).eval(), episode(image)

    def answers(tasks: Episode) -> torch.Tensor:
        return learner.predict(tasks.query.x, learner.describe(tasks.support, WAY))

    with torch.inference_mode():
        assert_close(torch.compile(answers, backend="eager", fullgraph=True)(tasks), answers(tasks))


def test_a_step_asks_a_tensor_for_no_number(monkeypatch):
    """Each would make the processor wait for a GPU."""
    network, image = NETWORKS["cnn"]
    learner, tasks = model(network, image, "df end to end"), episode(image)

    def refused(*args: object) -> None:
        raise AssertionError("a number was read in the middle of a step")

    for name in ("item", "__int__", "__float__", "__bool__", "tolist", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, refused)
    learner(tasks).loss.backward()
