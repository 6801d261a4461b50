"""CIFAR-FS, FC100, CUB-200-2011 and tieredImageNet: the published classes of each split, over images of the user's own.

`splits/NAME.json` names the classes and where the list is from. The images are not ours to pass on, so nothing is
downloaded. The innermost folder of an image is its class, and the class alone decides the split, so a copy may have a
folder per class, or these below train/, val/ and test/. CIFAR-100 has a class called train.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from csn.data.fetch import Progress, find
from csn.data.images.files import ImageFile, Listing, list_members
from csn.data.images.folder import dataset
from csn.data.images.options import TYPES, BadFiles
from csn.data.source import SPLITS, Dataset, Split

NAMED = 5  # classes that a message spells out
CIFAR = (
    "Get CIFAR-100 from https://www.cs.toronto.edu/~kriz/cifar.html and write all 600 images of a class, training and "
    "test, as PNG files into one folder that has its name, aquarium_fish for instance"
)


@dataclass(frozen=True)
class PublishedSplit:
    """What a data set needs besides its list of classes.

    folders: names it goes by in `CSN_DATA`. size: of its images by default. images: of each class, or None where
    classes differ. where: how to get the images.
    """

    folders: tuple[str, ...]
    size: int
    images: int | None
    where: str


PUBLISHED: dict[str, PublishedSplit] = {
    "cifar-fs": PublishedSplit(("cifar_fs", "cifar-fs", "CIFAR-FS", "cifar100"), 32, 600, CIFAR),
    "fc100": PublishedSplit(("fc100", "FC100", "cifar100"), 32, 600, CIFAR),
    "cub": PublishedSplit(
        ("cub", "CUB_200_2011"),
        84,
        None,
        "Get CUB_200_2011.tgz from https://www.vision.caltech.edu/datasets/cub_200_2011 and unpack it",
    ),
    "tiered-imagenet": PublishedSplit(
        ("tiered_imagenet", "tiered-imagenet", "tieredImageNet"),
        84,
        None,
        "Its images are part of ImageNet and cannot be downloaded freely: get ILSVRC2012 with an account of your own "
        "from https://image-net.org and give the folder of its training images, a folder per number such as n01530575",
    ),
}


@cache
def published_classes(name: str) -> Mapping[Split, tuple[str, ...]]:
    """The classes of each split of a data set in PUBLISHED."""
    file = resources.files("csn.data.images") / "splits" / f"{name}.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    return {split: tuple(content[split]) for split in SPLITS}


def load_published(
    path: Path | None = None,
    *,
    name: str,
    size: int | None = None,
    bad_files: BadFiles = "stop",
    progress: Progress | None = None,
) -> Dataset:
    """A published split over a copy of its images, x: (images, 3, size, size) uint8.

    Args:
        path: the copy, or None for a folder of its name in `CSN_DATA`.
        name: in PUBLISHED.
        size: pixels on a side, or None for the set's own.
        bad_files: what to do about images that cannot be used; "skip" also takes classes of too few images.
        progress: called with the files done and the files in all.
    """
    published = PUBLISHED[name]
    path = path or next((found for folder in published.folders if (found := find(folder))), None)
    if path is None:
        raise ValueError(
            f"{name} was not found: put its images into a folder {published.folders[0]}, and set CSN_DATA to the "
            f"parent of that folder. {published.where}"
        )
    listing = list_published(path, name)
    if bad_files == "stop" and published.images is not None:
        _check_images(listing, name, published.images, path)
    return dataset(name, listing, size=size or published.size, bad_files=bad_files, progress=progress)


def list_published(path: Path, name: str) -> Listing:
    """The images of the published classes, each in the split of its class; ValueError if a class has none.

    Args:
        path: a folder or zip archive; of a folder that has a folder `images`, only that one.
        name: in PUBLISHED.
    """
    members, problems = list_members(path / "images" if (path / "images").is_dir() else path)
    classes = published_classes(name)
    split_of = {label: split for split in SPLITS for label in classes[split]}
    images, others = [], set()
    for member in members:
        label = member.name.rpartition("/")[0].rpartition("/")[2]
        if not member.name.lower().endswith(tuple(TYPES)):
            continue
        if label in split_of:
            images.append(ImageFile(member.name, member.place, member.stamp, label, split_of[label]))
        else:
            others.add(label)
    _check_classes({image.label for image in images}, others, name, path)
    images.sort(key=lambda image: (SPLITS.index(image.split), image.label, image.name))
    return Listing(tuple(images), tuple(problems), ())


def _check_classes(found: set[str], others: set[str], name: str, path: Path) -> None:
    """Raise ValueError if a published class was not found; others: what further folders of images are called."""
    for split, labels in published_classes(name).items():
        if missing := [label for label in labels if label not in found]:
            raise ValueError(
                f"split {split!r} of {name} has {len(labels)} classes, and {path} has no images of {len(missing)} of "
                f"them: {_few(missing)}"
                + (f"; it has folders that no split names: {_few(sorted(others))}" if others else "")
                + f". {PUBLISHED[name].where}"
            )


def _check_images(listing: Listing, name: str, images: int, path: Path) -> None:
    """Raise ValueError unless each class has as many images as published."""
    counts = Counter(image.label for image in listing.images)
    if wrong := [f"{label} has {count}" for label, count in counts.items() if count != images]:
        raise ValueError(
            f"each class of {name} has {images} images; in {path} {len(wrong)} classes differ: {_few(wrong)}. "
            f"{PUBLISHED[name].where}, or take what there is with --bad-files skip"
        )


def _few(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
