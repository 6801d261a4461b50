"""`csn report`: a page about a run, with its learning curve and one of its tasks."""

from __future__ import annotations

import argparse

from csn.cli.data import load
from csn.cli.terminal import or_default, say
from csn.data.source import EpisodeSource
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.run import check_vocabulary, open_run
from csn.experiments.run_page import write_report


def report(options: argparse.Namespace) -> int:
    """Run `csn report`."""
    run = open_run(options.run)
    tasks = run.config.data
    data = load(tasks, run)
    check_vocabulary(run, data)
    way, shot = or_default(options.way, tasks.way), or_default(options.shot, tasks.shot)
    size = {"way": way, "shot": shot, "queries": 2 if way <= 10 else 1}
    source = EpisodeSource(data, "test", **size, seed=EVALUATION_SEED, support=run.learner.support_of)
    for path in write_report(run, source, options.episode, options.out or options.run / "report"):
        say(f"written to {path}")
    return 0
