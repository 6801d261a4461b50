"""Every learner and every base learner, small, in double precision: the contract tests run over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from csn.baselines.finetune import FineTunedOptions
from csn.baselines.maml import MAMLOptions
from csn.baselines.mann import MANNOptions
from csn.baselines.matching import MatchingOptions
from csn.baselines.meta_lstm import MetaLSTMOptions
from csn.baselines.metanet import MetaNetOptions
from csn.baselines.nearest import NearestOptions
from csn.baselines.prototypical import PrototypicalOptions
from csn.baselines.siamese import SiameseOptions
from csn.baselines.snail import SNAIL
from csn.building import build
from csn.core.base_learner import BaseLearner
from csn.core.model import CSNOptions
from csn.core.neurons import TANH
from csn.core.parts import LearnerOptions, NetworkKey, NetworkOptions
from csn.episode import Episode, Examples
from csn.learner import FewShotLearner
from csn.networks.cnn import CNN, CNNOptions
from csn.networks.ffn import FFN, FFNOptions, MLPKey
from csn.networks.resnet import ResNet, ResNetOptions

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


KEY = NetworkKey(size=8)
DROPOUT = (0.2, 0.3, 0.3)
FFN_10 = FFNOptions(units=10)
CNN_8 = CNNOptions(filters=8)


def csn(name: str, shape: tuple[int, ...], network: NetworkOptions, **options: Any) -> Case:
    return Case(name, lambda: build(CSNOptions(**options), reads=shape, way=WAY, network=network, key=KEY), shape)


def baseline(
    name: str,
    shape: tuple[int, ...],
    learner: LearnerOptions,
    network: NetworkOptions | None = CNN_8,
    *,
    ordered: bool = False,
    symmetric: bool = True,
    steps: int = 120,
) -> Case:
    def built() -> FewShotLearner:
        return build(learner, reads=shape, way=WAY, network=network, key=KEY if learner.uses_key else None)

    return Case(name, built, shape, ordered, symmetric, steps)


def small_snail() -> FewShotLearner:
    """The preset's blocks are too large for a quick test."""
    embedding = MLPKey(6, size=8, units=10)
    return SNAIL(embedding, WAY, size=8, filters=12, attention=((8, 8), (16, 16), (16, 16)))


LEARNERS = [
    csn("csn-gradient-cnn", IMAGE, CNNOptions(filters=8, dropout=DROPOUT), conditioning="gradient"),
    csn("csn-df-cnn", IMAGE, CNNOptions(filters=8, dropout=DROPOUT), conditioning="df", temperature=10.0),
    csn(
        "csn-gradient-cnn-batch",
        IMAGE,
        CNNOptions(filters=8, dropout=DROPOUT, norm="batch"),
        conditioning="gradient",
        temperature=10.0,
    ),
    csn("csn-df-cnn-batch", IMAGE, CNNOptions(filters=8, dropout=DROPOUT, norm="batch"), conditioning="df"),
    csn(
        "csn-df-cnn-group",  # 8 groups of 1 filter and 1 pixel would be constant
        IMAGE,
        CNNOptions(filters=32, dropout=DROPOUT, norm="group"),
        conditioning="df",
        temperature=10.0,
    ),
    csn(
        "csn-df-cnn-shared-stem",
        IMAGE,
        CNNOptions(filters=8, norm="batch", shared_stem=True),
        conditioning="df",
        temperature=10.0,
    ),
    csn(
        "csn-gradient-resnet-shared-stem",
        PHOTO,
        ResNetOptions(width=0.1, units=10, norm="batch", shared_stem=True),
        conditioning="gradient",
        temperature=10.0,
    ),
    csn(
        "csn-gradient-resnet-batch",
        PHOTO,
        ResNetOptions(width=0.1, units=10, dropout=DROPOUT, norm="batch"),
        conditioning="gradient",
    ),
    csn(
        "csn-df-resnet-batch",
        PHOTO,
        ResNetOptions(width=0.1, units=10, dropout=DROPOUT, norm="batch"),
        conditioning="df",
        temperature=10.0,
    ),
    csn("csn-gradient-ffn", (6,), FFNOptions(units=10, dropout=0.2), conditioning="gradient", temperature=10.0),
    csn("csn-df-ffn", (2, 3), FFNOptions(units=10, dropout=0.2), conditioning="df"),
    Case("nearest", lambda: build(NearestOptions(), reads=IMAGE, way=WAY, network=None), IMAGE, symmetric=True),
    baseline("prototypical", IMAGE, PrototypicalOptions()),
    baseline(
        "prototypical-cosine-batch-10.0",
        IMAGE,
        PrototypicalOptions(distance="cosine", temperature=10.0),
        CNNOptions(filters=8, norm="batch"),
    ),
    baseline("prototypical-ffn", (2, 3), PrototypicalOptions(), FFN_10),
    baseline("matching", IMAGE, MatchingOptions()),
    baseline("matching-batch-10.0", IMAGE, MatchingOptions(temperature=10.0), CNNOptions(filters=8, norm="batch")),
    baseline("matching-ffn-3", (6,), MatchingOptions(context_steps=3), FFN_10, ordered=True),
    baseline("siamese", IMAGE, SiameseOptions()),
    baseline("siamese-ffn", (6,), SiameseOptions(), FFN_10),
    baseline("maml-group-2", IMAGE, MAMLOptions(test_steps=2), CNNOptions(filters=16, norm="group"), symmetric=False),
    baseline("maml-support", IMAGE, MAMLOptions(), CNNOptions(filters=8, norm="support"), symmetric=False),
    baseline("maml-ffn-one-2", (6,), MAMLOptions(order="first", rate="one", inner_steps=2), FFN_10, symmetric=False),
    baseline("maml-ffn-each", (2, 3), MAMLOptions(rate="each", inner_rate=0.1), FFN_10, symmetric=False),
    Case("snail", small_snail, (6,), ordered=True, steps=240),
    baseline(
        "mann-ffn",
        (6,),
        MANNOptions(units=40, rows=20, heads=1, temperature=10.0),
        FFNOptions(units=40),
        ordered=True,
        symmetric=False,
        steps=300,
    ),
    baseline("finetune-batch", IMAGE, FineTunedOptions(steps=20, rate=1.0), CNNOptions(filters=8, norm="batch")),
    baseline("finetune-ffn-cosine", (6,), FineTunedOptions(head="cosine", steps=20, rate=1.0), FFN_10),
    baseline("meta-lstm-ffn", (6,), MetaLSTMOptions(inner_steps=2), FFN_10, symmetric=False),
    baseline(
        "meta-lstm-group",
        IMAGE,
        MetaLSTMOptions(inner_steps=2, test_steps=3),
        CNNOptions(filters=16, norm="group"),
        symmetric=False,
    ),
    baseline("metanet", IMAGE, MetaNetOptions(filters=8, size=8), None, ordered=True, symmetric=False),
    baseline(
        "metanet-10.0-2",
        IMAGE,
        MetaNetOptions(filters=8, size=8, temperature=10.0, parts=2),
        None,
        ordered=True,
        symmetric=False,
    ),
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
def _double(float64: None) -> None:
    """Every contract is checked in double precision."""
