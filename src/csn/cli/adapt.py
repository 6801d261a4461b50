"""`csn adapt`: learn a folder of labelled pictures, a table of sentences, or vectors."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from csn.cli.inputs import Rows, labelled
from csn.cli.terminal import prepare_machine, progress_bar, say

if TYPE_CHECKING:
    from csn.classifier.classifier import FewShotClassifier

GUESSED = {".csv": "text", ".npy": "none"}


def adapt(options: argparse.Namespace) -> int:
    """Run `csn adapt`: labelled examples -> a task file."""
    kind = options.encoder or GUESSED.get(options.source.suffix.lower(), "drawings")
    if options.run is not None and kind != "drawings":
        raise ValueError(f"--run needs no encoder for its pictures, got --encoder {kind}: leave one out")
    rows, device = labelled(options.source, kind, options.labels), str(prepare_machine(options))
    classifier = classifier_class()(
        options.model,
        encoder=None if kind == "none" else kind,
        run=options.run,
        head=options.head,
        unknown_threshold=options.unknown_threshold,
        device=device,
    )
    rows, bad = learned(classifier, rows, skip=options.bad_files == "skip")
    classifier.save(options.out)
    size = options.out.stat().st_size
    for line in bad:
        say(f"skipped {line}")
    say(f"learned {len(rows.items)} examples of {len(classifier.classes_)} classes into {options.out} ({size:,} bytes)")
    return 0


def learned(classifier: FewShotClassifier, rows: Rows, *, skip: bool) -> tuple[Rows, list[str]]:
    """Learn the rows, and return those learned with one line per skipped example.

    Args:
        classifier: The classifier, which is fitted in place.
        rows: Labelled examples.
        skip: Leave out examples that cannot be read, instead of raising ValueError.
    """
    bad: list[str] = []
    try:
        with _encoding(classifier, len(rows.items)):
            classifier.fit(rows.items, rows.labels, names=rows.names)
    except ValueError:
        if not skip:
            raise
        good = []
        for i, item in enumerate(rows.items):
            try:
                classifier.blank().partial_fit([item], [rows.labels[i]])
                good.append(i)
            except ValueError as error:
                bad.append(f"{rows.names[i]}: {error}")
        if not good:
            raise ValueError(f"none of the {len(bad)} examples can be learned; the first: {bad[0]}") from None
        rows = Rows(*([part[i] for i in good] for part in rows))
        classifier.fit(rows.items, rows.labels, names=rows.names)
    return rows, bad


@contextmanager
def _encoding(classifier: FewShotClassifier, count: int) -> Iterator[None]:
    """Show a progress bar while an encoder works, if there is more than one batch."""
    if classifier.encoder not in ("text", "photos") or count <= classifier.batch_size:
        yield
        return
    with progress_bar("encoding") as progress:
        bar = progress.add_task("", total=count)
        classifier.progress = lambda done, total: progress.update(bar, completed=done, total=total)
        try:
            yield
        finally:
            classifier.progress = None


def classifier_class() -> type[FewShotClassifier]:
    """Import FewShotClassifier late: other commands need no scikit-learn."""
    from csn.classifier.classifier import FewShotClassifier

    return FewShotClassifier
