"""Arguments that several commands have."""

from __future__ import annotations

import argparse

DATA_HELP = "data set, see `csn data list`, or the path of a folder, zip archive or CSV list of images, or a text file"


def add_bad_files(command: argparse.ArgumentParser) -> None:
    """What is done with images that cannot be read."""
    command.add_argument(
        "--bad-files",
        choices=("stop", "skip"),
        help="images that cannot be read or used: stop and name them (default), or skip them",
    )


def add_changes(command: argparse.ArgumentParser) -> None:
    """Options of the configuration."""
    command.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        dest="changes",
        help="change any option of the configuration, e.g. train.learning_rate=0.01; may be repeated",
    )


def add_devices(command: argparse.ArgumentParser) -> None:
    """Processes that share the work."""
    command.add_argument(
        "--devices", type=int, metavar="N", help="share the work out to N processes of this machine, a GPU or core each"
    )


def add_machine(command: argparse.ArgumentParser, device: str = "auto") -> None:
    """Device and threads."""
    command.add_argument("--device", default=device, help="auto, cpu, cuda or mps (default: %(default)s)")
    command.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
