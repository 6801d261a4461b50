"""Images that are decoded when a task asks for them: the tasks of a set that is read as a whole, in bounded memory."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from csn.cli.main import main
from csn.data.images.folder import load_images
from csn.data.images.streaming import AHEAD, AheadSource, StreamedExamples, stream_images
from csn.data.registry import load_data
from csn.data.source import EpisodeSource
from csn.data.varied import VariedSource
from csn.engine.checkpoint import load_checkpoint

Image = pytest.importorskip("PIL.Image")
CLASSES, EACH, SIZE = 12, 9, 16


def content(c: int, i: int) -> bytes:
    """A noisy JPEG of a class."""
    rng = np.random.default_rng([c, i])
    pixels = np.random.default_rng(c).integers(0, 256, (24, 20, 3)) // 2 + rng.integers(0, 128, (24, 20, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "set"
    for c in range(CLASSES):
        (path / f"class{c:02}").mkdir(parents=True)
        for i in range(EACH):
            (path / f"class{c:02}" / f"{i}.jpg").write_bytes(content(c, i))
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in three archives, classes in files of their own, as WebDataset has them."""
    path = tmp_path_factory.mktemp("shards") / "set"
    path.mkdir()
    for shard in range(3):
        with tarfile.open(path / f"{shard}.tar", "w") as archive:
            for number in range(shard, CLASSES * EACH, 3):
                c, i = divmod(number, EACH)
                for suffix, data in (("jpg", content(c, i)), ("cls", f"class{c:02}\n".encode())):
                    info = tarfile.TarInfo(f"{number:06}.{suffix}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return path


def source(data, split="train", **options) -> EpisodeSource:
    return EpisodeSource(data, split, **{"way": 3, "shot": 1, "queries": 2, "seed": 5} | options)


def assert_same(a, b) -> None:
    for part, other in ((a.support, b.support), (a.query, b.query)):
        assert torch.equal(part.x, other.x)
        assert torch.equal(part.y, other.y)


def test_a_streamed_folder_gives_the_tasks_of_a_decoded_one(folder):
    whole, streamed = load_images(folder, size=SIZE), stream_images(folder, size=SIZE)
    assert whole.input_spec == streamed.input_spec
    for split in ("train", "val", "test"):
        assert whole.splits[split].names == streamed.splits[split].names
    for first in (0, 7):
        assert_same(source(whole).batch(first, 3), source(streamed).batch(first, 3))


def test_tar_archives_hold_the_same_set(folder, shards):
    whole, archived = load_images(folder, size=SIZE), load_data(str(shards))
    assert isinstance(archived.splits["train"], StreamedExamples)
    streamed = stream_images(shards, size=SIZE)
    assert sorted(name for classes in streamed.splits.values() for name in classes.names) == sorted(
        name for classes in whole.splits.values() for name in classes.names
    )
    for split in ("train", "val", "test"):
        assert streamed.splits[split].names == whole.splits[split].names
    classes = streamed.splits["train"]
    expected = [content(int(name[5:]), i) for name in classes.names for i in range(EACH)]
    rows = np.array([[0, 17], [17, 3]])
    found = (classes.at(rows) * 255).round().byte()
    for place in np.ndindex(2, 2):
        alone = whole.splits["train"]
        shown = {(alone.at(np.array([row])) * 255).round().byte()[0].numpy().tobytes() for row in range(len(expected))}
        assert found[place].numpy().tobytes() in shown
    assert torch.equal(found[0, 1], found[1, 0])


def test_an_image_is_decoded_once_however_often_it_is_asked_for(folder, monkeypatch):
    classes, decoded = stream_images(folder, size=SIZE).splits["train"], []
    read = StreamedExamples._decoded
    monkeypatch.setattr(StreamedExamples, "_decoded", lambda self, row: decoded.append(row) or read(self, row))
    classes.at(np.array([[3, 3], [5, 3]]))
    assert sorted(decoded) == [3, 5]


@pytest.mark.parametrize("kind", [EpisodeSource, VariedSource])
def test_batches_made_ahead_are_those_asked_for(folder, kind):
    data = stream_images(folder, size=SIZE)
    options = {"way": 3, "shot": 2, "queries": 2, "seed": 5}
    plain, ahead = kind(data, "train", **options), AheadSource(kind(data, "train", **options))
    for first in (0, 4, 8, 2, 6, 20):
        assert_same(ahead.batch(first, 4), plain.batch(first, 4))
    assert_same(ahead.batch(24, 4, slice(1, 3)), plain.batch(24, 4, slice(1, 3)))
    assert_same(ahead.batch(28, 2), plain.batch(28, 2))  # a last step of fewer tasks
    assert ahead.way == 3


def test_no_more_steps_are_ahead_than_were_allowed(folder):
    asked, enough = [], threading.Event()

    class Counted(EpisodeSource):
        def batch(self, first, tasks, part=slice(None)):
            asked.append(first)
            if len(asked) == AHEAD + 1:
                enough.set()
            return super().batch(first, tasks, part)

    ahead = AheadSource(Counted(stream_images(folder, size=SIZE), "train", way=3, shot=1, queries=1, seed=0))
    ahead.batch(0, 2)
    assert enough.wait(60)
    assert sorted(asked) == [2 * step for step in range(AHEAD + 1)]


def test_a_streamed_training_is_that_of_a_decoded_set(folder, tmp_path):
    options = ["train", "prototypical", "--data", str(folder), "--way", "2", "--queries", "2", "--tasks", "8"]
    options += ["--set", "network.filters=4", "--set", "train.validation_tasks=4", "--set", f"data.image_size={SIZE}"]
    options += ["--threads", "1", "--set", "train.tasks_per_step=2"]
    for where in ("auto", "stream"):
        assert main([*options, "--out", str(tmp_path / where), "--data-on", where]) == 0
    (mine, _), (theirs, _) = (load_checkpoint(tmp_path / where / "last.safetensors") for where in ("stream", "auto"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_what_cannot_be_streamed_is_named(folder, tmp_path, capsys):
    assert main(["train", "adacnn-df", "--data", "strokes", "--data-on", "stream"]) == 2
    assert "--data-on stream needs a path of images" in capsys.readouterr().err
    (tmp_path / "bad.tar").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"bad\.tar cannot be read as a tar archive"):
        stream_images(tmp_path / "bad.tar")
    with pytest.raises(ValueError, match="8 to 1024 pixels"):
        stream_images(folder, size=4)


def member(name: str, kind: bytes = tarfile.REGTYPE, **headers: str) -> tuple[tarfile.TarInfo, bytes]:
    info, data = tarfile.TarInfo(name), content(0, 0) if kind == tarfile.REGTYPE else b""
    info.size, info.type, info.linkname, info.pax_headers = len(data), kind, "/etc/passwd", headers
    return info, data


def archive(path: Path, *more: tuple[tarfile.TarInfo, bytes]) -> Path:
    """Seven classes of two images, and what is to be tried."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        for info, data in (*(member(f"c{c}/{j}.jpg") for c in range(7) for j in range(2)), *more):
            file.addfile(info, io.BytesIO(data))
    return path


def count(path: Path) -> int:
    return sum(len(split.places) for split in stream_images(path, size=SIZE).splits.values())


def test_an_archive_leads_to_nothing_but_its_own_bytes(tmp_path):
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    links = [member(f"c0/{number}.jpg", kind) for number, kind in enumerate(kinds, start=7)]
    assert count(archive(tmp_path / "set.tar", *links)) == 14
    assert count(archive(tmp_path / "set.tar", member("../../../c0/9.jpg"), member("/etc/c1/9.jpg"))) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set.tar"]


# The second size leads back to the header that says so: tarfile would read it again for ever.
@pytest.mark.parametrize("headers", [{"size": "-1024"}, {"size": "-1536"}, {"size": "9" * 20}, {"GNU.sparse.map": "a"}])
def test_an_archive_with_sizes_that_cannot_be_is_refused(tmp_path, headers):
    path = archive(tmp_path / "set.tar", member("c0/2.jpg", **headers), member("c0/3.jpg"))
    with pytest.raises(ValueError, match=r"set\.tar cannot be read as a tar archive"):
        stream_images(path)


def test_an_archive_with_a_damaged_header_is_no_shorter_one(tmp_path):
    path = archive(tmp_path / "set.tar")
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"c5/0.jpg")] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"the header at byte [\d,]+ is damaged"):
        stream_images(path)


def test_a_damaged_image_is_named_when_a_task_asks_for_it(folder, tmp_path):
    data = stream_images(folder, size=SIZE)
    damaged = tmp_path / "0.jpg"
    damaged.write_bytes(b"no image")
    classes = data.splits["train"]
    classes.places[2] = classes.places[2]._replace(path=str(damaged))
    with pytest.raises(ValueError, match=r"0\.jpg: it is not an image of type JPEG, .*; correct it"):
        classes.at(np.array([2]))
