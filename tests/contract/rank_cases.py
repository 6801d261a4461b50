"""Small trainings that any number of ranks must carry out alike; as a program, one of those ranks."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csn.baselines.lstm_lm import LanguageModel
from csn.building import build
from csn.config import PretrainConfig, TrainConfig
from csn.core.parts import NetworkKey
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.data.text.toy_language import toy_text
from csn.data.varied import VariedSource
from csn.engine.distributed import Ranks, connected
from csn.engine.language import LanguageTrainer
from csn.engine.pretrain import PretrainTrainer
from csn.engine.reports import StepReport
from csn.engine.train import Trainer, TrainingLoop
from csn.learner import FewShotLearner
from csn.networks.cnn import CNNOptions
from csn.networks.graft import graft

IMAGE, WAY = (1, 8, 8), 3
# Five tasks a step are shared out as 3 and 2, or 2, 1, 1 and 1.
TRAIN = TrainConfig(tasks=15, tasks_per_step=5, validate_every=10, validation_tasks=30, optimizer="sgd", clip=1.0)
TRAIN = dataclasses.replace(TRAIN, learning_rate=0.05)
LEARNERS: dict[str, dict[str, Any]] = {
    "df": {"feedback": "detached"},
    "df-end-to-end": {"feedback": "end-to-end"},
    "gradient": {"conditioning": "gradient"},
    "batch-norm": {"norm": "batch"},
    "gradient-batch-norm": {"conditioning": "gradient", "norm": "batch"},
    "varied": {"source": VariedSource, "shot": 3, "norm": "batch"},
    "augmented": {"train": {"augment": 1.0}},
    "adam": {"train": {"optimizer": "adam", "learning_rate": 0.01}},
    "micro": {"train": {"micro_tasks": 1}, "feedback": "end-to-end"},
    "maml": {"name": "maml", "inner_steps": 2},
    "graft": {"name": "graft"},
    "graft-micro": {"name": "graft", "conditioning": "gradient", "train": {"micro_tasks": 1}},
}


def data() -> Dataset:
    rng = np.random.default_rng(0)

    def split(prefix: str) -> ClassExamples:
        x = rng.random((6, 1, *IMAGE)) + 0.5 * rng.random((6, 9, *IMAGE))
        return ClassExamples(
            torch.from_numpy(x.reshape(-1, *IMAGE)), np.full(6, 9), tuple(f"{prefix}{c}" for c in range(6))
        )

    return Dataset("noise", {"train": split("train"), "val": split("val")})


def grafted(**options: Any) -> FewShotLearner[Any]:
    """A network of somebody else with shifted neurons."""
    parts = [nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Flatten()]
    network = nn.Sequential(*parts, nn.Linear(4 * 64, WAY))
    key = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    return graft(network, layers=["1", "3", "5"], way=WAY, key=key, stem="0", reads=IMAGE, **options)


def trainer(case: str, folder: Path) -> TrainingLoop:
    torch.manual_seed(3)
    if case == "language":
        text = toy_text()
        text = dataclasses.replace(text, train=text.train[:60], val=text.val[:24])
        model = LanguageModel(len(text.vocabulary), 5, embedding=6, units=6, layers=1)
        validation = EpisodeSource(text.tasks, "val", way=5, shot=1, queries=1, seed=0, support="words")
        return LanguageTrainer(model, TRAIN, text, validation, folder)
    options = dict(LEARNERS.get(case, {"norm": "batch"}))
    config = dataclasses.replace(TRAIN, **options.pop("train", {}))
    source, shot = options.pop("source", EpisodeSource), options.pop("shot", 1)
    network = CNNOptions(filters=4, norm=options.pop("norm", "none"))
    name = options.pop("name", "csn")
    key = NetworkKey(size=6) if name == "csn" else None
    if name == "graft":
        learner = grafted(**options)
    else:
        learner = build(name, reads=IMAGE, way=WAY, network=network, key=key, **options)
    with torch.no_grad():  # where all start alike, a rounding error decides between two answers
        for parameter in learner.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    training = source(data(), "train", way=WAY, shot=shot, queries=2, seed=1)
    validation = EpisodeSource(data(), "val", way=WAY, shot=1, queries=2, seed=2)
    if case == "pretraining":
        pretrain = PretrainConfig(epochs=2, batch=13)
        config = dataclasses.replace(config, augment=0.5)
        return PretrainTrainer(learner, 6, pretrain, config, training.classes, validation, folder)
    return Trainer(learner, config, training, validation, folder)


CASES = [*LEARNERS, "language", "pretraining"]


def outcome(case: str, ranks: Ranks, folder: Path) -> dict[str, Tensor]:
    """What a training leaves: losses, accuracies of its steps and of validations, parameters and buffers."""
    loop = trainer(case, folder)
    loop.ranks = ranks
    reports: list[Any] = []
    assert loop.run(reports.append) == "finished"
    steps = [[report.loss, report.accuracy] for report in reports if isinstance(report, StepReport)]
    found = [
        [each.accuracy, each.interval, each.perplexity or 0] for each in reports if not isinstance(each, StepReport)
    ]
    state = {f"model.{name}": tensor.detach().clone() for name, tensor in loop.learner.state_dict().items()}
    return {"steps": torch.tensor(steps), "validations": torch.tensor(found), **state}


def outcomes(ranks: Ranks, folder: Path) -> dict[str, dict[str, Tensor]]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return {case: outcome(case, ranks, folder / case) for case in CASES}
    finally:
        torch.set_default_dtype(before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with connected() as ranks, tempfile.TemporaryDirectory() as scratch:
        everyone = outcomes(ranks, Path(scratch))
        torch.save(everyone, Path(sys.argv[1]) / f"{ranks.world}-{ranks.rank}.pt")
