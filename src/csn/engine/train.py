"""Training in episodes with the task loss of section 2.2.

Everything random in step s is a function of (seed, s). The learning rate is a function of the number of tasks seen. A
checkpoint therefore holds only the weights, the optimizer's state and a counter. A resumed run equals an uninterrupted
one to the bit. If there are several ranks, each computes its share of a step (csn.engine.distributed).
"""

from __future__ import annotations

import functools
import math
import operator
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from csn.allocator import keep_freed_memory
from csn.config import TrainConfig
from csn.core.shortcuts.products import Products, choose, chosen
from csn.data.images.augment import augment, share_of_step
from csn.data.images.streaming import AheadSource
from csn.data.source import EpisodeSource
from csn.data.varied import VariedSource
from csn.engine.checkpoint import load_checkpoint, optimizer_tensors, restore_optimizer, save_checkpoint
from csn.engine.compiling import Step, compiled
from csn.engine.distributed import ALONE, Ranks, Share, SharedError
from csn.engine.evaluate import Accuracy, evaluate, summarise, task_accuracies
from csn.engine.lock import FolderLock
from csn.engine.models import UNBUILT
from csn.engine.optimizing import build_optimizer, check_counts, learning_rate
from csn.engine.reports import Listener, StepReport, ValidationReport
from csn.episode import Episode
from csn.learner import EpisodeOutput, FewShotLearner

LOG_EVERY = 100  # tasks
SAVE_EVERY = 300.0  # the most seconds of training that a power cut costs; every validation saves too

Outcome = Literal["finished", "interrupted", "out of patience"]


class TrainingLoop(ABC):
    """Runs steps and validations, and writes two checkpoints.

    `last.safetensors` is the one to resume from. `best.safetensors` has the highest score on validation tasks.

    Args:
        learner: The learner to train. It is moved to the device.
        config: The options of training.
        folder: The folder of the checkpoints.
        about: The checkpoints' description of the run. A checkpoint with another `about` is refused.
        device: The device to train on.
    """

    unit = "tasks"
    first: TrainingLoop | None = None
    """The loop to run before this one, on parts of the same learner."""
    lock: FolderLock | None = None
    """The lock that keeps other processes from training in this folder."""
    ranks: Ranks = ALONE
    """The processes that train together."""
    products: Products | None = None
    """The library that multiplied matrices on the machine where this run began."""
    validation: EpisodeSource

    def __init__(
        self,
        learner: FewShotLearner[Any],
        config: TrainConfig,
        folder: Path,
        *,
        about: dict[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_counts(config)
        keep_freed_memory()
        self.learner, self.config, self.folder = learner.to(device), config, folder
        self.about, self.device = about or {}, device
        self.optimizer = build_optimizer(learner, config)
        self.tasks, self.best, self.since_best = 0, -1.0, 0
        self.unlogged: deque[StepReport] = deque(maxlen=LOG_EVERY)  # since the last record of the log

    @property
    def last(self) -> Path:
        """The path of the checkpoint to resume from."""
        return self.folder / "last.safetensors"

    def resume(self, same: Callable[[dict[str, Any], dict[str, Any]], bool] = operator.eq) -> None:
        """Resume from `last.safetensors`.

        Args:
            same: Whether the checkpoint's `about` (first argument) fits this trainer's (second argument).
        """
        tensors, metadata = self.ranks.loaded(self.last)
        try:
            is_same = same(metadata["about"], self.about)
        except UNBUILT:  # another program wrote the file
            is_same = False
        if not is_same:
            raise ValueError(
                f"{self.last} belongs to another configuration: resume with the options of its training (at a "
                f"constant rate also for more tasks), or train into another folder"
            )
        try:
            self.learner.load_state_dict({n[6:]: tensor for n, tensor in tensors.items() if n.startswith("model.")})
            restore_optimizer(self.optimizer, tensors)
            self.tasks, self.since_best = int(metadata["tasks"]), int(metadata["since_best"])
            self.best = float(metadata["best"])
            self.unlogged.extend(StepReport(*values) for values in metadata.get("unlogged", ()))
            self.products = metadata.get("products", "torch")
        except UNBUILT as error:
            raise ValueError(
                f"{self.last} is not a checkpoint to resume from ({' '.join(str(error).split())[:200]}): take another "
                f"copy, or train into another folder"
            ) from error
        if self.best >= 0:  # check it now: a damaged file would stay until a better model replaces it, perhaps for ever
            self.ranks.first_only(lambda: load_checkpoint(self.folder / "best.safetensors")[1])

    def run(self, listener: Listener | None = None, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train until the configured number of tasks is reached, patience runs out, or a stop is requested.

        Args:
            listener: Called with a report after every step and every validation.
            should_stop: Called before every step. It says whether to stop.
        """
        tell = listener or (lambda report: None)
        self.check_shares()
        # The probe may find another library faster in another process, but all processes must compute alike.
        choose(self.products if self.ranks.is_alone else self.products or self.ranks.first_only(chosen))
        self.learner.train()
        saved = time.monotonic()
        is_stopped = not self.ranks.is_alone and self.ranks.stopped(should_stop())
        while self.tasks < self.config.tasks:
            if self.config.patience is not None and self.since_best > self.config.patience:
                return "out of patience"
            if is_stopped or (self.ranks.is_alone and should_stop()):
                self._save()
                return "interrupted"
            before = self.tasks
            report, is_stopped, is_due = self._agreed(self._step(), should_stop, time.monotonic() - saved >= SAVE_EVERY)
            self.unlogged.append(report)
            tell(report)
            if self.tasks // self.config.validate_every > before // self.config.validate_every or self.done:
                tell(self._validate())
            elif not is_due:
                continue
            self._save()
            saved = time.monotonic()
        return "finished"

    def check_shares(self) -> None:
        """Raise ValueError unless every rank has something to do in every step."""
        size, world = self.config.tasks_per_step, self.ranks.world
        least = min(size, self.config.tasks % size or size)
        if least < world:
            what = f"a step of {size} {self.unit}" if least == size else f"a last step of {least} {self.unit}"
            error = ValueError if self.ranks.is_first else SharedError
            raise error(
                f"{world} processes cannot share {what}: start fewer, or raise train.tasks_per_step (of a pretraining, "
                f"pretrain.batch) and let train.tasks be a multiple of it"
            )
        normed = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in self.learner.modules())
        if world > 1 and self.config.micro_tasks is not None and normed:
            raise (ValueError if self.ranks.is_first else SharedError)(
                "train.micro_tasks with batch norm needs a single process: leave it out, because processes share a step"
            )

    def _agreed(
        self, report: StepReport, should_stop: Callable[[], bool], is_due: bool
    ) -> tuple[StepReport, bool, bool]:
        """The report of the whole step, whether any rank was asked to stop, and whether rank 0 is due to save."""
        is_stopped = False
        if not self.ranks.is_alone:
            due = is_due and self.ranks.is_first
            loss, accuracy, stops, saves = self.ranks.total(report.loss, report.accuracy, should_stop(), due)
            report, is_stopped, is_due = StepReport(report.tasks, loss, accuracy), stops > 0, saves > 0
        if not math.isfinite(report.loss):
            error = ValueError if self.ranks.is_first else SharedError
            raise error(
                f"the loss is {report.loss} after {self.tasks} {self.unit}: lower train.learning_rate or set train.clip"
            )
        return report, is_stopped, is_due

    @property
    def done(self) -> bool:
        """Whether nothing is left to train on."""
        return self.tasks >= self.config.tasks

    @property
    def standing(self) -> str:
        """The best result so far, in words."""
        return f"best validation accuracy {100 * self.best:.2f} %" if self.best >= 0 else "no validation yet"

    @abstractmethod
    def _step(self) -> StepReport:
        """Train on the next tasks."""

    def _validate(self) -> ValidationReport:
        """Measure the learner on validation tasks, and keep it if it is the best so far."""
        accuracy, interval = self._accuracy()
        is_best = self._keep_best(accuracy, validation=accuracy, interval=interval)
        return ValidationReport(self.tasks, accuracy, interval, is_best)

    def _accuracy(self) -> Accuracy:
        """The accuracy on the validation tasks."""
        tasks = self.config.validation_tasks
        return summarise(evaluate(self.learner, self.validation, tasks, device=self.device, ranks=self.ranks))

    @functools.cached_property
    def _call(self) -> Callable[..., Any]:
        """Calls a method of the learner by name. The gradients become the mean over all ranks."""
        return self.ranks.wrap(self.learner)

    def _seed_step(self) -> None:
        """Everything random in a step, such as augmentation, is a function of the seed and the tasks seen."""
        torch.manual_seed(_step_seed(self.config.seed, self.tasks))

    def _seed_share(self, share: Share) -> None:
        """Seed dropout by the first task of this rank's share, so that no two ranks drop the same units."""
        if share.first:
            torch.manual_seed(_step_seed(self.config.seed, self.tasks + share.first))

    def _descend(self, losses: Iterable[Tensor], count: int, weight: float = 1.0) -> float:
        """Take one step of the optimizer, and return this rank's part of the loss.

        Args:
            losses: Summands of the mean loss over this rank's share. Each is freed before the next is computed.
            count: Tasks of the whole step.
            weight: The share's part of the whole step, between 0 and 1.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        self.optimizer.zero_grad()
        value = 0.0
        for loss in losses:
            (loss * (weight * self.ranks.world)).backward()  # gradients become the mean over all ranks
            value += float(loss.detach())
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_value_(self.learner.parameters(), self.config.clip)
        self.optimizer.step()
        self.tasks += count
        return weight * value

    def _rate(self) -> float:
        """The learning rate of the next step."""
        return learning_rate(self.config, self.tasks)

    def _keep_best(self, score: float, **measured: float) -> bool:
        """Write `best.safetensors` if this score is above all earlier ones. Returns whether it is."""
        is_best = score > self.best
        self.since_best = 0 if is_best else self.since_best + 1
        if is_best:
            self.best = score
            metadata = {"about": self.about, "tasks": self.tasks, **measured}
            tensors = model_tensors(self.learner)
            self.ranks.first_only(lambda: save_checkpoint(self.folder / "best.safetensors", tensors, metadata))
        return is_best

    def _save(self) -> None:
        metadata = {"about": self.about, "tasks": self.tasks, "best": self.best, "since_best": self.since_best}
        metadata["unlogged"] = list(self.unlogged)  # so that the log of a run that was killed has the same means
        tensors = model_tensors(self.learner) | optimizer_tensors(self.optimizer)
        metadata["products"] = chosen()
        self.ranks.first_only(lambda: save_checkpoint(self.last, tensors, metadata))


class Trainer(TrainingLoop):
    """Trains a learner in episodes, and keeps the weights with the highest accuracy on validation tasks.

    The other arguments are those of TrainingLoop.

    Args:
        training: The source of the training tasks.
        validation: The source of the validation tasks.
        frozen: A part of the learner that is not trained.
    """

    def __init__(
        self,
        learner: FewShotLearner[Any],
        config: TrainConfig,
        training: EpisodeSource | VariedSource | AheadSource,
        validation: EpisodeSource,
        folder: Path,
        *,
        about: dict[str, Any] | None = None,
        device: torch.device | str = "cpu",
        frozen: nn.Module | None = None,
    ) -> None:
        self.frozen = None if frozen is None else frozen.requires_grad_(False)
        self._graph: Step | None = None
        super().__init__(learner, config, folder, about=about, device=device)
        self.training, self.validation = training, validation

    def _step(self) -> StepReport:
        config = self.config
        if self.frozen is not None:
            self.frozen.requires_grad_(False).eval()  # pretraining may have trained it since
        count = min(config.tasks_per_step, config.tasks - self.tasks)
        share = self.ranks.share(count)
        episode = self.training.batch(self.tasks, count, share.cut)
        self._seed_step()
        if config.augment:
            with share_of_step(*share):
                episode = augment(episode, config.augment)
        self._seed_share(share)
        accuracies: list[Tensor] = []
        loss = self._descend(self._losses(episode.to(self.device), accuracies), count, share.weight)
        return StepReport(self.tasks, loss, share.weight * float(torch.cat(accuracies).mean()))

    def _precision(self) -> AbstractContextManager[object]:
        """The context in which the learner computes: autocast for bf16-mixed, nothing for fp32."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, torch.bfloat16)

    def _output(self, part: Episode) -> EpisodeOutput:
        """The learner's output. It comes from the compiled graph if train.compile asks for one."""
        if self.config.compile != "off" and self._graph is None:
            self._graph = compiled(self.learner, part, strict=self.config.compile == "strict")
        return self._graph(part) if self._graph else self._call("__call__", part)

    def _losses(self, episode: Episode, accuracies: list[Tensor]) -> Iterator[Tensor]:
        """Yield the summands of the loss, each of `micro_tasks` tasks, and append their accuracies to the list."""
        done = 0
        for part in episode.split(self.config.micro_tasks or episode.tasks):
            done += part.tasks
            with self.ranks.waiting(self._call, done < episode.tasks):
                with self._precision():
                    output = self._output(part)
                accuracies.append(task_accuracies(output.logits, part.query.y))
                yield output.loss if part is episode else output.loss * (part.tasks / episode.tasks)


def model_tensors(learner: FewShotLearner[Any]) -> dict[str, Tensor]:
    """A learner's parameters and buffers as named tensors: model.NAME."""
    return {f"model.{name}": tensor for name, tensor in learner.state_dict().items()}


def _step_seed(seed: int, tasks: int) -> int:
    """One 64-bit seed per (seed, step); the odd constant spreads neighbouring steps."""
    return (seed * 0x9E3779B97F4A7C15 + tasks * 0xBF58476D1CE4E5B9 + 1) % 2**63
