"""The arguments of `csn reproduce`."""

from __future__ import annotations

import argparse

from csn.cli.arguments.shared import add_changes, add_folder


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn reproduce`."""
    command.description = (
        "Train and test every cell of a table that has no result file yet. Then write TABLE.md, TABLE.csv and "
        "TABLE.png (ablation-DATA.png for the ablations) into the folder of result files. After an interruption, "
        "the same command continues."
    )
    command.add_argument(
        "table",
        metavar="TABLE",
        help="omniglot, mini-imagenet, penn-treebank (tables 1 to 3), ablation or equal-budgets",
    )
    command.add_argument(
        "--rows",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="only these cells: presets, recipes, sizes such as 5w1s, arms of the ablation, cells or result files",
    )
    command.add_argument("--data", metavar="NAME|PATH", help="data set to use instead of the table's own")
    command.add_argument(
        "--seeds",
        type=int,
        help="number of trainings of each cell, each with its own seed (default: as its row states, or 1)",
    )
    command.add_argument(
        "--budget",
        metavar="TIME",
        help="train each cell for about this long, e.g. 90s, 30m or 2h (default: as many tasks as other seeds and arms "
        "of its model, or as the table states)",
    )
    command.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="number of cells that run at once and share the threads (default: %(default)s)",
    )
    command.add_argument("--threads", type=int, help="total number of CPU threads (default: all cores)")
    command.add_argument(
        "--again",
        action="store_true",
        help="also run cells that have result files: test a finished run again, or train it further if train.tasks is "
        "higher; replace files of other options or tests",
    )
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    instead.add_argument(
        "--print-commands",
        nargs="?",
        choices=("lines", "json"),
        const="lines",
        help="print the commands of each cell, which a scheduler can run: lines, or json with dependencies",
    )
    add_folder(command, "--runs", "runs/reproduce", "runs")
    add_folder(command, "--results", "results", "result files")
    add_changes(command)
