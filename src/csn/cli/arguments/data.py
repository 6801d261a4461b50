"""The arguments of `csn data`."""

from __future__ import annotations

import argparse

from csn.cli.arguments.shared import add_bad_files


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn data`."""
    command.add_argument(
        "action",
        choices=("list", "get", "check"),
        help="list: all data sets; get: download or generate one; check: count its classes and examples, and for a "
        "path of images also name unreadable files, classes in two splits and duplicates",
    )
    command.add_argument(
        "name", nargs="?", metavar="NAME|PATH", help="name of a data set, or path of your own images (get, check)"
    )
    command.add_argument("--image-size", type=int, metavar="PIXELS", help="side length to which images are resized")
    add_bad_files(command)
