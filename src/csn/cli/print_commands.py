"""`csn reproduce TABLE --print-commands`: the cells as commands, for a scheduler to run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csn.engine.pretrain import pretrained_alike
from csn.experiments.tables.cells import Cell
from csn.experiments.tables.plan import pretrained_by


def commands_of(
    cells: Sequence[Cell], everything: Sequence[Cell], runs: Path, results: Path, *, threads: int, again: bool
) -> list[dict[str, Any]]:
    """Each cell's name, its command, and the names of the cells that it has to wait for.

    A command trains and tests, and can be started again at any time. A pretraining that several cells would do alike is
    done by the first of them.
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
        train = cell.train_command(runs, threads=threads, resume=False, pretrained=pretrained)
        tests = [cell.test_command(test, runs, results, threads=threads) for test in cell.missing(results, again=again)]
        command = " && ".join(shlex.join(["csn", *each]) for each in ([*train, "--restartable"], *tests))
        found.append({"name": cell.name, "command": command, "after": after})
    return found


def as_text(commands: Sequence[dict[str, Any]], form: str) -> str:
    """The commands as JSON; or as lines, each with those that wait for it behind it, so that any order will do."""
    if form == "json":
        return json.dumps(commands, indent=2)
    behind: dict[str, list[str]] = {each["name"]: [each["command"]] for each in commands if not each["after"]}
    for each in commands:
        for name in each["after"]:
            behind[name].append(each["command"])
    return "\n".join(" && ".join(line) for line in behind.values())
