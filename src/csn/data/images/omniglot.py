"""Omniglot (Lake et al. 2015): 1623 characters of 50 alphabets, each drawn by 20 people, as 28x28 class tensors."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from csn.data.fetch import Progress, cached_array, fetch, find, require
from csn.data.images.area import area_matrix
from csn.data.source import ClassExamples, Dataset

Protocol = Literal["random", "background"]


@dataclass(frozen=True)
class Archive:
    """One of the two official archives and its required contents.

    md5: the md5 of the official zip. A download must match it.
    sha256: the sha256 of the contents (see `_decode`). Every copy must match it, however it is packed.
    """

    folder: str
    md5: str
    sha256: str
    classes: int

    @property
    def url(self) -> str:
        """The address at which the authors publish it."""
        return f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{self.folder}.zip"


ARCHIVES = (
    Archive(
        "images_background",
        "68d2efa1b9178cc56df9314c21c6e718",
        "89ffd732fd706a6363701f1e540b4c8ec8519c5ad9aae7f9717c7228c90cbc4e",
        964,
    ),
    Archive(
        "images_evaluation",
        "6b91aef0f799c5bb55b94e3f2daec811",
        "93aadf07f1b1ed280cfa13f8ca6ea7e3f4b7c1d09aecfcdc0487ba1ee0889219",
        659,
    ),
)
DRAWERS, SIDE, RAW_SIDE = 20, 28, 105
TRAIN_CLASSES, VAL_CLASSES = 1200, 100  # protocol "random": 1200 to train, 100 of them held out; the other 423 test
VAL_ALPHABETS = 5  # protocol "background"
SPLIT_SEED = 2018
# One record a class: a single array in the cache holds names, origin and drawings.
_RECORD = np.dtype([("name", "U64"), ("background", "?"), ("x", "u1", (DRAWERS, SIDE, SIDE))])
_MEMBER = re.compile(r"([^/]+/character\d+)/\d+_\d+\.png")
_MAX_BYTES = 1 << 16  # largest PNG of a drawing; the real ones have a few hundred bytes
# The errors that zipfile, zlib and pillow raise on damaged or hostile input.
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, SyntaxError, ValueError, RuntimeError)


def load_omniglot(
    *, protocol: Protocol = "random", rotations: bool = True, progress: Progress | None = None
) -> Dataset:
    """Omniglot as classes of 20 drawings, x: (20 classes, 1, 28, 28) uint8, ink up to 255 on background 0.

    The archives (or folders) `omniglot/images_background` and `images_evaluation` are found in `CSN_DATA` or
    downloaded. The decoded drawings are cached.

    The protocol "random" is the paper's. It draws classes from all alphabets: 1200 to train, of which 100 are kept for
    validation, and 423 to test. "background" is the split of Omniglot's authors: 964 classes to train, and 659 classes
    of other alphabets to test. Its validation classes are the five smallest background alphabets (81 classes). They are
    whole alphabets, because test classes come from unseen alphabets too. They are the smallest, as in Meta-Dataset,
    because these cost the fewest classes.

    Args:
        protocol: "random" or "background".
        rotations: Whether a training class turned by 90, 180 or 270 degrees (counterclockwise) counts as another
            class, such as `<Alphabet>/character05/rot090`. Validation and test classes are never turned.
        progress: Called with (bytes done, bytes in all) during a download.
    """
    if protocol not in ("random", "background"):
        raise ValueError(f"the protocol of omniglot must be 'random' or 'background', got {protocol!r}")
    key = "-".join(["omniglot", str(SIDE), *(archive.sha256[:16] for archive in ARCHIVES)])
    records = cached_array(key, lambda: np.concatenate([_decode(archive, progress) for archive in ARCHIVES]))
    train, val, test = _random_split(records) if protocol == "random" else _background_split(records)
    return Dataset(
        "omniglot" if protocol == "random" else "omniglot-background",
        {
            "train": _class_examples(records[train], (0, 1, 2, 3) if rotations else (0,)),
            "val": _class_examples(records[val], (0,)),
            "test": _class_examples(records[test], (0,)),
        },
    )


def _random_split(records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the train, val and test classes, drawn over all alphabets."""
    # Sorted by a hash of seed and name, so the split depends neither on NumPy's version nor on the order of files.
    hashes = [hashlib.sha256(f"{SPLIT_SEED}/{name}".encode()).hexdigest() for name in records["name"]]
    order = np.argsort(np.array(hashes))
    kept = TRAIN_CLASSES - VAL_CLASSES
    return np.sort(order[:kept]), np.sort(order[kept:TRAIN_CLASSES]), np.sort(order[TRAIN_CLASSES:])


def _background_split(records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the train, val and test classes in the authors' split. The smallest training alphabets are for val."""
    background = records["background"]
    alphabets = np.array([name.partition("/")[0] for name in records["name"]])
    names, sizes = np.unique(alphabets[background], return_counts=True)
    val = background & np.isin(alphabets, names[np.argsort(sizes, kind="stable")[:VAL_ALPHABETS]])
    return np.flatnonzero(background & ~val), np.flatnonzero(val), np.flatnonzero(~background)


def _class_examples(records: np.ndarray, quarter_turns: tuple[int, ...]) -> ClassExamples:
    """The classes of `records`, once for every number of quarter turns."""
    x = [np.rot90(records["x"], turns, axes=(2, 3)).reshape(-1, 1, SIDE, SIDE) for turns in quarter_turns]
    suffixes = [f"/rot{90 * turns:03d}" if turns else "" for turns in quarter_turns]
    names = tuple(f"{name}{suffix}" for suffix in suffixes for name in records["name"])
    return ClassExamples(torch.from_numpy(np.concatenate(x)), np.full(len(names), DRAWERS), names)


def _decode(archive: Archive, progress: Progress | None) -> np.ndarray:
    """Return (classes,) of _RECORD, sorted by name. Raise ValueError unless all is as published.

    The sha256 covers, class by class in that order, the name and 20 x 105 x 105 bytes, which are 1 where there is ink.
    """
    path = find(f"omniglot/{archive.folder}") or fetch(
        f"omniglot/{archive.folder}.zip", archive.url, f"md5:{archive.md5}", progress=progress
    )
    remedy = f"Replace it with {archive.url}, or move it away so that csn downloads it"
    area = area_matrix(RAW_SIDE, SIDE)
    digest, rows = hashlib.sha256(), []
    try:
        for name, ink in _classes(path, archive.folder):
            if len(ink) != DRAWERS:
                raise ValueError(f"class {name} should have {DRAWERS} drawings, got {len(ink)}")
            digest.update(name.encode() + ink.tobytes())
            # Multiples of 17/15 are never near a half, so rounding gives the same bytes in any order of sums.
            small = np.rint(255 * (area @ ink.astype(np.float32) @ area.T)).astype(np.uint8)  # (20, 28, 28)
            rows.append((name, archive.folder == ARCHIVES[0].folder, small))
        if len(rows) != archive.classes:
            raise ValueError(f"it should hold {archive.classes} classes {archive.folder}/*/character*, got {len(rows)}")
    except _DAMAGE as error:
        raise ValueError(f"{path} is damaged or incomplete: {error}. {remedy}") from error
    if digest.hexdigest() != archive.sha256:
        raise ValueError(
            f"the drawings in {path} are not the published ones: their sha256 should be {archive.sha256}, got "
            f"{digest.hexdigest()}. {remedy}"
        )
    return np.array(rows, dtype=_RECORD)


def _classes(path: Path, folder: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, (drawings, 105, 105) bool, True is ink) of every class. Classes and drawings are sorted by name."""
    with contextlib.ExitStack() as stack:
        read: Callable[[str], bytes]
        if path.is_dir():
            members = [file.relative_to(path).as_posix() for file in path.glob("*/*/*.png")]
            prefix, read = "", lambda member: (path / member).read_bytes()
        else:  # nothing is extracted: a member's path is only a key
            archive = stack.enter_context(zipfile.ZipFile(path))
            members = [info.filename for info in archive.infolist() if info.file_size <= _MAX_BYTES]
            prefix, read = f"{folder}/", archive.read
        classes: dict[str, list[str]] = {}
        for member in sorted(members):
            if match := _MEMBER.fullmatch(member.removeprefix(prefix)):
                classes.setdefault(match[1], []).append(member)
        for name, drawings in classes.items():
            yield name, np.stack([_ink(read(member), member) for member in drawings])


def _ink(png: bytes, member: str) -> np.ndarray:
    """Read a drawing as (105, 105) bool, True where it is black."""
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    # Read the header first, because pillow warns of large images and refuses larger ones with another error.
    if png[:8] != b"\x89PNG\r\n\x1a\n" or (width, height) != (RAW_SIDE, RAW_SIDE):
        raise ValueError(f"{member} should be a PNG of {RAW_SIDE} x {RAW_SIDE} pixels, got {width} x {height} or none")
    try:
        with require("PIL.Image").open(io.BytesIO(png), formats=["PNG"]) as image:
            ink: np.ndarray = np.asarray(image.convert("L")) < 128
            return ink
    except _DAMAGE as error:
        raise ValueError(f"{member} cannot be decoded: {error}") from error
