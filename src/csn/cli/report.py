"""`csn report`: the page of a run, with its learning curve and one of its tasks."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.data import load
from csn.cli.terminal import or_default, say
from csn.data.source import EpisodeSource
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.run import check_vocabulary, open_run
from csn.experiments.run_page import write_report


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn report`."""
    command.add_argument("run", type=Path, metavar="RUN", help="folder of a trained run")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: RUN/report)")
    command.add_argument("--episode", type=int, default=0, help="which test task to draw (default: %(default)s)")
    command.add_argument("--way", type=int, help="classes of the task drawn (default: as trained)")
    command.add_argument("--shot", type=int, help="labelled examples of a class in it (default: as trained)")


def report(options: argparse.Namespace) -> int:
    """`csn report`."""
    run = open_run(options.run)
    tasks = run.config.data
    data = load(tasks, run)
    check_vocabulary(run, data)
    way, shot = or_default(options.way, tasks.way), or_default(options.shot, tasks.shot)
    source = EpisodeSource(
        data,
        "test",
        way=way,
        shot=shot,
        queries=2 if way <= 10 else 1,
        seed=EVALUATION_SEED,
        support=run.learner.support_of,
    )
    for path in write_report(run, source, options.episode, options.out or options.run / "report"):
        say(f"written to {path}")
    return 0
