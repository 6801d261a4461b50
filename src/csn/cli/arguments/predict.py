"""The arguments of `csn predict`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import add_machine


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn predict`."""
    command.add_argument("task", type=Path, metavar="TASK", help="task file that `csn adapt` wrote")
    command.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="pictures or folders of pictures; a .csv or .txt file of sentences; a .npy file of vectors; or - to read "
        "lines from standard input",
    )
    command.add_argument(
        "--run",
        type=Path,
        metavar="RUN",
        help="trained run that learned the task, if it was not learned with shipped weights",
    )
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON with all probabilities instead of a table")
    shown.add_argument("--csv", action="store_true", help="print comma-separated lines instead of a table")
    command.add_argument("--top", type=int, default=1, metavar="N", help="show the N most probable labels")
    command.add_argument(
        "--bad-files",
        choices=("stop", "skip"),
        help="files that cannot be read: stop at the first, or skip them (default: answer for the rest, name them, and "
        "exit with status 1)",
    )
    add_machine(command, device="cpu")
