"""Whatever a person has becomes what a learner takes; what cannot be read is refused before it costs anything."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from csn.classifier.inputs import prepare
from csn.learner import InputSpec

INK = InputSpec((1, 28, 28))


def cross(side: int = 56) -> np.ndarray:
    """A light cross on dark paper, (side, side) uint8."""
    image = np.zeros((side, side), dtype=np.uint8)
    image[side // 4 : side // 2, 4:-4] = 255
    image[4:-4, side // 2 : side // 2 + 4] = 255
    return image


def test_every_way_to_give_the_same_drawing(tmp_path: Path) -> None:
    light = cross()
    dark = 255 - light
    expected = prepare(light[None], INK)
    assert expected.shape == (1, 1, 28, 28)
    assert expected.dtype == torch.uint8
    Image.fromarray(dark).save(tmp_path / "a.png")
    clear = np.dstack([np.zeros_like(light)] * 3 + [light])  # black on a transparent canvas
    ways = [
        dark[None],
        light[None] / 255,
        light[None] > 0,
        (light[None] > 0).astype(np.uint8),
        (light[None] / 255 * 16).astype(int),
        light[None].astype(np.uint16) * 257,
        light.reshape(1, -1),
        np.dstack([dark] * 3)[None],
        clear[None],
        np.dstack([np.full_like(light, 255)] * 3 + [light])[None],  # white on a transparent canvas
        torch.from_numpy(dark)[None],
        torch.from_numpy(light)[None, None].float() / 255,
        Image.fromarray(dark),
        Image.fromarray(light).convert("1"),
        [Image.fromarray(dark).convert("RGB")],
        tmp_path / "a.png",
        [str(tmp_path / "a.png")],
        [light],
        40 + (light[None] * 0.2).astype(np.uint8),  # a faint grey scan
    ]
    for number, way in enumerate(ways):
        found = prepare(way, INK)
        assert (found.int() - expected.int()).abs().max() <= 1, number


def test_area_averages_of_the_whole_picture_in_proportion() -> None:
    wide = np.zeros((1, 28, 56), dtype=np.uint8)
    wide[0, :, 8:16] = 255
    found = prepare(wide, INK)[0, 0]
    assert found[7:21, 4:8].eq(255).all()  # half as large, 7 rows of paper above and below
    assert int(found.sum()) == 255 * 14 * 4


def test_a_drawing_of_the_learners_size_stays_as_it_is() -> None:
    drawing = np.zeros((1, 28, 28), dtype=np.uint8)
    drawing[0, 5:20, 9] = 200
    drawing[0, 5:20, 10] = 90
    assert prepare(drawing, INK)[0].numpy().tobytes() == drawing.tobytes()


def test_an_image_never_depends_on_the_others() -> None:
    images = [cross(), 255 - cross(40), cross(28) // 255]
    together = prepare(images, INK)
    assert all(torch.equal(prepare([image], INK)[0], row) for image, row in zip(images, together, strict=True))


def test_half_covered_paper_is_told_by_its_border() -> None:
    square = np.zeros((1, 40, 40), dtype=np.uint8)
    square[:, 6:34, 6:34] = 255  # 49 % ink
    assert prepare(square, INK)[0, 0, 14, 14] == 255
    assert prepare(255 - square, INK)[0, 0, 14, 14] == 255


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is huge and holds next to nothing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(100_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (13_000, 13_000), (9_000, 9_000), (50_000, 2)])
def test_giant_pictures_are_refused_before_they_are_decoded(width: int, height: int, tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(width, height))
    with pytest.raises(ValueError, match="pixels"):
        prepare(path, INK)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 28, 28)), "empty"),
        (np.full((1, 28, 28), 255, dtype=np.uint8), "empty"),
        (np.full((1, 28, 28), np.nan), "NaN"),
        (np.full((1, 28, 28), np.inf), "NaN or infinite"),
        (np.zeros((1, 28, 28, 7)), "channels"),
        (np.zeros((2, 30), dtype=np.uint8), "square"),
        (np.zeros((2, 1024)), "encoder=None"),
        (np.zeros((0, 28, 28)), "no examples"),
        (np.zeros((1, 0, 28)), "pixels"),
        (np.zeros(28), "shape"),
        ([np.array([["a"]])], "numbers"),
        (3, "got int"),
        ([], "no examples"),
        ("nowhere.png", "no file"),
        ([cross(), np.zeros((9, 9))], "image 1: the drawing is empty"),
    ],
)
def test_bad_images_are_refused(x: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(x, INK)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"hello")
    Image.fromarray(cross()).save(tmp_path / "b.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:-60])
    (tmp_path / "c.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    for name in ("a.png", "b.png", "c.eps"):
        with pytest.raises(ValueError, match="damaged or not a picture"):
            prepare(tmp_path / name, INK)
    with pytest.raises(ValueError):
        prepare(tmp_path, INK)


def test_vectors_sentences_and_colours() -> None:
    spec = InputSpec((3,))
    assert prepare([[1, 2, 3]], spec, torch.float64).tolist() == [[1.0, 2.0, 3.0]]
    for bad in (np.zeros((2, 4)), np.array([[np.nan, 0, 0]]), [["a", "b", "c"]], np.zeros(3)):
        with pytest.raises(ValueError):
            prepare(bad, spec)
    words = InputSpec((5,), ("<pad>", "<blank>", "<unk>", "the", "cat"))
    assert prepare("the cat <blank> zebra", words).tolist() == [[3, 4, 1, 2, 0]]
    for text in ("the cat", "<blank> <blank>"):
        with pytest.raises(ValueError, match="exactly one"):
            prepare(text, words)
    with pytest.raises(ValueError, match="word numbers"):
        prepare(np.array([[9, 1]]), words)
    assert prepare(np.full((1, 9, 5, 3), 255, dtype=np.uint8), InputSpec((3, 4, 4))).eq(255).all()
