"""`csn reproduce TABLE --print-commands`: the commands of the cells, for a scheduler."""

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
        train = cell.train_command(runs, threads=threads, resume=False, pretrained=pretrained)
        tests = [cell.test_command(test, runs, results, threads=threads) for test in cell.missing(results, again=again)]
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
