"""A table of two small cells for tests of `csn reproduce`."""

from __future__ import annotations

import json
from pathlib import Path

from csn.experiments.tables.cells import Cell

SMALL = ["network.filters=4", "train.validate_every=4", "train.validation_tasks=4", "train.tasks=8"]
TOY = {
    "strokes": [
        {
            "presets": ["adacnn-df"],
            "recipes": ["plus"],
            "tasks": ["5w1s"],
            "tested": {"5w1s": ["3w1s", "5w1s"]},
            "set": SMALL,
        },
        {"presets": ["prototypical"], "recipes": ["plus"], "tasks": ["5w1s"], "set": SMALL},
    ],
}
TRAINED = {"tasks": 8, "seconds": 1, "seconds_in_all": 1, "validation": 0.5, "validation_curve": []}
TRAINED |= {"commit": "", "command": ""}


def write_result(cell: Cell, results: Path, name: str = "", **asked: object) -> Path:
    """The file of a cell's last test, or one of another name; asked: what its tasks are instead."""
    test = cell.tests[-1]
    tasks = {"data": cell.config.data.label, "way": test.way, "shot": test.shot, "tasks": test.tasks} | asked
    content = {
        "format": 2,
        "summary": {"trained": {"accuracy": 0.5, "interval": 0.1}},
        "evaluation": tasks,
        "trained": TRAINED,
    }
    content |= {"accuracies": {"trained": [0.4, 0.6] * (tasks["tasks"] // 2)}, "command": "csn evaluate"}
    content |= {"config": json.loads(cell.config.to_json())}
    path = results / cell.folder / (name or Path(cell.result(test)).name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
