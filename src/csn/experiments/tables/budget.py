"""How long a cell trains: as long as other cells of its model, or as many tasks as fit into a budget of time."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch

from csn.config import Config
from csn.data.source import Dataset
from csn.engine.evaluate import encodings_for, evaluate
from csn.engine.run import VALIDATION_QUERIES
from csn.engine.steps import seconds_of_step, training_step
from csn.experiments.records.protocol import tasks_like
from csn.experiments.tables.cells import Cell

VALIDATIONS = 10  # the most validations within a budget


def within_budget(cell: Cell, seconds: float, per_task: float, validation: float) -> Cell:
    """The cell with as many training tasks as take about `seconds`, validations included and pretraining excluded.

    `per_task` and `validation` are the seconds of a training task and of a validation.
    """
    train = cell.config.train
    least = validation + per_task * train.tasks_per_step
    if seconds < least:
        raise ValueError(
            f"a budget of {seconds:g} s is too small for {cell.name}: one step and one validation on "
            f"{train.validation_tasks} tasks take {least:.0f} s; give more, or --set train.validation_tasks=N"
        )
    count = max(1, min(VALIDATIONS, int(0.2 * seconds / validation)))
    tasks = max(train.tasks_per_step, round((seconds - count * validation) / per_task))
    every = max(1, -(-tasks // count))
    return cell.trained_for(tasks=tasks, validate_every=every)


def seconds_of_task(config: Config, learner: Any, data: Dataset, device: torch.device | str = "cpu") -> float:
    """Seconds of a training task on this machine with its present load."""
    train, queries = config.train, config.data.queries
    source = tasks_like(config, data, "train", queries=queries, seed=train.seed, support=learner.support_of)
    step = training_step(learner, source.batch(0, train.tasks_per_step).to(device), train)
    return seconds_of_step(step) / train.tasks_per_step


def seconds_of_validation(config: Config, learner: Any, data: Dataset) -> float:
    """Seconds of a validation on this machine with its present load."""
    train = config.train
    validation = tasks_like(config, data, "val", queries=VALIDATION_QUERIES, seed=0, support=learner.support_of)
    # Where examples are encoded once, the first tasks take longer than the others.
    encoded = encodings_for(learner.eval(), validation, train.validation_tasks, "cpu") is not None
    tasks_timed = train.validation_tasks if encoded else min(20, train.validation_tasks)
    started = time.perf_counter()
    evaluate(learner, validation, tasks_timed)
    return (time.perf_counter() - started) / tasks_timed * train.validation_tasks


def settled_length(
    cell: Cell, others: Iterable[Cell], runs: Path, results: Path, replaced: Collection[str] = ()
) -> Cell | None:
    """A cell of the same model, with another seed or arm, whose run or result fixes the length of training.

    `replaced` names cells whose results will be made again, so that they fix nothing.
    """
    same_model = [other for other in others if other.model_key == cell.model_key]
    lasting = [other for other in same_model if other.name not in replaced]
    tries = [functools.partial(other.with_length_of_run, runs) for other in same_model]
    tries += [functools.partial(other.with_length_of_result, results) for other in lasting]
    for settled in tries:
        with contextlib.suppress(ValueError):  # what cannot be read settles nothing
            if (found := settled()) is not None:
                return found
    return None
