"""What the commands do: options -> objects -> results on the terminal and on disk."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from csn import compare as comparing
from csn.adapt import adapt, predict
from csn.build import load_running_text
from csn.config import Config, DataConfig, load_preset, merge, parse_option, preset_about, preset_names
from csn.data.source import EpisodeSource
from csn.data_command import asked_data, data, data_name, load
from csn.demo import demo
from csn.drawing import png
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED, Accuracy
from csn.engine.run import check_vocabulary, new_trainer, open_run, run_log
from csn.engine.train import Outcome, StepReport, TrainingLoop, ValidationReport
from csn.measure import evaluate, verify
from csn.pictures import comparison_figure, contact_sheet
from csn.protocol import QUERIES
from csn.report import task_figure, task_in_words, write_report
from csn.reproduce_command import reproduce
from csn.result_tables import fill, marked_pages
from csn.result_writing import json_bytes
from csn.results import difference, read_results, results_in
from csn.sentence_pictures import class_table, sentence_tables
from csn.table_files import all_table_files
from csn.terminal import advance, console, given, prepare_machine, progress_bar, say, stop_signal

__all__ = [
    "adapt",
    "compare",
    "data",
    "demo",
    "evaluate",
    "predict",
    "report",
    "reproduce",
    "show",
    "train",
]  # the commands


def train(options: argparse.Namespace) -> int:
    """`csn train`."""
    if options.preset == "list":
        for name in preset_names():
            say(f"{name:20} {preset_about(name)}")
        return 0
    config = train_config(options)
    device = prepare_machine(options)
    folder = options.out or Path("runs") / _run_name(config)
    is_text = config.model.learner == "lstm-lm"
    loaded = load_running_text(config.data.name) if is_text else load(config.data)
    trainer = new_trainer(config, loaded, folder, device=device, resume=options.resume, named=options.named)
    say(
        f"{config.preset} ({config.recipe}) on {config.data.name}, {config.data.way}-way {config.data.shot}-shot, "
        f"into {folder}"
    )
    outcome = _run(trainer, folder)
    say(f"{outcome} after {trainer.tasks} {trainer.unit}; {trainer.standing}")
    again = shlex.join([*(word for word in sys.argv[1:] if word != "--resume"), "--resume"])
    say(f"go on with: csn {again if outcome == 'interrupted' else f'evaluate {folder}'}")
    return 130 if outcome == "interrupted" else 0


def _run(trainer: TrainingLoop, folder: Path) -> Outcome:
    """Train with a progress bar and a log, until done or asked to stop."""
    if trainer.first is not None and trainer.first.done:
        trainer.first.run()  # nothing left but to take its best network
        say("the network has learned to name the training classes; now the tasks:")
    elif trainer.first is not None:
        say("first the network learns to name the training classes:")
        if _run(trainer.first, trainer.first.folder) == "interrupted":
            return "interrupted"
        say("and now the tasks:")
    with _training_progress(trainer) as show, run_log(folder, from_tasks=trainer.tasks) as log:

        def listener(report: StepReport | ValidationReport) -> None:
            log(report)
            show(report)

        with stop_signal() as should_stop:
            return trainer.run(listener, should_stop)


def compare(options: argparse.Namespace) -> int:
    """`csn compare`."""
    for name in ("tasks", "test_tasks", "repeats"):
        if getattr(options, name) < 2:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 2, got {getattr(options, name)}")
    if options.budget is not None and options.budget <= 0:
        raise ValueError(f"--budget must be positive, got {options.budget}")
    asked = {name: getattr(options, name) for name in ("recipe", "way", "shot", "queries", "tasks", "seed", "changes")}
    contenders = comparing.contenders(options.presets, data=data_name(options.data), **asked)
    device, loaded = prepare_machine(options), load(contenders[0].config.data)
    about = f"{loaded.name}, {options.way}-way {options.shot}-shot"
    folder = options.out or Path("runs") / f"compare-{loaded.name}-{options.way}w{options.shot}s"
    contenders = [dataclasses.replace(each, folder=folder / each.folder) for each in contenders]
    for each in contenders:
        comparing.untrained(each, loaded)  # what cannot be built is refused before anything is trained
    if options.budget is not None:
        contenders = [comparing.within_budget(each, loaded, options.budget, device) for each in contenders]
    for each in contenders:
        if each.trained:
            say(f"{each.name}: trained before, in {each.folder}")
            continue
        say(f"{each.name}: {each.config.train.tasks} tasks of {about}, into {each.folder}")
        trainer = new_trainer(each.config, loaded, each.folder, device=device, resume=each.folder.exists())
        if _run(trainer, each.folder) == "interrupted":
            say("interrupted; go on with the same command")
            return 130
    queries = given(options.test_queries, QUERIES["images" if loaded.vocabulary is None else "sentences"])
    results = {}
    with progress_bar("[bold]{task.description}") as progress:
        for each in contenders:
            tell = advance(progress, progress.add_task(each.name, total=options.test_tasks))
            results[each.name] = comparing.result_of(
                each, loaded, options.test_tasks, queries, device=device, on_progress=tell
            )
    times = comparing.measure(contenders, loaded, options.repeats, device=device)
    content = comparing.summary(contenders, results, times, loaded, repeats=options.repeats, device=device)
    table = Table(title=f"{about}; time of a task, x the floor")
    for header in ("learner", "accuracy, 95 %", "tasks", "training", "inference"):
        table.add_column(header, no_wrap=True)
    for row in content["rows"]:
        shown = [f"{row['time'][phase][1]:.2f}" if phase in row["time"] else "" for phase in ("train", "inference")]
        accuracy = str(Accuracy(row["accuracy"], row["interval"]))
        table.add_row(row["learner"], accuracy, f"{row['training']['tasks']:,}", *shown)
    console.print(table)
    picture = png(comparison_figure(content["rows"], title=f"{about}, {options.test_tasks} test tasks"))
    files = {folder / "comparison.json": json_bytes(content), folder / "comparison.png": picture}
    if options.results is not None:
        kept = options.results / folder.name
        files |= {kept.with_name(f"{kept.name}.json"): json_bytes(content), kept.with_name(f"{kept.name}.png"): picture}
        files |= {kept / f"{each.folder.name}.json": json_bytes(results[each.name]) for each in contenders}
    for path, file in files.items():
        write_atomically(path, file)
        say(f"written to {path}")
    return 0


def report(options: argparse.Namespace) -> int:
    """`csn report`."""
    if options.verify is not None:
        return verify(options.verify, options.run, options.data)
    if options.difference is not None:
        return _report_difference(*options.difference)
    if options.run is None:
        return _report_results(options.results, options.pages)
    run = open_run(options.run)
    tasks = run.config.data
    way, shot = given(options.way, tasks.way), given(options.shot, tasks.shot)
    source = EpisodeSource(
        load(tasks, run),
        "test",
        way=way,
        shot=shot,
        queries=2 if way <= 10 else 1,
        seed=EVALUATION_SEED,
        support=run.learner.reads,
    )
    for path in write_report(run, source, options.episode, options.out or options.run / "report"):
        say(f"written to {path}")
    return 0


def _report_difference(path: Path, other: Path) -> int:
    """Print how two results differ, task by task."""
    for each in (path, other):
        if not results_in(each):
            raise ValueError(f"{each} has no accuracies of tasks: name files of csn evaluate")
    one, two = results_in(path)[0], results_in(other)[0]
    apart = difference([one], [two])
    say(f"{one.name}: {one.accuracy}\n{two.name}: {two.accuracy}")
    tasks = len(one.content["accuracies"][one.learner])
    say(f"difference: {100 * apart.mean:+.2f} ± {100 * apart.interval:.2f}, task by task on {tasks:,} tasks")
    return 0


def _report_results(folder: Path, pages: list[Path] | None) -> int:
    """Write the marked tables of pages anew from the result files; of all pages, the tables beside those files too."""
    results, every_page = read_results(folder), pages is None
    pages = marked_pages(folder.resolve().parent) if pages is None else pages
    if not pages:
        raise ValueError(f"no page beside {folder} has a table to fill: run this where README.md is, or name --pages")
    files = {}
    for page in pages:
        if not page.is_file():
            raise ValueError(f"there is no page {page}: run this where README.md is, or name pages with --pages")
        link = Path(os.path.relpath(folder.resolve(), page.resolve().parent)).as_posix()
        try:
            files[page] = fill(page.read_text(encoding="utf-8"), results, folder, link).encode()
        except ValueError as error:
            raise ValueError(f"{page}: {error}") from error
    files |= all_table_files(folder, skip=say) if every_page else {}
    for path, content in files.items():
        write_atomically(path, content)
        say(f"written to {path}")
    return 0


def show(options: argparse.Namespace) -> int:
    """`csn show`."""
    run = None if options.run is None else open_run(options.run)
    tasks = DataConfig() if run is None else run.config.data
    loaded, split = load(asked_data(options, run), run), options.split
    if options.classes is not None:
        title = f"{loaded.name}, {options.classes} of {len(loaded.splits[split])} {split} classes"
        if loaded.vocabulary is not None:
            console.print(class_table(loaded.splits[split], loaded.vocabulary, options.classes, title=title))
            return 0
        figure = contact_sheet(loaded.splits[split], options.classes, title=title)
    else:
        if run is not None:
            check_vocabulary(run, loaded)
        way, shot = given(options.way, tasks.way), given(options.shot, tasks.shot)
        source = EpisodeSource(
            loaded,
            split,
            way=way,
            shot=shot,
            queries=options.queries,
            seed=EVALUATION_SEED,
            support="examples" if run is None else run.learner.reads,
        )
        title = f"{split.capitalize()} task {options.episode} of {loaded.name}, {way}-way {shot}-shot"
        learner = None if run is None else run.learner
        if loaded.vocabulary is not None:
            console.print(
                sentence_tables(task_in_words(source, options.episode, learner), title=title, width=console.width)
            )
        figure = task_figure(source, options.episode, learner, title=title)
    write_atomically(options.out, png(figure))
    say(f"written to {options.out}")
    return 0


def train_config(options: argparse.Namespace) -> Config:
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


def _run_name(config: Config) -> str:
    tasks = config.data
    return f"{config.preset}-{config.recipe}-{tasks.label}-{tasks.way}w{tasks.shot}s-seed{config.train.seed}"


@contextmanager
def _training_progress(trainer: TrainingLoop) -> Iterator[Any]:
    """A bar with loss, accuracy, tasks per second and time left; one printed line per validation."""
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
