"""The optimizer, its learning rate, and a check of the options of training."""

from __future__ import annotations

import math

import torch
from torch import nn

from csn.config import TrainConfig

HALVED_EVERY = 2000  # tasks, with the schedule "halving" (Snell et al., 2017)


def check_counts(config: TrainConfig) -> None:
    """Raise ValueError unless training is possible with these numbers."""
    least_of = {"tasks": 1, "tasks_per_step": 1, "validate_every": 1, "validation_tasks": 2, "patience": 0, "seed": 0}
    for name, least in least_of.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"train.{name} must be at least {least}, got {value}")
    for name in ("learning_rate", "clip"):
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"train.{name} must be a number above 0, got {value}")
    if not 0 <= config.momentum < 1:
        raise ValueError(f"train.momentum must be at least 0 and below 1, got {config.momentum}")
    if not 0 <= config.augment < math.inf:
        raise ValueError(f"train.augment must be a number of at least 0, got {config.augment}")
    if config.micro_tasks is not None and (config.micro_tasks < 1 or config.tasks_per_step % config.micro_tasks):
        raise ValueError(
            f"train.micro_tasks must divide train.tasks_per_step, got {config.micro_tasks} and {config.tasks_per_step}"
        )


def build_optimizer(learner: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with its defaults except the rate, or SGD with momentum (appendix A)."""
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)
    return torch.optim.SGD(parameters, lr=config.learning_rate, momentum=config.momentum)


def learning_rate(config: TrainConfig, tasks: int) -> float:
    """The learning rate after a number of tasks."""
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "halving":
        return config.learning_rate * 0.5 ** (tasks // HALVED_EVERY)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * tasks / config.tasks))
