"""Mini-ImageNet in the split of Ravi and Larochelle (2017), from the user's copy, and a stand-in of the same shape.

Its images are part of ImageNet, whose terms forbid passing them on, so nothing is downloaded. Three layouts
are common: class folders `train/ val/ test/`, one folder `images/` with `train.csv`, `val.csv`, `test.csv`, and three
pickled caches `mini-imagenet-cache-{train,val,test}.pkl`.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csn.data.fetch import Progress, cache_dir, cached_array, find, require
from csn.data.images.files import list_images
from csn.data.images.folder import dataset
from csn.data.images.options import BadFiles
from csn.data.images.pixels import FORMAT, keep, mapped, new_pixels
from csn.data.images.plain_pickle import read_plain_pickle
from csn.data.source import SPLITS, ClassExamples, Dataset, Split

WHERE = (
    "Its images are part of ImageNet and cannot be downloaded freely: get ILSVRC2012 with your own account from "
    "https://image-net.org and build the set with https://github.com/yaoyao-liu/mini-imagenet-tools, from the lists of "
    "Ravi and Larochelle in https://github.com/twitter-research/meta-learning-lstm; many groups also keep a copy as "
    "folders or as mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl"
)
PICKLES: dict[Split, str] = {split: f"mini-imagenet-cache-{split}.pkl" for split in SPLITS}


@dataclass(frozen=True)
class Published:
    """The required contents of a copy of a published set.

    classes: the number of classes of each split, and the first 16 digits of the sha256 of their names (ImageNet's
        numbers, sorted, one per line).
    folders: names of its folder in `CSN_DATA`.
    """

    name: str
    folders: tuple[str, ...]
    classes: Mapping[Split, tuple[int, str]]
    images: int
    size: int
    where: str


MINI_IMAGENET = Published(
    "mini-imagenet",
    ("mini_imagenet", "mini-imagenet", "miniimagenet", "miniImageNet", "miniImagenet"),
    {"train": (64, "0f107a65ea80bf1e"), "val": (16, "489f8af43b256009"), "test": (20, "0db5287e659efd33")},
    600,
    84,
    WHERE,
)
TINY_IMAGENET = Published(
    "tiny-imagenet-fewshot",
    ("tiny_imagenet_fewshot",),
    {"train": (64, "d1b9bc2bde3777c6"), "val": (16, "c666d6ad75dec353"), "test": (20, "2a1ca1a06e7021eb")},
    550,
    64,
    "It is made from Tiny ImageNet, which is part of ImageNet: 100 of its classes as train.zip, val.zip and test.zip",
)


def load_mini_imagenet(
    path: Path | None = None,
    *,
    size: int | None = None,
    bad_files: BadFiles = "stop",
    progress: Progress | None = None,
) -> Dataset:
    """Mini-ImageNet, x: (600 classes, 3, 84, 84) uint8; `path`, or a folder `mini_imagenet` in `CSN_DATA`."""
    return _load(MINI_IMAGENET, path, size, bad_files, progress)


def load_tiny_imagenet(
    path: Path | None = None,
    *,
    size: int | None = None,
    bad_files: BadFiles = "stop",
    progress: Progress | None = None,
) -> Dataset:
    """A stand-in for Mini-ImageNet with 550 images of 64x64 in each class. Its results are not Mini-ImageNet's."""
    return _load(TINY_IMAGENET, path, size, bad_files, progress)


def _load(
    published: Published, path: Path | None, size: int | None, bad_files: BadFiles, progress: Progress | None
) -> Dataset:
    path = path or next((found for name in published.folders if (found := find(name))), None)
    if path is None:
        raise ValueError(
            f"{published.name} was not found: put it into a folder {published.folders[0]}, and set CSN_DATA to the "
            f"parent of that folder. {published.where}"
        )
    size = size or published.size
    if all((path / name).is_file() for name in PICKLES.values()):
        data = _from_pickles(published, path, size)
    else:
        data = dataset(published.name, list_images(path), size=size, bad_files=bad_files, progress=progress)
    verify(data, published, path, exact=bad_files == "stop")
    return data


def verify(data: Dataset, published: Published, path: Path, *, exact: bool = True) -> None:
    """Raise ValueError unless a copy has the published classes, and the published numbers of classes and images.

    Args:
        data: The copy.
        published: What it must contain.
        path: The place of the copy, for the message.
        exact: Whether no image may be missing. Classes without ImageNet's numbers as names are only counted.
    """
    for split, (number, digest) in published.classes.items():
        classes = data.splits[split]
        wrong = [n for n, count in zip(classes.names, classes.counts, strict=True) if count != published.images]
        if len(classes) != number or (exact and wrong):
            got = f"{len(classes)} classes" + (f", and {wrong[0]} has another number of images" if wrong else "")
            raise ValueError(
                f"split {split!r} of {published.name} has {number} classes of {published.images} images, got {got} in "
                f"{path}. {published.where}"
            )
        named = all(re.fullmatch(r"n\d{8}", name) for name in classes.names)
        if named and _digest(classes.names) != digest:
            raise ValueError(
                f"the {split!r} classes in {path} are not those of {published.name}: it may be another split, such as "
                f"that of Vinyals et al., whose results cannot be compared. {published.where}"
            )


def _digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def _from_pickles(published: Published, path: Path, size: int) -> Dataset:
    """Load the three pickled caches. Each is unpickled once and then kept as memory-mapped pixels."""
    return Dataset(published.name, {split: _from_pickle(path / PICKLES[split], size) for split in SPLITS})


def _from_pickle(path: Path, size: int) -> ClassExamples:
    """One split: `image_data` (images, 84, 84, 3) uint8 and `class_dict`, class -> rows."""
    stat = path.stat()
    stamp = f"{path.resolve()}\t{stat.st_size}\t{stat.st_mtime_ns}"
    key = f"pickle-{size}-{FORMAT}-{hashlib.sha256(stamp.encode()).hexdigest()[:32]}"
    pixels = cache_dir() / "arrays" / f"{key}.u8"
    unpack = functools.partial(_unpack, path, size, pixels)
    index = cached_array(key, unpack)
    rows = int(index["count"].sum())
    if not pixels.exists() or pixels.stat().st_size != rows * 3 * size * size:
        index = unpack()
    x = torch.from_numpy(mapped(pixels, rows, size))
    return ClassExamples(x, index["count"].astype(np.int64), tuple(map(str, index["name"])))


def _unpack(path: Path, size: int, pixels: Path) -> np.ndarray:
    """Write the images to `pixels`, class by class. Return name and count of each class, (classes,)."""
    images, classes = _checked(path, read_plain_pickle(path))
    order = np.concatenate([classes[name] for name in sorted(classes)])
    with new_pixels(len(order), size) as temporary:
        array = np.memmap(temporary, dtype=np.uint8, mode="r+", shape=(len(order), 3, size, size))
        for row, origin in enumerate(order):
            array[row] = _resized(images[origin], size).transpose(2, 0, 1)
        array.flush()
        del array
        keep(temporary, pixels)
    counts = [(name, len(classes[name])) for name in sorted(classes)]
    return np.array(counts, dtype=[("name", "U64"), ("count", "i8")])


def _checked(path: Path, content: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the images, and the rows of each class. Raise ValueError if the file holds anything else."""
    images = content.get("image_data") if isinstance(content, Mapping) else None
    classes = content.get("class_dict") if isinstance(content, Mapping) else None
    if (
        not isinstance(images, np.ndarray)
        or images.dtype != np.uint8
        or images.ndim != 4
        or images.shape[3] != 3
        or not isinstance(classes, Mapping)
        or not classes
    ):
        raise ValueError(
            f"{path} should hold a dictionary of image_data, (images, height, width, 3) bytes, and class_dict, the "
            f"rows of each class; it does not: get another copy"
        )
    rows = {str(name): _whole_numbers(path, str(name), members) for name, members in classes.items()}
    joined = np.concatenate(list(rows.values()))
    if len(np.unique(joined)) != len(joined) or joined.min(initial=0) < 0 or joined.max(initial=0) >= len(images):
        raise ValueError(f"class_dict of {path} should name each of {len(images)} images at most once, and no others")
    return images, rows


def _whole_numbers(path: Path, name: str, members: Any) -> np.ndarray:
    """The rows of a class. Raise ValueError with the name of the file if they are not numbers of rows."""
    flat = not isinstance(members, list | tuple) or all(isinstance(row, int | np.integer) for row in members)
    try:  # never make an array of lists in lists: lists that share their parts can claim any size
        rows = np.asarray(members if flat else None)
    except OverflowError:
        rows = np.asarray(None)
    if rows.size and rows.dtype.kind not in "iu":
        raise ValueError(
            f"class_dict of {path} should name the rows of class {name!r} as whole numbers, but it does not: get "
            f"another copy"
        )
    return rows.astype(np.int64).ravel()


def _resized(image: np.ndarray, size: int) -> np.ndarray:
    """(h, w, 3) -> (size, size, 3)."""
    if image.shape[:2] == (size, size):
        return image
    pillow = require("PIL.Image")
    return np.asarray(pillow.fromarray(image).resize((size, size), pillow.Resampling.BILINEAR))
