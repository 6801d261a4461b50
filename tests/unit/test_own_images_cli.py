"""The command line with images of the user's own: check, train, evaluate, show, in colour."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from image_sets import classes, pack, photograph, write
from PIL import Image

from csn.cli import main as cli
from csn.config import load_preset
from csn.data.images.augment import augment, mirrored
from csn.data.images.folder import load_images
from csn.data.registry import LoadOptions, load_data
from csn.data.source import EpisodeSource
from csn.engine.run import open_run
from csn.episode import Episode, Examples

SMALL = [
    "--set",
    "network.width=0.1",
    "--set",
    "data.image_size=16",
    "--set",
    "train.validation_tasks=10",
    "--threads",
    "1",
]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write(tmp_path / "pets", classes("", [f"pet{c:02d}" for c in range(12)], 21))


def test_train_evaluate_and_show_take_a_path(own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    train = ["train", "adaresnet-df", "--recipe", "plus", "--data", "pets", *SMALL, "--way", "2", "--tasks", "4"]
    assert cli.main(train) == 0
    (run,) = Path("runs").iterdir()
    assert run.name == "adaresnet-df-plus-pets-2w1s-seed0"
    assert json.loads((run / "config.json").read_text())["data"]["name"] == str(own)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run = tmp_path / run
    assert cli.main(["evaluate", str(run), "--tasks", "4", "--references", "--threads", "1"]) == 0
    result = json.loads((run / "result-pets-test-2w1s.json").read_text())
    assert result["evaluation"]["data"] == "pets"
    assert result["summary"]["nearest neighbour"]["accuracy"] == 1  # classes differ more in red than images in green

    other = pack(tmp_path / "others.zip", classes("", [f"other{c}" for c in range(10)], 20, first=12))
    assert cli.main(["evaluate", str(run), "--data", str(other), "--tasks", "4", "--threads", "1"]) == 0
    of_others = run / "result-others-test-2w1s.json"
    assert of_others.exists()
    verify = ["results", "verify", "--run", str(run)]
    assert cli.main([*verify, str(run / "result-pets-test-2w1s.json")]) == 0
    assert cli.main([*verify, str(of_others)]) == 2  # nobody knows where those were
    assert cli.main([*verify, str(of_others), "--data", str(other)]) == 0

    assert cli.main(["show", "--run", str(run), "--data", str(other), "--out", "episode.png"]) == 0
    pixels = np.asarray(Image.open("episode.png").convert("RGB")).reshape(-1, 3)
    assert any((pixels[:, 0] == 10 * (12 + c)).any() for c in range(10))  # the red of some class, not a grey


def test_learners_are_compared_on_images_of_the_asked_size(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    no_image = own / "pet00" / "none.jpg"
    no_image.write_text("no image")
    few = ["--tasks", "4", "--way", "2", "--queries", "2", "--test-tasks", "2", "--test-queries", "2", "--repeats", "3"]
    compare = [
        "compare",
        "prototypical",
        "adacnn-32-df",
        "--data",
        "pets",
        *few,
        *SMALL[2:],
        "--set",
        "network.filters=4",
    ]
    assert cli.main(compare) == 2
    assert "none.jpg" in capsys.readouterr().err  # not without a word about the bad file
    assert cli.main([*compare, "--set", "data.bad_files=skip"]) == 0
    for name in ("prototypical", "adacnn-32-df"):
        run = open_run(Path("runs/compare/pets-2w1s") / name)
        assert run.metadata["about"]["input"] == [3, 16, 16]
        assert (run.config.data.name, run.config.data.way, run.config.pretrain.epochs) == (str(own), 2, 0)


def test_pictures_show_colours(own: Path) -> None:
    assert cli.main(["show", "--data", "pets", "--classes", "2", "--split", "train", "--out", "sheet.png"]) == 0
    pixels = np.asarray(Image.open("sheet.png").convert("RGB")).reshape(-1, 3).astype(int)
    data = load_images(own)
    shown = [data.splits["train"].x[0, :, 0, 0].tolist(), data.splits["train"].x[-1, :, 0, 0].tolist()]
    for red, _, _ in shown:
        assert ((pixels[:, 0] == red) & (pixels[:, 1] < 21) & (pixels[:, 2] == 0)).any()


def test_check_reports_and_counts(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "check", "pets"]) == 0
    said = capsys.readouterr().out
    assert "10 x 12 (252)" in said
    assert "resizes them to 84 x 84" in said
    write(own, {"pet00/cut.jpg": photograph(1)[:700], "pet00/readme.md": b"", "pet99/only.png": photograph(2)})
    assert cli.main(["data", "check", "pets", "--image-size", "16"]) == 1
    said = capsys.readouterr().out
    assert "pet00/cut.jpg: " in said
    assert "class pet99 of " in said
    assert "pet00/readme.md" in said
    assert cli.main(["data", "get", "pets", "--image-size", "16"]) == 2
    assert "class pet99 of train: 1 readable image" in capsys.readouterr().err
    assert cli.main(["data", "get", "pets", "--image-size", "16", "--bad-files", "skip"]) == 0
    assert "3 x 16 x 16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "check", "./nowhere"], "there is no file or folder"),
        (["train", "adaresnet-df"], "cannot be downloaded freely"),
        (
            ["train", "adaresnet-df", "--data", "strokes", "--set", "data.image_size=32"],
            "strokes has images of one size",
        ),
        (
            ["train", "adaresnet-df", "--data", "pets", "--set", "data.image_size=9", "--way", "2"],
            "16 pixels or more on a side",
        ),
        (["train", "adaresnet-df", "--data", "pets", "--set", "data.bad_files=maybe"], "stop or skip"),
        (["train", "adaresnet-df", "--data", "pets", "--way", "9"], "9-way"),
    ],
)
def test_wrong_turns_are_said_clearly(
    own: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_text_of_ones_own_is_a_data_set_too(tmp_path: Path) -> None:
    words = np.random.default_rng(0).integers(0, 300, (2000, 5))
    (tmp_path / "own.txt").write_text("\n".join(" ".join(f"w{word}" for word in row) for row in words))
    data = load_data("./own.txt")
    assert data.name == "own"
    assert data.vocabulary is not None
    with pytest.raises(ValueError, match="has images of one size"):
        load_data("./own.txt", LoadOptions(image_size=32))


def test_presets_for_mini_imagenet_name_it() -> None:
    assert load_preset("adaresnet-gradient").data.name == "mini-imagenet"


def test_photographs_are_mirrored_and_moved_but_not_inked() -> None:
    torch.manual_seed(0)
    x = torch.rand(1, 40, 3, 6, 6)
    flipped = mirrored(x)
    same = (flipped == x).flatten(2).all(-1)
    assert torch.equal(flipped[~same], x.flip(-1)[~same])
    assert 8 < int(same.sum()) < 32
    bright = Episode(*(Examples(torch.ones(1, 5, 3, 16, 16), torch.zeros(1, 5, dtype=torch.int64)),) * 2, 2)
    assert torch.allclose(augment(bright, 1.0).query.x, torch.ones(()))  # nothing dark enters from beyond the edge


def test_episodes_of_own_images_do_not_depend_on_the_order_of_loading(own: Path) -> None:
    first, second = (
        EpisodeSource(load_images(own, size=16), "train", way=3, shot=1, queries=2, seed=3).batch(5, 2)
        for _ in range(2)
    )
    assert torch.equal(first.query.x, second.query.x)
