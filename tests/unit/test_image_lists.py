"""Images named by CSV lists, and what lies beside images and lists."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_sets import pack, picture, split_folders, write

from csn.cli import main as cli
from csn.data.images.folder import check_images, load_images
from csn.data.source import SPLITS

SIZE = 8


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))


def one_list(folder: Path, *more: str, prefix: str = "") -> Path:
    """set.csv and its images, and more lines."""
    files = split_folders()
    write(folder, files)
    rows = [f"{prefix}{name},{name.split('/')[1]},{name.split('/')[0]}" for name in files]
    return write(folder, {"set.csv": "\n".join(["file,class,split", *rows, *more]).encode()}) / "set.csv"


def labels(path: Path) -> dict[str, int]:
    """How many images of each class there are."""
    data = load_images(path, size=SIZE, bad_files="skip")
    return {n: int(c) for s in SPLITS for n, c in zip(data.splits[s].names, data.splits[s].counts, strict=True)}


WHOLE = dict.fromkeys(["ant", "bee", "cat", "dog", "eel", "fox"], 3)


@pytest.mark.parametrize("again", ["ant,train", "bee,train", "ant,test"])
def test_a_file_that_is_listed_twice_is_a_problem(tmp_path, again):
    path = one_list(tmp_path, f"train/ant/1.png,{again}")
    label, split = again.split(",")
    problem = ("set.csv: train/ant/1.png", f"it is listed again, as {label} of {split}")
    assert check_images(path, size=SIZE).problems == (problem,)
    with pytest.raises(ValueError, match=r"train/ant/1.png: it is listed again"):
        load_images(path, size=SIZE)
    assert labels(path) == WHOLE


@pytest.mark.parametrize("prefix", ["./", ".//", "././"])
def test_a_path_may_begin_with_the_folder_itself(tmp_path, prefix):
    path = one_list(tmp_path, "./train/ant/../../../secret.png,ant,train", prefix=prefix)
    (problem,) = check_images(path, size=SIZE).problems
    assert problem.why == "the path leads out of the folder"
    assert labels(path) == WHOLE


@pytest.mark.parametrize("split_by_seed", [False, True])
def test_names_need_not_be_utf_8(tmp_path, split_by_seed, capsys):
    """Archives of older systems unpack to names in their own encoding."""
    files = {name.split("/", split_by_seed)[-1]: file for name, file in split_folders().items()}
    path = write(tmp_path / "set", files)
    folder = next(path.rglob("ant"))
    try:
        os.rename(folder, os.fsencode(folder.parent) + b"/caf\xe9")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    write(path, {os.fsdecode(b"m\xfcll.txt"): b""})
    assert labels(path) == {"caf\\xe9": 3, **{n: c for n, c in WHOLE.items() if n != "ant"}}
    assert cli.main(["data", "check", str(path)]) == 0
    assert "m\\xfcll.txt" in capsys.readouterr().out


def three_lists(folder: Path, names: tuple[str, str, str] = ("train.csv", "val.csv", "test.csv")) -> Path:
    """A list for each split beside a folder of images."""
    files = {name.replace("/", "-"): file for name, file in split_folders().items()}
    write(folder / "images", files)
    for split, name in zip(SPLITS, names, strict=True):
        rows = [f"{file},{file.split('-')[1]}" for file in files if file.startswith(split)]
        write(folder, {name: "\n".join(["filename,label", *rows]).encode()})
    return folder


@pytest.mark.parametrize("layout", [one_list, three_lists, lambda folder: write(folder, split_folders())])
@pytest.mark.parametrize("broken", ["backup.zip", "pictures/train.zip"])
def test_an_archive_that_is_not_used_is_not_opened(tmp_path, layout, broken):
    path = layout(tmp_path / "set")
    write(tmp_path / "set", {broken: b"PK"})
    assert labels(path) == WHOLE
    report = check_images(path, size=SIZE)
    assert report.problems == ()
    assert report.ignored == (() if layout is one_list else (broken,))


@pytest.mark.parametrize("broken", ["train.zip", "images.zip"])
def test_a_list_needs_no_archive_if_its_files_are_there(tmp_path, broken):
    path = one_list(tmp_path)
    write(tmp_path, {broken: b"PK"})
    assert labels(path) == WHOLE


def test_an_archive_that_is_used_must_be_whole(tmp_path):
    path = write(tmp_path / "set", split_folders() | {"train.zip": b"PK"})
    with pytest.raises(ValueError, match=r"train\.zip is not a zip archive, or damaged"):
        load_images(path, size=SIZE)


@pytest.mark.parametrize("layout", [one_list, three_lists])
def test_files_of_a_list_may_be_in_an_archive_beside_it(tmp_path, layout):
    path = layout(tmp_path / "set")
    for folder in [folder for folder in (tmp_path / "set").iterdir() if folder.is_dir()]:
        pack(
            folder.with_suffix(".zip"),
            {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*.png")},
        )
        shutil.rmtree(folder)
    assert labels(path) == WHOLE


def test_a_list_may_name_what_no_file_can_be_called(tmp_path):
    path = one_list(tmp_path, f"{'x' * 5000}.png,ant,train", "train,ant,train")
    assert [problem.why for problem in check_images(path, size=SIZE).problems] == ["there is no such file"] * 2
    assert labels(path) == WHOLE


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path):
    store = write(tmp_path / "store", split_folders())
    path = tmp_path / "set"
    (path / "train").mkdir(parents=True)
    for label in ("ant", "bee"):
        (path / "train" / label).symlink_to(store / "train" / label)
    (path / "val").symlink_to(store / "val")
    (path / "test").symlink_to(store / "test")
    (store / "val" / "cat" / "up").symlink_to(store / "val")
    (store / "val" / "all").symlink_to(path)
    (store / "val" / "nowhere").symlink_to(tmp_path / "nowhere")
    (path / "train" / "ant" / "itself").symlink_to(".")
    assert labels(path) == WHOLE
    assert check_images(path, size=SIZE).problems == ()


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "set", {**split_folders(), "train/gnu/0.png": b""})
    entries = Path.iterdir

    def refuse(folder: Path) -> Iterator[Path]:
        if folder.name == "gnu":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return entries(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ValueError, match=r"train/gnu: the folder cannot be read: Permission denied"):
        load_images(path, size=SIZE)
    assert labels(path) == WHOLE


@pytest.mark.parametrize("names", [("Train.csv", "Val.csv", "Test.csv"), ("TRAIN.CSV", "Valid.csv", "test.csv")])
def test_lists_of_splits_may_be_named_in_capitals(tmp_path, names):
    path = three_lists(tmp_path / "set", names)
    write(path, {"old/train.csv": b"filename,label\nnowhere.png,ant"})
    assert labels(path) == WHOLE
    assert check_images(path, size=SIZE).problems == ()


def test_three_lists_count_more_than_a_folder_that_is_named_as_a_split(tmp_path):
    path = three_lists(tmp_path / "set")
    write(path, {"train/preview.png": split_folders()["train/ant/0.png"]})
    assert labels(path) == WHOLE
    assert check_images(path, size=SIZE).problems == ()


def test_folders_of_all_splits_count_if_the_lists_name_nothing_that_is_there(tmp_path):
    path = three_lists(tmp_path / "set")
    shutil.rmtree(path / "images")
    write(path, {"train/preview.png": split_folders()["train/ant/0.png"], "logo/1.png": picture(1)})
    with pytest.raises(ValueError, match=r"train-ant-0.png: there is no such file"):
        load_images(path, size=SIZE)
    assert labels(write(path, split_folders())) == WHOLE
