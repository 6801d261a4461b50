"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

DATA_HELP = (
    "name of a data set (see `csn data list`), or path of a text file or of images (folder, zip archive or CSV list)"
)


def add_bad_files(command: argparse.ArgumentParser) -> None:
    """What to do with images that cannot be read."""
    command.add_argument(
        "--bad-files",
        choices=("stop", "skip"),
        help="images that cannot be read or used: stop and name them (default), or skip them",
    )


def add_changes(command: argparse.ArgumentParser) -> None:
    """Changes to the configuration."""
    command.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        dest="changes",
        help="change any option of the configuration, e.g. train.learning_rate=0.01; may be repeated",
    )


def add_devices(command: argparse.ArgumentParser) -> None:
    """The number of processes that share the work."""
    command.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="share the work among N processes on this machine, each with a GPU or a core",
    )


def add_folder(command: argparse.ArgumentParser, option: str, default: str, what: str) -> None:
    """A folder that is created if it is missing."""
    about = f"folder of the {what} (default: %(default)s)"
    command.add_argument(option, type=Path, metavar="FOLDER", default=Path(default), help=about)


def add_machine(command: argparse.ArgumentParser, device: str = "auto") -> None:
    """The device and the number of threads."""
    command.add_argument("--device", default=device, help="auto, cpu, cuda or mps (default: %(default)s)")
    command.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
