"""The arguments of `csn evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import DATA_HELP, add_bad_files, add_devices, add_machine


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn evaluate`."""
    command.add_argument("run", type=Path, metavar="RUN", help="folder of a trained run")
    command.add_argument("--data", metavar="NAME|PATH", help=f"{DATA_HELP} (default: as trained)")
    add_bad_files(command)
    command.add_argument("--split", choices=("val", "test"), default="test", help="default: %(default)s")
    command.add_argument("--way", type=int, help="classes of a task, at most as many as in training")
    command.add_argument("--shot", type=int, help="labelled examples of a class")
    command.add_argument("--queries", type=int, help="unseen examples of a class (default: 15 images or 1 sentence)")
    command.add_argument("--tasks", type=int, help="number of random tasks (default: 400)")
    sampling = command.add_mutually_exclusive_group()
    sampling.add_argument(
        "--within-alphabet", action="store_true", help="draw all classes of a task from one alphabet, which is harder"
    )
    sampling.add_argument(
        "--all-inclusive",
        action="store_true",
        help="divide all classes of the split into groups and solve each group once",
    )
    command.add_argument("--task-seed", type=int, help="seed of the test tasks (default: 2018 for every run)")
    command.add_argument("--attention", choices=("soft", "hard"), help="how the memory is read (default: as trained)")
    command.add_argument(
        "--references",
        action="store_true",
        help="also test the untrained model and, for images, a nearest neighbour on pixels on the same tasks",
    )
    command.add_argument(
        "--out", type=Path, metavar="FILE", help="result file with per-task accuracies (default: RUN/result-....json)"
    )
    add_devices(command)
    add_machine(command)
