"""`csn adapt` and `csn predict` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from csn.cli import main as cli
from csn.data import registry
from csn.data.images.strokes import load_strokes

TINY = ["--set", "network.filters=8", "--set", "train.validation_tasks=20", "--threads", "1", "--way", "5"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run and images/LABEL/*.png of three characters."""
    folder = tmp_path_factory.mktemp("adapt")
    small = load_strokes(alphabets=5, characters=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.DATASETS, "strokes", registry.DataEntry("a few characters", lambda _: small))
        run = ["train", "adacnn-df", "--recipe", "plus", "--data", "strokes", *TINY, "--tasks", "4"]
        assert cli.main([*run, "--out", str(folder / "run")]) == 0
    classes = small.splits["test"]
    for c, label in enumerate(["alpha", "😀", "שלום"]):
        (folder / "images" / label).mkdir(parents=True)
        for i in range(3):
            drawing = 255 - classes.x[classes.counts[:c].sum() + i, 0].numpy()
            Image.fromarray(np.kron(drawing, np.ones((3, 3), dtype=np.uint8))).save(folder / f"images/{label}/{i}.png")
    return folder


def test_learn_a_folder_and_recognise_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, run = str(place / "task.csn"), ["--run", str(place / "run")]
    assert cli.main(["adapt", str(place / "images"), "--out", task, *run]) == 0
    assert "9 examples of 3 classes" in capsys.readouterr().out
    files = sorted(map(str, (place / "images").glob("*/0.png")))
    assert cli.main(["predict", task, *files, *run, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["file"] for answer in answers] == files
    for answer in answers:
        probabilities = dict(answer["probabilities"])
        assert set(probabilities) == {"alpha", "😀", "שלום"}
        assert answer["probability"] == max(probabilities.values()) == probabilities[answer["label"]]
        assert sum(example["weight"] for example in answer["examples"]) == pytest.approx(1, abs=1e-4)
        assert answer["examples"][0]["label"] == Path(answer["file"]).parent.name  # it is in memory itself
    assert cli.main(["predict", task, *files, *run]) == 0
    assert "alpha" in capsys.readouterr().out


def test_unknown_files(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, task = ["--run", str(place / "run")], str(tmp_path / "task.csn")
    assert cli.main(["adapt", str(place / "images"), "--out", task, *run, "--unknown-threshold", "1.1"]) == 0
    capsys.readouterr()
    assert cli.main(["predict", task, str(place / "images/alpha/0.png"), *run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["label"] is None


def test_bad_input_exits_with_2(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = ["--run", str(place / "run")], str(tmp_path / "out.csn")
    (tmp_path / "none").mkdir()
    blank = tmp_path / "blank/a/x.png"
    blank.parent.mkdir(parents=True)
    Image.new("L", (30, 30), 255).save(blank)
    task = str(tmp_path / "good.csn")
    assert cli.main(["adapt", str(place / "images"), "--out", task, *run]) == 0
    Path(tmp_path / "short.csn").write_bytes(Path(task).read_bytes()[:-9])
    drawing = str(place / "images/alpha/0.png")
    for arguments, message in (
        (["adapt", "nowhere", "--out", out, *run], "is no folder"),
        (["adapt", str(tmp_path / "none"), "--out", out, *run], "holds no images"),
        (["adapt", str(tmp_path / "blank"), "--out", out, *run], "the drawing is empty"),
        (["adapt", str(place / "images"), "--out", out, "--model", "nothing"], "no weights named 'nothing'"),
        (["adapt", str(place / "images"), "--out", out, "--run", "nowhere"], "no checkpoint"),
        (["predict", "nowhere.csn", drawing, *run], "no checkpoint"),
        (["predict", str(tmp_path / "short.csn"), drawing, *run], "truncated"),
        (["predict", str(place / "run/best.safetensors"), drawing, *run], "no task file"),
        (["predict", task, drawing], "run= or learner="),
        (["predict", task, drawing, "nowhere.png", *run], "no file nowhere.png"),
        (["predict", task, str(blank), *run], "empty"),
    ):
        assert cli.main(arguments) == 2, arguments
        assert message in capsys.readouterr().err
    assert not Path(out).exists()


def test_no_threads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "task.csn", "drawing.png", "--threads", "0"]) == 2
    assert "--threads must be at least 1, got 0" in capsys.readouterr().err
