"""The arguments of `csn train`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import DATA_HELP, add_bad_files, add_changes, add_devices, add_machine


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn train`."""
    command.description = "Train a preset. `csn train list` names the presets."
    command.add_argument("preset", metavar="PRESET", help="name of a preset, or `list`")
    command.add_argument(
        "--recipe",
        choices=("paper", "plus", "best"),
        default="paper",
        help="paper: as printed; plus: with our improvements; best: best accuracy at any cost (default: %(default)s)",
    )
    command.add_argument("--data", metavar="NAME|PATH", help=f"{DATA_HELP} (default: the preset's)")
    add_bad_files(command)
    command.add_argument("--way", type=int, help="classes of a task")
    command.add_argument("--shot", type=int, help="labelled examples of a class")
    command.add_argument("--queries", type=int, help="unseen examples of a class in a training task")
    command.add_argument("--tasks", type=int, help="total number of training tasks")
    command.add_argument("--seed", type=int, help="seed of initialisation, tasks and dropout")
    command.add_argument(
        "--precision",
        choices=("fp32", "bf16-mixed"),
        help="precision of training (default: the preset's, which is fp32)",
    )
    command.add_argument(
        "--compile",
        nargs="?",
        const="on",
        choices=("on", "strict"),
        help="compile the training step with torch.compile; if that fails, train without it (on) or stop (strict)",
    )
    add_changes(command)
    command.add_argument("--out", type=Path, metavar="FOLDER", help="run folder (default: runs/PRESET-RECIPE-DATA-...)")
    going_on = command.add_mutually_exclusive_group()
    going_on.add_argument("--resume", action="store_true", help="continue the run in --out, also beyond its end")
    going_on.add_argument(
        "--restartable",
        action="store_true",
        help="continue if --out holds this run, otherwise start it: one command for schedulers that restart jobs",
    )
    command.add_argument(
        "--pretrained",
        type=Path,
        metavar="RUN",
        help="start from the pretrained network of RUN instead of pretraining again",
    )
    command.add_argument(
        "--data-on",
        choices=("auto", "device", "host", "stream"),
        default="auto",
        help="where to keep training examples; auto: on the device if they fit; stream: decode the images of a path "
        "only when a task needs them",
    )
    add_devices(command)
    add_machine(command)
