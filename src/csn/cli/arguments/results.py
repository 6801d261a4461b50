"""The arguments of `csn results`."""

from __future__ import annotations

import argparse
from pathlib import Path

from csn.cli.arguments.shared import add_folder


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of `csn results`."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    tables = actions.add_parser("tables", help="rewrite the marked tables of pages from the result files")
    tables.add_argument(
        "pages", type=Path, nargs="*", metavar="PAGE", help="pages to rewrite (default: README.md and all of docs)"
    )
    add_folder(tables, "--results", "results", "result files")
    verify = actions.add_parser(
        "verify", help="check a file's numbers, and test its checkpoint on the same tasks again"
    )
    verify.add_argument("result", type=Path, metavar="RESULT", help="result file")
    verify.add_argument("--run", type=Path, metavar="RUN", help="folder of its run now (default: as recorded)")
    verify.add_argument("--data", metavar="NAME|PATH", help="its data set now (default: as recorded)")
    diff = actions.add_parser("diff", help="difference of two results, task by task")
    diff.add_argument("result", type=Path, metavar="RESULT", help="result file")
    diff.add_argument("other", type=Path, metavar="OTHER", help="result file of the same tasks")
    show = actions.add_parser("show", help="numbers of a result, and the commands that made it")
    show.add_argument("result", type=Path, metavar="RESULT", help="result file")
