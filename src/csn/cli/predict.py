"""`csn predict`: recognise files with what `csn adapt` learned."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from csn.cli.adapt import classifier_class
from csn.cli.terminal import console, prepare_machine


def predict(options: argparse.Namespace) -> int:
    """`csn predict`: a task file and images -> labels."""
    classifier = classifier_class().load(options.task, run=options.run, device=str(prepare_machine(options)))
    answers = [
        _answer(path, found) for path, found in zip(options.files, classifier.explain(options.files), strict=True)
    ]
    if options.json:
        print(json.dumps(answers, ensure_ascii=False, indent=1))
        return 0
    table = Table("file", "label", "probability", "most like", "similarity")
    for answer in answers:
        label = "unknown" if answer["label"] is None else str(answer["label"])
        like = answer["examples"][0]
        cells = (answer["file"], label, f"{100 * answer['probability']:.1f} %", f"example {like['index']}")
        table.add_row(*map(Text, (*cells, f"{answer['similarity']:.2f}")))
    console.print(table)
    return 0


def _answer(path: Path, found: Any) -> dict[str, Any]:
    """One prediction as JSON carries it."""
    return {
        "file": str(path),
        "label": found.label,
        "probability": max(found.probabilities.values()),
        "probabilities": [[label, value] for label, value in found.probabilities.items()],
        "similarity": found.similarity,
        "examples": [{"index": s.index, "label": s.label, "weight": s.weight} for s in found.sources],
    }
