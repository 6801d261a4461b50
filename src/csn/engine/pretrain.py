"""Pretraining: before the first task, the embedding network learns to classify all training classes.

One epoch shows it every class, while a task shows it only five. It uses the loop of csn.engine.train, but counts
examples instead of tasks. As there, step s is a function of (seed, s).

Better pretraining gives better comparisons: it helps to have more classes, a cosine classifier, distortions and
averaged weights (docs/decisions.md has the effect of each).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.matching import MatchingNetwork
from csn.config import Config, PretrainConfig, TrainConfig, config_from_json
from csn.data.images.augment import augmented, share_of_step
from csn.data.source import ClassExamples, EpisodeSource
from csn.engine.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from csn.engine.models import checked_about
from csn.engine.reports import Listener, StepReport, ValidationReport
from csn.engine.train import Outcome, TrainingLoop
from csn.learner import FewShotLearner
from csn.networks.precision import convolving_in
from csn.networks.residual import ResidualKey

FOLDER = "pretraining"  # name of the folder inside a run's folder
CENTRED_ON = 8  # images of each training class
TEMPERATURE = 10.0  # scale of the cosines when validation tasks are answered


class CosineClassifier(nn.Module):
    """Cosines with one direction per class, times a learned scale: (examples, d) -> (examples, classes)."""

    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, size) / size**0.5)
        self.scale = nn.Parameter(torch.tensor(TEMPERATURE))

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.scale * (F.normalize(x, dim=-1) @ F.normalize(self.weight, dim=-1).T)


class PretrainingClassifier(MatchingNetwork):
    """The embedding network with a classifier of all training classes on top.

    It answers validation tasks by attention over the embeddings, without the classifier.
    """

    def __init__(
        self, network: nn.Module, size: int, classes: int, way: int, pretrain: PretrainConfig | None = None
    ) -> None:
        pretrain = pretrain or PretrainConfig()
        super().__init__(network, way, size=size, temperature=TEMPERATURE)
        for parameter in self.parameters():
            parameter.requires_grad_(parameter is not self.log_scale)
        linear = pretrain.classifier == "linear"
        self.classifier = nn.Linear(size, classes) if linear else CosineClassifier(size, classes)
        self.average = copy.deepcopy(network).requires_grad_(False) if pretrain.average else None

    def classify(self, x: Tensor) -> Tensor:
        """(examples, *input) -> logits (examples, training classes)."""
        return self.classifier(self.embedding(x))

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """Move the running average: `decay` times the average plus (1 - decay) times the current weights."""
        assert self.average is not None
        pairs = zip(self.average.state_dict().values(), self.embedding.state_dict().values(), strict=True)
        for mean, value in pairs:
            if mean.is_floating_point():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)


class Pretrained(NamedTuple):
    """The pretrained network of a run: its checkpoints and the log of the pretraining."""

    checkpoints: dict[str, tuple[dict[str, Tensor], dict[str, Any]]]
    log: bytes


class PretrainTrainer(TrainingLoop):
    """Pretrains a learner's embedding network in place, and restores its best weights on validation tasks at the end.

    The other arguments are those of TrainingLoop.

    Args:
        learner: The learner whose embedding network is pretrained.
        size: Numbers in one embedding.
        pretrain: The options of pretraining.
        config: The options of training. The seed, clipping and validation tasks are taken from it.
        classes: The training classes.
        validation: The source of the validation tasks.
    """

    unit = "examples"
    learner: PretrainingClassifier

    def __init__(
        self,
        learner: FewShotLearner[Any],
        size: int,
        pretrain: PretrainConfig,
        config: TrainConfig,
        classes: ClassExamples,
        validation: EpisodeSource,
        folder: Path,
        *,
        about: dict[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_options(pretrain)
        views = 2 if pretrain.mirror else 1
        per_epoch = views * len(classes.x) // pretrain.batch * pretrain.batch
        if per_epoch == 0:
            raise ValueError(
                f"pretrain.batch asks for {pretrain.batch} examples, but the data has only {views * len(classes.x)}: "
                f"ask for fewer"
            )
        config = dataclasses.replace(
            config,
            tasks=pretrain.epochs * per_epoch,
            tasks_per_step=pretrain.batch,
            micro_tasks=None,
            optimizer=pretrain.optimizer or config.optimizer,
            learning_rate=pretrain.learning_rate,
            schedule="cosine",
            augment=config.augment if pretrain.augment is None else pretrain.augment,
            validate_every=per_epoch,
            patience=None,
        )
        network = learner.embedding_network
        if network is None:
            raise ValueError(f"{type(learner).__name__} has no embedding network to pretrain: set pretrain.epochs=0")
        classifier = PretrainingClassifier(network, size, views * len(classes), learner.way, pretrain)
        super().__init__(classifier, config, folder, about=about, device=device)
        if pretrain.optimizer == "sgd":
            self.optimizer = nesterov(classifier, pretrain)
        self.pretrain, self.classes, self.validation, self.per_epoch = pretrain, classes, validation, per_epoch
        labels = torch.arange(len(classes)).repeat_interleave(torch.from_numpy(classes.counts))
        self.labels = torch.cat([labels + view * len(classes) for view in range(views)])
        self._order = functools.lru_cache(maxsize=1)(self._shuffled)

    def run(self, listener: Listener | None = None, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Run the loop, then give the network its best weights."""
        outcome = super().run(listener, should_stop)
        if outcome == "finished":
            tensors, _ = self.ranks.loaded(self.folder / "best.safetensors")
            self.learner.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
            network = self.learner.embedding
            if isinstance(network, ResidualKey) and network.centre is not None:
                number = np.concatenate([np.arange(count) for count in self.classes.counts])  # within the class
                network.centre_on(self.classes.at(np.flatnonzero(number < CENTRED_ON)).to(self.device))
        return outcome

    def _shuffled(self, epoch: int) -> Tensor:
        """The order of the examples in an epoch. Examples left over after the last full batch are left out."""
        return torch.from_numpy(np.random.default_rng([self.config.seed, epoch]).permutation(len(self.labels)))

    def _rate(self) -> float:
        """The learning rate: a linear warm-up, times the cosine decay of csn.engine.train."""
        rising = self.pretrain.warm_up * self.config.tasks
        return min(1.0, (self.tasks + self.pretrain.batch) / rising if rising else 1.0) * super()._rate()

    def _step(self) -> StepReport:
        size = self.config.tasks_per_step
        epoch, done = divmod(self.tasks, self.per_epoch)
        share = self.ranks.share(size)
        rows = self._order(epoch)[done : done + size][share.cut]
        self._seed_step()
        x, labels = self._examples(rows), self.labels[rows].to(self.device)
        if self.config.augment:
            with share_of_step(*share):
                how = self.pretrain
                x = augmented(x, self.config.augment, how.redraw, how.bend, how.framing)
        self._seed_share(share)
        with convolving_in(self.pretrain.precision, torch.device(self.device)):
            logits = self._call("classify", x.to(self.device))
        error = F.cross_entropy(promoted_to_float32(logits), labels, label_smoothing=self.pretrain.label_smoothing)
        loss = self._descend([error], size, share.weight)
        if self.learner.average is not None:
            self.learner.update_average(min(self.pretrain.average, 1 - 1 / (self.tasks // size)))
        return StepReport(self.tasks, loss, share.weight * float((logits.argmax(-1) == labels).double().mean()))

    def _examples(self, rows: Tensor) -> Tensor:
        """The training examples of these rows. A row beyond the number of examples means a mirror image."""
        x, mirrored = self.classes.at(rows % len(self.classes.x)), rows >= len(self.classes.x)
        if mirrored.any():
            x = torch.where(mirrored[:, None, None, None].to(x.device), x.flip(-1), x)
        return x

    def _validate(self) -> ValidationReport:
        """Validate and keep the averaged weights if there is an average. Otherwise use the trained ones."""
        learner = self.learner
        if learner.average is None:
            return super()._validate()
        trained, learner.embedding = learner.embedding, learner.average
        try:
            return super()._validate()
        finally:
            learner.embedding = trained


def promoted_to_float32(logits: Tensor) -> Tensor:
    """Logits in a precision in which a loss can be computed."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def check_options(pretrain: PretrainConfig) -> None:
    """Raise ValueError unless pretraining is possible with these options."""
    if pretrain.epochs < 1 or pretrain.batch < 1:
        raise ValueError(
            f"pretrain.epochs and pretrain.batch must be at least 1, got {pretrain.epochs} and {pretrain.batch}"
        )
    if not 0 <= pretrain.bend < math.inf:
        raise ValueError(f"pretrain.bend must be 0 or more, got {pretrain.bend}")
    for name in ("warm_up", "label_smoothing", "average"):
        value = getattr(pretrain, name)
        if not 0 <= value < 1:
            raise ValueError(f"pretrain.{name} must be at least 0 and less than 1, got {value}")


def nesterov(learner: nn.Module, pretrain: PretrainConfig) -> torch.optim.Optimizer:
    """SGD as it is usual for classifiers: Nesterov momentum, and weight decay on everything except a scale."""
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [parameter for parameter in trained if parameter.ndim > 0]},
        {"params": [parameter for parameter in trained if parameter.ndim == 0], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=pretrain.learning_rate,
        momentum=pretrain.momentum,
        weight_decay=pretrain.weight_decay,
        nesterov=True,
        fused=True,
    )


def frozen_network(learner: FewShotLearner[Any], pretrain: PretrainConfig) -> nn.Module | None:
    """The network that keeps its pretrained weights while tasks are trained, or None."""
    if pretrain.keep and not pretrain.epochs:
        raise ValueError("pretrain.keep needs a pretrained network: set pretrain.epochs, or leave it out")
    return learner.embedding_network if pretrain.keep else None


def pretrained_alike(one: Config, other: Config) -> bool:
    """Whether both configurations pretrain the same network on the same classes with the same options and seed.

    Two differences are ignored. Presets that differ in train.clip share their pretraining, although it is clipped too.
    The way in which tasks use the network later makes no difference either.
    """
    first, second = (dataclasses.replace(config.pretrain, keep=False) for config in (one, other))
    return (
        (first, one.data.name, one.data.image_size) == (second, other.data.name, other.data.image_size)
        and (one.train.seed, _augment(one)) == (other.train.seed, _augment(other))
        and _key_network(one) == _key_network(other)
    )


def _augment(config: Config) -> float:
    """The strength of the distortions during pretraining."""
    return config.train.augment if config.pretrain.augment is None else config.pretrain.augment


def _key_network(config: Config) -> dict[str, Any]:
    """The options that the embedding network is made of, whichever learner uses it."""
    key = config.as_dict()["key"]
    if config.key is not None:
        key = {name: value for name, value in key.items() if name not in config.key.test_only}
        if not config.key.asks_network:
            return {"key": key}
    network = config.as_dict()["network"] or {}
    base_only = config.network.base_only if config.network else ()
    return {"key": key, "network": {n: value for n, value in network.items() if n not in base_only}}


def is_pretrained(run: Path) -> bool:
    """Whether a run has finished its pretraining and gone on to tasks."""
    return (run / FOLDER / "best.safetensors").exists() and (run / "last.safetensors").exists()


def check_pretrained(run: Path, trainer: PretrainTrainer, config: Config) -> Pretrained:
    """Load the pretrained network of another run. Raise ValueError if this trainer cannot use it."""
    if not is_pretrained(run):
        raise ValueError(
            f"{run} has not finished a pretraining and gone on to tasks: give another run, or leave out --pretrained"
        )
    found = {name: load_checkpoint(run / FOLDER / name) for name in ("best.safetensors", "last.safetensors")}
    shapes = {n: tensor.shape for n, tensor in _tensors(trainer).items() if not n.endswith(".centre")}
    for tensors, metadata in found.values():
        about = checked_about(run / FOLDER, metadata)
        same_input = all(about.get(name) == trainer.about.get(name) for name in ("input", "vocabulary"))
        same_network = all(name in tensors and tensors[name].shape == shape for name, shape in shapes.items())
        alike = pretrained_alike(config, config_from_json(json.dumps(about["config"])))
        if not (same_input and same_network and alike):
            raise ValueError(
                f"{run} was pretrained on other classes, with other options or with another network: give a run of the "
                f"same data, network, seed and pretraining, or leave out --pretrained"
            )
    log = run / FOLDER / "log.jsonl"  # says how long the pretraining took
    return Pretrained(found, log.read_bytes() if log.exists() else b"")


def copy_pretrained(pretrained: Pretrained, trainer: PretrainTrainer) -> None:
    """Copy the pretrained network of another run into a trainer's folder, so that it is not pretrained again."""
    if pretrained.log:
        write_atomically(trainer.folder / "log.jsonl", pretrained.log)
    centres = {name: tensor for name, tensor in _tensors(trainer).items() if name.endswith(".centre")}
    for name, (tensors, metadata) in pretrained.checkpoints.items():  # last.safetensors comes last: resuming needs it
        tensors = {n: tensor for n, tensor in tensors.items() if not n.endswith(".centre")} | centres
        save_checkpoint(trainer.folder / name, tensors, metadata | {"about": trainer.about})


def _tensors(trainer: PretrainTrainer) -> dict[str, Tensor]:
    """The tensors of a trainer's network, with their names in a checkpoint."""
    return {f"model.{name}": tensor for name, tensor in trainer.learner.state_dict().items()}
