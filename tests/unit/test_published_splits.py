"""The published splits of CIFAR-FS, FC100, CUB and tieredImageNet: their classes, and miniatures of every layout."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from image_sets import Files, picture, write

from csn.cli.main import main
from csn.data.images import published_splits
from csn.data.images.published_splits import PUBLISHED, load_published, published_classes
from csn.data.registry import LoadOptions, load_data
from csn.data.source import SPLITS

NUMBERS = {  # of classes, as printed in each paper
    "cifar-fs": (64, 16, 20),
    "fc100": (60, 20, 20),
    "cub": (100, 50, 50),
    "tiered-imagenet": (351, 97, 160),
}
IMAGES = 2


@pytest.fixture(autouse=True)
def _two_images_a_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))
    for name, published in PUBLISHED.items():
        small = dataclasses.replace(published, size=8, images=published.images and IMAGES)
        monkeypatch.setitem(published_splits.PUBLISHED, name, small)


def one_folder(name: str, prefix: str = "") -> Files:
    """A folder per class, red telling its place among all classes in order of their names, green the image."""
    labels = sorted(label for labels in published_classes(name).values() for label in labels)
    return {
        f"{prefix}{label}/{number}.png": picture(place % 256, number, width=8, height=8)
        for place, label in enumerate(labels)
        for number in range(IMAGES)
    }


def split_folders(name: str) -> Files:
    """The same below train, val and test."""
    split_of = {label: split for split, labels in published_classes(name).items() for label in labels}
    return {f"{split_of[file.partition('/')[0]]}/{file}": content for file, content in one_folder(name).items()}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_lists_have_the_published_numbers_and_no_class_twice(name: str) -> None:
    classes = published_classes(name)
    assert tuple(len(classes[split]) for split in SPLITS) == NUMBERS[name]
    assert len({label for split in SPLITS for label in classes[split]}) == sum(NUMBERS[name])


def test_both_splits_of_cifar_100_have_the_same_hundred_classes() -> None:
    ours, theirs = (sorted(sum(published_classes(name).values(), ())) for name in ("cifar-fs", "fc100"))
    assert ours == theirs


def test_fc100_keeps_the_five_classes_of_a_superclass_together() -> None:
    """Superclasses of CIFAR-100, from its page: two of each split."""
    train, val, test = (published_classes("fc100")[split] for split in SPLITS)
    assert {"oak_tree", "maple_tree", "palm_tree", "pine_tree", "willow_tree"} <= set(train)
    assert {"aquarium_fish", "flatfish", "ray", "shark", "trout"} <= set(train)
    assert {"bear", "leopard", "lion", "tiger", "wolf"} <= set(val)
    assert {"hamster", "mouse", "rabbit", "shrew", "squirrel"} <= set(val)
    assert {"baby", "boy", "girl", "man", "woman"} <= set(test)
    assert {"beaver", "dolphin", "otter", "seal", "whale"} <= set(test)


def test_cub_is_split_by_the_numbers_of_its_classes() -> None:
    """Chen et al.: every other class to train, of the rest every other one to validate."""
    numbers = {split: [int(label[:3]) for label in labels] for split, labels in published_classes("cub").items()}
    assert numbers == {
        "train": list(range(1, 200, 2)),
        "val": list(range(2, 200, 4)),
        "test": list(range(4, 201, 4)),
    }


def test_tiered_imagenet_holds_numbers_of_imagenet_of_its_categories() -> None:
    """One known class of each split: a terrier, a retriever and a tench (Ren et al., figure 2)."""
    classes = published_classes("tiered-imagenet")
    assert all(len(label) == 9 and label[0] == "n" for labels in classes.values() for label in labels)
    for label, split in (("n02093256", "train"), ("n02099601", "val"), ("n01440764", "test")):
        assert label in classes[split]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("layout", [one_folder, split_folders])
def test_a_miniature_of_every_layout_is_split_as_published(name, layout, tmp_path, monkeypatch):
    write(tmp_path / PUBLISHED[name].folders[0], layout(name))
    monkeypatch.setenv("CSN_DATA", str(tmp_path))
    data = load_data(name, LoadOptions())
    assert data.name == name
    order = sorted(label for labels in published_classes(name).values() for label in labels)
    for split in SPLITS:
        part = data.splits[split]
        assert list(part.names) == sorted(published_classes(name)[split])
        assert part.counts.tolist() == [IMAGES] * len(part.names)
        expected = [order.index(label) % 256 for label in part.names for _ in range(IMAGES)]
        assert part.x[:, 0, 4, 4].tolist() == expected
    assert load_data(name, LoadOptions(image_size=12)).splits["val"].x.shape[1:] == (3, 12, 12)


def test_cub_is_read_as_it_is_unpacked(tmp_path, monkeypatch):
    files = one_folder("cub", "CUB_200_2011/images/") | {
        "CUB_200_2011/classes.txt": b"1 001.Black_footed_Albatross",
        "CUB_200_2011/parts/parts.txt": b"1 back",
        "CUB_200_2011/segmentations/001.Black_footed_Albatross/0.png": picture(1),
    }
    monkeypatch.setenv("CSN_DATA", str(write(tmp_path, files)))
    data = load_published(name="cub")
    assert len(data.splits["test"]) == 50
    assert set(data.splits["train"].counts) == {IMAGES}


def test_cifar_100_in_its_own_halves_gives_all_images_of_a_class(tmp_path):
    """Exported as train/CLASS and test/CLASS; one of its classes is called train."""
    halves = one_folder("cifar-fs")
    files = {f"{'test' if file.endswith('1.png') else 'train'}/{file}": content for file, content in halves.items()}
    assert "train/train/0.png" in files
    data = load_published(write(tmp_path / "cifar100", files), name="cifar-fs")
    assert data.splits["train"].counts.tolist() == [IMAGES] * 64


def test_other_classes_of_imagenet_are_left_out(tmp_path):
    path = write(tmp_path / "train", one_folder("tiered-imagenet") | {"n99999999/0.png": picture(1)})
    data = load_published(path, name="tiered-imagenet")
    assert sum(len(data.splits[split]) for split in SPLITS) == 608


def test_missing_classes_and_images_are_named(tmp_path):
    path = write(tmp_path / "cifar", one_folder("cifar-fs"))
    (path / "crab/0.png").unlink()
    with pytest.raises(ValueError, match=r"class of cifar-fs has 2 images; in .* 1 classes differ: crab has 1\. Get"):
        load_published(path, name="cifar-fs")
    assert len(load_published(path, name="cifar-fs", bad_files="skip").splits["val"]) == 15
    (path / "lawn_mower").rename(path / "lawn mower")
    with pytest.raises(
        ValueError,
        match=r"'train' of cifar-fs has 64 classes, and .* no images of 1 of them: lawn_mower; it has folders that no "
        r"split names: lawn mower\. Get CIFAR-100",
    ):
        load_published(path, name="cifar-fs")
    for label in published_classes("cifar-fs")["train"]:
        shutil.rmtree(path / label, ignore_errors=True)
    with pytest.raises(ValueError, match=r"no images of 64 of them: .* and 59 more"):
        load_published(path, name="cifar-fs", bad_files="skip")


@pytest.mark.parametrize("name", NUMBERS)
def test_without_a_copy_it_says_where_the_images_are(name, monkeypatch):
    monkeypatch.delenv("CSN_DATA", raising=False)
    with pytest.raises(ValueError, match=rf"{name} was not found: .* folder {PUBLISHED[name].folders[0]}, .*https://"):
        load_published(name=name)


def test_the_command_line_lists_and_checks_them(tmp_path, monkeypatch, capsys):
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n{name} " in listed for name in NUMBERS)
    monkeypatch.setenv("CSN_DATA", str(write(tmp_path, one_folder("fc100", "fc100/")).resolve()))
    assert main(["data", "check", "fc100"]) == 0
    table = capsys.readouterr().out
    assert [word in table for word in ("60", "3 x 8 x 8", "test")] == [True] * 3
