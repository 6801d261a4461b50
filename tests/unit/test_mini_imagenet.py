"""Mini-ImageNet: a miniature in every layout, pickles that are up to no good, and the real stand-in where it exists."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from image_sets import picture, write

from csn.data.images import mini_imagenet
from csn.data.images.mini_imagenet import PICKLES, load_mini_imagenet, load_tiny_imagenet
from csn.data.images.plain_pickle import read_plain_pickle
from csn.data.source import SPLITS

NAMES = {
    "train": ["n00000001", "n00000002", "n00000003"],
    "val": ["n00000004", "n00000005"],
    "test": ["n00000006", "n00000007"],
}
# sha256 of "n00000001\nn00000002\nn00000003" and so on, worked out with sha256sum
DIGESTS = {"train": "9d0871b850a3ea04", "val": "430f94d918466fdf", "test": "47f6e59fa2933623"}
IMAGES = 4


@pytest.fixture(autouse=True)
def _miniature(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))
    small = dataclasses.replace(
        mini_imagenet.MINI_IMAGENET,
        classes={split: (len(NAMES[split]), DIGESTS[split]) for split in SPLITS},
        images=IMAGES,
        size=12,
    )
    monkeypatch.setattr(mini_imagenet, "MINI_IMAGENET", small)


def red(name: str, number: int) -> int:
    return 20 * int(name[1:]) + number


def folders(folder: Path) -> Path:
    files = {
        f"{split}/{name}/{number}.png": picture(red(name, number), width=12, height=12)
        for split, names in NAMES.items()
        for name in names
        for number in range(IMAGES)
    }
    return write(folder, files)


def lists(folder: Path) -> Path:
    for split, names in NAMES.items():
        files = {
            f"{name}{n:08d}.png": picture(red(name, n), width=12, height=12) for name in names for n in range(IMAGES)
        }
        write(folder / "images", files)
        rows = ["filename,label", *(f"{file},{file[:9]}" for file in files)]
        write(folder, {f"{split}.csv": "\n".join(rows).encode()})
    return folder


def pickles(folder: Path, protocol: int = 2, **changes: object) -> Path:
    """As they circulate: a dictionary of all images, and the rows of each class."""
    folder.mkdir()
    for split, names in NAMES.items():
        images = np.zeros((len(names) * IMAGES, 12, 12, 3), dtype=np.uint8)
        rows = {name: list(range(c, len(images), len(names))) for c, name in enumerate(names)}  # classes interleaved
        for name, members in rows.items():
            for number, row in enumerate(members):
                images[row, :, :, 0] = red(name, number)
        content = {"image_data": images, "class_dict": OrderedDict(rows), **changes}
        (folder / PICKLES[split]).write_bytes(pickle.dumps(content, protocol=protocol))
    return folder


@pytest.mark.parametrize("layout", [folders, lists, pickles, lambda folder: pickles(folder, 5)])
def test_every_layout_gives_the_same_data_set(tmp_path, layout):
    path = layout(tmp_path / "set")
    for _ in range(2):  # the second time from the cache
        data = load_mini_imagenet(path)
        assert data.name == "mini-imagenet"
        for split in SPLITS:
            part = data.splits[split]
            assert list(part.names) == NAMES[split]
            assert part.counts.tolist() == [IMAGES] * len(NAMES[split])
            assert part.x.shape[1:] == (3, 12, 12)
            expected = [red(name, number) for name in NAMES[split] for number in range(IMAGES)]
            assert part.x[:, 0, 5, 5].tolist() == expected
            assert int(part.x[:, 1:].max()) == 0


def test_it_is_found_by_its_folder_and_resized_on_demand(tmp_path, monkeypatch):
    monkeypatch.setenv("CSN_DATA", str(tmp_path))
    pickles(tmp_path / "mini-imagenet")
    data = load_mini_imagenet(size=20)
    assert data.splits["val"].x.shape == (8, 3, 20, 20)
    assert data.splits["val"].x[:, 0, 10, 10].tolist() == [red(name, n) for name in NAMES["val"] for n in range(IMAGES)]


def test_without_a_copy_it_says_where_people_get_it(monkeypatch):
    monkeypatch.delenv("CSN_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"folder mini_imagenet, and set CSN_DATA.*cannot be downloaded freely.*image-net"
    ):
        load_mini_imagenet()


def test_a_missing_image_a_missing_class_and_other_classes_are_noticed(tmp_path):
    path = folders(tmp_path / "set")
    (path / "val/n00000004/0.png").unlink()
    with pytest.raises(
        ValueError, match=r"'val' of mini-imagenet has 2 classes of 4 images, got 2 classes, and n00000004"
    ):
        load_mini_imagenet(path)
    load_mini_imagenet(path, bad_files="skip")  # a copy with a hole, knowingly
    os.rename(path / "val/n00000004", path / "val/n00000009")
    write(path, {"val/n00000009/0.png": picture(80)})
    with pytest.raises(ValueError, match=r"'val' classes .* are not those of mini-imagenet: it may be another split"):
        load_mini_imagenet(path)
    os.rename(path / "val/n00000009", path / "test/n00000009")
    with pytest.raises(ValueError, match=r"'val' of mini-imagenet has 2 classes .* got 1 classes"):
        load_mini_imagenet(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"image_data": [1, 2]},
        {"image_data": np.zeros((4, 12, 12, 3))},
        {"class_dict": {}},
        {"class_dict": {"n00000001": [0, 0]}},
        {"class_dict": {"n00000001": [10_000]}},
        {"class_dict": {"n00000001": [{}]}},
        {"class_dict": {"n00000001": None}},
        {"class_dict": {"n00000001": ["x"]}},
        {"class_dict": {"n00000001": [[0], [1, 2]]}},
        {"class_dict": {"n00000001": [0.5]}},
        {"class_dict": {"n00000001": [2**80]}},
        {"class_dict": {"n00000001": [2**64 - 1]}},
    ],
)
def test_pickles_of_another_shape_are_refused(tmp_path, changes):
    with pytest.raises(ValueError, match=r"mini-imagenet-cache-train.pkl should (hold|name)"):
        load_mini_imagenet(pickles(tmp_path / "set", **changes))


class _Hostile:
    """What a pickle can do: call anything when it is read."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(os.system, ("touch owned",)), (eval, ("1 + 1",)), (getattr, ("", "join")), (np.load, ("owned",)), (Path, ("x",))],
)
def test_a_pickle_that_calls_anything_else_is_refused_and_nothing_runs(tmp_path, monkeypatch, function, arguments):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hostile.pkl"
    file.write_bytes(pickle.dumps({"image_data": _Hostile(function, *arguments)}))
    with pytest.raises(ValueError, match=r"hostile.pkl is damaged, or no pickle of plain arrays: it asks for"):
        read_plain_pickle(file)
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.pkl"]


@pytest.mark.parametrize("damage", [lambda content: content[:-20], lambda content: b"x" + content, lambda content: b""])
def test_a_damaged_pickle_is_refused(tmp_path, damage):
    file = tmp_path / "set.pkl"
    file.write_bytes(damage(pickle.dumps({"image_data": np.zeros(100)}, protocol=2)))
    with pytest.raises(ValueError, match="damaged, or no pickle"):
        read_plain_pickle(file)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_numbers_and_containers_survive(tmp_path, protocol):
    file = tmp_path / "set.pkl"
    content = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": [np.int64(3), (1, "x", b"\xff", None)]}
    file.write_bytes(pickle.dumps(content, protocol=protocol))
    found = read_plain_pickle(file)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"] == [3, (1, "x", b"\xff", None)]


def test_the_real_stand_in_has_its_classes(real_data, monkeypatch):
    """Only its smallest split is decoded: the whole takes a minute."""
    if not (real_data / "tiny_imagenet_fewshot").exists():
        pytest.skip("tiny_imagenet_fewshot is not among the real data")
    whole = mini_imagenet.TINY_IMAGENET
    listing = mini_imagenet.list_images(real_data / "tiny_imagenet_fewshot")
    for split, (number, digest) in whole.classes.items():
        labels = [image.label for image in listing.images if image.split == split]
        assert (len(set(labels)), len(labels)) == (number, number * whole.images)
        assert mini_imagenet._digest(tuple(set(labels))) == digest
    by_class = itertools.groupby(listing.images, key=lambda image: image.label)
    few = tuple(image for _, images in by_class for image in itertools.islice(images, 2))
    monkeypatch.setattr(mini_imagenet, "list_images", lambda _: dataclasses.replace(listing, images=few))
    monkeypatch.setattr(mini_imagenet, "TINY_IMAGENET", dataclasses.replace(whole, images=2))
    data = load_tiny_imagenet()
    assert data.name == "tiny-imagenet-fewshot"
    assert [tuple(data.splits[split].x.shape) for split in SPLITS] == [
        (128, 3, 64, 64),
        (32, 3, 64, 64),
        (40, 3, 64, 64),
    ]
    assert int(data.splits["train"].x.max()) == 255
