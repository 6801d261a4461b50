"""The arguments of `csn adapt`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import add_bad_files, add_machine


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn adapt`."""
    command.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="folder with one folder of examples per label; a .csv with columns label and text (or file); or "
        "vectors as .npy",
    )
    command.add_argument("--out", type=Path, metavar="FILE", required=True, help="task file to write, e.g. task.csn")
    command.add_argument(
        "--encoder",
        choices=("drawings", "photos", "text", "none"),
        help="kind of examples; none: vectors (default: text for a .csv, none for a .npy, otherwise drawings)",
    )
    command.add_argument("--labels", type=Path, metavar="FILE", help="labels of the vectors, one per line")
    command.add_argument(
        "--head",
        choices=("csn", "centroid", "logistic", "learner"),
        help="classifier over the encoder's vectors (default: csn; with --run learner, which is the run's own layers)",
    )
    command.add_argument("--model", default="characters", help="name of shipped weights (default: %(default)s)")
    command.add_argument("--run", type=Path, metavar="RUN", help="trained run to use instead of shipped weights")
    command.add_argument(
        "--unknown-threshold",
        type=_threshold,
        metavar="own|calibrated|COSINE",
        help="answer unknown below this similarity; own: found on the task's examples; calibrated: the encoder's; or a "
        "number (default: always answer)",
    )
    add_bad_files(command)
    add_machine(command, device="cpu")


def _threshold(text: str) -> float | str:
    if text in ("own", "calibrated"):
        return text
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected own, calibrated or a number, got {text!r}") from error
