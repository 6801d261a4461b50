"""`csn reproduce`: a table of the paper by one command, which goes on after a stop."""

from __future__ import annotations

import argparse
import csv
import functools
import io
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from csn.build import build_learner, data_entry
from csn.config import DataConfig
from csn.data.source import Dataset
from csn.data_command import data_name, load
from csn.drawing import png
from csn.engine.checkpoint import write_atomically
from csn.engine.run import read_log
from csn.reproduce import ABLATION, Cell, arm, measure, named_by, plan, read_seconds, results_of, within_budget
from csn.result_pictures import Mark, accuracy_figure
from csn.result_tables import accuracy_table, arms_table
from csn.results import Result, by_seed, model_changes, pooled
from csn.terminal import console, progress_bar, say, stop_signal
from csn.time_tables import run_timing

TIMING = "timing"
POLL = 1.0  # seconds between looks at running cells
CSV_COLUMNS = (
    *("data", "tasks", "formed", "model", "recipe", "changes", "paper", "accuracy", "interval"),
    *("training_tasks", "seconds", "seed", "commit", "file"),
)


def reproduce(options: argparse.Namespace) -> int:
    """`csn reproduce`."""
    if options.table == TIMING:
        return _timing(options)
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    seconds = None if options.budget is None else read_seconds(options.budget)
    data = None if options.data is None else data_name(options.data)
    if data is not None:
        data_entry(data)  # an unknown one is refused before anything is planned
    everything = plan(options.table, seeds=options.seeds, data=data, changes=options.changes)
    cells = plan(options.table, rows=options.rows, seeds=options.seeds, data=data, changes=options.changes)
    results = options.results / ABLATION if options.table == ABLATION else options.results
    open_cells = [cell for cell in cells if options.again or cell.missing(results)]
    begun = {cell.name: cell.begun(options.runs) for cell in open_cells}
    cached = functools.cache(load)
    open_cells = [
        begun[cell.name] or (cell if seconds is None else _within(cell, seconds, cached)) for cell in open_cells
    ]
    _show_plan(cells, open_cells, results)
    if options.dry_run:
        return 0
    failed: list[str] = []
    if open_cells:
        outcome = _run_all(open_cells, everything, options, results)
        if outcome is None:
            say("interrupted; go on with the same command")
            return 130
        failed = outcome
    name = options.table if options.data is None else everything[0].config.data.label
    _write_table(name, results_of(everything, results), results)
    for name in failed:
        say(f"failed: {name}, see {options.runs / name}.log")
    return 1 if failed else 0


def _timing(options: argparse.Namespace) -> int:
    """`csn reproduce timing`: nothing is trained, everything is measured in one go."""
    asked = {"--rows": options.rows, "--data": options.data, "--budget": options.budget, "--set": options.changes}
    asked["--seeds"] = options.seeds != 1
    if useless := [name for name, value in asked.items() if value]:
        raise ValueError(f"timing measures everything in one run: leave out {', '.join(useless)}")
    if options.dry_run:
        where = options.results / TIMING
        say(f"times of random tasks, {options.repeats} interleaved repeats, into {where}: ten minutes or so")
        return 0
    threads = 1 if options.threads is None else options.threads
    for path in run_timing(options.results / TIMING, repeats=options.repeats, threads=threads, tell=say):
        say(f"written to {path}")
    return 0


def _within(cell: Cell, seconds: float, load: Callable[[DataConfig], Dataset]) -> Cell:
    """The cell with as many tasks as the budget buys. A language model, which reads sentences, is trained in full."""
    config = cell.config
    if config.model.learner == "lstm-lm":
        return cell
    data = load(DataConfig(config.data.name, image_size=config.data.image_size, bad_files=config.data.bad_files))
    vocabulary = None if data.vocabulary is None else len(data.vocabulary)
    torch.manual_seed(0)
    learner = build_learner(config.model, tuple(data.splits["train"].x.shape[1:]), config.data.way, vocabulary)
    return within_budget(cell, seconds, *measure(config, learner, data))


def _show_plan(cells: Sequence[Cell], open_cells: Sequence[Cell], results: Path) -> None:
    """What is there and what will be trained."""
    lengths = {cell.name: cell.config.train.tasks for cell in open_cells}
    table = Table(title=f"{len(open_cells)} of {len(cells)} cells to train")
    for header in ("cell", "tasks", "results"):
        table.add_column(header, no_wrap=True)
    for cell in cells:
        there = len(cell.tests) - len(cell.missing(results))
        todo = f"{lengths[cell.name]:,}" if cell.name in lengths else ""
        table.add_row(cell.name, todo, f"{there}/{len(cell.tests)}")
    console.print(table)


@dataclass
class _Running:
    """A cell at work: its commands still to come, and the one that is running."""

    cell: Cell
    commands: list[list[str]]
    process: subprocess.Popen[bytes]
    log: io.BufferedWriter


def _run_all(
    cells: Sequence[Cell], everything: Sequence[Cell], options: argparse.Namespace, results: Path
) -> list[str] | None:
    """Train and test cells, `--jobs` at a time; the names of those that failed, or None after an interruption."""
    waiting, running, failed = list(cells), list[_Running](), list[str]()
    options.runs.mkdir(parents=True, exist_ok=True)
    total = sum(cell.config.train.tasks for cell in cells)
    finished = 0
    with progress_bar("[bold]{task.description}") as progress, stop_signal() as should_stop:
        overall = progress.add_task("all cells", total=total)
        bars = {}
        try:
            while waiting or running:
                if should_stop():
                    return None
                while waiting and len(running) < options.jobs:
                    cell = waiting.pop(0)
                    bars[cell.name] = progress.add_task(cell.name, total=cell.config.train.tasks)
                    running.append(_start(cell, everything, options, results))
                time.sleep(POLL)
                for each in list(running):
                    if (state := _next_command(each)) == "running":
                        continue
                    running.remove(each)
                    each.log.close()
                    progress.remove_task(bars.pop(each.cell.name))
                    finished += each.cell.config.train.tasks
                    if state == "failed":
                        failed.append(each.cell.name)
                    say(f"{each.cell.name}: {state}")
                done = {each.cell.name: _done(each.cell, options.runs) for each in running}
                for name, tasks in done.items():
                    progress.update(bars[name], completed=tasks)
                progress.update(overall, completed=finished + sum(done.values()))
        finally:
            for each in running:
                each.process.terminate()  # training saves and stops
            for each in running:
                each.process.wait()
                each.log.close()
    return failed


def _start(cell: Cell, all_cells: Sequence[Cell], options: argparse.Namespace, results: Path) -> _Running:
    """The first command of a cell; what it prints goes to a file beside its run."""
    threads = max(1, (torch.get_num_threads() if options.threads is None else options.threads) // options.jobs)
    resume = (options.runs / cell.name / "config.json").exists()
    tests = cell.tests if options.again else cell.missing(results)
    named = None if resume else named_by(cell, all_cells, options.runs)
    commands = [cell.train_command(options.runs, threads=threads, resume=resume, named=named)]
    commands += [cell.test_command(test, options.runs, results, threads=threads) for test in tests]
    log = (options.runs / f"{cell.name}.log").open("ab")
    return _Running(cell, commands[1:], _spawn(commands[0], log), log)


def _spawn(command: list[str], log: io.BufferedWriter) -> subprocess.Popen[bytes]:
    log.write(f"$ csn {shlex.join(command)}\n".encode())
    log.flush()
    # A session of its own: Ctrl-C reaches this program alone, which then stops the others one by one.
    program = [sys.executable, "-m", "csn.cli", *command]
    return subprocess.Popen(program, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def _next_command(each: _Running) -> str:
    """Go on to the next command where one has ended: running, done or failed."""
    code = each.process.poll()
    if code is None:
        return "running"
    if code != 0:
        return "failed"
    if not each.commands:
        return "done"
    each.process = _spawn(each.commands.pop(0), each.log)
    return "running"


def _done(cell: Cell, runs: Path) -> int:
    """Training tasks of a cell so far, by the log of its run."""
    log = read_log(runs / cell.name)
    return int(log[-1]["tasks"]) if log else 0


def _write_table(table: str, found: list[Result], folder: Path) -> None:
    """TABLE.md, TABLE.csv and TABLE.png from the result files that are there."""
    if not found:
        say(f"{table} has no result yet, so there is no table")
        return
    table_of, mark_of = (arms_table, _arm_mark) if table == ABLATION else (accuracy_table, _mark)
    marks = [mark_of(seeds) for seeds in by_seed(found)]
    files = {
        f"{table}.md": table_of(found, ".").encode(),
        f"{table}.csv": _csv(found).encode(),
        f"{table}.png": png(accuracy_figure(marks, title=f"Reproduction of {table}", bars=table == ABLATION)),
    }
    for name, content in files.items():
        write_atomically(folder / name, content)
        say(f"written to {folder / name}")


def _csv(found: Sequence[Result]) -> str:
    """One line a result; accuracies in per cent."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for result in found:
        trained, config = result.content["trained"], result.content["config"]
        row = [result.data, result.size, result.formed, config["preset"], config["recipe"]]
        row += ["; ".join(model_changes(config)), result.published]
        row += [f"{100 * result.accuracy.mean:.2f}", f"{100 * result.accuracy.interval:.2f}"]
        row += [trained["tasks"], trained["seconds"], config["train"]["seed"], trained["commit"], result.path.name]
        writer.writerow(row)
    return file.getvalue()


def _mark(seeds: Sequence[Result]) -> Mark:
    """A result, perhaps of several seeds, as a line of the picture."""
    result, accuracy = seeds[0], pooled(seeds)
    evaluation = result.content["evaluation"]
    formed = "" if result.formed == "random" else f", {result.formed.replace('-', ' ')}"
    number = re.match(r"[\d.]+", result.published)
    return Mark(
        group=f"{result.data} {evaluation['way']}-way {evaluation['shot']}-shot{formed}",
        label=result.name.replace("`", ""),
        accuracy=100 * accuracy.mean,
        interval=100 * accuracy.interval,
        paper=float(number[0]) if number else None,
    )


def _arm_mark(seeds: Sequence[Result]) -> Mark:
    """An arm of an ablation as a bar among those of its model; the paper trained longer, so none of its numbers."""
    result = seeds[0]
    group = f"{result.data}, {result.preset}"
    return _mark(seeds)._replace(group=group, label=arm(result), paper=None)
