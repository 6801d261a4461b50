"""Images of the user's own: layouts, decoding, the cache, and every way in which files can be wrong."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import classes, pack, photograph, picture, split_folders, write
from PIL import Image

from csn.cli.inputs import labelled_files
from csn.data.images import pixels
from csn.data.images.decode import decode
from csn.data.images.files import list_images, split_classes
from csn.data.images.folder import check_images, load_images
from csn.data.images.options import TYPES
from csn.data.source import SPLITS, Dataset, EpisodeSource

SIZE = 8


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))


def content(data: Dataset) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """split -> class -> (red, green) of each image."""
    found: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for split in SPLITS:
        part = data.splits[split]
        assert part.x.shape[1:] == (3, SIZE, SIZE)
        starts = np.cumsum([0, *part.counts])
        found[split] = {
            name: [(int(x[0, 0, 0]), int(x[1, 0, 0])) for x in part.x[starts[c] : starts[c + 1]]]
            for c, name in enumerate(part.names)
        }
    return found


EXPECTED = {
    "train": {"ant": [(0, 0), (0, 1), (0, 2)], "bee": [(10, 0), (10, 1), (10, 2)]},
    "val": {"cat": [(20, 0), (20, 1), (20, 2)], "dog": [(30, 0), (30, 1), (30, 2)]},
    "test": {"eel": [(40, 0), (40, 1), (40, 2)], "fox": [(50, 0), (50, 1), (50, 2)]},
}


def table(rows: list[tuple[str, ...]], header: str) -> bytes:
    return "\n".join([header, *(",".join(row) for row in rows)]).encode()


def as_folders(folder: Path) -> Path:
    return write(folder / "set", split_folders())


def as_zip(folder: Path) -> Path:
    return pack(folder / "set.zip", split_folders())


def as_zip_with_a_root(folder: Path) -> Path:
    return pack(folder / "set.zip", {f"set-1.0/{name}": file for name, file in split_folders().items()})


def as_zips_of_splits(folder: Path) -> Path:
    """One archive names its split inside, the others do not."""
    files = split_folders()
    for split in SPLITS:
        part = {name: file for name, file in files.items() if name.startswith(split)}
        prefix = "" if split == "train" else f"{split}/"
        pack(folder / "set" / f"{split}.zip", {name.removeprefix(prefix): file for name, file in part.items()})
    return folder / "set"


def as_three_lists(folder: Path) -> Path:
    files = {name.replace("/", "-"): file for name, file in split_folders().items()}
    write(folder / "set" / "images", files)
    for split in SPLITS:
        rows = [(name, name.split("-")[1]) for name in files if name.startswith(split)]
        write(folder / "set", {f"{split}.csv": table(rows, "filename,label")})
    return folder / "set"


def as_one_list(folder: Path) -> Path:
    files = {name.replace("/", "-"): file for name, file in split_folders().items()}
    rows = [(f"pictures/{name}", name.split("-")[1], name.split("-")[0]) for name in reversed(files)]
    write(folder / "pictures", files)
    return write(folder, {"set.csv": table(rows, "file,class,split")}) / "set.csv"


@pytest.mark.parametrize(
    "layout", [as_folders, as_zip, as_zip_with_a_root, as_zips_of_splits, as_three_lists, as_one_list]
)
def test_every_layout_gives_the_same_data_set(tmp_path, layout):
    data = load_images(layout(tmp_path), size=SIZE)
    assert data.name == "set"
    assert content(data) == EXPECTED


def test_one_folder_of_classes_is_split_by_its_seed(tmp_path):
    labels = [f"class{c}" for c in range(25)]
    path = write(tmp_path / "set", classes("", labels, 2))
    data = load_images(path, size=SIZE)
    assert {split: len(data.splits[split]) for split in SPLITS} == {"train": 16, "val": 4, "test": 5}
    assert sorted(name for split in SPLITS for name in data.splits[split].names) == sorted(labels)
    again = load_images(path, size=SIZE)
    other = load_images(path, size=SIZE, seed=1)
    assert again.splits["test"].names == data.splits["test"].names != other.splits["test"].names


def test_six_classes_are_two_for_each_split():
    assert sorted(split_classes(set("abcdef"), "here").values()) == ["test", "test", "train", "train", "val", "val"]
    with pytest.raises(ValueError, match=r"here has 5 folders of classes.*needs 6 or more"):
        split_classes(set("abcde"), "here")


@pytest.mark.parametrize(
    ("file", "pixel"),
    [
        (picture(200, 100), (200, 100, 0)),
        (picture(200, 100, kind="WEBP"), (200, 100, 0)),
        (picture(77, mode="L"), (77, 77, 77)),
        (picture(200, 100, mode="RGBA"), (227, 177, 127)),  # half transparent, on white
        (picture(77, kind="JPEG", mode="L"), (77, 77, 77)),
        (picture(200, 100, kind="GIF"), (200, 100, 0)),
        (picture(200, 100, kind="BMP"), (200, 100, 0)),
        (picture(200, 100, kind="TIFF"), (200, 100, 0)),
    ],
)
def test_kinds_and_modes_become_rgb(file, pixel):
    x, width, height = decode(file, SIZE)
    assert (x.dtype, x.shape, width, height) == (np.uint8, (3, SIZE, SIZE), 10, 12)
    assert (x == np.array(pixel)[:, None, None]).all()


def test_adapting_and_training_read_files_of_the_same_kinds(tmp_path):
    """Every kind of `options.TYPES` in both, and nothing else."""
    files = {f"one/{i}{suffix}": picture(10, i, kind=kind) for i, (suffix, kind) in enumerate(TYPES.items())}
    write(tmp_path / "train", {**files, "one/notes.txt": b"", "one/drawing.svg": b"<svg/>"})
    adapted = {path.suffix for path, _ in labelled_files(tmp_path / "train")}
    write(tmp_path, {**classes("val/", ["a"]), **classes("test/", ["b"])})
    trained = {Path(image.name).suffix for image in list_images(tmp_path).images if image.split == "train"}
    assert adapted == trained == set(TYPES)
    assert check_images(tmp_path, size=SIZE).counts["train"] == {"one": len(TYPES)}


def test_sixteen_bits_keep_their_brightness():
    file = io.BytesIO()
    Image.fromarray(np.full((9, 9), 0x4D12, dtype=np.uint16)).save(file, "PNG")
    assert (decode(file.getvalue(), SIZE)[0] == 0x4D).all()


def test_the_whole_image_is_fitted_to_the_square():
    """Left half red, right half green, twice as wide as high: so is the square."""
    wide = np.zeros((8, 16, 3), dtype=np.uint8)
    wide[:, :8, 0], wide[:, 8:, 1] = 255, 255
    file = io.BytesIO()
    Image.fromarray(wide).save(file, "PNG")
    x, _, _ = decode(file.getvalue(), SIZE)
    assert (x[0, :, :3] == 255).all()
    assert (x[1, :, 5:] == 255).all()
    assert (x[2] == 0).all()


def test_photographs_are_turned_upright():
    image = Image.new("RGB", (20, 10), (255, 0, 0))
    image.paste((0, 255, 0), (10, 0, 20, 10))  # the right half is green
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter, clockwise: left is up
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    x, _, _ = decode(file.getvalue(), SIZE)
    assert (x[0, :3] == 255).all()
    assert (x[1, 5:] == 255).all()


def test_the_second_start_decodes_nothing(tmp_path, monkeypatch):
    path = as_folders(tmp_path)
    calls: list[tuple[int, int]] = []
    first = load_images(path, size=SIZE, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (18, 18)
    monkeypatch.setattr(pixels, "decode_rows", None)
    second = load_images(path, size=SIZE)
    assert content(second) == content(first)


def test_a_changed_file_is_read_again_and_a_copied_folder_shares_its_pixels(tmp_path):
    path = as_folders(tmp_path)
    load_images(path, size=SIZE)
    write(tmp_path / "copy", split_folders())
    load_images(tmp_path / "copy", size=SIZE)
    assert len(list((tmp_path / "cache" / "arrays").glob("*.u8"))) == 1
    file = path / "train/ant/0.png"
    file.write_bytes(picture(99, 7))
    os.utime(file, ns=(1, 1))
    assert content(load_images(path, size=SIZE))["train"]["ant"][0] == (99, 7)
    assert load_images(path, size=SIZE + 4).splits["val"].x.shape == (6, 3, 12, 12)


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: os.truncate(file, 100)])
def test_pixels_that_were_deleted_or_cut_off_are_decoded_again(tmp_path, damage):
    path = as_folders(tmp_path)
    load_images(path, size=SIZE)
    (file,) = (tmp_path / "cache" / "arrays").glob("*.u8")
    damage(file)
    assert content(load_images(path, size=SIZE)) == EXPECTED


def test_pixels_are_mapped_and_writing_to_a_tensor_changes_no_file(tmp_path):
    path = as_folders(tmp_path)
    data = load_images(path, size=SIZE)
    data.splits["train"].x.zero_()
    assert content(load_images(path, size=SIZE)) == EXPECTED
    episode = EpisodeSource(data, "test", way=2, shot=1, queries=2, seed=0).batch(0, 3)
    assert episode.support.x.shape == (3, 2, 3, SIZE, SIZE)
    assert set((255 * episode.support.x[:, :, 0]).unique().round().tolist()) <= {40, 50}


def test_processes_decode_as_one_process_does(tmp_path, monkeypatch):
    path = write(tmp_path / "set", split_folders(images=12))
    alone = content(load_images(path, size=SIZE))
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(pixels, "CHUNK", 5)
    monkeypatch.setattr(pixels, "_cores", lambda: 2)
    assert content(load_images(path, size=SIZE)) == alone


# What can be wrong with files


def bomb() -> bytes:
    """A PNG whose header claims 40,000 x 40,000 pixels."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def large_but_plausible() -> bytes:
    """More pixels than we read, fewer than pillow refuses: 6,000 x 6,000 in a header."""
    return bomb().replace(struct.pack(">II", 40_000, 40_000), struct.pack(">II", 6_000, 6_000))


BAD = {
    "truncated": (photograph(0)[:900], "truncated"),
    "text": (b"this is no image", "it is not an image of type JPEG, PNG, WEBP"),
    "empty": (b"", "it is not an image of type"),
    "bomb": (bomb(), "at most 32,000,000"),
    "large": (large_but_plausible(), "pixels, got 6000 x 6000"),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_unreadable_file_stops_by_name_or_is_skipped(tmp_path, kind):
    file, why = BAD[kind]
    if kind == "large":  # the header's own checksum must fit
        body = b"IHDR" + file[16:29]
        file = file[:29] + struct.pack(">I", zlib.crc32(body)) + file[33:]
    path = write(tmp_path / "set", {**split_folders(), "train/ant/1.jpg": file})
    with pytest.raises(ValueError, match=rf"set has 1 problem:\n  train/ant/1.jpg: .*{why}(.|\n)*--bad-files skip"):
        load_images(path, size=SIZE)
    assert content(load_images(path, size=SIZE, bad_files="skip")) == EXPECTED
    (problem,) = check_images(path, size=SIZE).problems
    assert problem.where == "train/ant/1.jpg"
    assert why in problem.why


def test_a_file_of_too_many_bytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("csn.data.images.decode.MAX_BYTES", 500)
    path = write(tmp_path / "set", {**split_folders(), "val/cat/9.jpg": photograph(0)})
    with pytest.raises(ValueError, match=r"val/cat/9.jpg: an image file may have at most .* bytes, got \d"):
        load_images(path, size=SIZE)


def test_a_class_of_one_image_stops_or_is_left_out(tmp_path):
    path = write(tmp_path / "set", {**split_folders(), "train/gnu/0.png": picture(9)})
    with pytest.raises(ValueError, match=r"class gnu of train: 1 readable image, 2 needed"):
        load_images(path, size=SIZE)
    assert content(load_images(path, size=SIZE, bad_files="skip")) == EXPECTED


def test_a_class_that_unreadable_files_leave_too_small_is_named(tmp_path):
    files = {"train/gnu/0.png": picture(9), "train/gnu/1.png": b"x"}
    path = write(tmp_path / "set", {**split_folders(), **files})
    with pytest.raises(ValueError, match=r"2 problems:\n  train/gnu/1.png(.|\n)*class gnu of train: 1 readable"):
        load_images(path, size=SIZE)


def test_a_class_in_two_splits_stops_or_stays_in_the_first(tmp_path):
    path = write(tmp_path / "set", {**split_folders(), **classes("test/", ["bee"], first=7)})
    with pytest.raises(ValueError, match="class bee: it is in the splits train and test"):
        load_images(path, size=SIZE)
    assert content(load_images(path, size=SIZE, bad_files="skip")) == EXPECTED


@pytest.mark.parametrize(
    "name", ["../../outside.png", "/etc/outside.png", "train/ant/../../../outside.png", "C:\\outside.png"]
)
def test_a_path_out_of_the_archive_is_never_followed(tmp_path, name):
    path = pack(tmp_path / "set.zip", {**split_folders(), name: picture(1)})
    with pytest.raises(ValueError, match=r"outside.png: the path leads out of the archive"):
        load_images(path, size=SIZE)
    assert content(load_images(path, size=SIZE, bad_files="skip")) == EXPECTED
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == ["set.zip"]


def test_a_list_may_not_name_files_outside_or_missing_ones(tmp_path):
    path = as_one_list(tmp_path)
    path.write_bytes(path.read_bytes() + b"\n../secret.png,ant,train\npictures/nowhere.png,ant,train")
    with pytest.raises(
        ValueError, match=r"\.\./secret.png: the path leads out of the folder\n.*nowhere.png: there is no such"
    ):
        load_images(path, size=SIZE)
    assert content(load_images(path, size=SIZE, bad_files="skip")) == EXPECTED


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"a.png,ant,train", "names its columns"),
        (b"", "an empty file"),
        (b"file,class,split\na.png,ant,dev", "line 2 of set.csv should hold"),
        (b"file,class,split\na.png,,train", "line 2 of set.csv should hold"),
        (b"file,class\na.png,ant", "no column is called split"),
        (b"\xff\xfe", "CSV file in UTF-8"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(tmp_path, rows, message):
    path = write(tmp_path, {"set.csv": rows, "a.png": picture(1)}) / "set.csv"
    with pytest.raises(ValueError, match=message):
        load_images(path)


def test_what_holds_no_images_is_refused_with_the_layouts(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", write(tmp_path / "flat", {"a.png": picture(1)})):
        with pytest.raises(ValueError, match=rf"{path.name} holds no folders of .jpg.*train/, val/ and test/"):
            load_images(path)
    with pytest.raises(ValueError, match="there is no file or folder"):
        load_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is not a zip archive, or damaged"):
        load_images(write(tmp_path, {"set.zip": b"PK"}) / "set.zip")
    partial = {name: file for name, file in split_folders().items() if not name.startswith("val")}
    with pytest.raises(ValueError, match="none of val"):
        load_images(write(tmp_path / "partial", partial))
    unreadable = {name: b"x" if name.startswith("val") else file for name, file in split_folders().items()}
    with pytest.raises(ValueError, match="'val' of unreadable has no class of 2 readable images"):
        load_images(write(tmp_path / "unreadable", unreadable), bad_files="skip")


def test_options_out_of_range_are_refused(tmp_path):
    path = as_folders(tmp_path)
    with pytest.raises(ValueError, match="a side of 8 to 1024 pixels, got 4"):
        load_images(path, size=4)
    with pytest.raises(ValueError, match="'stop' or 'skip', got 'ask'"):
        load_images(path, bad_files="ask")


def test_the_report_counts_sizes_duplicates_and_other_files(tmp_path):
    files = {**split_folders(), "train/ant/notes.txt": b"", "train/ant/.DS_Store": b"", "stray.png": picture(3)}
    files["test/eel/copy.png"] = files["train/bee/1.png"]
    files["test/eel/twice.png"] = files["test/eel/0.png"]  # within one split: no leak
    files["val/cat/wide.png"] = picture(1, width=30, height=20)
    report = check_images(write(tmp_path / "set", files), size=SIZE)
    assert report.counts == {"train": {"ant": 3, "bee": 3}, "val": {"cat": 4, "dog": 3}, "test": {"eel": 5, "fox": 3}}
    assert report.sizes == {(10, 12): 20, (30, 20): 1}
    assert report.duplicates == (("train/bee/1.png", "test/eel/copy.png"),)
    assert report.ignored == ("train/ant/notes.txt",)
    assert report.problems == (("stray.png", "the file is not in the folder of a class"),)


def test_a_cache_without_room_or_permission_is_said(tmp_path, monkeypatch):
    path = as_folders(tmp_path)
    monkeypatch.setenv("CSN_CACHE", str(write(tmp_path, {"file": b""}) / "file"))
    with pytest.raises(ValueError, match=r"set CSN_CACHE to a writable folder"):
        load_images(path, size=SIZE)
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(pixels.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ValueError, match=r"18 images of 8 x 8 need .* make room"):
        load_images(path, size=SIZE)
    assert list((tmp_path / "cache" / "arrays").iterdir()) == []


def test_nearest_neighbour_on_pixels_reads_colours(tmp_path):
    from csn.baselines.nearest import NearestNeighbour

    data = load_images(write(tmp_path / "set", split_folders(images=6)), size=SIZE)
    episode = EpisodeSource(data, "test", way=2, shot=2, queries=3, seed=0).batch(0, 4)
    answers = NearestNeighbour(2)(episode).logits.argmax(-1)
    assert torch.equal(answers, episode.query.y)  # the classes differ by 10 in red, their images by at most 5 in green


def test_listing_keeps_archives_and_folders_apart(tmp_path):
    listing = list_images(as_zips_of_splits(tmp_path))
    assert {image.place.path for image in listing.images} == {str(tmp_path / "set" / f"{s}.zip") for s in SPLITS}
    assert listing.images[0].name == "train/ant/0.png"
