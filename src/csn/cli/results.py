"""`csn results`: result files as the tables of pages; whether one holds, how two differ, and how one was made."""

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
from csn.experiments.pages import fill, marked_pages
from csn.experiments.records.files import read_results, results_in
from csn.experiments.records.result import Result
from csn.experiments.records.statistics import difference
from csn.experiments.records.verify import ask_again, check_summary, checkpoint_of, is_of, kept_checkpoint
from csn.experiments.tables.exports import all_table_files


def results(options: argparse.Namespace) -> int:
    """`csn results`."""
    actions = {"tables": _tables, "verify": _verify, "diff": _diff, "show": _show}
    return actions[options.action](options)


def _tables(options: argparse.Namespace) -> int:
    """Write the marked tables of pages anew; of all pages, the tables beside the result files too."""
    folder: Path = options.results
    read_results(folder)  # a file that cannot be used is named whether a page has it or not
    pages = options.pages or marked_pages(folder.resolve().parent)
    if not pages:
        raise ValueError(f"no page beside {folder} has a table to fill: run this where README.md is, or name pages")
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
    """0 if a file holds, 1 if its checkpoint answers otherwise."""
    content = _results_of(options.result)[0].content
    tasks = content["evaluation"]["tasks"]
    say(f"{options.result}: {check_summary(content)}, as its {tasks} tasks say")
    kept = options.run or kept_checkpoint(options.result, content)
    run = checkpoint_of(content, kept) or _shipped(content)
    if run is None:
        say("its checkpoint is not here: give its run, csn results verify RESULT --run RUN, or make it again with")
        say(f"  {content['trained'].get('command', 'csn train (not recorded)')}\n  {content['command']}")
        return 0
    keep_freed_memory()
    stated, trained_on = content["evaluation"]["data"], run.config.data
    name = data_name(options.data or (trained_on.name if trained_on.label == stated else stated))
    loaded = load(dataclasses.replace(trained_on, name=name), run)
    with progress_bar("[bold]{task.description}") as progress:
        tell = advance(progress, progress.add_task("asked again", total=tasks))
        verdict = ask_again(content, run, loaded, device=torch.device("cpu"), on_progress=tell)
    say(f"asked again: {verdict.found}, {verdict.tasks - verdict.differing} of {verdict.tasks} tasks alike")
    return 0 if verdict.same else 1


def _shipped(content: dict[str, Any]) -> TrainedRun | None:
    """The model that comes with the package, if a result is of that one: a checkpoint that every reader has."""
    if content["config"]["preset"] not in shipped_names():
        return None
    run = shipped_run(content["config"]["preset"], attention=content["evaluation"].get("attention"))
    return run if is_of(content, run) else None


def _diff(options: argparse.Namespace) -> int:
    """Print how two results differ, task by task."""
    one, two = (_results_of(path)[0] for path in (options.result, options.other))
    apart = difference([one], [two])
    for result in (one, two):
        say(f"{result.path}: {_plain(result)}, {result.accuracy}")
    tasks = len(one.content["accuracies"][one.learner])
    shown = f"{100 * apart.mean:+.2f} ± {100 * apart.interval:.2f} points"
    say(f"difference: {shown}, the first less the second, task by task on {tasks:,} tasks")
    return 0


def _show(options: argparse.Namespace) -> int:
    """Print what a result file says of itself: its numbers, and how it was made."""
    found = _results_of(options.result)
    content, evaluation = found[0].content, found[0].content["evaluation"]
    trained = content["trained"]
    say(f"{options.result}: {found[0].tasks} of {evaluation['data']}, {evaluation['tasks']:,} tasks")
    for result in found:
        say(f"  {_plain(result)}, seed {result.seed}: {result.accuracy}")
    say(
        f"validation {100 * trained['validation']:.2f} % after {trained['tasks']:,} {found[0].unit}; "
        f"{trained['seconds_in_all'] / 60:.0f} minutes of training in all"
    )
    for part in (*trained.get("earlier", []), trained, content):
        version = f", a command of {part['command_of']}" if "command_of" in part else ""
        say(f"  {part['command']}\n    at {part['commit']}{version}")
    return 0


def _results_of(path: Path) -> list[Result]:
    """The accuracies of a file; a ValueError if it has none."""
    found = results_in(path)
    if not found:
        raise ValueError(f"{path} has no accuracies of tasks: name a result file of csn evaluate")
    return found


def _plain(result: Result) -> str:
    return result.name.replace("`", "")
