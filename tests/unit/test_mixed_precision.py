"""Training in bfloat16 by autocast: float32 where the equations need it, and clear words where it cannot be had."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from csn import registry
from csn.building import build
from csn.core.conditioning import DirectFeedback
from csn.core.memory import MemoryFunction, TaskMemory
from csn.engine import machine
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.lstm import LSTMOptions

IMAGE, WAY = (1, 12, 12), 3


def images(tasks: int = 4) -> Episode:
    """Class c is bright in its own rows."""
    labels = torch.arange(WAY).repeat(2).expand(tasks, -1)
    rows = torch.eye(WAY).repeat_interleave(4, dim=0)[:, labels].permute(1, 2, 0)[:, :, None, :, None]

    def examples() -> Examples:
        return Examples((rows + 0.3 * torch.randn(tasks, 2 * WAY, *IMAGE)).float(), labels)

    return Episode(examples(), examples(), WAY)


def curve(conditioning: str, mixed: bool, seed: int) -> list[float]:
    """Losses of a short training."""
    torch.manual_seed(seed)
    learner = build("csn", reads=IMAGE, way=WAY, network=CNNOptions(filters=8), conditioning=conditioning)
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = learner(images()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_it_learns_as_in_single_precision(conditioning):
    ends = {mixed: [curve(conditioning, mixed, seed)[-10:] for seed in range(3)] for mixed in (False, True)}
    means = {mixed: torch.tensor(found).mean(1) for mixed, found in ends.items()}
    assert bool((means[True] < 0.75).all())  # log 3 is 1.1
    assert abs(float(means[True].mean() - means[False].mean())) < 0.15


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_equations_are_computed_in_single_precision(monkeypatch, conditioning):
    seen: dict[str, set[torch.dtype]] = {"g": set(), "keys": set(), "read": set(), "feedback": set()}
    g, attend, read, feedback = MemoryFunction.forward, TaskMemory.attend, TaskMemory.read, DirectFeedback.__call__

    def watch(name: str, dtype: torch.dtype) -> None:
        assert not torch.is_autocast_enabled("cpu")
        seen[name].add(dtype)

    def told(self: DirectFeedback, output: object, *rest: object) -> object:
        watch("feedback", output.logits.dtype)  # type: ignore[attr-defined]
        return feedback(self, output, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryFunction, "forward", lambda self, x: watch("g", x.dtype) or g(self, x))
    monkeypatch.setattr(TaskMemory, "attend", lambda self, k, *a: watch("keys", k.dtype) or attend(self, k, *a))
    monkeypatch.setattr(TaskMemory, "read", lambda self, a: watch("read", a.dtype) or read(self, a))
    monkeypatch.setattr(DirectFeedback, "__call__", told)
    learner = build("csn", reads=IMAGE, way=WAY, network=CNNOptions(filters=8), conditioning=conditioning)
    with torch.autocast("cpu", torch.bfloat16):
        learner(images()).loss.backward()
    expected = {name: {torch.float32} for name in seen}
    if conditioning == "gradient":
        expected["feedback"] = set()
    assert seen == expected


def test_every_parameter_has_a_gradient():
    """Autocast remembers weights that it made half, also those that it made so where no gradient was wanted."""
    torch.manual_seed(0)
    for options in ({"conditioning": "gradient"}, {"conditioning": "df", "feedback": "end-to-end"}):
        learner = build("csn", reads=IMAGE, way=WAY, network=CNNOptions(filters=8), **options)
        torch.nn.init.normal_(learner.base.output.weight)
        with torch.autocast("cpu", torch.bfloat16):
            loss = learner(images()).loss
        loss.backward()
        dead = [n for n, p in learner.named_parameters() if p.grad is None or not bool(p.grad.abs().max() > 1e-7)]
        assert not [name for name in dead if not name.endswith("bias")]


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_recurrence_is_computed_in_single_precision(conditioning):
    torch.manual_seed(0)
    network = LSTMOptions(units=6, embedding=5)
    learner = build("csn", reads=InputSpec((0,), 20), way=WAY, network=network, conditioning=conditioning)
    x = torch.randint(3, 20, (2, WAY, 7))
    x[..., 3] = 1
    episode = Episode(Examples(x, torch.arange(WAY).expand(2, -1)), Examples(x, torch.arange(WAY).expand(2, -1)), WAY)
    plain = learner(episode).loss
    with torch.autocast("cpu", torch.bfloat16):
        mixed = learner(episode).loss
    mixed.backward()
    assert mixed.dtype == torch.float32
    assert abs(float((mixed - plain).detach())) < 0.02
    assert bool(learner.base.layers[0].recurrent_weight.grad.isfinite().all())


@pytest.mark.parametrize("name", ["metanet", "meta-lstm", "lstm-lm"])
def test_learners_that_cannot_be_mixed_say_so(name):
    with pytest.raises(ValueError, match=f"learner '{name}' is trained in float32 only"):
        machine.check_mixed(registry.load("learner", name)(), torch.device("cpu"))


def test_a_device_without_use_for_it_is_named(monkeypatch):
    monkeypatch.setattr(machine, "_gains_by_bfloat16", lambda device: False)
    with pytest.raises(ValueError, match=r"bf16-mixed fails or is not faster on this machine's cpu: train in fp32"):
        machine.check_mixed(registry.load("learner", "csn")(), torch.device("cpu"))


def test_without_autocast_nothing_is_cast():
    learner = build("csn", reads=(4,), way=2, network="ffn").double()
    x: Tensor = torch.rand(1, 2, 4, dtype=torch.float64)
    examples = Examples(x, torch.tensor([[0, 1]]))
    assert learner(Episode(examples, examples, 2)).logits.dtype == torch.float64
