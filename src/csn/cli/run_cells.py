"""Run the commands of cells in their own processes, several at once, and show their progress."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from csn.cli.cell_commands import evaluation_command, pretrained_by, training_command
from csn.cli.terminal import progress_bar, say, stop_signal
from csn.engine.log import read_log
from csn.engine.pretrain import FOLDER as PRETRAIN_FOLDER
from csn.engine.pretrain import is_pretrained, pretrained_alike
from csn.experiments.records.files import read_result
from csn.experiments.tables.cells import Cell, EvaluationTasks, queries_of

POLL = 1.0  # seconds between looks at running cells
GROUPS = 200  # roughly the number of all-inclusive tasks: the paper's 1000 words, five at a time
BACKWARD = 2  # a backward pass costs as much as this many forward passes
REPEATED_QUERIES = 5  # roughly how often a test uses each image, if images are encoded once
PROMPT = "$ csn "  # precedes each command in the log of its cell


@dataclass
class _Running:
    """A running cell: its tests, the commands still to run, and the current process."""

    cell: Cell
    tests: Sequence[EvaluationTasks]
    commands: list[list[str]]
    process: subprocess.Popen[bytes]
    log: io.BufferedWriter
    is_testing: bool = False

    @property
    def finished_tests(self) -> Sequence[EvaluationTasks]:
        """The tests that have finished."""
        return self.tests[: len(self.tests) - len(self.commands) - 1] if self.is_testing else ()


def run_all(
    cells: Sequence[Cell], everything: Sequence[Cell], options: argparse.Namespace, threads: int
) -> dict[str, str] | None:
    """Train and test cells, and return the names of those that failed with the reason, or None after an interruption.

    Args:
        cells: The cells to run.
        everything: All cells of the table, whose pretraining and speed can be used.
        options: The options of `csn reproduce`. `jobs` cells run at once.
        threads: The number of threads of each cell.
    """
    waiting, running, failed = list(cells), list[_Running](), dict[str, str]()
    cost = seconds_of_tasks(cells, everything, options.results)  # of a training task

    def seconds(cell: Cell, trained: int, tests: Sequence[EvaluationTasks]) -> float:
        return cost[cell.name] * (trained + sum(cost_of(cell, test) for test in tests))

    tests = {cell.name: cell.tests if options.again else cell.missing(options.results) for cell in cells}
    before = {cell.name: _trained(cell, options.runs) for cell in cells}
    work = {cell.name: seconds(cell, cell.config.train.tasks, tests[cell.name]) for cell in cells}
    done = {cell.name: seconds(cell, before[cell.name], ()) for cell in cells}
    with progress_bar("[bold]{task.description}", remembers=3600) as progress, stop_signal() as should_stop:
        # Earlier training counts as completed at the start, so that it does not distort the speed of this run.
        paid = sum(done.values())
        overall = progress.add_task("all cells", total=sum(work.values()), completed=paid, in_percent=True)  # type: ignore[arg-type]
        bars = {}
        try:
            while waiting or running:
                if should_stop():
                    return None
                while waiting and len(running) < options.jobs:
                    cell = _next(waiting, running, options.runs)
                    waiting.remove(cell)
                    tasks = cell.config.train.tasks
                    bars[cell.name] = progress.add_task(cell.name, total=tasks, completed=before[cell.name])
                    running.append(_start(cell, tests[cell.name], everything, options, threads))
                time.sleep(POLL)
                for each in list(running):
                    name, trained = each.cell.name, _trained(each.cell, options.runs)
                    done[name] = seconds(each.cell, trained, each.finished_tests)
                    about = f"{_phase(each, options.runs)}{name}"
                    progress.update(bars[name], completed=trained, description=about)
                    if (state := _next_command(each)) == "running":
                        continue
                    running.remove(each)
                    each.log.close()
                    progress.remove_task(bars.pop(name))
                    if state == "failed":
                        failed[name] = _why(each.process.returncode, options.runs / f"{name}.log")
                        state = f"failed: {failed[name]}"
                    else:
                        done[name] = seconds(each.cell, trained, each.tests)
                    work[name] = done[name]  # can be less than planned: failed, or stopped early
                    say(f"{name}: {state}")
                progress.update(overall, total=sum(work.values()), completed=sum(done.values()))
        finally:
            _stop(running)
    return failed


def _stop(running: Sequence[_Running]) -> None:
    """Ask the running cells to save and stop, and wait until they have."""
    for each in running:
        each.process.terminate()
    for each in running:
        each.process.wait()
        each.log.close()


def _next(waiting: Sequence[Cell], running: Sequence[_Running], runs: Path) -> Cell:
    """The first cell whose pretraining no running cell is doing, or else the first cell."""
    pretraining = [
        each.cell.config
        for each in running
        if each.cell.config.pretrain.epochs and not is_pretrained(runs / each.cell.name)
    ]
    free = (cell for cell in waiting if not any(pretrained_alike(cell.config, config) for config in pretraining))
    return next(free, waiting[0])


def _start(
    cell: Cell,
    tests: Sequence[EvaluationTasks],
    all_cells: Sequence[Cell],
    options: argparse.Namespace,
    threads: int,
) -> _Running:
    """Start the first command of a cell. Its output goes to a log next to its run."""
    folder = options.runs / cell.name
    resume = folder.exists() and any(folder.iterdir())
    goes_on = any((folder / part / "last.safetensors").exists() for part in (".", PRETRAIN_FOLDER))
    pretrained = None if goes_on else pretrained_by(cell, all_cells, options.runs)
    commands = [training_command(cell, options.runs, threads=threads, resume=resume, pretrained=pretrained)]
    commands += [evaluation_command(cell, test, options.runs, options.results, threads=threads) for test in tests]
    log = (options.runs / f"{cell.name}.log").open("ab")
    return _Running(cell, tests, commands[1:], _spawn(commands[0], log), log)


def _spawn(command: list[str], log: io.BufferedWriter) -> subprocess.Popen[bytes]:
    log.write(f"{PROMPT}{shlex.join(command)}\n".encode())
    log.flush()
    # In its own session Ctrl-C does not reach it: this program stops its cells one by one.
    program = [sys.executable, "-m", "csn", *command]
    return subprocess.Popen(program, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)


def _next_command(each: _Running) -> str:
    """Start the next command if the current one has ended, and return running, done or failed."""
    code = each.process.poll()
    if code is None:
        return "running"
    if code != 0:
        return "failed"
    if not each.commands:
        return "done"
    each.process, each.is_testing = _spawn(each.commands.pop(0), each.log), True
    return "running"


def _phase(each: _Running, runs: Path) -> str:
    """What a cell does if not training on tasks. It precedes the name, because a narrow terminal cuts the end."""
    folder, epochs = runs / each.cell.name, each.cell.config.pretrain.epochs
    if each.is_testing:
        return "testing "
    if epochs and (folder / PRETRAIN_FOLDER).exists() and not (folder / "log.jsonl").exists():
        passes = sum("validation" in record for record in read_log(folder / PRETRAIN_FOLDER))
        return f"pretraining {min(passes + 1, epochs)}/{epochs} "
    return ""


def _why(code: int, log: Path) -> str:
    """Why a command failed: its error message, or its last line.

    Others write to the same log: earlier commands of the cell, or a process left over from a killed command.
    """
    if code < 0:
        return f"killed by signal {-code}, perhaps because memory ran out; the same command continues"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    own = list(itertools.takewhile(lambda line: not line.startswith(PROMPT), reversed(lines)))
    errors = [line for line in own if line.startswith("csn: ")]
    return next((line.strip() for line in (*errors, *own) if line.strip()), "no message")


def _trained(cell: Cell, runs: Path) -> int:
    """Training tasks of a cell so far, read from the log of its run."""
    log = read_log(runs / cell.name)
    return int(log[-1]["tasks"]) if log else 0


def cost_of(cell: Cell, test: EvaluationTasks) -> float:
    """The rough cost of a test in training tasks, by the number of examples that pass through the network."""
    data = cell.config.data
    training = data.way * (data.shot + data.queries) * (1 + BACKWARD)
    examples = (test.tasks or GROUPS) * test.way * (test.shot + queries_of(cell.config))
    encoded = cell.config.learner.encodes and not cell.config.reads_sentences
    return examples / training / (REPEATED_QUERIES if encoded else 1)


def seconds_of_tasks(cells: Sequence[Cell], everything: Iterable[Cell], results: Path) -> dict[str, float]:
    """For each cell, roughly how long a training task takes compared with the tasks of other cells.

    Times come from results of the same model, with any seed or arm. A model without results counts as the mean of the
    others. If no model has results, all count alike.
    """
    known = dict[tuple[str, ...], float]()
    for other in everything:
        for test in other.tests:
            with contextlib.suppress(ValueError):  # not there, or of no use
                content = read_result(results / other.result(test))
                curve = content["trained"]["validation_curve"] if "trained" in content else []
                if curve and curve[-1][0] and content["trained"]["seconds_in_all"]:
                    known.setdefault(other.model_key, content["trained"]["seconds_in_all"] / curve[-1][0])
    ours = [known[cell.model_key] for cell in cells if cell.model_key in known]
    typical = statistics.mean(ours) if ours else 1.0
    return {cell.name: known.get(cell.model_key, typical) for cell in cells}
