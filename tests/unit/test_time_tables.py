"""What a task costs: the measurement on tiny networks, its tables, files and plots; no test expects a certain time."""

from __future__ import annotations

import csv
import io
import json
import mmap
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import timing as time_tables
from csn.engine.steps import over, step_times
from csn.experiments.timing.floor import Floor, SentenceFloor
from random_tasks import Peak, peak_of
from timing import measure_timing, run_timing, timing_csv, timing_markdown, timing_page
from timing_benches import (
    AXES,
    BENCHES,
    FLOOR,
    IMAGES,
    PHASES,
    SENTENCES,
    Bench,
    Plan,
    image_bench,
    peak_memory,
    quick_axes,
    quick_bench,
)
from timing_pictures import growth_figure, timing_figure

ROOT = Path(__file__).resolve().parents[2]
QUICK_PARTS = 9  # 2 benches and 2 axes in 2 phases, 1 process


@pytest.fixture(scope="module")
def measured() -> tuple[dict[str, Any], list[str]]:
    told: list[str] = []
    return measure_timing(Plan(repeats=3).made_quick(), on_progress=told.append), told


@pytest.fixture
def content() -> dict[str, Any]:
    """A measurement by hand: two learners of images, two of sentences, growth from 1 task to 4."""
    rows = [
        ("images", "floor", [1, 1, 1], [1, 1, 1]),
        ("images", "metanet", [9, 12.25, 14], [20, 30, 40]),
        ("images", "prototypical", [0.4, 0.5, 0.75], [0.5, 0.625, 0.7]),
        ("sentences", "floor", [1, 1, 1], [1, 1, 1]),
        ("sentences", "adalstm-2-gradient", [1.1, 1.2, 1.3], [1.4, 1.5, 1.6]),
    ]
    setting = {"way": 5, "shot": 1, "queries": 5, "tasks": 1, "side": 28, "filters": 64, "recipe": "plus"}
    floor = [[1, 1, 1], [0.7, 0.75, 0.8]]
    return {
        "rows": [
            {
                "bench": bench,
                "learner": learner,
                "time": {"train": train, "inference": inference},
                "peak_mb": {"train": 400} if learner == "metanet" else {},
                "added_mb": {"train": 70} if learner == "metanet" else {},
            }
            for bench, learner, train, inference in rows
        ],
        "benches": {"images": setting, "sentences": {"way": 5, "tasks": 8, "words": 25, "recipe": "paper"}},
        "floor_seconds": {
            "images": {"train": 0.0681, "inference": 0.02},
            "sentences": {"train": 0.04, "inference": 0.01},
        },
        "gradient_over_df": {"train": [1.0, 1.01, 1.02], "inference": [1.1, 1.15, 1.2]},
        "growth": [
            {
                "axis": "tasks a step",
                "points": [1, 4],
                "bench": {"way": 5, "shot": 1},
                "curves": {
                    "train": {"floor": floor, "maml": [[2, 2.5, 3], [1, 1.5, 2]]},
                    "inference": {"floor": floor},
                },
            }
        ],
    }


def test_every_learner_is_measured_in_both_phases_against_its_floor(measured: tuple[dict[str, Any], list[str]]) -> None:
    content, _ = measured
    assert [(row["bench"], row["learner"]) for row in content["rows"]] == [
        *(("images", name) for name in (FLOOR, *IMAGES.presets)),
        *(("sentences", name) for name in (FLOOR, "adalstm-2-gradient", "adalstm-2-df")),
    ]
    for row in content["rows"]:
        for phase in ("train", "inference"):
            low, middle, high = row["time"][phase]
            assert 0 < low <= middle <= high
            assert (low, middle, high) == (1, 1, 1) or row["learner"] != FLOOR
    for bench in ("images", "sentences"):
        assert content["floor_seconds"][bench]["inference"] > 0
    assert set(content["gradient_over_df"]) == {"train", "inference"}
    assert (content["repeats"], content["quick"], content["machine"]["threads"]) == (3, True, 1)
    assert json.loads(json.dumps(content)) == content


def test_growth_starts_at_the_floor_of_the_first_point(measured: tuple[dict[str, Any], list[str]]) -> None:
    growths = {growth["axis"]: growth for growth in measured[0]["growth"]}
    assert {axis: growth["points"] for axis, growth in growths.items()} == {
        "ways": [5, 10],
        "words of a sentence": [10, 20],
    }
    for axis, growth in growths.items():
        for curves in growth["curves"].values():
            assert set(curves) == {FLOOR, "adalstm-1-df" if axis.startswith("words") else "adacnn-df"}
            assert curves[FLOOR][0] == [1, 1, 1]
            assert all(0 < low <= middle <= high for curve in curves.values() for low, middle, high in curve)


def test_memory_is_that_of_a_process_of_its_own(measured: tuple[dict[str, Any], list[str]]) -> None:
    row = measured[0]["rows"][0]
    assert set(row["peak_mb"]) == {"inference"}
    assert row["peak_mb"]["inference"] > row["added_mb"]["inference"] >= 0


def test_progress_counts_every_part(measured: tuple[dict[str, Any], list[str]]) -> None:
    told = measured[1]
    assert [line.split(":")[0] for line in told] == [f"{i} of {QUICK_PARTS}" for i in range(1, QUICK_PARTS + 1)]
    assert told[4] == "5 of 9: growth over ways, train"


def test_the_time_of_a_step_is_shared_by_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock by which a step takes as many seconds as it has tasks, and a learner thrice that, nothing grows."""

    def seconds(steps: dict[Any, Any], repeats: int, *_: object) -> dict[Any, list[float]]:
        return {key: [float(step()) * (2.0 if key[1] == FLOOR else 6.0)] * repeats for key, step in steps.items()}

    monkeypatch.setattr(time_tables, "step_times", seconds)
    monkeypatch.setattr(Bench, "step", lambda bench, *_: lambda: bench.tasks)
    axis = next(axis for axis in AXES if axis.field == "tasks")
    growth = time_tables._growth(axis, Plan(repeats=3), lambda _: None)
    assert growth["curves"]["train"][FLOOR] == [[1, 1, 1]] * 3
    assert growth["curves"]["inference"]["maml"] == [[3, 3, 3]] * 3


def test_what_is_measured_is_what_the_paper_compares() -> None:
    assert (IMAGES.way, IMAGES.shot, IMAGES.tasks, IMAGES.recipe) == (5, 1, 1, "plus")
    assert {(c.network or c.learner).filters for c in map(IMAGES.config, IMAGES.contenders)} == {64}
    assert {SENTENCES.config(name).network.layers for name in SENTENCES.contenders} == {2}
    assert [axis.points for axis in AXES] == [(5, 10, 20), (1, 5, 10), (1, 4, 16), (10, 20, 40)]
    episode = AXES[2].at(4).episode()
    assert (episode.support.x.shape, episode.query.x.shape) == ((4, 5, 1, 28, 28), (4, 25, 1, 28, 28))
    sentences = AXES[3].at(10).episode()
    assert sentences.query.x.shape == (8, 25, 10)
    assert (sentences.query.x == 1).sum(-1).unique().tolist() == [1]


def test_contenders_are_awake_and_the_same_each_time() -> None:
    bench = quick_bench(IMAGES)
    one, other = bench.learner("adacnn-gradient"), bench.learner("adacnn-gradient")
    assert one.base.output.weight.abs().sum() > 0
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert isinstance(bench.learner(FLOOR), Floor)
    assert isinstance(quick_axes()[-1].bench.learner(FLOOR), SentenceFloor)


def test_every_contender_takes_its_turn_in_every_repeat() -> None:
    turns: list[str] = []

    def step(name: str) -> Any:
        return lambda: turns.append(name) or torch.zeros(())

    times = step_times({name: step(name) for name in "abc"}, repeats=4, seconds=0)
    assert "".join(turns[6:]) == "abc" + "bca" + "cab" + "abc"  # after two turns each to warm up and to count
    assert {name: len(values) for name, values in times.items()} == {"a": 4, "b": 4, "c": 4}
    assert over([3.0, 4.0], [1.5, 8.0]) == [2.0, 0.5]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot forget an earlier peak")
def test_peak_memory_sees_what_a_step_needs() -> None:
    """Pages of its own, not from the allocator, which may have some left from other tests."""

    def step() -> torch.Tensor:
        with mmap.mmap(-1, 64 << 20) as pages:
            for _ in range(64):
                pages.write(bytes(1 << 20))
        return torch.zeros(())

    assert 60 <= peak_of(step).added < 90
    assert peak_of(lambda: torch.zeros(())).added < 30


def test_markdown_holds_medians_quartiles_memory_and_the_papers_ratio(content: dict[str, Any]) -> None:
    lines = timing_markdown(content).splitlines()
    assert lines[0] == (
        "Images: 5-way, 1-shot, 5 queries a class, 1 task a step, 28 x 28 pixels, 64 filters, plus recipe. "
        "The floor takes 68.1 ms a task in training and 20.0 ms in inference."
    )
    assert "| metanet | 12.25 (9.00 - 14.00) | 30.00 (20.00 - 40.00) | 400 (+70) |  |" in lines
    assert "| gradient / direct feedback | 1.01 (1.00 - 1.02) | 1.15 (1.10 - 1.20) |  |  |" in lines
    assert "| the same in the paper, 200 s / 160 s for 400 test tasks |  | 1.25 |  |  |" in lines
    assert "| learner | phase | 1 | 4 |" in lines
    assert "| maml | train | 2.50 (2.00 - 3.00) | 1.50 (1.00 - 2.00) |" in lines
    assert all(len(set(map(_cells, table))) == 1 for table in _tables(lines))


def _cells(line: str) -> int:
    return line.count("|")


def _tables(lines: list[str]) -> list[list[str]]:
    return [block.splitlines() for block in "\n".join(lines).split("\n\n") if block.startswith("|")]


def test_csv_has_a_line_for_each_number(content: dict[str, Any]) -> None:
    lines = list(csv.DictReader(io.StringIO(timing_csv(content))))
    assert len(lines) == 4 + 2 * 5 + 2 + 2 + 6  # floors, ratios, memory, gradient / DF, growth
    found = [line for line in lines if line["learner"] == "maml" and line["point"] == "4"]
    assert found == [
        {
            "measure": "growth",
            "of": "tasks a step",
            "point": "4",
            "learner": "maml",
            "phase": "train",
            "lower quartile": "1",
            "median": "1.5",
            "upper quartile": "2",
        }
    ]
    memory = {(line["measure"], line["median"]) for line in lines if line["measure"].endswith("_mb")}
    assert memory == {("peak_mb", "400"), ("added_mb", "70")}


def test_bars_stand_on_the_floor_on_a_log_scale(content: dict[str, Any]) -> None:
    panels = timing_figure(content).axes
    assert [axes.get_xscale() for axes in panels] == ["log"] * 4
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in panels[0].patches]
    assert spans == [(1, 12.25), (1, 0.5)]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["metanet", "prototypical"]
    assert {"12.2", "0.50"} <= {text.get_text() for text in panels[0].texts}
    low, high = panels[0].get_xlim()
    assert low < 0.4
    assert high > 14


def test_growth_has_a_panel_for_each_axis_and_phase(content: dict[str, Any]) -> None:
    figure = growth_figure(content)
    train, inference = figure.axes
    assert [line.get_ydata().tolist() for line in train.lines] == [[1, 0.75], [2.5, 1.5]]
    assert len(inference.lines) == 1
    assert inference.get_xlabel() == "tasks a step"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["floor", "maml"]


def test_files_of_a_run(content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(time_tables, "measure_timing", lambda plan, **options: asked.update(options, p=plan) or content)
    paths = run_timing(tmp_path / "out", Plan(repeats=5, threads=2), tell=print)
    assert asked == {"p": Plan(repeats=5, threads=2), "on_progress": print}
    assert [path.name for path in paths] == ["timing.json", "timing.md", "timing.csv", "timing.png", "growth.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in paths)
    assert json.loads(paths[0].read_text()) == content
    assert timing_markdown(content) in paths[1].read_text()
    assert paths[2].read_text() == timing_csv(content)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths[3:])


def test_the_tables_of_the_committed_measurement_are_made_of_it() -> None:
    folder = Path(__file__).resolve().parents[2] / "results/benchmarks/timing"
    content = json.loads((folder / "timing.json").read_text(encoding="utf-8"))
    for name, text in {"timing.md": timing_page(content), "timing.csv": timing_csv(content)}.items():
        assert (folder / name).read_bytes() == text.encode(), f"{name} does not say what timing.json does"


def test_a_whole_measurement_asks_for_the_memory_of_every_contender(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Bench, str, str]] = []
    rows = [{"bench": b, "learner": n, "peak_mb": {}, "added_mb": {}} for b in BENCHES for n in BENCHES[b].contenders]
    monkeypatch.setattr(time_tables, "_measured", lambda *_: {"rows": rows})
    monkeypatch.setattr(time_tables, "peak_memory", lambda *which, threads: asked.append(which) or Peak(9, threads))
    threads = torch.get_num_threads()
    rows = measure_timing(Plan(repeats=3, threads=threads + 1))["rows"]
    assert len(asked) == len(set(asked)) == len(PHASES) * len(rows) == 20
    assert all(row["peak_mb"] == {"train": 9, "inference": 9} for row in rows)
    assert rows[0]["added_mb"]["train"] == threads + 1
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"repeats": 2}, "3 repeats or more, got 2"),
        ({"threads": 0}, "got 0"),
        ({"threads": 2, "clock": "processor"}, "leave out --threads, got 2"),
    ],
)
def test_plans_that_cannot_be_measured_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**wrong)
    with pytest.raises(ValueError, match="0 pixels"):
        image_bench(channels=1, side=0, filters=None, recipe="paper")


def test_images_of_another_size_and_width_are_measured_alone_by_processor_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Appendix B's setting, small: no sentences, no growth, and every network has the width asked for."""
    size = "timing.py --channels 3 --side 32 --filters 6 --recipe paper"
    command = f"{size} --clock processor --repeats 3 --quick --out {tmp_path}"
    monkeypatch.setattr(sys, "argv", command.split())
    time_tables.main()
    content = json.loads((tmp_path / "timing.json").read_text())
    assert content["benches"]["images"] | {"side": 32, "filters": 4, "recipe": "paper"} == content["benches"]["images"]
    assert (list(content["benches"]), content["growth"], content["clock"]) == (["images"], [], "processor")
    assert {row["learner"] for row in content["rows"]} == {FLOOR, *IMAGES.presets}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["timing.csv", "timing.json", "timing.md", "timing.png"]
    wide = image_bench(channels=3, side=32, filters=6, recipe="paper")
    for name in ("metanet", "maml", "adacnn-df"):
        shapes = [tuple(p.shape) for p in wide.learner(name).parameters() if p.dim() == 4]
        assert (6, 3, 3, 3) in shapes
        assert (6, 6, 3, 3) in shapes


def test_a_process_that_fails_is_told_by_its_last_line():
    with pytest.raises(ValueError, match=r"memory of nothing, train, could not be measured \(.*nothing.*\): free some"):
        peak_memory(quick_bench(IMAGES), "nothing", "train", threads=1)


@pytest.mark.parametrize("content", ['{"rows": []}', '{"rows": [{"a": 1}]}', '{"rows": [], "benches": {"images": 1}}'])
def test_a_measurement_of_another_version_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "timing.json").write_text(content)
    with pytest.raises(ValueError, match=r"timing.json is not a measurement of this program"):
        time_tables.timing_files(tmp_path)


def test_the_tables_beside_the_committed_measurement_are_made_of_it() -> None:
    files = time_tables.timing_files(ROOT / "results/benchmarks/timing")
    assert {path.name for path in files} == {"timing.md", "timing.csv", "timing.png", "growth.png"}
    for path, content in files.items():
        if path.suffix == ".png":  # another matplotlib draws other pixels of the same numbers
            assert description(path.read_bytes()) == description(content), f"{path}: timing.py --tables"
        else:
            assert path.read_bytes() == content, f"{path}: timing.py --tables"


def description(picture: bytes) -> str:
    """What a picture says that it shows."""
    with Image.open(io.BytesIO(picture)) as opened:
        return str(opened.info.get("Description"))


def test_the_page_has_the_medians_at_the_size_of_the_paper():
    """Appendix B: 84 x 84 images, 32 filters."""
    found = json.loads((ROOT / "results/benchmarks/timing-84/timing.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/results/cost.md").read_text(encoding="utf-8").partition("## At the paper's size")[2]
    names = {"adacnn-df": "adaCNN, direct feedback", "adacnn-gradient": "adaCNN, error gradient"}
    names |= {"metanet": "MetaNet", "maml": "MAML"}
    for row in found["rows"]:
        if row["learner"] in names:
            train, inference = (f"{row['time'][phase][1]:.2f}" for phase in PHASES)
            assert f"| {names[row['learner']]} | {train} | {inference} |" in page
