"""A short training of a preset in a temporary folder, with its losses and processor time at each step."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from csn.config import Config
from csn.data.source import Dataset, EpisodeSource
from csn.engine.reports import StepReport, ValidationReport
from csn.engine.run import new_trainer
from csn.learner import FewShotLearner


@dataclass
class Trained:
    """The learner after its last step, and how it came there.

    losses: of each step. seconds: processor time of all steps. validations: tasks, seconds so far, accuracy.
    """

    learner: FewShotLearner[Any]
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    validations: list[tuple[int, float, float]] = field(default_factory=list)

    @property
    def step_ms(self) -> float:
        """Processor milliseconds of a step, without validations."""
        return 1000 * self.seconds / max(1, len(self.losses))

    def seconds_to(self, accuracy: float) -> float | None:
        """Training time until a validation reached an accuracy, or None if none did."""
        return next((seconds for _, seconds, found in self.validations if found >= accuracy), None)


def trained(config: Config, data: Dataset, validation: EpisodeSource | None = None) -> Trained:
    """Train as `csn train` does.

    Args:
        config: The configuration of the training.
        data: The classes of its tasks.
        validation: Other validation tasks than those of the configuration.
    """

    def listener(report: StepReport | ValidationReport) -> None:
        nonlocal before
        if isinstance(report, ValidationReport):
            found.validations.append((report.tasks, round(found.seconds, 2), round(report.accuracy, 4)))
        else:
            found.losses.append(report.loss)
            found.seconds += time.process_time() - before
        before = time.process_time()

    with tempfile.TemporaryDirectory() as folder:
        trainer = new_trainer(config, data, Path(folder) / "run", device=torch.device("cpu"))
        trainer.validation = validation or trainer.validation
        found, before = Trained(trainer.learner), time.process_time()
        trainer.run(listener)
    return found
