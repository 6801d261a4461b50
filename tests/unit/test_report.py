"""Pictures and pages: what is drawn, counted in the figure before it is saved, and what is written."""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from csn.baselines.nearest import NearestNeighbour
from csn.building import build, build_learner
from csn.cli import report as report_command
from csn.cli.main import main
from csn.config import Config, DataConfig
from csn.data.source import SPLITS, ClassExamples, Dataset, EpisodeSource
from csn.engine.checkpoint import save_checkpoint
from csn.engine.run import open_run
from csn.episode import Episode, Examples
from csn.experiments import run_page
from csn.learner import FewShotLearner, InputSpec
from csn.networks.ffn import FFNOptions
from csn.plots import drawing
from csn.plots.drawing import BLUE, ORANGE, RIGHT, WIDTH, WRONG, png
from csn.plots.episodes import (
    comparison_figure,
    contact_sheet,
    episode_figure,
    learning_curve,
)

LOG: list[dict[str, Any]] = [
    {"tasks": 100, "seconds": 1.0, "train": {"loss": 1.6, "accuracy": 0.25}},
    {"tasks": 100, "seconds": 2.0, "validation": {"accuracy": 0.3, "interval": 0.02, "best": True}},
    {"tasks": 200, "seconds": 3.0, "train": {"loss": 1.2, "accuracy": 0.5}},
    {"tasks": 200, "seconds": 4.0, "validation": {"accuracy": 0.625, "interval": 0.03, "best": True}},
    {"tasks": 300, "seconds": 5.0, "train": {"loss": 0.9, "accuracy": 0.7}},
    {"tasks": 300, "seconds": 3725.0, "validation": {"accuracy": 0.6, "interval": 0.01, "best": False}},
]


class Scripted(FewShotLearner):
    """Gives the class it is told at a probability of 3 / 4, and puts all attention on one support row."""

    def __init__(self, answers: list[int], row: int, *, attentive: bool = True) -> None:
        super().__init__()
        self.answers, self.row, self.way = answers, row, 100
        if attentive:
            self.attend = self._attend

    def describe(self, support: Examples, way: int | None = None) -> tuple[int, int]:
        assert not self.training
        assert way is not None
        return len(support), way

    def predict(self, x: Tensor, task: tuple[int, int]) -> Tensor:
        probabilities = torch.full((1, x.shape[1], task[1]), 0.25 / (task[1] - 1))
        probabilities[0, torch.arange(x.shape[1]), torch.tensor(self.answers)] = 0.75
        return probabilities.log()

    def _attend(self, x: Tensor, task: tuple[int, int]) -> Tensor:
        attention = torch.zeros(1, x.shape[1], task[0])
        attention[..., self.row] = 1
        return attention


def dataset(classes: int = 25, examples: int = 8, shape: tuple[int, ...] = (1, 28, 28)) -> Dataset:
    def split(name: str) -> ClassExamples:
        generator = torch.Generator().manual_seed(len(name))
        x = torch.randint(0, 256, (classes * examples, *shape), generator=generator, dtype=torch.uint8)
        names = tuple(f"{name} letters/{c:02d} with a rather long name" for c in range(classes))
        return ClassExamples(x, np.full(classes, examples), names)

    return Dataset("toy", {name: split(name) for name in SPLITS})


def source(way: int, shot: int, queries: int, **options: Any) -> EpisodeSource:
    return EpisodeSource(dataset(**options), "test", way=way, shot=shot, queries=queries, seed=0)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def check_png(content: bytes, height: int | None = None) -> None:
    """A readable PNG, `SCALE` times the page, with a white margin and something on it."""
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "PNG"
        assert image.width == drawing.SCALE * WIDTH
        assert height is None or image.height == drawing.SCALE * height
        pixels = np.asarray(image.convert("L"))
    assert (pixels[:, :10] == 255).all()
    assert (pixels[-10:] == 255).all()
    assert 0.01 < (pixels < 200).mean() < 0.6


def check_no_overlap(figure: Figure) -> None:
    """Every text lies on the page, and no two of them touch."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for axes in figure.axes for text in axes.texts]
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        assert not first.overlaps(second), (one, other)


@pytest.mark.parametrize(("way", "shot", "queries"), [(2, 1, 1), (5, 1, 2), (5, 5, 1), (20, 1, 1), (20, 5, 2)])
def test_an_episode_with_answers(way: int, shot: int, queries: int) -> None:
    episodes = source(way, shot, queries)
    truth = [c for c in range(way) for _ in range(queries)]
    answers = [c if j % 3 else (c + 1) % way for j, c in enumerate(truth)]
    learner = Scripted(answers, row=shot - 1)  # the last example of class 0
    figure = episode_figure(episodes.batch(0, 1), names=episodes.class_names(0), learner=learner, title="a $ task")
    assert learner.training  # left as it was

    (axes,) = figure.axes
    assert len(axes.images) == way * (shot + queries)
    marked = [text for text in axes.texts if text.get_text()[0] in RIGHT + WRONG]
    assert [text.get_text() for text in marked] == [
        f"{RIGHT if answer == true else WRONG} class {answer}" for answer, true in zip(answers, truth, strict=True)
    ]
    assert [text.get_color() for text in marked] == [
        BLUE if answer == true else ORANGE for answer, true in zip(answers, truth, strict=True)
    ]
    notes = [text for text in texts(figure) if text.startswith("75 %")]
    assert notes == [
        "75 %" if answer == true else f"75 %, is class {true}" for answer, true in zip(answers, truth, strict=True)
    ]
    # Per query a frame around the answer, a track and a bar for each support row.
    shapes = axes.collections[-1]
    assert len(shapes.get_paths()) == way * queries * (1 + 2 * way * shot)
    bars = [path.get_extents() for path in shapes.get_paths()[: 1 + 2 * way * shot]]
    tracks, weights = bars[1::2], bars[2::2]
    expected = [track.width if row == shot - 1 else 0.0 for row, track in enumerate(tracks)]
    assert [bar.width for bar in weights] == pytest.approx(expected)
    # Rows of a class lie under each other in the support's order; the frame stands around the answer's column.
    assert all(a.y0 < b.y0 for a, b in itertools.pairwise(tracks[:shot]))
    frame, column = bars[0], tracks[answers[0] * shot]
    assert frame.x0 < column.x0 < column.x1 < frame.x1
    assert to_hex(shapes.get_edgecolor()[0]) == (BLUE if answers[0] == truth[0] else ORANGE)
    assert ("0.00" in texts(figure)) == (shot == 1 and way <= 10)
    check_no_overlap(figure)
    if way * shot == 5:
        check_png(png(figure), height=round(figure.get_figheight() * 100))


@pytest.mark.parametrize(("way", "shot"), [(5, 1), (5, 5), (20, 1), (20, 5)])
def test_an_episode_without_a_learner(way: int, shot: int) -> None:
    episodes = source(way, shot, 2)
    figure = episode_figure(episodes.batch(3, 1), names=episodes.class_names(3))
    (axes,) = figure.axes
    assert len(axes.images) == way * (shot + 2)
    heads = [f"class {c}" if way == 5 else str(c) for c in range(way)]
    assert [text for text in texts(figure) if text in heads] == heads
    assert len(axes.texts) == way * (3 if way == 5 else 1) + 2  # the name in two lines where there is room
    check_no_overlap(figure)


def test_a_learner_without_attention_shows_its_probabilities() -> None:
    episode = source(5, 5, 1).batch(0, 1)
    figure = episode_figure(episode, learner=Scripted([0, 1, 2, 3, 3], row=0, attentive=False))
    assert [text for text in texts(figure) if text[0] in RIGHT + WRONG] == [
        *(f"{RIGHT} class {c}" for c in range(4)),
        f"{WRONG} class 3",
    ]
    assert texts(figure).count("0.75") == 5
    assert texts(figure).count("0.06") == 20
    assert "probability of each class" in texts(figure)[-1]
    assert len(episode_figure(episode, learner=NearestNeighbour(5)).axes[0].images) == 30


def test_a_csn_shows_its_attention() -> None:
    torch.manual_seed(0)
    learner = build(reads=(1, 28, 28), way=5, network=FFNOptions(units=8, layers=1)).eval()
    episode = source(5, 1, 1).batch(0, 1)
    with torch.no_grad():
        attention = learner.attend(episode.query.x, learner.describe(episode.support))
    shown = texts(episode_figure(episode, learner=learner))
    for weight in attention[0].flatten().tolist():
        assert f"{weight:.2f}" in shown
    assert "attention" in shown[-1]


@pytest.mark.parametrize("shape", [(3, 20, 30), (1, 20, 30)])
def test_images_keep_their_colours_and_their_proportions(shape: tuple[int, ...]) -> None:
    episode = source(5, 1, 1, shape=shape).batch(0, 1)
    figure = episode_figure(episode, learner=NearestNeighbour(5))
    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    assert (right - left) / (bottom - top) == pytest.approx(1.5)
    x = episode.support.x[0, 0]
    expected = x.permute(1, 2, 0) if shape[0] == 3 else 1 - x[0]  # ink on white paper
    np.testing.assert_allclose(np.asarray(image.get_array()), expected.numpy())


def test_values_outside_0_to_1_are_scaled_and_unbalanced_supports_are_drawn() -> None:
    x = torch.linspace(-3, 5, 4 * 64).reshape(1, 4, 1, 8, 8)
    support = Examples(x, torch.tensor([[0, 1, 1, 1]]))
    figure = episode_figure(Episode(support, Examples(x[:, :1], torch.tensor([[1]])), 2))
    assert len(figure.axes[0].images) == 5
    shown = np.stack([np.asarray(image.get_array()) for image in figure.axes[0].images[:4]])
    assert (shown.min(), shown.max()) == (0.0, 1.0)


def test_an_episode_that_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="one task, got a batch of 2"):
        episode_figure(source(5, 1, 1).batch(0, 2))
    for shape in ((7,), (2, 8, 8)):
        with pytest.raises(ValueError, match="1 or 3 channels"):
            episode_figure(source(5, 1, 1, shape=shape).batch(0, 1))
    with pytest.raises(ValueError, match="counted from 0, got -1"):
        source(5, 1, 1).class_names(-1)


def test_names_are_those_of_the_classes_drawn() -> None:
    episodes = source(5, 1, 1)
    support, _ = episodes.rows(4)
    assert episodes.class_names(4) == [episodes.classes.names[row // 8] for row in support[:, 0]]


def test_a_contact_sheet_shows_rows_of_classes() -> None:
    classes = dataset(classes=25, examples=30).splits["test"]
    figure = contact_sheet(classes, 3, title="toy")
    (axes,) = figure.axes
    assert len(axes.images) == 3 * 20
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), 1 - classes.x[0, 0].numpy() / 255, atol=1e-6)
    np.testing.assert_allclose(np.asarray(axes.images[40].get_array()), 1 - classes.x[720, 0].numpy() / 255, atol=1e-6)
    assert [text[:2] for text in texts(figure)[2::2]] == ["00", "12", "24"]
    check_no_overlap(figure)
    check_png(png(figure))
    for count in (0, 26):
        with pytest.raises(ValueError, match=f"1 to 25 classes of this split, got {count}"):
            contact_sheet(classes, count)


def test_the_learning_curve_shows_the_log() -> None:
    figure = learning_curve(LOG, title="a run")
    above, below = figure.axes
    lines = {str(line.get_label()): line for line in above.lines}
    np.testing.assert_allclose(lines["training"].get_xydata(), [(100, 25), (200, 50), (300, 70)])
    np.testing.assert_allclose(lines["validation, 95 % interval"].get_xydata(), [(100, 30), (200, 62.5), (300, 60)])
    np.testing.assert_allclose(lines["best: 62.50 ± 3.00 % after 200 tasks"].get_xydata(), [(200, 62.5)])
    np.testing.assert_allclose(below.lines[0].get_xydata(), [(100, 1.6), (200, 1.2), (300, 0.9)])
    band = above.collections[0].get_paths()[0].get_extents()
    assert (band.x0, band.x1) == (100, 300)
    assert (band.y0, band.y1) == pytest.approx((28, 65.5))
    assert below.get_xlabel() == "training tasks"
    check_png(png(figure), height=560)


def test_a_long_curve_is_drawn_as_means() -> None:
    log = [{"tasks": i, "train": {"loss": float(i), "accuracy": 0.5}} for i in range(1, 1001)]
    (faint, line) = learning_curve(log).axes[1].lines
    assert len(faint.get_xdata()) == 1000
    np.testing.assert_allclose(line.get_xydata()[:2], [(3, 3), (8, 8)])
    check_png(png(learning_curve(LOG[1:2])))  # a single validation is enough
    with pytest.raises(ValueError, match="no training or validation record"):
        learning_curve([])


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder as training leaves it, without having trained; its data set is the toy one."""
    folder = tmp_path / "run"
    config = Config(
        preset="tiny", recipe="plus", data=DataConfig(name="strokes"), network=FFNOptions(units=8, layers=1)
    )
    torch.manual_seed(0)
    learner = build_learner(config, InputSpec((1, 28, 28)))
    about = {"config": json.loads(config.to_json()), "input": [1, 28, 28], "version": "0"}
    metadata = {"about": about, "tasks": 200, "validation": 0.625, "interval": 0.03}
    tensors = {f"model.{name}": tensor for name, tensor in learner.state_dict().items()}
    save_checkpoint(folder / "best.safetensors", tensors, metadata)
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in LOG))
    monkeypatch.setattr(report_command, "load", lambda *_: dataset())
    monkeypatch.setattr(drawing, "SCALE", 1)  # in a quarter of the time
    return folder


def test_csn_report_of_a_run_without_results(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_page, "png", lambda figure: b"")
    assert main(["report", str(run_folder), "--out", str(tmp_path / "elsewhere")]) == 0
    assert f"`csn evaluate {run_folder}`" in (tmp_path / "elsewhere" / "report.md").read_text(encoding="utf-8")


def test_csn_report_writes_the_page_and_its_pictures(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = {"data": "toy", "split": "test", "way": 5, "shot": 1, "tasks": 4000}
    result = {
        "format": 2,
        "summary": {
            "trained": {"accuracy": 0.98765, "interval": 0.00123},
            "nearest neighbour": {"accuracy": 0.4504, "interval": 0.0242},
        },
        "accuracies": {"trained": [1.0] * 4000, "nearest neighbour": [0.5] * 4000},
        "config": json.loads(open_run(run_folder).config.to_json()),
        "trained": {"tasks": 200, "seconds": 1, "seconds_in_all": 1, "validation": 0.5, "validation_curve": []}
        | {"commit": "", "command": ""},
        "command": "csn evaluate",
    }
    of_hard = result | {"evaluation": tasks | {"attention": "hard"}}
    (run_folder / "result-toy-test-5w1s-hard.json").write_text(json.dumps(of_hard))
    of_earlier = {"trained": result["trained"] | {"checkpoint_sha256": "0" * 64}, "evaluation": tasks}
    (run_folder / "result-toy-test-5w1s.json").write_text(json.dumps(result | of_earlier))
    assert main(["report", str(run_folder), "--episode", "3"]) == 0
    printed = capsys.readouterr().out.split()
    for name in ("learning_curve.png", "episode.png", "report.md"):
        assert str(run_folder / "report" / name) in printed
    check_png((run_folder / "report" / "learning_curve.png").read_bytes())
    check_png((run_folder / "report" / "episode.png").read_bytes())
    page = (run_folder / "report" / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# tiny (plus) on strokes, 5-way 1-shot\n")
    for part in (
        "| toy, 5-way 1-shot, 4,000 test tasks | hard | trained | 98.77 ± 0.12 % |",
        "| toy, 5-way 1-shot, 4,000 test tasks | hard | nearest neighbour | 45.04 ± 2.42 % |",
        "| toy, 5-way 1-shot, 4,000 test tasks | soft | trained, before training went on | 98.77 ± 0.12 % |",
        "| toy, 5-way 1-shot, 4,000 test tasks | soft | nearest neighbour | 45.04 ± 2.42 % |",
        "**62.50 ± 3.00 %**",
        "after 200 tasks",
        "300 of 100,000 tasks",
        "1:02:05",
        "](learning_curve.png)",
        "![Test task 3 of toy, 5-way 1-shot](episode.png)",
        '"preset": "tiny"',
    ):
        assert part in page
    assert sorted(path.name for path in (run_folder / "report").iterdir()) == [
        "episode.png",
        "learning_curve.png",
        "report.md",
    ]


def test_csn_report_says_what_is_missing(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def complaint(*options: str) -> str:
        assert main(["report", str(run_folder), *options]) == 2
        return capsys.readouterr().err

    assert "counted from 0, got -1" in complaint("--episode", "-1")
    (run_folder / "result-x.json").write_text("{}")
    assert "result-x.json is no result file of csn evaluate" in complaint()
    (run_folder / "result-x.json").unlink()
    (run_folder / "log.jsonl").unlink()
    assert "log.jsonl is missing or empty" in complaint()
    (run_folder / "best.safetensors").unlink()
    assert "there is no checkpoint" in complaint()
    assert not (run_folder / "report").exists()


def test_csn_show_writes_an_episode_or_a_sheet(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pictures" / "picture.png"
    for options in (
        ["--way", "3", "--shot", "2"],
        ["--run", str(run_folder), "--queries", "1"],
        ["--classes", "4", "--split", "train"],
    ):
        assert main(["show", *options, "--out", str(out)]) == 0
        assert f"written to {out}" in capsys.readouterr().out
        check_png(out.read_bytes())
        out.unlink()
    assert main(["show", "--run", str(run_folder), "--way", "6", "--out", str(out)]) == 2
    assert "built for 2 to 5 ways, got 6" in capsys.readouterr().err


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (
        lambda: learning_curve(LOG),
        lambda: episode_figure(source(5, 1, 1).batch(0, 1)),
        lambda: contact_sheet(dataset().splits["val"], 2),
    ):
        with pytest.raises(ValueError, match=r'pip install "csn\[report\]"'):
            draw()


def test_a_comparison_shows_what_has_no_training_time() -> None:
    rows = [
        {"learner": "maml", "accuracy": 0.9, "interval": 0.01, "time": {"train": [1, 2, 3], "inference": [1, 2, 3]}},
        {"learner": "nearest neighbour", "accuracy": 0.4, "interval": 0.01, "time": {"inference": [0.1, 0.2, 0.3]}},
    ]
    training, inference, _ = comparison_figure(rows).axes
    for axes in (training, inference):
        low, high = axes.get_ylim()
        assert low < 40 < 90 < high
