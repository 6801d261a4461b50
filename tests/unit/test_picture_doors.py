"""Every kind of picture file through every door: data to train on, streaming, drawings, photographs, commands."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import classes, write
from PIL import Image
from test_encoders import needs_photos

from csn.classifier.inputs import open_image, prepare, to_rgb
from csn.classifier.pretrained import INK
from csn.cli import main as cli
from csn.data.images.folder import load_images
from csn.data.images.streaming import stream_images
from csn.learner import InputSpec
from picture_kinds import assert_scene, kinds, scene, truncated

SIZE = 48
KINDS, CUT = kinds(), truncated()
each_kind = pytest.mark.parametrize("name", KINDS)
each_cut = pytest.mark.parametrize("name", CUT)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))


def kept(folder: Path, name: str, content: bytes) -> Path:
    """The content in a file of this name."""
    (folder / name).write_bytes(content)
    return folder / name


def others() -> dict[str, bytes]:
    """The classes of a set to train on but for "bee"."""
    return {**classes("train/", ["ant"]), **classes("val/", ["cat", "dog"]), **classes("test/", ["eel", "fox"])}


def assert_whole(pixels: torch.Tensor) -> None:
    """Assert that (kinds, 3, size, size), in the order of the names of the files, all show the picture."""
    for name, found in zip(sorted(KINDS), (255 * pixels).round().byte().permute(0, 2, 3, 1).numpy(), strict=True):
        try:
            assert_scene(found, KINDS[name].ink)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_training_and_streaming_read_every_kind(tmp_path: Path) -> None:
    files = {f"train/bee/{name}": kind.content for name, kind in KINDS.items()}
    folder = write(tmp_path / "set", others() | files)
    for data in (load_images(folder, size=SIZE), stream_images(folder, size=SIZE)):
        examples = data.splits["train"]
        assert examples.names == ("ant", "bee")
        first, count = examples.counts.tolist()
        assert_whole(examples.at(np.arange(first, first + count)))


def test_archives_that_are_streamed_hold_every_kind(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for label in ("ant", "bee", "cat", "dog", "eel", "fox"):
            for name, kind in KINDS.items():
                info = tarfile.TarInfo(f"{label}/{name}")
                info.size = len(kind.content)
                archive.addfile(info, io.BytesIO(kind.content))
    for examples in stream_images(tmp_path / "set.tar", size=SIZE).splits.values():
        assert_whole(examples.at(np.arange(len(KINDS))))


@each_kind
def test_photographs_of_every_kind(name: str, tmp_path: Path) -> None:
    """What the encoder sees: the square in the middle of the picture."""
    path = kept(tmp_path, name, KINDS[name].content)
    assert_scene(to_rgb(open_image(path), SIZE), KINDS[name].ink, left=1 / 6, width=2 / 3)
    colours = prepare(path, InputSpec((3, SIZE, SIZE)))[0].permute(1, 2, 0).numpy()  # as a learner of photographs
    assert_scene(colours, KINDS[name].ink)
    with Image.open(path) as opened:
        assert_scene(prepare([opened], InputSpec((3, SIZE, SIZE)))[0].permute(1, 2, 0).numpy(), KINDS[name].ink)


@each_kind
def test_drawings_of_every_kind(name: str, tmp_path: Path) -> None:
    """The same ink on the same square, whatever its colour: only how strong it is may differ."""
    found = prepare(kept(tmp_path, name, KINDS[name].content), INK)[0, 0].int()
    expected = prepare([scene()], INK)[0, 0].int()
    assert (expected > 100).sum() > 100
    assert ((found > 80) == (expected > 80)).float().mean() > 0.99
    assert (found - expected * 255 / expected.max() * (found.max() / 255)).abs().max() <= 12


@each_cut
def test_truncated_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    path = kept(tmp_path, name, CUT[name])
    with pytest.raises(ValueError, match=r"is damaged or not a picture"):
        open_image(path)


@each_cut
def test_training_names_a_truncated_file(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "set", others() | classes("train/", ["bee"]) | {f"train/bee/{name}": CUT[name]})
    with pytest.raises(ValueError, match=name):
        load_images(folder, size=SIZE)
    examples = stream_images(folder, size=SIZE).splits["train"]
    with pytest.raises(ValueError, match=name):
        examples.at(np.arange(len(examples.x)))


def commands(folder: Path, encoder: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """`csn adapt` on every kind of file beside another class, then `csn predict`; the answers by file."""
    other = Image.new("RGB", (60, 40), "white")
    other.paste((20, 60, 200), (40, 5, 50, 35))
    file = io.BytesIO()
    other.save(file, "PNG")
    files = {f"one/{name}": kind.content for name, kind in KINDS.items()}
    write(folder / "pictures", files | {f"two/{i}.png": file.getvalue() for i in range(3)})
    task = str(folder / "task.csn")
    assert cli.main(["adapt", str(folder / "pictures"), "--out", task, *encoder]) == 0
    capsys.readouterr()
    assert cli.main(["predict", task, *sorted(map(str, (folder / "pictures/one").iterdir())), "--json"]) == 0
    return [answer["label"] for answer in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize("encoder", [[], pytest.param(["--encoder", "photos"], marks=needs_photos)])
def test_the_commands_take_every_kind(encoder: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = commands(tmp_path, encoder, capsys)
    assert answers == ["one"] * len(KINDS)
    task, bad = str(tmp_path / "task.csn"), [str(kept(tmp_path, name, content)) for name, content in CUT.items()]
    assert cli.main(["predict", task, str(tmp_path / "pictures/one/plain.png"), *bad, "--json"]) == 1
    said = capsys.readouterr()
    assert len(json.loads(said.out)) == 1
    assert all(f"{name} is damaged or not a picture" in said.err for name in CUT)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused_everywhere(value: float, tmp_path: Path) -> None:
    pixels = np.full((12, 12), 0.5, dtype=np.float32)
    pixels[3] = value
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF")
    path = kept(tmp_path, "bad.tiff", file.getvalue())
    for spec in (INK, InputSpec((3, SIZE, SIZE))):
        with pytest.raises(ValueError, match="NaN or infinite"):
            prepare(path, spec)
    with pytest.raises(ValueError, match="NaN or infinite"):
        to_rgb(open_image(path), SIZE)
    damaged = {"train/bee/bad.tiff": file.getvalue()}
    with pytest.raises(ValueError, match=r"bad\.tiff: the image holds NaN or infinite"):
        load_images(write(tmp_path / "set", others() | classes("train/", ["bee"]) | damaged), size=SIZE)
