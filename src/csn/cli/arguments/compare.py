"""The arguments of `csn compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import add_changes, add_machine


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn compare`."""
    command.description = (
        "Train and test learners on the same tasks and write a table, a plot and result files. After an interruption, "
        "the same command continues."
    )
    command.add_argument("presets", nargs="+", metavar="PRESET", help="names of presets, or PRESET:RECIPE")
    command.add_argument("--recipe", choices=("paper", "plus", "best"), default="plus", help="default: %(default)s")
    command.add_argument("--data", metavar="NAME", default="strokes", help="data set (default: %(default)s)")
    command.add_argument("--way", type=int, default=5, help="classes of a task (default: %(default)s)")
    command.add_argument("--shot", type=int, default=1, help="labelled examples of a class (default: %(default)s)")
    command.add_argument(
        "--queries", type=int, default=5, help="unseen examples of a class in a training task (default: %(default)s)"
    )
    budget = command.add_mutually_exclusive_group()
    budget.add_argument("--tasks", type=int, default=2000, help="training tasks of each learner (default: %(default)s)")
    budget.add_argument(
        "--budget",
        metavar="TIME",
        help="train each learner for about this long on this machine instead, e.g. 90s or 5m",
    )
    command.add_argument("--test-tasks", type=int, default=400, help="test tasks (default: %(default)s)")
    command.add_argument(
        "--test-queries", type=int, help="unseen examples of a class in a test task (default: 15 images or 1 sentence)"
    )
    command.add_argument("--repeats", type=int, default=11, help="repetitions of the timing (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="seed of every training (default: %(default)s)")
    add_changes(command)
    command.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder for runs, results and plot (default: runs/compare/DATA-WAYwSHOTs)",
    )
    command.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="also write the table, plot and result files here, named after --out",
    )
    add_machine(command)
