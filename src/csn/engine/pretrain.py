"""Before any task: the network whose outputs are compared learns to name all training classes, as a plain classifier.

A pass over the training examples shows it every class at once, where a task shows it five. It is the loop of
csn.engine.train with examples where that has tasks; as there, step s is a function of (seed, s).
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.embedding import EmbeddingLearner
from csn.baselines.matching import MatchingNetwork
from csn.config import Config, NamingConfig, TrainConfig, config_from_json
from csn.core.model import CSN
from csn.data.images.augment import augmented
from csn.data.source import ClassExamples, EpisodeSource, as_input
from csn.engine.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from csn.engine.train import Listener, Outcome, StepReport, TrainingLoop
from csn.learner import FewShotLearner

FOLDER = "naming"  # of a run
TEMPERATURE = 10.0  # of the cosines by which validation tasks are answered
# What the network is made of, whoever compares its outputs.
_NETWORK = (
    *("base", "filters", "width", "units", "layers", "norm", "precision", "key_size"),
    *("key", "until", "neighbours", "key_layers", "embedding", "embedding_dropout"),
)


class Namer(MatchingNetwork):
    """The network under a linear layer that names training classes; tasks it answers by attention over its outputs."""

    def __init__(self, network: nn.Module, size: int, classes: int, way: int) -> None:
        super().__init__(network, way, size=size, temperature=TEMPERATURE)
        for parameter in self.parameters():
            parameter.requires_grad_(parameter is not self.log_scale)
        self.names = nn.Linear(size, classes)

    def name(self, x: Tensor) -> Tensor:
        """(examples, *input) -> logits (examples, training classes)."""
        return self.names(self.embedding(x))


class Named(NamedTuple):
    """The named network of a run: its checkpoints and the log of its naming."""

    checkpoints: dict[str, tuple[dict[str, Tensor], dict[str, Any]]]
    log: bytes


class NamingTrainer(TrainingLoop):
    """Trains a learner's network in place, and leaves it as it was when it answered validation tasks best."""

    unit = "examples"
    learner: Namer

    def __init__(
        self,
        learner: FewShotLearner,
        size: int,
        naming: NamingConfig,
        config: TrainConfig,
        classes: ClassExamples,
        validation: EpisodeSource,
        folder: Path,
        *,
        about: dict[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if naming.epochs < 1 or naming.batch < 1:
            raise ValueError(f"naming takes at least one epoch of batches of one, got {naming.epochs}, {naming.batch}")
        per_epoch = len(classes.x) // naming.batch * naming.batch
        if per_epoch == 0:
            raise ValueError(
                f"naming.batch asks for {naming.batch} examples, the data has {len(classes.x)}: ask for fewer"
            )
        config = dataclasses.replace(
            config,
            tasks=naming.epochs * per_epoch,
            tasks_per_step=naming.batch,
            learning_rate=naming.learning_rate,
            schedule="cosine",
            validate_every=per_epoch,
            patience=None,
        )
        namer = Namer(network_of(learner), size, len(classes), learner.way)
        super().__init__(namer, config, folder, about=about, device=device)
        self.classes, self.validation, self.per_epoch = classes, validation, per_epoch
        self.labels = torch.arange(len(classes)).repeat_interleave(torch.from_numpy(classes.counts))
        self._order = functools.lru_cache(maxsize=1)(self._shuffled)

    def run(self, listener: Listener | None = None, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """As every loop, and then the network is the best one."""
        outcome = super().run(listener, should_stop)
        if outcome == "finished":
            tensors, _ = load_checkpoint(self.folder / "best.safetensors")
            self.learner.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
        return outcome

    def _shuffled(self, epoch: int) -> Tensor:
        """The order of the examples in a pass; those that fill no batch wait for the next one."""
        return torch.from_numpy(np.random.default_rng([self.config.seed, epoch]).permutation(len(self.classes.x)))

    def _step(self) -> StepReport:
        size = self.config.tasks_per_step
        epoch, done = divmod(self.tasks, self.per_epoch)
        rows = self._order(epoch)[done : done + size]
        self._seed_step()
        x, labels = as_input(self.classes.x[rows]), self.labels[rows].to(self.device)
        if self.config.augment:
            x = augmented(x, self.config.augment)
        logits = self.learner.name(x.to(self.device))
        loss = self._descend(F.cross_entropy(logits, labels), size)
        return StepReport(self.tasks, loss, float((logits.argmax(-1) == labels).double().mean()))


def network_of(learner: FewShotLearner) -> nn.Module:
    """The network whose outputs a learner compares."""
    if isinstance(learner, CSN):
        return learner.key_function
    if isinstance(learner, EmbeddingLearner):
        return learner.embedding
    raise ValueError(
        f"{type(learner).__name__} compares no outputs of one network, so that none can learn names first: set "
        f"naming.epochs=0"
    )


def named_alike(one: Config, other: Config) -> bool:
    """Whether the same network learns the same names in both, by the same options and seed.

    But for train.clip, by which naming clips too: presets that differ in it share their names.
    """
    return (
        (one.naming, one.data.name, one.data.image_size) == (other.naming, other.data.name, other.data.image_size)
        and (one.train.seed, one.train.augment) == (other.train.seed, other.train.augment)
        and all(getattr(one.model, name) == getattr(other.model, name) for name in _NETWORK)
    )


def has_named(run: Path) -> bool:
    """Whether a run has learned all names, and gone on to tasks."""
    return (run / FOLDER / "best.safetensors").exists() and (run / "last.safetensors").exists()


def check_named(run: Path, trainer: NamingTrainer, config: Config) -> Named:
    """The named network of another run, as a trainer of the same names can take it over; a ValueError if it cannot."""
    if not has_named(run):
        raise ValueError(f"{run} has not learned names and gone on to tasks: give another run, or leave out --named")
    found = {name: load_checkpoint(run / FOLDER / name) for name in ("best.safetensors", "last.safetensors")}
    shapes = {f"model.{name}": tensor.shape for name, tensor in trainer.learner.state_dict().items()}
    for tensors, metadata in found.values():
        about = metadata["about"]
        same_input = all(about.get(name) == trainer.about.get(name) for name in ("input", "vocabulary"))
        same_network = all(name in tensors and tensors[name].shape == shape for name, shape in shapes.items())
        alike = named_alike(config, config_from_json(json.dumps(about["config"])))
        if not (same_input and same_network and alike):
            raise ValueError(
                f"{run} named other classes, by other options or with another network: give a run of the same data, "
                f"network, seed and naming, or leave out --named"
            )
    log = run / FOLDER / "log.jsonl"  # what it took
    return Named(found, log.read_bytes() if log.exists() else b"")


def take_over(named: Named, trainer: NamingTrainer) -> None:
    """Give a trainer's folder the named network of another run: it need not learn the names again."""
    if named.log:
        write_atomically(trainer.folder / "log.jsonl", named.log)
    for name, (tensors, metadata) in named.checkpoints.items():  # last.safetensors, by which to go on, as the last
        save_checkpoint(trainer.folder / name, tensors, metadata | {"about": trainer.about})
