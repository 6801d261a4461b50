"""`csn reproduce`: make a table of the paper with one command, which can be stopped and continued."""

from __future__ import annotations

import argparse
import contextlib
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.table import Table

from csn.building import build_learner
from csn.cli.cell_commands import as_text, commands_of
from csn.cli.data import data_name, load
from csn.cli.run_cells import run_all
from csn.cli.terminal import console, or_default, read_seconds, say
from csn.config import DataConfig
from csn.data.registry import DATASETS, data_entry, load_running_text
from csn.data.source import Dataset
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import check_precision, keep_freed_memory
from csn.engine.origin import check_committed
from csn.experiments.tables.budget import (
    seconds_of_task,
    seconds_of_validation,
    settled_length,
    within_budget,
)
from csn.experiments.tables.cells import Cell, changed_names
from csn.experiments.tables.exports import table_files
from csn.experiments.tables.plan import plan


def reproduce(options: argparse.Namespace) -> int:
    """Run `csn reproduce`."""
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    _threads(options)  # refuses too few, also in a dry run
    data = None if options.data is None else _found(data_name(options.data))
    results = options.results
    _check_rows(options.rows, results)
    everything = plan(options.table, seeds=options.seeds, data=data, changes=options.changes)
    cells = plan(options.table, rows=options.rows, seeds=options.seeds, data=data, changes=options.changes)
    open_cells, problems = (cells, []) if options.again else _without_results(cells, results)
    if problems and (not options.dry_run or options.print_commands is not None):
        raise ValueError("\n".join(problems))
    if not options.dry_run or options.budget is not None:
        for cell in open_cells:
            check_precision(cell.config.precision, torch.device("cpu"))
    open_cells = _with_lengths(open_cells, everything, options)
    if options.print_commands is not None:
        threads = _threads(options)
        commands = commands_of(open_cells, everything, options.runs, results, threads=threads, again=options.again)
        say(as_text(commands, options.print_commands))
        return 0
    _show_plan(cells, open_cells, options)
    if problems:
        raise ValueError("\n".join(problems))
    if options.dry_run:
        return 0
    failed: dict[str, str] = {}
    for folder in (options.runs, results) if open_cells else (results,):
        _check_writable(folder)
    if open_cells:
        check_committed("a table")
        with_data, without = _by_data(open_cells)
        outcome = run_all(with_data, everything, options, _threads(options))
        if outcome is None:
            say("interrupted; continue with the same command")
            return 130
        failed = {name: f"see {options.runs / name}.log: {why}" for name, why in outcome.items()}
        failed |= dict.fromkeys(without, "its data are missing")
    for name, why in failed.items():
        say(f"failed: {name}, {why}")
    for folder in dict.fromkeys(cell.folder for cell in everything):
        files = table_files(results / folder, skip=say)
        for path, content in files.items():
            write_atomically(path, content)
            say(f"written to {path}")
        if not files:
            say(f"{results / folder} has no result yet, so there is no table")
    return 1 if failed else 0


def _found(data: str) -> str:
    """The name of the data. Raises ValueError if it is unknown or its file is missing, before anything is planned."""
    data_entry(data)
    if data not in DATASETS and not Path(data).exists():
        raise ValueError(f"there are no data at {data}: check the path, or give a name from `csn data list`")
    return data


def _check_rows(rows: Sequence[str], results: Path) -> None:
    """Raise ValueError for a file of another folder: a file's name identifies a cell only within its folder."""
    for path in filter(Path.is_file, map(Path, rows)):
        if not path.resolve().is_relative_to(results.resolve()):
            raise ValueError(f"{path} is not in {results}, from which --rows chooses cells: name a file there")


def _without_results(cells: Sequence[Cell], results: Path) -> tuple[list[Cell], list[str]]:
    """Cells that lack a result, and messages about unusable files where their results belong."""
    found, problems = [], []
    for cell in cells:
        try:
            found += [cell] if cell.missing(results) else []
        except ValueError as error:
            found.append(cell)
            problems.append(str(error))
    return found, problems


def _check_writable(folder: Path) -> None:
    """Make a folder. Raises ValueError if it is not writable, before hours of training are lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error}): give another folder, or free this one") from error


def _by_data(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Cells whose data can be loaded, and the names of the others, whose problems are printed before training starts.

    Raises ValueError if no cell has its data.
    """
    problems = {data: _problem_of(*data) for data in dict.fromkeys(map(_data_of, cells))}
    found = [cell for cell in cells if not problems[_data_of(cell)]]
    if not found:
        raise ValueError("\n".join(problems.values()))
    for data, problem in problems.items():
        if problem:
            say(f"{problem}\n{sum(_data_of(cell) == data for cell in cells)} cells of {data[0].name} are left out")
    return found, [cell.name for cell in cells if problems[_data_of(cell)]]


def _data_of(cell: Cell) -> tuple[DataConfig, bool]:
    """Which data to load for a cell, and whether to load them as running text."""
    data = cell.config.data
    own = DataConfig(data.name, image_size=data.image_size, bad_files=data.bad_files)
    return own, cell.config.learner.trained_on == "text"


def _problem_of(data: DataConfig, is_text: bool) -> str:
    """Why data cannot be loaded, or an empty string if they can. They are then in the cache for every cell."""
    try:
        load_running_text(data.name) if is_text else load(data)
    except (ValueError, OSError, ImportError) as error:
        return str(error)
    return ""


def _threads(options: argparse.Namespace) -> int:
    """The number of threads of one cell."""
    if options.threads is not None and options.threads < 1:
        raise ValueError(f"--threads must be at least 1, got {options.threads}")
    return max(1, or_default(options.threads, torch.get_num_threads()) // options.jobs)


def _with_lengths(cells: Sequence[Cell], everything: Sequence[Cell], options: argparse.Namespace) -> list[Cell]:
    """Cells with their number of training tasks.

    A cell whose run has started keeps its number, unless the options ask for more tasks. Other cells take the number of
    their own result, that of the table, or what a budget allows for all seeds and arms of their model.
    """
    budget = None if options.budget is None else read_seconds(options.budget)
    named = changed_names(options.changes)
    if budget is not None and "train.tasks" in named:
        raise ValueError("--budget and --set train.tasks both set the length of training: give one of them")
    # A repeated cell trains as long as before, but a budget overrides the results that it replaces.
    replaced = {cell.name for cell in cells} if options.again and budget is not None else set[str]()
    loaded, bought = functools.cache(load), dict[tuple[str, ...], Cell]()
    lengthened = []
    for cell in cells:
        seconds = budget or 60 * cell.minutes
        if (started := cell.with_length_of_run(options.runs)) is not None:
            lengthened.append(_of_started_run(cell, started, options))
            continue
        if "train.tasks" in named:
            lengthened.append(cell)
            continue
        if budget is None:
            with contextlib.suppress(ValueError):  # an unreadable result is replaced and decides nothing
                if (own := cell.with_length_of_result(options.results)) is not None:
                    lengthened.append(cell.as_long_as(own.config, named))
                    if lengthened[-1] != cell:
                        say(f"{cell.name}: trains as long as its earlier result")
                    continue
        if seconds and cell.model_key not in bought:
            bought[cell.model_key] = _bought(cell, seconds, everything, options, replaced, loaded)
        lengthened.append(cell.as_long_as(bought.get(cell.model_key, cell).config, named))
    return lengthened


def _of_started_run(cell: Cell, started: Cell, options: argparse.Namespace) -> Cell:
    """The cell with the number of tasks of its run, or a larger number that the options ask for."""
    kept = started.lengthened_as(cell, options.changes)
    tasks, named = kept.config.train.tasks, "train.tasks" in changed_names(options.changes)
    if options.budget is not None or (named and tasks != cell.config.train.tasks):
        run = options.runs / cell.name
        say(f"{cell.name}: keeps the {tasks:,} tasks that it started with; remove {run} to start again")
    return kept


def _bought(
    cell: Cell,
    seconds: float,
    everything: Sequence[Cell],
    options: argparse.Namespace,
    replaced: set[str],
    loaded: Callable[[DataConfig], Dataset],
) -> Cell:
    """The cell with as many tasks as the budget allows, or as another seed or arm of its model already has."""
    settled = settled_length(cell, everything, options.runs, options.results, replaced)
    if settled is not None:
        say(f"{cell.name}: trains as long as {settled.name}: all seeds and arms of a model do")
        return settled
    if cell.config.learner.trained_on == "text":
        say(f"{cell.name}: trains in full: --budget counts tasks, and a language model has none")
        return cell
    if _problem_of(*_data_of(cell)):
        say(f"{cell.name}: not measured: its data are missing")
        return cell
    return within_budget(cell, seconds, *_measured(cell, loaded, _threads(options)))


def _measured(cell: Cell, load: Callable[[DataConfig], Dataset], threads: int) -> tuple[float, float]:
    """Seconds per training task and per validation, measured with the threads that the cell will have."""
    config = cell.config
    data = load(_data_of(cell)[0])
    torch.manual_seed(0)
    learner = build_learner(config, data.input_spec)
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return seconds_of_task(config, learner, data), seconds_of_validation(config, learner, data)
    finally:
        torch.set_num_threads(before)


def _show_plan(cells: Sequence[Cell], open_cells: Sequence[Cell], options: argparse.Namespace) -> None:
    """Print each cell with its results, their training tasks, and the tasks to train."""
    lengths = {cell.name: cell.config.train.tasks for cell in open_cells}
    what = "to train or to test again" if options.again else "to train"
    table = Table(title=f"{len(open_cells)} of {len(cells)} cells {what}")
    table.add_column("cell", overflow="fold")  # the full name, for use with --rows
    for header in ("tasks", "results", "trained on"):
        table.add_column(header, no_wrap=True)
    for cell in cells:
        there = len(cell.tests) - len(cell.missing(options.results, again=True))
        todo = f"{lengths[cell.name]:,}" if cell.name in lengths else ""
        table.add_row(cell.name, todo, f"{there}/{len(cell.tests)}", _trained_on(cell, options.results))
    console.print(table)
    done = len(cells) - len(open_cells)
    if done and (options.budget is not None or "train.tasks" in changed_names(options.changes)):
        have, them = ("cell has", "it") if done == 1 else ("cells have", "them")
        say(f"{done} {have} results already: --again includes {them}")


def _trained_on(cell: Cell, results: Path) -> str:
    """The number of training tasks of a cell's results, or an empty string without results."""
    with contextlib.suppress(ValueError):  # an unusable result will be replaced
        if (found := cell.with_length_of_result(results)) is not None:
            return f"{found.config.train.tasks:,}"
    return ""
