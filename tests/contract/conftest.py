"""Every learner and every base learner, small, in double precision: the contract tests run over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from csn.build import build_learner
from csn.networks.keys import MLPKey

from csn.baselines.nearest import NearestNeighbour
from csn.baselines.snail import SNAIL
from csn.config import ModelConfig
from csn.core.base_learner import BaseLearner
from csn.core.neurons import TANH
from csn.episode import Episode, Examples
from csn.learner import FewShotLearner
from csn.networks.cnn import CNN
from csn.networks.ffn import FFN
from csn.networks.resnet import ResNet

WAY = 4
IMAGE = (1, 12, 12)
PHOTO = (3, 16, 17)


@dataclass(frozen=True)
class Case:
    """A learner of WAY ways and tasks for it."""

    name: str
    build: Callable[[], FewShotLearner]
    shape: tuple[int, ...]
    ordered: bool = False
    """The order of the support matters."""
    symmetric: bool = False
    """Permuting the labels permutes the predictions: no output belongs to a class of its own."""
    steps: int = 120
    """After which a trivial task is learned."""

    def learner(self, seed: int = 0) -> FewShotLearner:
        """In evaluation mode; its running statistics are no longer those of a fresh batch norm."""
        torch.manual_seed(seed)
        learner = self.build().eval()
        for module in learner.modules():
            if isinstance(module, torch.nn.Linear) and not module.weight.any():
                torch.nn.init.normal_(module.weight, std=0.3)  # a softmax layer as after some training
        for name, buffer in learner.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)
        return learner

    def examples(self, tasks: int, labels: list[int], seed: int = 1) -> Examples:
        """Random inputs with the given labels in every task."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(tasks, len(labels), *self.shape, generator=generator)
        return Examples(x, torch.tensor(labels, dtype=torch.int64).repeat(tasks, 1))

    def episode(self, tasks: int = 2, way: int = WAY, shot: int = 1, queries: int = 2) -> Episode:
        """Balanced tasks."""
        support = self.examples(tasks, [c for c in range(way) for _ in range(shot)])
        return Episode(support, self.examples(tasks, [c for c in range(way) for _ in range(queries)], seed=2), way)


def csn(name: str, shape: tuple[int, ...], **options: object) -> Case:
    filters = 32 if options.get("norm") == "group" else 8  # 8 groups of 1 filter and 1 pixel would be constant
    config = ModelConfig(filters=filters, width=0.1, units=10, key_size=8, dropout=(0.2, 0.3, 0.3), **options)  # type: ignore[arg-type]
    return Case(name, lambda: build_learner(config, shape, WAY), shape)


def baseline(
    learner: str,
    shape: tuple[int, ...],
    *,
    ordered: bool = False,
    symmetric: bool = True,
    steps: int = 120,
    **options: object,
) -> Case:
    filters = 16 if options.get("norm") == "group" else 8
    config = ModelConfig(learner=learner, filters=filters, key_size=8, **{"units": 10, **options})  # type: ignore[arg-type]
    name = "-".join([learner, *(str(value) for value in options.values())])
    return Case(name, lambda: build_learner(config, shape, WAY), shape, ordered, symmetric, steps)


def small_snail() -> FewShotLearner:
    """The preset's blocks are too large for a quick test."""
    embedding = MLPKey(6, size=8, units=10)
    return SNAIL(embedding, WAY, size=8, filters=12, attention=((8, 8), (16, 16), (16, 16)))


LEARNERS = [
    csn("csn-gradient-cnn", IMAGE, base="cnn", conditioning="gradient"),
    csn("csn-df-cnn", IMAGE, base="cnn", conditioning="df", temperature=10.0),
    csn("csn-gradient-cnn-batch", IMAGE, base="cnn", conditioning="gradient", norm="batch", temperature=10.0),
    csn("csn-df-cnn-batch", IMAGE, base="cnn", conditioning="df", norm="batch"),
    csn("csn-df-cnn-group", IMAGE, base="cnn", conditioning="df", norm="group", temperature=10.0),
    csn("csn-gradient-resnet-batch", PHOTO, base="resnet", conditioning="gradient", norm="batch"),
    csn("csn-df-resnet-batch", PHOTO, base="resnet", conditioning="df", norm="batch", temperature=10.0),
    csn("csn-gradient-ffn", (6,), base="ffn", conditioning="gradient", temperature=10.0),
    csn("csn-df-ffn", (2, 3), base="ffn", conditioning="df"),
    Case("nearest", lambda: NearestNeighbour(WAY), IMAGE, symmetric=True),
    baseline("prototypical", IMAGE),
    baseline("prototypical", IMAGE, distance="cosine", norm="batch", temperature=10.0),
    baseline("prototypical", (2, 3), base="ffn"),
    baseline("matching", IMAGE),
    baseline("matching", IMAGE, norm="batch", temperature=10.0),
    baseline("matching", (6,), ordered=True, base="ffn", context_steps=3),
    baseline("siamese", IMAGE),
    baseline("siamese", (6,), base="ffn"),
    baseline("maml", IMAGE, symmetric=False, norm="group", test_steps=2),
    baseline("maml", (6,), symmetric=False, base="ffn", order="first", rate="one", inner_steps=2),
    baseline("maml", (2, 3), symmetric=False, base="ffn", rate="each", inner_rate=0.1),
    Case("snail", small_snail, (6,), ordered=True, steps=240),
    baseline(
        "mann",
        (6,),
        ordered=True,
        symmetric=False,
        steps=300,
        base="ffn",
        norm="batch",
        units=40,
        memory_rows=20,
        heads=1,
        temperature=10.0,
    ),
    baseline("finetune", IMAGE, norm="batch", inner_steps=20, inner_rate=1.0),
    baseline("finetune", (6,), base="ffn", head="cosine", inner_steps=20, inner_rate=1.0),
    baseline("meta-lstm", (6,), symmetric=False, base="ffn", inner_steps=2),
    baseline("meta-lstm", IMAGE, symmetric=False, norm="group", inner_steps=2, test_steps=3),
    baseline("metanet", IMAGE, ordered=True, symmetric=False),
    baseline("metanet", IMAGE, ordered=True, symmetric=False, temperature=10.0, gradient_parts=2),
]


@dataclass(frozen=True)
class BaseCase:
    """A base learner of WAY outputs."""

    name: str
    build: Callable[[str], BaseLearner]
    shape: tuple[int, ...]


BASES = [
    BaseCase("ffn", lambda rule: FFN(6, WAY, units=5, shift_rule=rule), (6,)),
    BaseCase("ffn-tanh", lambda rule: FFN(6, WAY, units=5, activation=TANH, shift_rule=rule), (2, 3)),
    BaseCase("ffn-softmax-only", lambda rule: FFN(6, WAY, layers=1, shift_rule=rule), (6,)),
    BaseCase("cnn", lambda rule: CNN(IMAGE, WAY, filters=4, dropout=(0.2, 0.3, 0.3), shift_rule=rule), IMAGE),
    BaseCase("cnn-batch", lambda rule: CNN(IMAGE, WAY, filters=4, norm="batch", shift_rule=rule), IMAGE),
    BaseCase("cnn-group", lambda rule: CNN(IMAGE, WAY, filters=8, norm="group", shift_rule=rule), IMAGE),
    BaseCase("resnet", lambda rule: ResNet(PHOTO, WAY, width=0.1, dropout=(0.2, 0.5, 0.5), shift_rule=rule), PHOTO),
    BaseCase("resnet-batch", lambda rule: ResNet(PHOTO, WAY, width=0.1, norm="batch", shift_rule=rule), PHOTO),
    BaseCase("resnet-group", lambda rule: ResNet(PHOTO, WAY, width=0.1, norm="group", shift_rule=rule), PHOTO),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `case`, `csn_case` or `base_case` runs for each of them."""
    for fixture, cases in (
        ("case", LEARNERS),
        ("csn_case", [case for case in LEARNERS if case.name.startswith("csn")]),
        ("base_case", BASES),
    ):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, cases, ids=[case.name for case in cases])


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
