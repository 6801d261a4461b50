"""`csn adapt` and `csn predict`: learn a folder of labelled images, recognise files with what was learned."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from csn.terminal import console, prepare_machine, say

if TYPE_CHECKING:
    from csn.classifier import FewShotClassifier

SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"}


def adapt(options: argparse.Namespace) -> int:
    """`csn adapt`: a folder per label -> a task file."""
    files, device = labelled_files(options.images), str(prepare_machine(options))
    classifier = _classifier()(
        options.model, run=options.run, unknown_threshold=options.unknown_threshold, device=device
    )
    classifier.fit([path for path, _ in files], [label for _, label in files])
    classifier.save(options.out)
    size = options.out.stat().st_size
    say(f"learned {len(files)} examples of {len(classifier.classes_)} classes into {options.out} ({size:,} bytes)")
    return 0


def predict(options: argparse.Namespace) -> int:
    """`csn predict`: a task file and images -> labels."""
    classifier = _classifier().load(options.task, run=options.run, device=str(prepare_machine(options)))
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


def labelled_files(folder: Path) -> list[tuple[Path, str]]:
    """(file, label) of every image in the folders of `folder`, which are the labels; in the order of their names."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: give one that holds a folder of images for each label")
    files = [
        (path, label.name)
        for label in sorted(folder.iterdir())
        if label.is_dir() and not label.name.startswith(".")
        for path in sorted(label.iterdir())
        if path.is_file() and path.suffix.lower() in SUFFIXES
    ]
    if not files:
        kinds = ", ".join(sorted(SUFFIXES))
        raise ValueError(f"{folder} holds no images in folders of its own: expected {folder}/LABEL/*.png (or {kinds})")
    return files


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


def _classifier() -> type[FewShotClassifier]:
    """Imported late: other commands need no scikit-learn."""
    try:
        from csn.classifier import FewShotClassifier
    except ImportError as error:
        raise ValueError(str(error)) from error
    return FewShotClassifier
