"""The commands of cells, which anyone can type: `csn train` and `csn evaluate`, for a scheduler too."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from csn.engine.evaluate import EVALUATION_SEED
from csn.engine.lengthen import config_in
from csn.engine.pretrain import is_pretrained, pretrained_alike
from csn.experiments.tables.cells import STATED, Cell, EvaluationTasks


def training_command(
    cell: Cell, runs: Path, *, threads: int, resume: bool, pretrained: Cell | None = None
) -> list[str]:
    """The arguments of `csn` that train a cell. `pretrained` is another cell with the same pretraining."""
    config, data, train = cell.config, cell.config.data, cell.config.train
    command = ["train", config.preset, "--recipe", config.recipe, "--data", data.name]
    command += ["--way", str(data.way), "--shot", str(data.shot), "--tasks", str(train.tasks)]
    command += ["--seed", str(train.seed)]
    unsaid = [change for change in cell.changes if not change.startswith(STATED)]
    command += [word for change in unsaid for word in ("--set", change)]
    command += ["--pretrained", str(runs / pretrained.name)] if pretrained else []
    return [*command, "--threads", str(threads), "--out", str(runs / cell.name), *(["--resume"] if resume else [])]


def evaluation_command(cell: Cell, test: EvaluationTasks, runs: Path, results: Path, *, threads: int) -> list[str]:
    """The arguments of `csn` that test a cell."""
    command = ["evaluate", str(runs / cell.name), "--way", str(test.way), "--shot", str(test.shot)]
    command += ["--tasks", str(test.tasks)] if test.tasks else []
    command += [f"--{test.sampling}"] if test.sampling != "random" else []
    command += ["--task-seed", str(test.seed)] if test.seed != EVALUATION_SEED else []
    return [*command, "--threads", str(threads), "--out", str(results / cell.result(test))]


def pretrained_by(cell: Cell, others: Iterable[Cell], runs: Path) -> Cell | None:
    """Another cell with the same pretraining, so that a table pretrains only once."""
    for other in others if cell.config.pretrain.epochs else ():
        if other.name != cell.name and is_pretrained(runs / other.name):
            with contextlib.suppress(OSError, ValueError):
                made = config_in(runs / other.name)  # what it was trained by, not what is planned
                if made is not None and pretrained_alike(cell.config, made):
                    return other
    return None


def commands_of(
    cells: Sequence[Cell], everything: Sequence[Cell], runs: Path, results: Path, *, threads: int, again: bool
) -> list[dict[str, Any]]:
    """Each cell's name, its command, and the names of the cells that it must wait for.

    A command trains and tests, and can be restarted at any time. If several cells need the same pretraining, the first
    of them does it.
    """
    makers: list[Cell] = []
    found = []
    for cell in cells:
        pretrained, after = pretrained_by(cell, everything, runs), []
        if cell.config.pretrain.epochs and pretrained is None:
            pretrained = next((maker for maker in makers if pretrained_alike(cell.config, maker.config)), None)
            if pretrained is None:
                makers.append(cell)
            else:
                after.append(pretrained.name)
        train = training_command(cell, runs, threads=threads, resume=False, pretrained=pretrained)
        missing = cell.missing(results, again=again)
        tests = [evaluation_command(cell, test, runs, results, threads=threads) for test in missing]
        command = " && ".join(shlex.join(["csn", *each]) for each in ([*train, "--restartable"], *tests))
        found.append({"name": cell.name, "command": command, "after": after})
    return found


def as_text(commands: Sequence[dict[str, Any]], form: str) -> str:
    """The commands as JSON, or as independent lines: each holds a command and those that wait for it."""
    if form == "json":
        return json.dumps(commands, indent=2)
    behind: dict[str, list[str]] = {each["name"]: [each["command"]] for each in commands if not each["after"]}
    for each in commands:
        for name in each["after"]:
            behind[name].append(each["command"])
    return "\n".join(" && ".join(line) for line in behind.values())
