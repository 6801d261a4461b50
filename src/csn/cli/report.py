"""`csn report`: of a run, or of all committed results; and whether a result holds."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import torch

from csn.classifier.pretrained import shipped_names, shipped_run
from csn.cli.data import data_name, load
from csn.cli.terminal import advance, given, progress_bar, say
from csn.data.source import EpisodeSource
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.machine import keep_freed_memory
from csn.engine.run import TrainedRun, check_vocabulary, open_run
from csn.experiments.pages import fill, marked_pages
from csn.experiments.records.files import difference, read_results, results_in
from csn.experiments.records.verify import ask_again, check_summary, checkpoint_of, is_of
from csn.experiments.report import write_report
from csn.experiments.tables.files import all_table_files
from csn.experiments.timing.tables import timing_files


def report(options: argparse.Namespace) -> int:
    """`csn report`."""
    optional = ("run", "results", "pages", "data", "out", "episode", "way", "shot")
    asked = {name for name in optional if getattr(options, name) is not None}
    if options.verify is not None:
        _leave_out(asked - {"run", "data"}, "--verify")
        return _verify(options.verify, options.run, options.data)
    if options.difference is not None:
        _leave_out(asked, "--difference")
        return _report_difference(*options.difference)
    if options.run is None:
        _leave_out(asked - {"results", "pages"}, "the pages of all results", "name a RUN, or ")
        return _report_results(options.results or Path("results"), options.pages)
    _leave_out(asked & {"results", "pages", "data"}, "the report of a run")
    run = open_run(options.run)
    tasks = run.config.data
    data = load(tasks, run)
    check_vocabulary(run, data)
    way, shot = given(options.way, tasks.way), given(options.shot, tasks.shot)
    source = EpisodeSource(
        data,
        "test",
        way=way,
        shot=shot,
        queries=2 if way <= 10 else 1,
        seed=EVALUATION_SEED,
        support=run.learner.support_of,
    )
    for path in write_report(run, source, options.episode or 0, options.out or options.run / "report"):
        say(f"written to {path}")
    return 0


def _leave_out(options: set[str], what: str, remedy: str = "") -> None:
    """Raise ValueError for options that have no part in what was asked for."""
    if options:
        names = ", ".join("RUN" if name == "run" else f"--{name}" for name in sorted(options))
        raise ValueError(f"{names}: no part of {what}; {remedy}leave that out")


def _report_difference(path: Path, other: Path) -> int:
    """Print how two results differ, task by task."""
    for each in (path, other):
        if not results_in(each):
            raise ValueError(f"{each} has no accuracies of tasks: name files of csn evaluate")
    one, two = results_in(path)[0], results_in(other)[0]
    apart = difference([one], [two])
    for result in (one, two):
        name = result.name.replace("`", "")
        say(f"{result.path}: {name}, {result.accuracy}")
    tasks = len(one.content["accuracies"][one.learner])
    shown = f"{100 * apart.mean:+.2f} ± {100 * apart.interval:.2f} points"
    say(f"difference: {shown}, the first less the second, task by task on {tasks:,} tasks")
    return 0


def _report_results(folder: Path, pages: list[Path] | None) -> int:
    """Write the marked tables of pages anew from the result files; of all pages, the tables beside those files too."""
    every_page = pages is None
    read_results(folder)  # a file that cannot be used is named whether a page has it or not
    pages = marked_pages(folder.resolve().parent) if pages is None else pages
    if not pages:
        raise ValueError(f"no page beside {folder} has a table to fill: run this where README.md is, or name --pages")
    files = {}
    for page in pages:
        if not page.is_file():
            raise ValueError(f"there is no page {page}: run this where README.md is, or name pages with --pages")
        try:
            files[page] = fill(page.read_text(encoding="utf-8"), folder, page.parent).encode()
        except ValueError as error:
            raise ValueError(f"{page}: {error}") from error
    if every_page:
        files |= all_table_files(folder, skip=say) | timing_files(folder / "timing")
    for path, content in files.items():
        write_atomically(path, content)
        say(f"written to {path}")
    return 0


def _verify(path: Path, folder: Path | None, data: str | None = None) -> int:
    """`csn report --verify`: 0 if the file holds, 1 if its checkpoint answers otherwise. data: where it is now."""
    found = results_in(path)
    if not found:
        raise ValueError(f"{path} has no accuracies of tasks: only result files of csn evaluate can be verified")
    content = found[0].content
    say(f"{path}: {check_summary(content)}, as its {content['evaluation']['tasks']} tasks say")
    run = checkpoint_of(content, folder) or _shipped(content)
    if run is None:
        say("its checkpoint is not here: give its run, csn report RUN --verify RESULT, or make it again with")
        say(f"  {content['trained'].get('command', 'csn train (not recorded)')}\n  {content['command']}")
        return 0
    keep_freed_memory()
    stated, trained_on = content["evaluation"]["data"], run.config.data
    name = data_name(data or (trained_on.name if trained_on.label == stated else stated))
    loaded = load(dataclasses.replace(trained_on, name=name), run)
    with progress_bar("[bold]{task.description}") as progress:
        tell = advance(progress, progress.add_task("asked again", total=content["evaluation"]["tasks"]))
        verdict = ask_again(content, run, loaded, device=torch.device("cpu"), on_progress=tell)
    say(f"asked again: {verdict.found}, {verdict.tasks - verdict.differing} of {verdict.tasks} tasks alike")
    return 0 if verdict.same else 1


def _shipped(content: dict[str, Any]) -> TrainedRun | None:
    """The model that comes with the package, if a result is of that one: a checkpoint that every reader has."""
    if content["config"]["preset"] not in shipped_names():
        return None
    run = shipped_run(content["config"]["preset"], attention=content["evaluation"].get("attention"))
    return run if is_of(content, run) else None
