"""`csn results`: fill the tables of pages from result files; verify, compare and show result files."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import torch

from csn.classifier.pretrained import shipped_names, shipped_run
from csn.cli.data import data_name, load
from csn.cli.terminal import advance, progress_bar, say
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.run import TrainedRun
from csn.experiments.markdown import signed
from csn.experiments.pages import fill, marked_pages
from csn.experiments.records.files import read_results, results_in
from csn.experiments.records.result import Result
from csn.experiments.records.statistics import difference
from csn.experiments.records.verify import ask_again, check_summary, checkpoint_of, is_of, kept_checkpoint
from csn.experiments.tables.exports import all_table_files


def results(options: argparse.Namespace) -> int:
    """Run `csn results`."""
    actions = {"tables": _tables, "verify": _verify, "diff": _diff, "show": _show}
    return actions[options.action](options)


def _tables(options: argparse.Namespace) -> int:
    """Rewrite the marked tables of pages. Without named pages, also rewrite the tables next to the result files."""
    folder: Path = options.results
    read_results(folder)  # reports every broken file, also those that no page uses
    pages = options.pages or marked_pages(folder.resolve().parent)
    if not pages:
        raise ValueError(f"no page next to {folder} has a table to fill: run this where README.md is, or name pages")
    files = {}
    for page in pages:
        if not page.is_file():
            raise ValueError(f"there is no page {page}: run this where README.md is, or name pages")
        try:
            files[page] = fill(page.read_text(encoding="utf-8"), folder, page.parent).encode()
        except ValueError as error:
            raise ValueError(f"{page}: {error}") from error
    if not options.pages:
        files |= all_table_files(folder, skip=say)
    for path, content in files.items():
        write_atomically(path, content)
        say(f"written to {path}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    """Verify a result file: status 0 if it holds, 1 if its checkpoint now answers differently."""
    content = _results_of(options.result)[0].content
    tasks = content["evaluation"]["tasks"]
    say(f"{options.result}: {check_summary(content)}, which agrees with its {tasks} tasks")
    kept = options.run or kept_checkpoint(options.result, content)
    run = checkpoint_of(content, kept) or _shipped(content)
    if run is None:
        say("its checkpoint is not here: give its run with --run RUN, or repeat its training and test with")
        say(f"  {content['trained'].get('command', 'csn train (not recorded)')}\n  {content['command']}")
        return 0
    keep_freed_memory()
    stated, trained_on = content["evaluation"]["data"], run.config.data
    name = data_name(options.data or (trained_on.name if trained_on.label == stated else stated))
    loaded = load(dataclasses.replace(trained_on, name=name), run)
    with progress_bar("[bold]{task.description}") as progress:
        tell = advance(progress, progress.add_task("testing again", total=tasks))
        found, differing = ask_again(content, run, loaded, device=torch.device("cpu"), on_progress=tell)
    say(f"tested again: {found}, {tasks - differing} of {tasks} tasks equal")
    return 1 if differing else 0


def _shipped(content: dict[str, Any]) -> TrainedRun | None:
    """The shipped model, whose checkpoint every reader has, or None if the result is of another model."""
    if content["config"]["preset"] not in shipped_names():
        return None
    run = shipped_run(content["config"]["preset"], attention=content["evaluation"].get("attention"))
    return run if is_of(content, run) else None


def _diff(options: argparse.Namespace) -> int:
    """Print the difference of two results, task by task."""
    one, two = (_results_of(path)[0] for path in (options.result, options.other))
    apart = difference([one], [two])
    for result in (one, two):
        say(f"{result.path}: {_plain(result)}, {result.accuracy}")
    tasks = len(one.content["accuracies"][one.learner])
    say(f"difference: {signed(apart)} points, first minus second, over the same {tasks:,} tasks")
    return 0


def _show(options: argparse.Namespace) -> int:
    """Print a result file's numbers, and the commands that made it."""
    found = _results_of(options.result)
    content, evaluation = found[0].content, found[0].content["evaluation"]
    trained = content["trained"]
    say(f"{options.result}: {found[0].tasks} of {evaluation['data']}, {evaluation['tasks']:,} tasks")
    for result in found:
        say(f"  {_plain(result)}, seed {result.seed}: {result.accuracy}")
    say(
        f"validation {100 * trained['validation']:.2f} % after {trained['tasks']:,} {found[0].unit}; "
        f"{trained['seconds_in_all'] / 60:.0f} minutes of training in total"
    )
    for part in (*trained.get("earlier", []), trained, content):
        version = f", a command of {part['command_of']}" if "command_of" in part else ""
        say(f"  {part['command']}\n    at {part['commit']}{version}")
    return 0


def _results_of(path: Path) -> list[Result]:
    """The accuracies in a file. Raises ValueError if it has none."""
    found = results_in(path)
    if not found:
        raise ValueError(f"{path} has no accuracies of tasks: give a result file that csn evaluate wrote")
    return found


def _plain(result: Result) -> str:
    return result.name.replace("`", "")
