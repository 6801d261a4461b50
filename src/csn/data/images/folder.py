"""Any folder, zip archive or CSV list of images as a data set, with a report of all its problems."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from csn.data.fetch import Progress
from csn.data.images.files import SPLIT_SEED, ImageFile, Listing, Problem, list_images
from csn.data.images.options import SIZE, BadFiles
from csn.data.images.pixels import Decoded, decoded
from csn.data.source import SPLITS, ClassExamples, Dataset, Split

LEAST_IMAGES = 2  # per class: one for the support and one query
NAMED = 10  # the most problems that a message lists


@dataclass(frozen=True)
class ImageReport:
    """What a set of images contains.

    counts: split -> class -> number of readable images.
    sizes: (width, height) before resizing -> number of images.
    problems: what must be corrected or skipped, each with its file or class.
    duplicates: groups of names of files with the same content in two splits.
    ignored: files that are not images.
    """

    counts: Mapping[Split, Mapping[str, int]]
    sizes: Mapping[tuple[int, int], int]
    problems: tuple[Problem, ...]
    duplicates: tuple[tuple[str, ...], ...]
    ignored: tuple[str, ...] = field(default=())


def load_images(
    path: str | PathLike[str],
    *,
    name: str | None = None,
    size: int = SIZE,
    bad_files: BadFiles = "stop",
    seed: int = SPLIT_SEED,
    progress: Progress | None = None,
) -> Dataset:
    """A data set of the images at `path`, x: (images, 3, size, size) uint8. csn.data.images.files lists the layouts.

    Args:
        path: A folder, zip archive or CSV list.
        name: The name of the data set. By default, the name of the path.
        size: Pixels per side.
        bad_files: The action at a problem, such as an unreadable file, a class in two splits or a class of one image.
            "stop" raises a ValueError that names the problems. "skip" leaves out these files; a class in two splits
            stays in the first. `check_images` lists the problems.
        seed: Seed of the split of the classes if there are no folders train, val and test.
        progress: Called with (files done, files in all) while images are decoded for the first time.
    """
    path = Path(path)
    return dataset(
        name or (path.stem if path.is_file() else path.name),
        list_images(path, seed=seed),
        size=size,
        bad_files=bad_files,
        progress=progress,
    )


def check_images(
    path: str | PathLike[str], *, size: int = SIZE, seed: int = SPLIT_SEED, progress: Progress | None = None
) -> ImageReport:
    """Report what `load_images` would find. Every file is read, and decoded images are cached for `load_images`."""
    listing = list_images(Path(path), seed=seed)
    return _report(listing, _read(listing, size, progress))


def dataset(
    name: str, listing: Listing, *, size: int, bad_files: BadFiles = "stop", progress: Progress | None = None
) -> Dataset:
    """The listed images, decoded."""
    if bad_files not in ("stop", "skip"):
        raise ValueError(f"bad_files must be 'stop' or 'skip', got {bad_files!r}")
    if bad_files == "stop":
        stop_at(name, [*listing.problems, *_class_problems(listing.images)])  # before decoding, which may take an hour
    read = _read(listing, size, progress)
    readable = list(itertools.compress(listing.images, read.readable))
    if bad_files == "stop":
        stop_at(name, [*_unreadable(listing, read), *_class_problems(readable)])
    keep = _usable(readable)
    x = torch.from_numpy(read.pixels)
    return Dataset(name, {split: _class_examples(name, split, readable, keep, x) for split in SPLITS})


def stop_at(name: str, problems: Sequence[Problem]) -> None:
    """Raise a ValueError that names the problems, if there are any."""
    if not problems:
        return
    lines = "".join(f"\n  {where}: {why}" for where, why in problems[:NAMED])
    more = f"\n  and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
    raise ValueError(
        f"{name} has {len(problems)} problem{'s' * (len(problems) > 1)}:{lines}{more}\nCorrect them, or leave "
        f"these files out with --bad-files skip (data.bad_files). csn data check lists all problems"
    )


def _read(listing: Listing, size: int, progress: Progress | None) -> Decoded:
    images = listing.images
    if not images:
        found = "".join(f"\n  {where}: {why}" for where, why in listing.problems[:NAMED])
        raise ValueError(f"there are no images to read{':' if found else ''}{found}")
    return decoded([image.place for image in images], [image.stamp for image in images], size, progress)


def _report(listing: Listing, read: Decoded) -> ImageReport:
    readable = list(itertools.compress(listing.images, read.readable))
    counts: dict[Split, dict[str, int]] = {split: {} for split in SPLITS}
    for image in readable:
        counts[image.split][image.label] = counts[image.split].get(image.label, 0) + 1
    shapes = read.records[read.readable]
    return ImageReport(
        counts,
        Counter(zip(shapes["width"].tolist(), shapes["height"].tolist(), strict=True)),
        (*listing.problems, *_unreadable(listing, read), *_class_problems(readable)),
        _duplicates(readable, shapes["digest"]),
        listing.ignored,
    )


def _unreadable(listing: Listing, read: Decoded) -> list[Problem]:
    return [
        Problem(image.name, why.decode(errors="replace"))
        for image, why in zip(listing.images, read.records["why"].tolist(), strict=True)
        if why
    ]


def _class_problems(images: Sequence[ImageFile]) -> list[Problem]:
    """Classes in two splits, and classes of too few images."""
    problems = []
    splits: dict[str, list[Split]] = {}
    for (split, label), count in Counter((image.split, image.label) for image in images).items():
        splits.setdefault(label, []).append(split)
        if count < LEAST_IMAGES:
            problems.append(Problem(f"class {label} of {split}", f"{count} readable image, {LEAST_IMAGES} needed"))
    for label, found in splits.items():
        if len(found) > 1:
            problems.append(Problem(f"class {label}", f"it is in the splits {' and '.join(found)}"))
    return problems


def _usable(images: Sequence[ImageFile]) -> Callable[[ImageFile], bool]:
    """Whether an image stays. Its class must be large enough, and its split the first that has the class."""
    counts = Counter((image.split, image.label) for image in images)
    first: dict[str, Split] = {}
    for image in images:  # sorted by split
        first.setdefault(image.label, image.split)
    return lambda image: first[image.label] == image.split and counts[image.split, image.label] >= LEAST_IMAGES


def _class_examples(
    name: str, split: Split, images: Sequence[ImageFile], keep: Callable[[ImageFile], bool], x: torch.Tensor
) -> ClassExamples:
    """The images of one split. x is a view of the cache, unless some images must be left out."""
    of_split = [row for row, image in enumerate(images) if image.split == split]
    rows = [row for row in of_split if keep(images[row])]
    counts = Counter(images[row].label for row in rows)
    if not counts:
        raise ValueError(f"split {split!r} of {name} has no class of {LEAST_IMAGES} readable images: add some")
    chosen = x[of_split[0] : of_split[-1] + 1] if len(rows) == len(of_split) else x[torch.tensor(rows)]
    return ClassExamples(chosen, np.array(list(counts.values())), tuple(counts))


def _duplicates(images: Sequence[ImageFile], digests: np.ndarray) -> tuple[tuple[str, ...], ...]:
    """Groups of files with equal bytes that are in more than one split."""
    same: dict[bytes, list[ImageFile]] = {}
    for image, digest in zip(images, digests, strict=True):
        same.setdefault(digest.tobytes(), []).append(image)
    return tuple(
        tuple(image.name for image in group) for group in same.values() if len({image.split for image in group}) > 1
    )
