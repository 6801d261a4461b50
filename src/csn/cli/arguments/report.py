"""The arguments of `csn report`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn report`."""
    command.add_argument("run", type=Path, metavar="RUN", help="folder of a trained run")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: RUN/report)")
    command.add_argument(
        "--episode", type=int, default=0, help="number of the test task to draw (default: %(default)s)"
    )
    command.add_argument("--way", type=int, help="classes of that task (default: as trained)")
    command.add_argument("--shot", type=int, help="labelled examples of a class in that task (default: as trained)")
