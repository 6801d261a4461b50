"""How well csn tells unknown inputs from known ones: validation classes first, then test classes.

    python benchmarks/unknown.py --out results/encoders/unknown.json
    python benchmarks/unknown.py --thresholds          # of sentences and photographs, found on validation classes
    python benchmarks/unknown.py --table results/encoders/unknown.json      # the table of docs/encoders.md

Each task learns some classes. The known queries are new examples of these, the unknown ones of the classes that the
task leaves out. `mean` is the cosine to the nearest class mean, which csn had first. `example` is the cosine to the
most similar example, which the packaged network and the exported page had. `after` is `FewShotClassifier.similarity`.
`caught` is the share of unknown queries below the similarity that keeps 90 % of the task's known ones. `own` and
`calibrated` are these thresholds of the classifier: shares of known queries kept and of unknown queries caught.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from csn.classifier.heads import make_head
from csn.classifier.keyed import KeyMemory
from csn.classifier.pretrained import for_shots, shipped_threshold
from csn.classifier.unknown import LOST, SHIPPED
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import summarise
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes
from encoded_sets import Vectors, alphabets, arguments, drawn, intents, photographs
from encoders import Centroid, Nearest, auroc

QUERIES, UNKNOWN, SEED = 10, 60, 20261119
SHOTS, KEEP = (1, 2, 5, 10), 0.95  # the shipped thresholds
KEPT = 0.9  # of the known queries, when `caught` is measured
SETTINGS = ((5, 1), (5, 5), (10, 5), (20, 5))


def tasks(data: Vectors, way: int, shot: int, count: int) -> Iterator[tuple[KeyMemory, Tensor, Tensor, Tensor]]:
    """Memories of tasks with labels (n,), and the keys of their known and unknown queries."""
    classes, rng = np.unique(data.y), np.random.default_rng([SEED, way, shot])
    for _ in range(count):
        chosen = rng.permutation(classes)[:way]
        places = [rng.permutation(np.flatnonzero(data.y == label))[: shot + QUERIES] for label in chosen]
        y = torch.arange(way).repeat_interleave(shot)
        support = list(data.x[np.concatenate([place[:shot] for place in places])])
        memory = KeyMemory(make_head("csn", data.head), support, y.tolist(), [None] * len(y))
        known = data.x[np.concatenate([place[shot:] for place in places])]
        yield memory, y, known, data.x[rng.permutation(np.flatnonzero(~np.isin(data.y, chosen)))[:UNKNOWN]]


def thresholds(data: Vectors, count: int = 100) -> dict[int, float]:
    """By examples per class: the similarity that keeps `KEEP` of the known queries of 5-way tasks."""
    found = {}
    for shot in SHOTS:
        known = [memory.similarity(queries) for memory, _, queries, _ in tasks(data, 5, shot, count)]
        found[shot] = float(np.quantile(torch.cat(known).numpy(), 1 - KEEP))
    return found


def measured(data: Vectors, shipped: dict[int, float], way: int, shot: int, count: int) -> dict[str, Any]:
    """All scores and both thresholds on the same tasks."""
    found: dict[str, list[float]] = {}
    for memory, y, known, unknown in tasks(data, way, shot, count):
        centroid, nearest = (simple(memory.keys, y, way) for simple in (Centroid, Nearest))
        after = memory.similarity(known), memory.similarity(unknown)
        scores = {"mean": (centroid(known)[1], centroid(unknown)[1]), "after": after}
        scores["example"] = nearest(known)[1], nearest(unknown)[1]
        rows = {name: auroc(*score) for name, score in scores.items()}
        rows |= {f"caught {name}": caught(*score) for name, score in scores.items()}
        limits = {"calibrated": for_shots(shipped, shot)}
        if shot > 1:
            limits["own"] = float(np.quantile(memory.held_out_similarity, LOST))
        for name, limit in limits.items():
            rows[f"{name} kept"] = float((after[0] >= limit).double().mean())
            rows[f"{name} caught"] = float((after[1] < limit).double().mean())
        for name, value in rows.items():
            found.setdefault(name, []).append(value)
    return {"way": way, "shot": shot, "tasks": count} | {name: summarise(values) for name, values in found.items()}


def caught(known: Tensor, unknown: Tensor) -> float:
    """The share of unknown queries below the score that keeps `KEPT` of the known ones."""
    return float((unknown < float(np.quantile(known.numpy(), 1 - KEPT))).double().mean())


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, in %."""
    names = ("mean", "example", "after")
    head = ["set", "tasks", "mean", "example", "now", "caught: mean", "example", "now"]
    lines = [f"| {' | '.join(head)} | own: kept / caught | calibrated: kept / caught |", "|---" * 10 + "|"]
    for row in rows:
        shares = {name: f"{100 * value[0]:.1f}" for name, value in row.items() if isinstance(value, list | tuple)}
        own, calibrated = (
            f"{shares[f'{name} kept']} / {shares[f'{name} caught']}" if f"{name} kept" in shares else ""
            for name in ("own", "calibrated")
        )
        cells = [f"{row['set']}, {row['split']}", f"{row['way']}w{row['shot']}s"]
        cells += [shares[name] for name in (*names, *(f"caught {name}" for name in names))]
        lines.append(f"| {' | '.join([*cells, own, calibrated])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = arguments(__doc__, tasks=40)
    parser.add_argument("--thresholds", action="store_true", help="instead, find thresholds on validation classes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))["rows"]), end="")
        return
    if options.thresholds:
        for name, data in (("text", intents(split="val")), ("photos", photographs(None, split="val"))):
            Console().print(name, {shot: round(threshold, 3) for shot, threshold in thresholds(data).items()})
        return
    drawings = {shot: shipped_threshold("characters", shot) for shot in SHOTS}
    rows: list[dict[str, Any]] = []
    for name, split, data, shipped in (
        ("intents", "val", intents(split="val"), SHIPPED["text"]),
        ("photographs", "val", photographs(None, split="val"), SHIPPED["photos"]),
        ("alphabets", "val", alphabets("val"), drawings),
        ("alphabets, coarse", "val", alphabets("val", "coarse"), drawings),
        ("alphabets, faces", "val", alphabets("val", "faces"), drawings),
        ("intents", "test", intents(), SHIPPED["text"]),
        ("photographs", "test", photographs(None), SHIPPED["photos"]),
        ("alphabets", "test", alphabets(), drawings),
        *((name, "test", drawn(name), drawings) for name in ("digits", "glyphs", "doodles")),
    ):
        for way, shot in SETTINGS:
            if way < len(np.unique(data.y)):  # some classes must be left out
                rows.append({"set": name, "split": split} | measured(data, shipped, way, shot, options.tasks))
                Console(width=150).print(table(rows[-1:]))
    if options.out:
        about = {"queries": QUERIES, "unknown": UNKNOWN, "rows": rows} | origin("python benchmarks/unknown.py")
        write_atomically(options.out, json_bytes(about))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
