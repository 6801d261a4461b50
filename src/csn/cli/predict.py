"""`csn predict`: recognise pictures, sentences or vectors with a task that `csn adapt` learned."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from csn.classifier.explanation import Explanation
from csn.cli.adapt import classifier_class
from csn.cli.inputs import Rows, unlabelled
from csn.cli.terminal import console, prepare_machine
from csn.printable import csv_text, json_text, printable

LABEL, NUMBERS, LEAST = 20, 29, 12  # characters: longest label, other columns, shortest name


def predict(options: argparse.Namespace) -> int:
    """Run `csn predict`: a task file and examples -> labels. The status is 1 if some could not be read."""
    if options.top < 1:
        raise ValueError(f"--top must be at least 1, got {options.top}")
    classifier = classifier_class().load(options.task, run=options.run, device=str(prepare_machine(options)))
    rows = unlabelled(options.files, "none" if classifier.encoder is None else str(classifier.encoder))
    found, bad = recognised(classifier, rows, stop=options.bad_files == "stop")
    answers = [_answer(name, one, options.top) for name, one in found]
    if options.json:
        print(json_text(answers))
    elif options.csv:
        _print_csv(answers, options.top)
    else:
        _print_table(answers, options.top)
    for name, message in bad:
        print(printable(f"csn: {name}: {message}"), file=sys.stderr)
    return 1 if bad and options.bad_files != "skip" else 0


def recognised(
    classifier: Any, rows: Rows, *, stop: bool
) -> tuple[list[tuple[str, Explanation]], list[tuple[str, str]]]:
    """(name, explanation) of each example, and (name, reason) of those that could not be read.

    Args:
        classifier: A fitted FewShotClassifier.
        rows: The examples to recognise.
        stop: Raise ValueError at the first example that cannot be read.
    """
    try:
        return list(zip(rows.names, classifier.explain(rows.items), strict=True)), []
    except ValueError:
        if stop or len(rows.items) == 1:
            raise
    found: list[tuple[str, Explanation]] = []
    bad: list[tuple[str, str]] = []
    for name, item in zip(rows.names, rows.items, strict=True):
        try:
            found.append((name, classifier.explain([item])[0]))
        except ValueError as error:
            bad.append((name, str(error)))
    if not found:
        raise ValueError(f"none of the {len(bad)} examples can be read; the first, {bad[0][0]}: {bad[0][1]}")
    return found, bad


def _answer(name: str, found: Explanation, top: int) -> dict[str, Any]:
    """One prediction as a JSON object."""
    best = sorted(found.probabilities.items(), key=lambda item: -item[1])[:top]
    return {
        "file": name,
        "label": found.label,
        "probability": max(found.probabilities.values()),
        "top": [[label, value] for label, value in best],
        "probabilities": [[label, value] for label, value in found.probabilities.items()],
        "similarity": found.similarity,
        "examples": [
            {"index": s.index, "label": s.label, "weight": s.weight, "push": s.push, "name": s.name}
            for s in found.sources
        ],
    }


def _print_table(answers: list[dict[str, Any]], top: int) -> None:
    table = Table(*("file", "label", "probability", "most like", "similarity"), box=None, pad_edge=False)
    widest = max(len(str(label)) for answer in answers for label, _ in answer["top"])
    room = max(LEAST, (console.width - NUMBERS - min(max(widest, len("unknown")), LABEL)) // 2)
    names = told_apart([answer["file"] for answer in answers], room)
    remembered = told_apart([_most_like(answer) for answer in answers], room)
    for name, like, answer in zip(names, remembered, answers, strict=True):
        label = "unknown" if answer["label"] is None else str(answer["label"])
        shown = [(_cut(label, LABEL), answer["probability"])]
        shown += [(_cut(str(other), LABEL), value) for other, value in answer["top"][1:top]]
        cells = ("\n".join(one for one, _ in shown), "\n".join(f"{100 * value:.1f} %" for _, value in shown))
        table.add_row(*(Text(printable(cell)) for cell in (name, *cells, like, f"{answer['similarity']:.2f}")))
    console.print(table)


def _print_csv(answers: list[dict[str, Any]], top: int) -> None:
    more = [f"{what}_{i}" for i in range(2, top + 1) for what in ("label", "probability")]
    rows: list[list[object]] = [["file", "label", "probability", "similarity", "most_like", *more]]
    for answer in answers:
        others = [part for other, value in answer["top"][1:] for part in (other, f"{value:.6f}")]
        numbers = [f"{answer['probability']:.6f}", f"{answer['similarity']:.6f}"]
        rows.append([answer["file"], answer["label"], *numbers, _most_like(answer), *others])
    print(csv_text(rows), end="")


def _most_like(answer: dict[str, Any]) -> str:
    """The name of the remembered example that contributed most to an answer."""
    if not answer["examples"]:
        return ""
    first = answer["examples"][0]
    return first["name"] or f"example {first['index']}"


def told_apart(names: list[str], width: int) -> list[str]:
    """Shorten names: drop their common folder, then cut those still too long in the middle.

    If two different names then look the same, all are numbered.
    """
    folders = [os.path.dirname(name) for name in names]
    common = os.path.commonpath(folders) if len(names) > 1 and all(folders) and _alike(folders) else ""
    shortened = [os.path.relpath(name, common) if common else name for name in names]
    cut = [_cut(name, width) for name in shortened]
    whole = dict(zip(cut, shortened, strict=True))
    if all(whole[short] == name for short, name in zip(cut, shortened, strict=True)):
        return cut
    places = {name: f"{i}: " for i, name in enumerate(dict.fromkeys(shortened), 1)}
    return [places[name] + _cut(name, width - len(places[name])) for name in shortened]


def _alike(folders: list[str]) -> bool:
    return len({Path(folder).is_absolute() for folder in folders}) == 1


def _cut(name: str, width: int) -> str:
    half = (width - 1) // 2
    return name if len(name) <= width else f"{name[: width - 1 - half]}…{name[-half:]}"
