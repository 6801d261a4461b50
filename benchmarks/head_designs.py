"""Other designs of csn's head against the one that ships, on validation classes.

    python benchmarks/head_designs.py --out results/encoders/designs.json
    python benchmarks/head_designs.py --table results/encoders/designs.json      # the table of docs/encoders.md

Each design changes one scalar of the head, or adds scores of ridge regression (a linear kernel with squared errors,
its strength chosen by leave-one-out) to the head's logits in units of a cosine. `earlier` is the head that csn had
before: the kernel of drawings was sharper, and only photographs were centred. All see the same tasks.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from csn.core.repeated import CSNHead, HeadOptions
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import summarise
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes
from encoded_sets import Pen, Vectors, alphabets, arguments, intents, photographs
from encoders import Ridge
from unknown import QUERIES, tasks

SETTINGS = ((5, 1), (15, 1), (5, 5), (15, 5), (20, 5))


def designs(options: HeadOptions, earlier: HeadOptions) -> dict[str, tuple[HeadOptions, float]]:
    """Options and the weight of ridge regression, by the name of the design."""
    changed = {
        "ships": options,
        "earlier": earlier,
        "sharpness / 2": replace(options, sharpness=options.sharpness / 2),
        "sharpness x 2": replace(options, sharpness=options.sharpness * 2),
        "decay / 3": replace(options, decay=options.decay / 3),
        "decay x 3": replace(options, decay=options.decay * 3),
        "scale / 2": replace(options, scale=options.scale / 2),
        "scale x 2": replace(options, scale=options.scale * 2),
        "200 passes": replace(options, passes=200),
    }
    added = {f"+ {weight} ridge": (options, weight) for weight in (0.1, 0.3)} | {"ridge": (options, 1e6)}
    return {name: (option, 0.0) for name, option in changed.items()} | added


def measured(data: Vectors, earlier: HeadOptions, way: int, shot: int, count: int) -> dict[str, Any]:
    """The accuracy of each design, and its difference from the one that ships, on the same tasks."""
    truth, found = torch.arange(way).repeat_interleave(QUERIES), {}
    for memory, y, known, _ in tasks(data, way, shot, count):
        ridge = Ridge(memory.keys, y, way)(known)[0].float()
        for name, (options, weight) in designs(data.head, earlier).items():
            right = answered(options, memory.keys, y, known, weight * ridge).argmax(-1) == truth
            found.setdefault(name, []).append(float(right.double().mean()))
    rows = {}
    for name, accuracies in found.items():
        ahead = [own - other for own, other in zip(accuracies, found["ships"], strict=True)]
        rows[name] = {"accuracy": summarise(accuracies), "over_ships": summarise(ahead)}
    return {"way": way, "shot": shot, "tasks": count, "designs": rows}


def answered(options: HeadOptions, keys: Tensor, y: Tensor, queries: Tensor, added: Tensor) -> Tensor:
    """Scores (m, way) of a head for queries (m, d), with other scores (m, way) added."""
    head = CSNHead(options)
    logits = head.predict(queries, head.describe(keys, y, int(y.max()) + 1))
    return logits * (options.temperature / options.scale) + added


def table(rows: list[dict[str, Any]]) -> str:
    """Differences from the head that ships, in points, as Markdown."""
    names = [name for name in rows[0]["designs"] if name != "ships"]
    lines = [f"| validation tasks | ships, % | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for row in rows:
        cells = [f"{100 * row['designs'][name]['over_ships'][0]:+.1f}" for name in names]
        own = f"{100 * row['designs']['ships']['accuracy'][0]:.1f}"
        lines.append(f"| {row['set']}, {row['way']}-way {row['shot']}-shot | {own} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write if asked to."""
    options = arguments(__doc__, tasks=40).parse_args()
    torch.set_num_threads(1)
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))["rows"]), end="")
        return
    rows: list[dict[str, Any]] = []
    pens: tuple[Pen, ...] = ("as drawn", "coarse", "faces", "two sizes")
    found = [("intents", intents(split="val"), HeadOptions(centre=False))]
    photos = photographs(None, split="val")
    found.append(("photographs", photos, photos.head))
    sharper = HeadOptions(sharpness=5.0, decay=0.1, centre=False)
    found += [(f"alphabets, {pen}", alphabets("val", pen), sharper) for pen in pens]
    for name, data, earlier in found:
        settings = [(way, shot) for way, shot in SETTINGS if way < len(np.unique(data.y))]
        rows += [{"set": name} | measured(data, earlier, way, shot, options.tasks) for way, shot in settings]
        Console(width=200).print(table(rows[-len(settings) :]))
    if options.out:
        about = {"queries": QUERIES, "rows": rows} | origin("python benchmarks/head_designs.py")
        write_atomically(options.out, json_bytes(about))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
