"""Images that are damaged, or cannot be read for now: each is its own problem and stops no other."""

from __future__ import annotations

import errno
import struct
import sys
import zipfile
from pathlib import Path

import pytest
from image_sets import pack, photograph, split_folders, write

from csn.data.images import decode, pixels
from csn.data.images.folder import check_images, load_images
from csn.data.source import SPLITS, Dataset

SIZE = 8


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))


def counts(data: Dataset) -> list[int]:
    """Images of every class."""
    return [count for split in SPLITS for count in data.splits[split].counts.tolist()]


def damaged_archive(folder: Path, packing: int) -> Path:
    """Some bytes in the middle of val/cat/9.jpg are others."""
    path = folder / "set.zip"
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in {**split_folders(), "val/cat/9.jpg": photograph(0)}.items():
            archive.writestr(name, content)
        start = archive.getinfo("val/cat/9.jpg").header_offset
    content = bytearray(path.read_bytes())
    content[start + 60 : start + 160] = bytes(range(100, 200))
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_an_archive_is_a_problem_of_its_own(tmp_path, packing):
    path = damaged_archive(tmp_path, packing)
    (problem,) = check_images(path, size=SIZE).problems
    assert problem.where == "val/cat/9.jpg"
    assert counts(load_images(path, size=SIZE, bad_files="skip")) == [3] * 6


@pytest.mark.parametrize("error", [struct.error("unpack"), TypeError("'<' not supported"), KeyError(3), MemoryError()])
def test_whatever_a_file_raises_is_its_own_problem(tmp_path, monkeypatch, error):
    whole, bad = decode.decode, photograph(0)

    def damaged(content: bytes, size: int) -> object:
        if content == bad:
            raise error
        return whole(content, size)

    monkeypatch.setattr(decode, "decode", damaged)
    path = write(tmp_path / "set", {**split_folders(), "train/ant/1.jpg": bad})
    with pytest.raises(ValueError, match=r"set has 1 problem:\n  train/ant/1.jpg: (it is damaged|there is not enough)"):
        load_images(path, size=SIZE)
    assert counts(load_images(path, size=SIZE, bad_files="skip")) == [3] * 6


def test_a_missing_package_is_no_problem_of_the_files(tmp_path, monkeypatch):
    path = write(tmp_path / "set", split_folders())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"pip install \"csn\[data\]\""):
        load_images(path, size=SIZE)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_could_not_be_read_is_tried_again(tmp_path, monkeypatch, packed):
    files = split_folders()
    path = pack(tmp_path / "set.zip", files) if packed else write(tmp_path / "set", files)
    read = decode.read_bytes

    def fail_once(place: decode.Place) -> bytes:
        if "train/ant/1.png" in (place.member or place.path):
            raise OSError(errno.EIO, "Input/output error", place.path)
        return read(place)

    monkeypatch.setattr(decode, "read_bytes", fail_once)
    with pytest.raises(ValueError, match=r"train/ant/1.png: Input/output error\n"):
        load_images(path, size=SIZE)
    assert counts(load_images(path, size=SIZE, bad_files="skip")) == [2, 3, 3, 3, 3, 3]
    monkeypatch.setattr(decode, "read_bytes", read)
    assert counts(load_images(path, size=SIZE)) == [3] * 6


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2])
def test_a_damaged_file_is_not_decoded_again(tmp_path, monkeypatch, packing):
    path = damaged_archive(tmp_path, packing)
    load_images(path, size=SIZE, bad_files="skip")
    monkeypatch.setattr(pixels, "decode_rows", None)
    assert counts(load_images(path, size=SIZE, bad_files="skip")) == [3] * 6
