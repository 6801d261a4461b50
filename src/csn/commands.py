"""What the commands do: options -> objects -> results on the terminal and on disk."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from csn.adapt import adapt, predict
from csn.baselines.nearest import NearestNeighbour
from csn.build import DATASETS, build_learner
from csn.config import Config, DataConfig, load_preset, merge, parse_option, preset_about, preset_names
from csn.data.entry import as_path
from csn.data.source import EpisodeSource
from csn.data_command import data, data_name, load
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED, summarise
from csn.engine.evaluate import evaluate as evaluate_tasks
from csn.engine.machine import choose_device, keep_freed_memory
from csn.engine.run import TrainedRun, check_vocabulary, new_trainer, open_run, origin, run_log, vocabulary_size
from csn.engine.train import StepReport, ValidationReport
from csn.pictures import contact_sheet, episode_figure, episode_names, png
from csn.report import write_report

console = Console()
__all__ = ["adapt", "data", "evaluate", "predict", "report", "show", "train"]  # the commands


def _say(line: str) -> None:
    """One line on the terminal as it is: no markup, no colours of numbers, no breaks in paths."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def train(options: argparse.Namespace) -> int:
    """`csn train`."""
    if options.preset == "list":
        for name in preset_names():
            _say(f"{name:20} {preset_about(name)}")
        return 0
    config = _train_config(options)
    device = _prepare_machine(options)
    folder = options.out or Path("runs") / _run_name(config)
    trainer = new_trainer(config, load(config.data), folder, device=device, resume=options.resume)
    _say(
        f"{config.preset} ({config.recipe}) on {config.data.name}, {config.data.way}-way {config.data.shot}-shot, "
        f"into {folder}"
    )
    with _training_progress(config, trainer.tasks) as show, run_log(folder, from_tasks=trainer.tasks) as log:

        def listener(report: StepReport | ValidationReport) -> None:
            log(report)
            show(report)

        with _stop_signal() as should_stop:
            outcome = trainer.run(listener, should_stop)
    _say(f"{outcome} after {trainer.tasks} tasks; best validation accuracy {100 * max(trainer.best, 0):.2f} %")
    again = shlex.join([*(word for word in sys.argv[1:] if word != "--resume"), "--resume"])
    _say(f"go on with: csn {again if outcome == 'interrupted' else f'evaluate {folder}'}")
    return 130 if outcome == "interrupted" else 0


def evaluate(options: argparse.Namespace) -> int:
    """`csn evaluate`."""
    device = _prepare_machine(options)
    run = open_run(options.run, attention=options.attention)
    tasks = run.config.data
    way, shot = _given(options.way, tasks.way), _given(options.shot, tasks.shot)
    loaded = load(_data_config(options, run), run)
    name = loaded.name
    check_vocabulary(run, loaded)
    source = EpisodeSource(loaded, options.split, way=way, shot=shot, queries=options.queries, seed=EVALUATION_SEED)
    learners = {"trained": run.learner}
    if options.beside:
        torch.manual_seed(run.config.train.seed)
        about = run.metadata["about"]
        untrained = build_learner(run.config.model, tuple(about["input"]), tasks.way, vocabulary_size(about))
        learners |= {"untrained": untrained, "nearest neighbour": NearestNeighbour(way)}
    results: dict[str, list[float]] = {}
    started = time.monotonic()
    with _progress("[bold]{task.description}") as progress:
        for label, learner in learners.items():
            bar = progress.add_task(label, total=options.tasks)
            results[label] = evaluate_tasks(
                learner.to(device),
                source,
                options.tasks,
                device=device,
                on_progress=_advance(progress, bar),
            )
    table = Table(title=f"{name}, {way}-way {shot}-shot, {options.tasks} unseen {options.split} tasks")
    table.add_column("learner")
    table.add_column("accuracy, 95 % interval", justify="right")
    for label, accuracies in results.items():
        table.add_row(label, str(summarise(accuracies)))
    console.print(table)
    setting = {
        "data": name,
        "split": options.split,
        "way": way,
        "shot": shot,
        "queries": options.queries,
        "tasks": options.tasks,
        "seed": EVALUATION_SEED,
        "attention": options.attention or run.config.model.attention,
    }
    out = options.out or options.run / f"result-{name}-{options.split}-{way}w{shot}s.json"
    write_atomically(out, (json.dumps(_result(run, setting, results, started), indent=1) + "\n").encode())
    _say(f"written to {out}")
    return 0


def report(options: argparse.Namespace) -> int:
    """`csn report`."""
    run = open_run(options.run)
    tasks = run.config.data
    way, shot = _given(options.way, tasks.way), _given(options.shot, tasks.shot)
    source = EpisodeSource(
        load(tasks, run), "test", way=way, shot=shot, queries=2 if way <= 10 else 1, seed=EVALUATION_SEED
    )
    for path in write_report(run, source, options.episode, options.out or options.run / "report"):
        _say(f"written to {path}")
    return 0


def show(options: argparse.Namespace) -> int:
    """`csn show`."""
    run = None if options.run is None else open_run(options.run)
    tasks = DataConfig() if run is None else run.config.data
    loaded, split = load(_data_config(options, run), run), options.split
    if options.classes is not None:
        title = f"{loaded.name}, {options.classes} of {len(loaded.splits[split])} {split} classes"
        figure = contact_sheet(loaded.splits[split], options.classes, title=title)
    else:
        way, shot = _given(options.way, tasks.way), _given(options.shot, tasks.shot)
        source = EpisodeSource(loaded, split, way=way, shot=shot, queries=options.queries, seed=EVALUATION_SEED)
        figure = episode_figure(
            source.batch(options.episode, 1),
            names=episode_names(source, options.episode),
            learner=None if run is None else run.learner,
            title=f"{split.capitalize()} task {options.episode} of {loaded.name}, {way}-way {shot}-shot",
        )
    write_atomically(options.out, png(figure))
    _say(f"written to {options.out}")
    return 0


def _given(option: int | None, default: int) -> int:
    return default if option is None else option


def _train_config(options: argparse.Namespace) -> Config:
    """The preset with the changes asked for."""
    config = load_preset(options.preset, options.recipe)
    for name in ("way", "shot", "queries"):
        if (value := getattr(options, name)) is not None:
            config = merge(config, {"data": {name: value}})
    for name in ("tasks", "seed"):
        if (value := getattr(options, name)) is not None:
            config = merge(config, {"train": {name: value}})
    if options.data is not None:
        config = merge(config, {"data": {"name": data_name(options.data)}})
    if options.bad_files is not None:
        config = merge(config, {"data": {"bad_files": options.bad_files}})
    for change in options.changes:
        config = merge(config, parse_option(change))
    return config


def _data_config(options: argparse.Namespace, run: TrainedRun | None) -> DataConfig:
    """The data that a run was trained on, or those asked for instead."""
    config = DataConfig() if run is None else run.config.data
    changes = {"name": options.data and data_name(options.data), "bad_files": options.bad_files}
    return merge(config, {name: value for name, value in changes.items() if value is not None})


def _run_name(config: Config) -> str:
    tasks, path = config.data, as_path(config.data.name)
    name = tasks.name if tasks.name in DATASETS or path is None else path.stem
    return f"{config.preset}-{config.recipe}-{name}-{tasks.way}w{tasks.shot}s-seed{config.train.seed}"


def _prepare_machine(options: argparse.Namespace) -> torch.device:
    if options.threads is not None:
        if options.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {options.threads}")
        torch.set_num_threads(options.threads)
    keep_freed_memory()
    return choose_device(options.device)


def _progress(*columns: str) -> Progress:
    return Progress(
        *(TextColumn(column) for column in columns),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _advance(progress: Progress, bar: TaskID) -> Callable[[int], None]:
    return lambda done: progress.update(bar, completed=done)


@contextmanager
def _training_progress(config: Config, done: int) -> Iterator[Any]:
    """A bar with loss, accuracy, tasks per second and time left; one printed line per validation."""
    columns = (
        "loss {task.fields[loss]:.3f}  accuracy {task.fields[accuracy]:.1f} %",
        "{task.fields[rate]:.1f} tasks/s",
    )
    with _progress(*columns) as progress:
        bar = progress.add_task("", total=config.train.tasks, completed=done, loss=0.0, accuracy=0.0, rate=0.0)
        mean: dict[str, float] = {}
        started, first = time.monotonic(), done

        def show(report: StepReport | ValidationReport) -> None:
            if isinstance(report, ValidationReport):
                _say(
                    f"{report.tasks:>8} tasks  validation {100 * report.accuracy:.2f} ± {100 * report.interval:.2f} %"
                    + ("  best so far" if report.best else "")
                )
                return
            for name, value in (("loss", report.loss), ("accuracy", 100 * report.accuracy)):
                mean[name] = 0.98 * mean.get(name, value) + 0.02 * value
            rate = (report.tasks - first) / (time.monotonic() - started)
            progress.update(bar, completed=report.tasks, rate=rate, loss=mean["loss"], accuracy=mean["accuracy"])

        yield show


@contextmanager
def _stop_signal() -> Iterator[Any]:
    """The first Ctrl-C (or SIGTERM) asks training to save and stop; a second one ends the program at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _result(
    run: TrainedRun, setting: dict[str, Any], results: dict[str, list[float]], started: float
) -> dict[str, Any]:
    """Everything that makes a number checkable."""
    summary = {
        label: dict(zip(("accuracy", "interval"), summarise(accuracies), strict=True))
        for label, accuracies in results.items()
    }
    return {
        "summary": summary,
        "evaluation": setting,
        "config": run.metadata["about"]["config"],
        "trained": {
            **run.origin,
            "tasks": run.metadata["tasks"],
            "validation": run.metadata["validation"],
            "validation_curve": [[r["tasks"], r["validation"]["accuracy"]] for r in run.log if "validation" in r],
            "seconds": next((r["seconds"] for r in run.log if r["tasks"] >= run.metadata["tasks"]), None),
            "seconds_in_all": run.log[-1]["seconds"] if run.log else None,
        },
        **origin(),
        "seconds": round(time.monotonic() - started, 1),
        "accuracies": {label: [round(accuracy, 6) for accuracy in values] for label, values in results.items()},
    }
