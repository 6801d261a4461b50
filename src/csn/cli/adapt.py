"""`csn adapt`: learn a folder of labelled images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from csn.cli.terminal import prepare_machine, say

if TYPE_CHECKING:
    from csn.classifier.classifier import FewShotClassifier

SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"}


def adapt(options: argparse.Namespace) -> int:
    """`csn adapt`: a folder per label -> a task file."""
    files, device = labelled_files(options.images), str(prepare_machine(options))
    classifier = classifier_class()(
        options.model, run=options.run, unknown_threshold=options.unknown_threshold, device=device
    )
    classifier.fit([path for path, _ in files], [label for _, label in files])
    classifier.save(options.out)
    size = options.out.stat().st_size
    say(f"learned {len(files)} examples of {len(classifier.classes_)} classes into {options.out} ({size:,} bytes)")
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


def classifier_class() -> type[FewShotClassifier]:
    """Imported late: other commands need no scikit-learn."""
    try:
        from csn.classifier.classifier import FewShotClassifier
    except ImportError as error:
        raise ValueError(str(error)) from error
    return FewShotClassifier
