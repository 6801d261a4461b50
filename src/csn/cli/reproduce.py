"""`csn reproduce`: a table of the paper by one command, which goes on after a stop."""

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
from csn.cli.data import data_name, load
from csn.cli.print_commands import as_text, commands_of
from csn.cli.run_cells import run_all
from csn.cli.terminal import console, or_default, say
from csn.config import DataConfig
from csn.data.registry import DATASETS, data_entry, load_running_text
from csn.data.source import Dataset
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import check_precision, keep_freed_memory
from csn.engine.origin import check_committed
from csn.experiments.tables.budget import (
    read_seconds,
    seconds_of_task,
    seconds_of_validation,
    settled_length,
    within_budget,
)
from csn.experiments.tables.cells import Cell, changed_names
from csn.experiments.tables.exports import table_files
from csn.experiments.tables.plan import plan


def reproduce(options: argparse.Namespace) -> int:
    """`csn reproduce`."""
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    _threads(options)  # too few are refused in a dry run too
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
    open_cells = _with_lengths(open_cells, everything, options, results)
    if options.print_commands is not None:
        threads = _threads(options)
        commands = commands_of(open_cells, everything, options.runs, results, threads=threads, again=options.again)
        say(as_text(commands, options.print_commands))
        return 0
    _show_plan(cells, open_cells, options, results)
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
        outcome = run_all(with_data, everything, options, results, _threads(options))
        if outcome is None:
            say("interrupted; go on with the same command")
            return 130
        failed = {name: f"see {options.runs / name}.log: {why}" for name, why in outcome.items()}
        failed |= dict.fromkeys(without, "its data are not there")
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
    """The same name; an unknown one is refused before anything is planned, and so are files that are not there."""
    data_entry(data)
    if data not in DATASETS and not Path(data).exists():
        raise ValueError(f"there are no data at {data}: check the path, or give a name of `csn data list`")
    return data


def _check_rows(rows: Sequence[str], results: Path) -> None:
    """Raise ValueError at a file of another folder: a cell is known by the name of its file, which others may have."""
    for path in filter(Path.is_file, map(Path, rows)):
        if not path.resolve().is_relative_to(results.resolve()):
            raise ValueError(f"{path} is not in {results}, whose cells --rows chooses from: name one there")


def _without_results(cells: Sequence[Cell], results: Path) -> tuple[list[Cell], list[str]]:
    """Cells that lack a result, and what is wrong with the files that stand in the place of one."""
    found, problems = [], []
    for cell in cells:
        try:
            found += [cell] if cell.missing(results) else []
        except ValueError as error:
            found.append(cell)
            problems.append(str(error))
    return found, problems


def _check_writable(folder: Path) -> None:
    """Make a folder; a ValueError if files cannot be written there, before hours of training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error}): give another folder, or free this one") from error


def _by_data(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Cells whose data are there, and the names of the others, which can wait: what they lack is said before hours of
    training. A ValueError if no cell has its data."""
    problems = {data: _problem_of(*data) for data in dict.fromkeys(map(_data_of, cells))}
    found = [cell for cell in cells if not problems[_data_of(cell)]]
    if not found:
        raise ValueError("\n".join(problems.values()))
    for data, problem in problems.items():
        if problem:
            say(f"{problem}\n{sum(_data_of(cell) == data for cell in cells)} cells of {data[0].name} are left out")
    return found, [cell.name for cell in cells if problems[_data_of(cell)]]


def _data_of(cell: Cell) -> tuple[DataConfig, bool]:
    """What is to be loaded for a cell, and whether as a text."""
    data = cell.config.data
    own = DataConfig(data.name, image_size=data.image_size, bad_files=data.bad_files)
    return own, cell.config.learner.trained_on == "text"


def _problem_of(data: DataConfig, is_text: bool) -> str:
    """Why data cannot be loaded; nothing if they can. They are then in the cache for every cell."""
    try:
        load_running_text(data.name) if is_text else load(data)
    except (ValueError, OSError, ImportError) as error:
        return str(error)
    return ""


def _threads(options: argparse.Namespace) -> int:
    """Of one cell."""
    if options.threads is not None and options.threads < 1:
        raise ValueError(f"--threads must be at least 1, got {options.threads}")
    return max(1, or_default(options.threads, torch.get_num_threads()) // options.jobs)


def _with_lengths(
    cells: Sequence[Cell], everything: Sequence[Cell], options: argparse.Namespace, results: Path
) -> list[Cell]:
    """Cells with the length of their runs that have begun, unless more tasks were asked for; others with that of their
    own results, the table's, or with what a budget buys all seeds and arms of their model."""
    budget = None if options.budget is None else read_seconds(options.budget)
    named = changed_names(options.changes)
    if budget is not None and "train.tasks" in named:
        raise ValueError("--budget and --set train.tasks both say how long to train: give one of them")
    # A number is made again as long as it was; a budget has the word over results that it replaces.
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
            with contextlib.suppress(ValueError):  # what cannot be read is replaced, and settles nothing
                if (own := cell.with_length_of_result(results)) is not None:
                    lengthened.append(cell.as_long_as(own.config, named))
                    if lengthened[-1] != cell:
                        say(f"{cell.name}: as long as its result")
                    continue
        if seconds and cell.model_key not in bought:
            bought[cell.model_key] = _bought(cell, seconds, everything, options, replaced, loaded)
        lengthened.append(cell.as_long_as(bought.get(cell.model_key, cell).config, named))
    return lengthened


def _of_started_run(cell: Cell, started: Cell, options: argparse.Namespace) -> Cell:
    """A cell with the length of its run, or that of a longer one that was asked for."""
    kept = started.lengthened_as(cell, options.changes)
    tasks, named = kept.config.train.tasks, "train.tasks" in changed_names(options.changes)
    if options.budget is not None or (named and tasks != cell.config.train.tasks):
        run = options.runs / cell.name
        say(f"{cell.name}: keeps the {tasks:,} tasks that it began with; remove {run} to begin anew")
    return kept


def _bought(
    cell: Cell,
    seconds: float,
    everything: Sequence[Cell],
    options: argparse.Namespace,
    replaced: set[str],
    loaded: Callable[[DataConfig], Dataset],
) -> Cell:
    """A cell with as many tasks as a budget buys, or has bought another seed or arm of its model."""
    settled = settled_length(cell, everything, options.runs, options.results, replaced)
    if settled is not None:
        say(f"{cell.name}: as long as {settled.name}, for the seeds and arms of a model train alike")
        return settled
    if cell.config.learner.trained_on == "text":
        say(f"{cell.name}: trained in full, for a language model has no tasks that --budget could buy")
        return cell
    if _problem_of(*_data_of(cell)):
        say(f"{cell.name}: not measured, for its data are not there")
        return cell
    return within_budget(cell, seconds, *_measured(cell, loaded, _threads(options)))


def _measured(cell: Cell, load: Callable[[DataConfig], Dataset], threads: int) -> tuple[float, float]:
    """Seconds of a training task and of a validation, with as many threads as the cell will have."""
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


def _show_plan(cells: Sequence[Cell], open_cells: Sequence[Cell], options: argparse.Namespace, results: Path) -> None:
    """What is there, of how many training tasks, and what will be trained for how many."""
    lengths = {cell.name: cell.config.train.tasks for cell in open_cells}
    what = "to train or to test again" if options.again else "to train"
    table = Table(title=f"{len(open_cells)} of {len(cells)} cells {what}")
    table.add_column("cell", overflow="fold")  # all of its name, for --rows
    for header in ("tasks", "results", "trained on"):
        table.add_column(header, no_wrap=True)
    for cell in cells:
        there = len(cell.tests) - len(cell.missing(results, again=True))
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
        if (found := cell.with_length_of_result(results)) is not None:
            return f"{found.config.train.tasks:,}"
    return ""
