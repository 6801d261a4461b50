"""`csn train`: train a preset into a run's folder, with a progress bar, a log and a clean stop."""

from __future__ import annotations

import argparse
import functools
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from csn.cli.data import data_name, load
from csn.cli.launch import launch
from csn.cli.lists import presets
from csn.cli.terminal import prepare_machine, progress_bar, said_warnings, say, stop_signal
from csn.config import Config, load_preset, merge, parse_option
from csn.data.images.options import SIZE
from csn.data.images.streaming import stream_images
from csn.data.registry import TEXTS, as_path, load_running_text
from csn.data.source import Dataset
from csn.data.text.running import RunningText
from csn.engine.distributed import Ranks, connected, is_restarted
from csn.engine.log import run_log
from csn.engine.placement import placed
from csn.engine.reports import StepReport, ValidationReport
from csn.engine.run import has_run, new_trainer
from csn.engine.train import Outcome, TrainingLoop


def train(options: argparse.Namespace) -> int:
    """Run `csn train`, in several processes if the options ask for them."""
    if options.preset == "list":
        return presets()
    if options.devices is not None:
        train_config(options)  # reports errors once, not in every process
        return launch(options.devices, options.arguments)
    with connected() as ranks:
        return _train(options, ranks)


def _train(options: argparse.Namespace, ranks: Ranks) -> int:
    """Train in this process: every step, or its share of every step."""
    with ranks.together():
        config = train_config(options)
        device = prepare_machine(options, ranks)
    folder = options.out or Path("runs") / _run_name(config)
    resume = options.resume or ((options.restartable or is_restarted()) and has_run(folder))
    loaded = ranks.prepared(lambda: _loaded(config, options.data_on))
    if isinstance(loaded, Dataset):
        loaded = placed(loaded, device, options.data_on)
    trainer = new_trainer(
        config, loaded, folder, device=device, resume=resume, pretrained=options.pretrained, ranks=ranks
    )
    say(
        f"{config.preset} ({config.recipe}) on {config.data.name}, {config.data.way}-way {config.data.shot}-shot, "
        f"into {folder}" + ("" if ranks.is_alone else f", {ranks.world} processes")
    )
    with stop_signal() as should_stop, said_warnings():
        outcome = run_with_progress(trainer, should_stop)
    say(f"{outcome} after {trainer.tasks} {trainer.unit}; {trainer.standing}")
    goes_on = "--restartable" if options.restartable else "--resume"
    again = shlex.join([*(word for word in options.arguments if word != goes_on), goes_on])
    say(f"go on with: csn {again if outcome == 'interrupted' else f'evaluate {folder}'}")
    return should_stop.status if outcome == "interrupted" else 0


def _loaded(config: Config, where: str) -> Dataset | RunningText:
    """The data in memory or, with --data-on stream, a reader that decodes images when a task needs them."""
    if config.learner.trained_on == "text":
        return load_running_text(config.data.name)
    if where != "stream":
        return load(config.data)
    path = as_path(config.data.name)
    if path is None or path.name.endswith(TEXTS):
        raise ValueError(f"--data-on stream needs a path of images, got --data {config.data.name}: leave it out")
    return stream_images(path, size=config.data.image_size or SIZE)


def train_config(options: argparse.Namespace) -> Config:
    """The preset with the changes that the options make."""
    config = load_preset(options.preset, options.recipe)
    for name in ("way", "shot", "queries"):
        if (value := getattr(options, name)) is not None:
            config = merge(config, {"data": {name: value}})
    for name in ("tasks", "seed", "precision", "compile"):
        if (value := getattr(options, name)) is not None:
            config = merge(config, {"train": {name: value}})
    if options.data is not None:
        config = merge(config, {"data": {"name": data_name(options.data)}})
    if options.bad_files is not None:
        config = merge(config, {"data": {"bad_files": options.bad_files}})
    return functools.reduce(merge, map(parse_option, options.changes), config)


def _run_name(config: Config) -> str:
    tasks = config.data
    return f"{config.preset}-{config.recipe}-{tasks.label}-{tasks.way}w{tasks.shot}s-seed{config.train.seed}"


def run_with_progress(trainer: TrainingLoop, should_stop: Callable[[], bool]) -> Outcome:
    """Train with a progress bar and a log until the end or a request to stop."""
    if trainer.first is not None and trainer.first.done:
        trainer.first.run()  # only loads its best network
        say("the network is already pretrained; training on tasks:")
    elif trainer.first is not None:
        say("pretraining the network as a classifier of the training classes:")
        pretrained = run_with_progress(trainer.first, should_stop)
        if pretrained == "interrupted" or trainer.ranks.stopped(should_stop()):  # perhaps in the last validation
            return "interrupted"
        say("training on tasks:")
    if not trainer.ranks.is_first:
        return trainer.run(should_stop=should_stop)
    with _training_progress(trainer) as show, run_log(trainer) as log:

        def listener(report: StepReport | ValidationReport) -> None:
            log(report)
            show(report)

        return trainer.run(listener, should_stop)


@contextmanager
def _training_progress(trainer: TrainingLoop) -> Iterator[Any]:
    """A bar with loss, accuracy, tasks per second and time left, and one printed line per validation."""
    done, unit = trainer.tasks, trainer.unit
    columns = (
        "loss {task.fields[loss]:.3f}  accuracy {task.fields[accuracy]:.1f} %",
        f"{{task.fields[rate]:.1f}} {unit}/s",
    )
    with progress_bar(*columns) as progress:
        bar = progress.add_task("", total=trainer.config.tasks, completed=done, loss=0.0, accuracy=0.0, rate=0.0)
        mean: dict[str, float] = {}
        started, first = time.monotonic(), done

        def show(report: StepReport | ValidationReport) -> None:
            if isinstance(report, ValidationReport):
                say(
                    f"{report.tasks:>8} {unit}  validation {100 * report.accuracy:.2f} ± {100 * report.interval:.2f} %"
                    + ("" if report.perplexity is None else f"  perplexity {report.perplexity:.1f}")
                    + ("  best so far" if report.best else "")
                )
                return
            for name, value in (("loss", report.loss), ("accuracy", 100 * report.accuracy)):
                mean[name] = 0.98 * mean.get(name, value) + 0.02 * value
            rate = (report.tasks - first) / (time.monotonic() - started)
            progress.update(bar, completed=report.tasks, rate=rate, loss=mean["loss"], accuracy=mean["accuracy"])

        yield show
