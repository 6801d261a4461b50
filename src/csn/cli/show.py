"""`csn show`: a picture of a task and, with a run, of its predictions."""

from __future__ import annotations

import argparse

from csn.cli.data import chosen_data, load
from csn.cli.sentences import class_table, sentence_tables
from csn.cli.terminal import console, or_default, say
from csn.config import DataConfig
from csn.data.source import EpisodeSource
from csn.engine.answers import task_in_words
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.run import check_vocabulary, open_run
from csn.experiments.run_page import task_figure
from csn.plots.drawing import png
from csn.plots.episodes import contact_sheet


def show(options: argparse.Namespace) -> int:
    """Run `csn show`."""
    run = None if options.run is None else open_run(options.run)
    tasks = DataConfig() if run is None else run.config.data
    loaded, split = load(chosen_data(options, run), run), options.split
    if options.classes is not None:
        title = f"{loaded.name}, {options.classes} of {len(loaded.splits[split])} {split} classes"
        if loaded.vocabulary is not None:
            console.print(class_table(loaded.splits[split], loaded.vocabulary, options.classes, title=title))
            return 0
        figure = contact_sheet(loaded.splits[split], options.classes, title=title)
    else:
        if run is not None:
            check_vocabulary(run, loaded)
        way, shot = or_default(options.way, tasks.way), or_default(options.shot, tasks.shot)
        source = EpisodeSource(
            loaded,
            split,
            way=way,
            shot=shot,
            queries=options.queries,
            seed=EVALUATION_SEED,
            support="examples" if run is None else run.learner.support_of,
        )
        title = f"{split.capitalize()} task {options.episode} of {loaded.name}, {way}-way {shot}-shot"
        learner = None if run is None else run.learner
        if loaded.vocabulary is not None:
            console.print(
                sentence_tables(task_in_words(source, options.episode, learner), title=title, width=console.width)
            )
        figure = task_figure(source, options.episode, learner, title=title)
    write_atomically(options.out, png(figure))
    say(f"written to {options.out}")
    return 0
