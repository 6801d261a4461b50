"""`csn compare`: learners side by side, in accuracy and in time."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from rich.table import Table

from csn.cli.data import data_name, load
from csn.cli.terminal import advance, console, or_default, prepare_machine, progress_bar, read_seconds, say, stop_signal
from csn.cli.train import run_with_progress
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import Accuracy
from csn.engine.machine import check_precision
from csn.engine.origin import check_committed
from csn.engine.run import has_run, new_trainer
from csn.experiments import compare as comparing
from csn.experiments.records.files import json_bytes
from csn.experiments.records.protocol import QUERIES
from csn.plots.drawing import png
from csn.plots.episodes import comparison_figure

SAME_FOR_ALL = ("recipe", "way", "shot", "queries", "tasks", "seed", "changes")  # options that hold for all learners


def compare(options: argparse.Namespace) -> int:
    """Run `csn compare`."""
    for name in ("tasks", "test_tasks", "repeats"):
        if getattr(options, name) < 2:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 2, got {getattr(options, name)}")
    if options.results is not None:
        check_committed("a kept comparison")
    seconds = None if options.budget is None else read_seconds(options.budget)
    same_for_all = {name: getattr(options, name) for name in SAME_FOR_ALL}
    contenders = comparing.contenders(options.presets, data=data_name(options.data), **same_for_all)
    device, loaded = prepare_machine(options), load(contenders[0].config.data)
    about = f"{loaded.name}, {options.way}-way {options.shot}-shot"
    folder = options.out or Path("runs/compare") / f"{loaded.name}-{options.way}w{options.shot}s"
    contenders = [dataclasses.replace(each, folder=folder / each.folder) for each in contenders]
    for each in contenders:
        check_precision(each.config.precision, device)
        comparing.untrained(each, loaded)  # refuse what cannot be built before training anything
    if seconds is not None:
        contenders = [comparing.bought_for(each, loaded, seconds, device) for each in contenders]
    for each in contenders:
        each.check_folder()
    with stop_signal() as should_stop:
        for each in contenders:
            if each.trained:
                say(f"{each.name}: already trained, in {each.folder}")
                continue
            say(f"{each.name}: {each.config.train.tasks} tasks of {about}, into {each.folder}")
            trainer = new_trainer(each.config, loaded, each.folder, device=device, resume=has_run(each.folder))
            if run_with_progress(trainer, should_stop) == "interrupted" or should_stop():
                say("interrupted; continue with the same command")
                return 130
    queries = or_default(options.test_queries, QUERIES["images" if loaded.vocabulary is None else "sentences"])
    results = {}
    with progress_bar("[bold]{task.description}") as progress:
        for each in contenders:
            tell = advance(progress, progress.add_task(each.name, total=options.test_tasks))
            results[each.name] = comparing.result_of(
                each, loaded, options.test_tasks, queries, device=device, on_progress=tell
            )
    times = comparing.time_ratios(contenders, loaded, options.repeats, device=device)
    content = comparing.summary(contenders, results, times, loaded, repeats=options.repeats, device=device)
    table = Table(title=f"{about}; time per task as a multiple of the floor")
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
        kept = options.results / "compare" / folder.name
        files |= {kept.with_name(f"{kept.name}.json"): json_bytes(content), kept.with_name(f"{kept.name}.png"): picture}
        files |= {kept / f"{each.folder.name}.json": json_bytes(results[each.name]) for each in contenders}
    for path, file in files.items():
        write_atomically(path, file)
        say(f"written to {path}")
    return 0
