"""The arguments of `csn export`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn export`."""
    command.add_argument("source", metavar="RUN|WEIGHTS", help="folder of a trained run, or name of shipped weights")
    command.add_argument("--to", choices=("page", "onnx"), default="page", help="format (default: %(default)s)")
    command.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="file or folder to write (default: NAME.html or NAME-onnx); a page in a folder is an app to install",
    )
    command.add_argument(
        "--steps",
        type=int,
        default=32,
        metavar="T",
        help="tokens of a sentence in ONNX graphs, padding included (default: %(default)s)",
    )
