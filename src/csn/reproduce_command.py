"""`csn reproduce`: a table of the paper by one command, which goes on after a stop."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from csn.budget import kin_with_length, measure, read_seconds, within_budget
from csn.build import DATASETS, build_learner, data_entry
from csn.cells import Cell, changed_names
from csn.config import DataConfig
from csn.data.source import Dataset
from csn.data_command import data_name, load
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.naming import FOLDER as NAMING_FOLDER
from csn.engine.naming import has_named, named_alike
from csn.engine.run import read_log
from csn.reproduce import ABLATION, named_by, plan
from csn.table_files import table_files
from csn.terminal import console, given, progress_bar, say, stop_signal
from csn.time_tables import check_timing, run_timing

TIMING = "timing"
POLL = 1.0  # seconds between looks at running cells


def reproduce(options: argparse.Namespace) -> int:
    """`csn reproduce`."""
    if options.table == TIMING:
        return _timing(options)
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    _threads(options)  # too few are refused in a dry run too
    data = None if options.data is None else _found(data_name(options.data))
    everything = plan(options.table, seeds=options.seeds, data=data, changes=options.changes)
    cells = plan(options.table, rows=options.rows, seeds=options.seeds, data=data, changes=options.changes)
    results = options.results / ABLATION if options.table == ABLATION else options.results
    open_cells = cells if options.again else _without_results(cells, results)
    open_cells = _with_lengths(open_cells, everything, options, results)
    _show_plan(cells, open_cells, options, results)
    if options.dry_run:
        return 0
    failed: list[str] = []
    if open_cells:
        for folder in (options.runs, results):
            _check_writable(folder)
        outcome = _run_all(open_cells, everything, options, results)
        if outcome is None:
            say("interrupted; go on with the same command")
            return 130
        failed = outcome
    for name in failed:
        say(f"failed: {name}, see {options.runs / name}.log")
    files = table_files(options.table, options.results, data=data, skip=say)
    for path, content in files.items():
        write_atomically(path, content)
        say(f"written to {path}")
    if not files:
        say(f"{options.table} has no result yet, so there is no table")
    return 1 if failed else 0


def _found(data: str) -> str:
    """The same name; an unknown one is refused before anything is planned, and so are files that are not there."""
    data_entry(data)
    if data not in DATASETS and not Path(data).exists():
        raise ValueError(f"there are no data at {data}: check the path, or give a name of `csn data list`")
    return data


def _without_results(cells: Sequence[Cell], results: Path) -> list[Cell]:
    """Cells that lack a result; a ValueError that names all files which stand in the place of one."""
    found, problems = [], []
    for cell in cells:
        try:
            found += [cell] if cell.missing(results) else []
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _check_writable(folder: Path) -> None:
    """Make a folder; a ValueError if files cannot be written there, before hours of training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error}): give another folder, or free this one") from error


def _timing(options: argparse.Namespace) -> int:
    """`csn reproduce timing`: nothing is trained, everything is measured in one go."""
    asked = {"--rows": options.rows, "--data": options.data, "--budget": options.budget, "--set": options.changes}
    asked |= {"--seeds": options.seeds != 1, "--jobs": options.jobs != 1, "--again": options.again}
    if useless := [name for name, value in asked.items() if value]:
        raise ValueError(f"timing measures everything in one run: leave out {', '.join(useless)}")
    threads = 1 if options.threads is None else options.threads
    check_timing(repeats=options.repeats, threads=threads)
    if options.dry_run:
        where = options.results / TIMING
        say(f"times of random tasks, {options.repeats} interleaved repeats, into {where}: ten minutes or so")
        return 0
    for path in run_timing(options.results / TIMING, repeats=options.repeats, threads=threads, tell=say):
        say(f"written to {path}")
    return 0


def _threads(options: argparse.Namespace) -> int:
    """Of one cell."""
    if options.threads is not None and options.threads < 1:
        raise ValueError(f"--threads must be at least 1, got {options.threads}")
    return max(1, given(options.threads, torch.get_num_threads()) // options.jobs)


def _with_lengths(
    cells: Sequence[Cell], everything: Sequence[Cell], options: argparse.Namespace, results: Path
) -> list[Cell]:
    """Cells with the length of their runs that have begun, unless more tasks were asked for; others with that of other
    seeds and arms of their model, also of earlier commands, or with what the budget buys them all."""
    seconds = None if options.budget is None else read_seconds(options.budget)
    named = changed_names(options.changes)
    if seconds is not None and "train.tasks" in named:
        raise ValueError("--budget and --set train.tasks both say how long to train: give one of them")
    replaced = {cell.name for cell in cells} if options.again else set[str]()
    loaded, of_kin = functools.cache(load), dict[tuple[str, ...], Cell]()
    lengthened = []
    for cell in cells:
        if (begun := cell.begun(options.runs)) is not None:
            lengthened.append(begun.trained_on(cell, options.changes))
            continue
        if cell.kin not in of_kin and "train.tasks" not in named:
            settled = kin_with_length(cell, everything, options.runs, results, replaced)
            if settled is not None and (seconds is not None or cell.as_long_as(settled.config, named) != cell):
                whom = "its other result" if settled.name == cell.name else settled.name
                say(f"{cell.name}: as long as {whom}, for the seeds and arms of a model train alike")
            elif settled is None and seconds is not None and cell.config.model.learner == "lstm-lm":
                say(f"{cell.name}: trained in full, for a language model has no tasks that --budget could buy")
            elif settled is None and seconds is not None:
                settled = within_budget(cell, seconds, *_measured(cell, loaded, _threads(options)))
            of_kin[cell.kin] = settled or cell
        lengthened.append(cell.as_long_as(of_kin.get(cell.kin, cell).config, named))
    return lengthened


def _measured(cell: Cell, load: Callable[[DataConfig], Dataset], threads: int) -> tuple[float, float]:
    """Seconds of a training task and of a validation, with as many threads as the cell will have."""
    config = cell.config
    data = load(DataConfig(config.data.name, image_size=config.data.image_size, bad_files=config.data.bad_files))
    vocabulary = None if data.vocabulary is None else len(data.vocabulary)
    torch.manual_seed(0)
    learner = build_learner(config.model, tuple(data.splits["train"].x.shape[1:]), config.data.way, vocabulary)
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return measure(config, learner, data)
    finally:
        torch.set_num_threads(before)


def _show_plan(cells: Sequence[Cell], open_cells: Sequence[Cell], options: argparse.Namespace, results: Path) -> None:
    """What is there, of how many training tasks, and what will be trained for how many."""
    lengths = {cell.name: cell.config.train.tasks for cell in open_cells}
    table = Table(title=f"{len(open_cells)} of {len(cells)} cells to train")
    table.add_column("cell", overflow="fold")  # all of its name, for --rows
    for header in ("tasks", "results", "trained on"):
        table.add_column(header, no_wrap=True)
    for cell in cells:
        there = len(cell.tests) - len(cell.missing(results, again=options.again))
        todo = f"{lengths[cell.name]:,}" if cell.name in lengths else ""
        table.add_row(cell.name, todo, f"{there}/{len(cell.tests)}", _trained_on(cell, results))
    console.print(table)
    done = len(cells) - len(open_cells)
    if done and (options.budget is not None or "train.tasks" in changed_names(options.changes)):
        have, them = ("cell has", "it") if done == 1 else ("cells have", "them")
        say(f"{done} {have} results already: --again takes {them} up")


def _trained_on(cell: Cell, results: Path) -> str:
    """How many tasks the training of a cell's results had, where there are any."""
    with contextlib.suppress(ValueError):  # what is to be replaced
        if (tested := cell.tested(results)) is not None:
            return f"{tested.config.train.tasks:,}"
    return ""


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
    total = sum(cell.config.train.tasks for cell in cells)
    done = {cell.name: _done(cell, options.runs) for cell in cells}
    with progress_bar("[bold]{task.description}", remembers=3600) as progress, stop_signal() as should_stop:
        # What earlier commands trained is there from the start: it says nothing of the speed of this one.
        overall = progress.add_task("all cells", total=total, completed=sum(done.values()))
        bars = {}
        try:
            while waiting or running:
                if should_stop():
                    return None
                while waiting and len(running) < options.jobs:
                    cell = _next(waiting, running, options.runs)
                    waiting.remove(cell)
                    tasks = cell.config.train.tasks
                    bars[cell.name] = progress.add_task(cell.name, total=tasks, completed=done[cell.name])
                    running.append(_start(cell, everything, options, results))
                time.sleep(POLL)
                for each in list(running):
                    done[each.cell.name] = _done(each.cell, options.runs)
                    progress.update(bars[each.cell.name], completed=done[each.cell.name])
                    if (state := _next_command(each)) == "running":
                        continue
                    running.remove(each)
                    each.log.close()
                    progress.remove_task(bars.pop(each.cell.name))
                    total -= each.cell.config.train.tasks - done[each.cell.name]  # failed, or out of patience
                    if state == "failed":
                        failed.append(each.cell.name)
                    say(f"{each.cell.name}: {state}")
                progress.update(overall, total=total, completed=sum(done.values()))
        finally:
            for each in running:
                each.process.terminate()  # training saves and stops
            for each in running:
                each.process.wait()
                each.log.close()
    return failed


def _next(waiting: Sequence[Cell], running: Sequence[_Running], runs: Path) -> Cell:
    """The first cell for which no running one is just learning the names; the first of all if there is none such."""
    naming = [
        each.cell.config for each in running if each.cell.config.naming.epochs and not has_named(runs / each.cell.name)
    ]
    free = (cell for cell in waiting if not any(named_alike(cell.config, config) for config in naming))
    return next(free, waiting[0])


def _start(cell: Cell, all_cells: Sequence[Cell], options: argparse.Namespace, results: Path) -> _Running:
    """The first command of a cell; what it prints goes to a file beside its run."""
    threads = _threads(options)
    folder = options.runs / cell.name
    resume = folder.exists() and any(folder.iterdir())
    tests = cell.tests if options.again else cell.missing(results)
    goes_on = any((folder / part / "last.safetensors").exists() for part in (".", NAMING_FOLDER))
    named = None if goes_on else named_by(cell, all_cells, options.runs)
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
