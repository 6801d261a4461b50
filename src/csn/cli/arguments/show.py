"""The arguments of `csn show`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import DATA_HELP, add_bad_files


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn show`."""
    command.add_argument("--run", type=Path, metavar="RUN", help="trained run whose predictions and attention to draw")
    command.add_argument("--data", metavar="NAME|PATH", help=f"{DATA_HELP} (default: the run's, or strokes)")
    add_bad_files(command)
    command.add_argument("--split", choices=("train", "val", "test"), default="test", help="default: %(default)s")
    command.add_argument("--way", type=int, help="classes (default: the run's, or 5)")
    command.add_argument("--shot", type=int, help="labelled examples of a class (default: the run's, or 1)")
    command.add_argument("--queries", type=int, default=2, help="unseen examples of a class (default: %(default)s)")
    command.add_argument("--episode", type=int, default=0, help="number of the task (default: %(default)s)")
    command.add_argument("--classes", type=int, metavar="N", help="draw N classes of the split instead of an episode")
    command.add_argument(
        "--out", type=Path, metavar="FILE", default=Path("episode.png"), help="picture to write (default: %(default)s)"
    )
