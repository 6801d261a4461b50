"""Sets of sentences, photographs and drawings in the vectors of csn's encoders, for benchmarks.

intents: sentences of domains of CLINC150. photographs: classes of tiny_imagenet_fewshot. alphabets: Omniglot. Their
validation parts are what csn's scalars and thresholds were chosen on. digits, glyphs and doodles: see drawings.py.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import drawings
from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.encoder import Encoder, named
from csn.cli.inputs import labelled_files
from csn.core.repeated import HeadOptions
from csn.data.fetch import data_dir
from csn.data.registry import load_data
from csn.data.source import Split

SENTENCES, OUT_OF_SCOPE, PHOTOGRAPHS = 60, 300, 40  # of a class; in all; of a class
Pen = Literal["as drawn", "coarse", "faces", "two sizes"]
DOMAINS = {
    "val": ("auto_and_commute", "banking", "credit_cards", "home", "kitchen_and_dining"),
    "test": ("travel", "utility", "work"),
}


def arguments(about: str, tasks: int) -> argparse.ArgumentParser:
    """The options of a benchmark of these sets: --tasks, --out, and --table instead of a measurement."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=tasks, help="of each setting (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--table", type=Path, metavar="FILE", help="instead, print a result file as a table")
    return parser


@dataclass(frozen=True)
class Vectors:
    """A set in an encoder's vectors (n, d), with labels (n,). unknown: vectors of no class; inputs: of drawings."""

    x: Tensor
    y: np.ndarray
    head: HeadOptions
    unknown: Tensor | None = None
    inputs: Tensor | None = None


def intents(encoder: Encoder | None = None, split: Split = "test") -> Vectors:
    """Domains of CLINC150."""
    encoder = encoder or named("text", "cpu")
    texts, labels, out = sentences(split)
    return Vectors(encoder(texts), np.array(labels), encoder.head, encoder(out))


def sentences(split: Split = "test") -> tuple[list[str], list[str], list[str]]:
    """The sentences of some domains, their intents, and sentences out of scope."""
    with gzip.open(data_dir() / "clinc150" / "clinc150.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts: list[str] = []
    labels: list[str] = []
    for label in sorted({row["label"] for row in rows if row["domain"] in DOMAINS[split]}):
        own = [row["text"] for row in rows if row["label"] == label][:SENTENCES]
        texts, labels = texts + own, labels + [label] * len(own)
    return texts, labels, [row["text"] for row in rows if row["split"] == f"oos_{split}"][:OUT_OF_SCOPE]


def photographs(folder: Path | None, encoder: Encoder | None = None, split: Split = "test") -> Vectors:
    """Classes of tiny_imagenet_fewshot, or a folder of folders."""
    from PIL import Image

    encoder = encoder or named("photos", "cpu")
    if folder is not None:
        files = labelled_files(folder)
        return Vectors(encoder([path for path, _ in files]), np.array([label for _, label in files]), encoder.head)
    items, labels = [], []
    with zipfile.ZipFile(data_dir() / "tiny_imagenet_fewshot" / f"{split}.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".JPEG"))
        for label in sorted({name.split("/")[-2] for name in names}):
            for name in [name for name in names if name.split("/")[-2] == label][:PHOTOGRAPHS]:
                items.append(np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")))
                labels.append(label)
    return Vectors(encoder(items), np.array(labels), encoder.head)


def drawn(name: str) -> Vectors:
    """A set of drawings, in the keys of the package's weights."""
    examples = drawings.prepared(name).splits["test"]
    keys = FewShotClassifier().blank()._opened.embedded(examples.x)
    labels = np.repeat(np.array(examples.names), examples.counts)
    return Vectors(keys, labels, HeadOptions(), inputs=examples.x)


def alphabets(split: Split = "test", pen: Pen = "as drawn") -> Vectors:
    """Characters of Omniglot's alphabets, in the keys of the package's weights.

    Args:
        split: Split of the alphabets.
        pen: "coarse" for thick strokes on 8 x 8 pixels. "faces" for six people's drawings, each also bold, slanted and
            smaller, as the faces of a font. "two sizes" for the faces of the first alphabet, in which every character
            is two classes: large and small.
    """
    examples = load_data("omniglot-background").splits[split]
    x, y = examples.x.float() / 255, np.repeat(np.array(examples.names), examples.counts)
    if pen in ("faces", "two sizes"):
        few = np.arange(len(x)) % examples.counts[0] < 6
        if pen == "two sizes":
            few &= np.char.startswith(y, y[0].split("/")[0])
        x, y = x[few], y[few]
    drawn = {"as drawn": [x], "faces": faces(x), "two sizes": [*faces(x), *faces(warped(x, size=0.75))]}
    pictures = [coarse(x)] if pen == "coarse" else drawn[pen]
    labels = np.tile(y, len(pictures))
    if pen == "two sizes":
        labels = np.char.add(labels, np.repeat([" large", " small"], len(labels) // 2))
    inks = (torch.cat(pictures).clamp(0, 1) * 255).round().to(torch.uint8)
    return Vectors(FewShotClassifier().blank()._opened.embedded(inks), labels, HeadOptions())


def warped(x: Tensor, slant: float = 0.0, size: float = 1.0) -> Tensor:
    """Pictures (n, 1, 28, 28), slanted and made smaller."""
    matrix = torch.tensor([[1.0, slant, 0.0], [0.0, 1.0, 0.0]]) / size
    return F.grid_sample(x, F.affine_grid(matrix.expand(len(x), 2, 3), list(x.shape), False), align_corners=False)


def bold(x: Tensor) -> Tensor:
    """Pictures (n, 1, 28, 28) in thicker strokes."""
    return F.max_pool2d(x, 3, 1, 1)


def faces(x: Tensor) -> list[Tensor]:
    """Pictures (n, 1, 28, 28) plain, bold, slanted and smaller."""
    return [x, bold(x), warped(x, 0.3, 0.95), warped(x, 0.0, 0.85)]


def coarse(x: Tensor) -> Tensor:
    """Pictures (n, 1, 28, 28) on 8 x 8 pixels."""
    small = F.interpolate(F.adaptive_avg_pool2d(bold(x), 8), size=x.shape[2:], mode="bilinear", align_corners=False)
    return small / small.amax((1, 2, 3), keepdim=True).clamp_min(1e-6)


def sets(names: list[str], folder: Path | None) -> dict[str, Vectors]:
    """The sets by their names."""
    makers: dict[str, Callable[[], Vectors]] = {"intents": intents, "photographs": lambda: photographs(folder)}
    return {name: makers[name]() if name in makers else drawn(name) for name in names}
