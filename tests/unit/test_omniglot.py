"""Omniglot: a miniature built by hand for the arithmetic and the errors, the real drawings where they exist."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from csn.data import fetch
from csn.data.images import omniglot
from csn.data.images.area import area_matrix
from csn.data.images.omniglot import load_omniglot
from csn.data.source import SPLITS

MEMBERS = dict[str, bytes]


def png(ink: np.ndarray) -> bytes:
    """A 1-bit PNG, black where there is ink, like the published ones."""
    file = io.BytesIO()
    Image.fromarray(~ink).save(file, "PNG")
    return file.getvalue()


def drawing(number: int) -> np.ndarray:
    """A 15 x 15 block in the top left corner (4 x 4 pixels of 28), and `number` written as 11 bits at the bottom."""
    ink = np.zeros((105, 105), dtype=bool)
    ink[:15, :15] = True
    for bit in range(11):
        ink[100:, 5 * bit : 5 * bit + 5] = bool(number >> bit & 1)
    return ink


def members(folder: str, alphabets: dict[str, int], first: int) -> tuple[MEMBERS, str]:
    """Members of an archive in a shuffled order, and the sha256 of its contents, worked out independently."""
    found: MEMBERS = {}
    digest, number = hashlib.sha256(), first
    for alphabet in sorted(alphabets):
        for character in range(1, alphabets[alphabet] + 1):
            digest.update(f"{alphabet}/character{character:02d}".encode())
            for drawer in range(1, 21):
                ink = drawing(number)
                digest.update(ink.astype(np.uint8).tobytes())
                found[f"{folder}/{alphabet}/character{character:02d}/{character:04d}_{drawer:02d}.png"] = png(ink)
                number += 1
    return dict(reversed(found.items())), digest.hexdigest()


def pack(path: Path, found: MEMBERS) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in found.items():
            archive.writestr(member, content)


@dataclasses.dataclass
class Miniature:
    """8 background classes of alphabets A (4), B (1), C (3) and 4 evaluation classes of D (2) and E (2)."""

    folder: Path
    background: MEMBERS

    @property
    def path(self) -> Path:
        return self.folder / "images_background.zip"

    def repack(self, change: Callable[[MEMBERS], object]) -> None:
        found = dict(self.background)
        change(found)
        pack(self.path, found)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Miniature:
    folder = tmp_path / "data" / "omniglot"
    folder.mkdir(parents=True)
    background, first = members("images_background", {"A": 4, "B": 1, "C": 3}, 0)
    evaluation, second = members("images_evaluation", {"D": 2, "E": 2}, 1000)
    pack(folder / "images_background.zip", background)
    pack(folder / "images_evaluation.zip", evaluation)
    old = omniglot.ARCHIVES
    archives = (
        dataclasses.replace(old[0], sha256=first, classes=8),
        dataclasses.replace(old[1], sha256=second, classes=4),
    )
    monkeypatch.setattr(omniglot, "ARCHIVES", archives)
    monkeypatch.setattr(omniglot, "TRAIN_CLASSES", 9)
    monkeypatch.setattr(omniglot, "VAL_CLASSES", 2)
    monkeypatch.setattr(omniglot, "VAL_ALPHABETS", 1)
    monkeypatch.setenv("CSN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))
    return Miniature(folder, background)


def base(name: str) -> str:
    """The class that a turned class was made from."""
    return name.partition("/rot")[0]


def test_random_protocol_in_small(mini: Miniature) -> None:
    splits = load_omniglot().splits
    assert {split: len(splits[split]) for split in SPLITS} == {"train": 28, "val": 2, "test": 3}  # 7 x 4, 2, 3
    assert splits["train"].x.shape == (560, 1, 28, 28)
    assert splits["train"].x.dtype == torch.uint8
    assert splits["train"].counts.tolist() == [20] * 28
    everything = {base(name) for split in SPLITS for name in splits[split].names}
    alphabets = {"A": 4, "B": 1, "C": 3, "D": 2, "E": 2}
    assert everything == {f"{a}/character{i:02d}" for a, n in alphabets.items() for i in range(1, n + 1)}
    assert len(load_omniglot(rotations=False).splits["train"]) == 7


def test_background_protocol_in_small(mini: Miniature) -> None:
    data = load_omniglot(protocol="background", rotations=False)
    assert data.name == "omniglot-background"
    assert data.splits["train"].names == (
        *(f"A/character{i:02d}" for i in range(1, 5)),
        *(f"C/character{i:02d}" for i in range(1, 4)),
    )
    assert data.splits["val"].names == ("B/character01",)  # the smallest alphabet
    assert data.splits["test"].names == ("D/character01", "D/character02", "E/character01", "E/character02")
    # Rows are classes by name and drawers by number: the bits at the bottom of each drawing tell which it is.
    # Drawing 83 is the 4th of class 5 (A01-A04 are 0-79, B01 80-99); 20 evaluation drawings later is D02's first.
    for split, row, number in (
        ("train", 0, 0),
        ("train", 79, 79),
        ("val", 3, 83),
        ("train", 80, 100),
        ("test", 20, 1020),
    ):
        bottom = data.splits[split].x[row, 0, 27]
        assert [int(bottom[round((5 * bit + 2) / 3.75 - 0.5)] > 100) for bit in range(11)] == [
            number >> bit & 1 for bit in range(11)
        ]


def test_turns_are_classes_of_their_own(mini: Miniature) -> None:
    train = load_omniglot(protocol="background").splits["train"]
    corner = {"": (0, 0), "/rot090": (24, 0), "/rot180": (24, 24), "/rot270": (0, 24)}  # counterclockwise
    for suffix, (top, left) in corner.items():
        row = 20 * train.names.index(f"A/character01{suffix}")
        block = torch.zeros(28, 28, dtype=torch.uint8)
        block[top : top + 4, left : left + 4] = 255
        assert torch.equal(train.x[row, 0], block)  # drawing 0: no bits at the bottom


def test_area_average_by_hand() -> None:
    area = area_matrix(105, 28)
    ink = np.zeros((105, 105))
    ink[0, 3] = 1  # pixel [3, 4) lies 3/4 in output pixel [0, 3.75) and 1/4 in the next
    small = area @ ink @ area.T
    expected = np.zeros((28, 28))
    expected[0, :2] = 0.75 / 3.75**2, 0.25 / 3.75**2
    np.testing.assert_allclose(small, expected, atol=1e-7)
    np.testing.assert_allclose(area.sum(axis=1), 1, rtol=1e-6)  # white stays white
    np.testing.assert_allclose(area.sum(axis=0), 28 / 105, rtol=1e-6)  # every input pixel counts the same


def test_folders_serve_as_well_as_archives(mini: Miniature, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed = load_omniglot().splits["train"]
    for member, content in mini.background.items():
        (mini.folder / member).parent.mkdir(parents=True, exist_ok=True)
        (mini.folder / member).write_bytes(content)
    mini.path.unlink()
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "other"))
    unpacked = load_omniglot().splits["train"]
    assert unpacked.names == packed.names
    assert torch.equal(unpacked.x, packed.x)


def test_foreign_members_are_ignored_and_nothing_is_extracted(mini: Miniature, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    foreign = ("../../evil.png", "__MACOSX/A/character01/._0001_01.png", "images_background/.DS_Store")
    mini.repack(lambda found: found.update(dict.fromkeys(foreign, b"evil")))
    load_omniglot()
    new = {path.name for path in set(tmp_path.rglob("*")) - set(before)}
    assert {name for name in new if not name.startswith("omniglot-28-")} == {"cache", "arrays"}


def test_a_second_load_reads_the_cache_only(mini: Miniature, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_omniglot()
    mini.path.unlink()
    monkeypatch.delenv("CSN_DATA")
    monkeypatch.setattr(omniglot, "fetch", lambda *_, **__: pytest.fail("downloaded"))
    second = load_omniglot()
    for split in SPLITS:
        assert second.splits[split].names == first.splits[split].names
        assert torch.equal(second.splits[split].x, first.splits[split].x)


MEMBER = "images_background/A/character02/0002_07.png"
HUGE = (
    b"\x89PNG\r\n\x1a\n"
    + b"\x00\x00\x00\rIHDR"
    + (200_000).to_bytes(4, "big") * 2
    + b"\x08\x00\x00\x00\x00"
    + b"\0" * 9
)
CHANGED = drawing(26) | (np.arange(105 * 105).reshape(105, 105) == 5000)  # one pixel more


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop(MEMBER), "class A/character02 should have 20 drawings, got 19"),
        (lambda found: [found.pop(m) for m in list(found) if "/B/" in m], r"should hold 8 classes .*, got 7"),
        (lambda found: found.clear(), r"should hold 8 classes .*, got 0"),
        (lambda found: found.update({MEMBER: png(np.ones((105, 104), bool))}), "105 x 105 pixels, got 104 x 105"),
        (lambda found: found.update({MEMBER: HUGE}), "105 x 105 pixels, got 200000 x 200000"),
        (lambda found: found.update({MEMBER: b"GIF89a" * 9}), f"{MEMBER} should be a PNG"),
        (lambda found: found.update({MEMBER: found[MEMBER][:60]}), f"{MEMBER} cannot be decoded"),
        (lambda found: found.update({MEMBER: b"\0" * 70_000}), "should have 20 drawings, got 19"),
        (lambda found: found.update({MEMBER: png(CHANGED)}), "not the published ones: their sha256 should be"),
    ],
)
def test_wrong_contents_are_refused(mini: Miniature, change: Callable[[MEMBERS], object], message: str) -> None:
    mini.repack(change)
    with pytest.raises(ValueError, match=message) as caught:
        load_omniglot()
    assert str(mini.path) in str(caught.value)
    assert "brendenlake/omniglot/master/python/images_background.zip" in str(caught.value)
    mini.repack(lambda _: None)
    assert len(load_omniglot().splits["test"]) == 3  # the refused archive left nothing behind in the cache


def test_a_truncated_archive_is_refused(mini: Miniature) -> None:
    mini.path.write_bytes(mini.path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"images_background\.zip is damaged or incomplete: File is not a zip file"):
        load_omniglot()


def test_a_flipped_byte_is_refused(mini: Miniature) -> None:
    content = bytearray(mini.path.read_bytes())
    with zipfile.ZipFile(mini.path) as archive:
        info = archive.getinfo(MEMBER)
    content[info.header_offset + 30 + len(MEMBER) + info.compress_size // 2] ^= 0xFF
    mini.path.write_bytes(content)
    with pytest.raises(ValueError, match=r"images_background\.zip is damaged or incomplete"):
        load_omniglot()


def test_a_missing_archive_is_downloaded_by_its_official_checksum(
    mini: Miniature, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def offline(*what: str, progress: object) -> Path:
        asked.append(what)
        raise fetch.DownloadError("cannot download")

    monkeypatch.setattr(omniglot, "fetch", offline)
    mini.path.unlink()
    with pytest.raises(fetch.DownloadError, match="cannot download"):
        load_omniglot()
    assert asked == [
        (
            "omniglot/images_background.zip",
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_background.zip",
            "md5:68d2efa1b9178cc56df9314c21c6e718",
        )
    ]


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="'random' or 'background', got 'lake'"):
        load_omniglot(protocol="lake")  # type: ignore[arg-type]


@pytest.fixture
def real_omniglot(real_data: Path) -> Path:
    if not any((real_data / "omniglot").glob("images_background*")):
        pytest.skip(f"{real_data} holds no omniglot/images_background.zip")
    return real_data / "omniglot"


def test_real_random_protocol(real_omniglot: Path) -> None:
    splits = load_omniglot().splits
    assert {split: splits[split].x.shape for split in SPLITS} == {
        "train": (88000, 1, 28, 28),  # 1100 x 4 x 20
        "val": (2000, 1, 28, 28),
        "test": (8460, 1, 28, 28),
    }
    bases = {split: {base(name) for name in splits[split].names} for split in SPLITS}
    assert {split: len(names) for split, names in bases.items()} == {"train": 1100, "val": 100, "test": 423}
    assert len(bases["train"] | bases["val"] | bases["test"]) == 1623  # so no class, however turned, is in two splits
    assert len({name.partition("/")[0] for names in bases.values() for name in names}) == 50
    assert not [name for split in ("val", "test") for name in splits[split].names if "/rot" in name]
    # Results are only comparable while the draw stays what it is.
    drawn = hashlib.sha256("\n".join(splits["test"].names).encode()).hexdigest()
    assert drawn == "0cb5c5f0824382a70ae30210620570d552bf73775cd936e8ae0be29c60839294"


def test_real_background_protocol(real_omniglot: Path) -> None:
    splits = load_omniglot(protocol="background").splits
    bases = {split: {base(name) for name in splits[split].names} for split in SPLITS}
    assert {split: len(names) for split, names in bases.items()} == {"train": 883, "val": 81, "test": 659}
    assert len(splits["train"]) == 4 * 883
    alphabets = {split: {name.partition("/")[0] for name in names} for split, names in bases.items()}
    assert {split: len(names) for split, names in alphabets.items()} == {"train": 25, "val": 5, "test": 20}
    assert len(alphabets["train"] | alphabets["val"] | alphabets["test"]) == 50  # whole alphabets: none is in two
    assert "Tagalog" in alphabets["val"]  # 17 characters
    assert "Tengwar" in alphabets["test"]


def test_real_drawings_are_thin_strokes_on_black(real_omniglot: Path) -> None:
    x = load_omniglot().splits["test"].x.float() / 255
    assert 0.05 < x.mean() < 0.12  # 7.8 % and 8.4 % of the raw pixels of the two archives are ink
    assert x.flatten(1).amax(dim=1).min() > 0.3  # no drawing is empty
    assert float((x == 0).float().mean()) > 0.7
