"""A table of two small cells for tests of `csn reproduce`."""

from __future__ import annotations

SMALL = ["model.filters=4", "train.validate_every=4", "train.validation_tasks=4", "train.tasks=8"]
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
