"""Pictures of ablations: differences that can be seen, next to arms that fall to chance."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from toy_tables import TOY, write_result

from csn.experiments.tables.exports import table_files
from csn.experiments.tables.plan import plan
from csn.plots.ablation import ArmMark, ablation_figure

DF, GRADIENT = "direct feedback", "error gradient"


def mark(label: str, difference: float | None = None, interval: float = 0.2, kind: str = DF, **more: object) -> ArmMark:
    by_seed = () if difference is None else (difference,)
    return ArmMark("adacnn, plus", kind, label, 94 + (difference or 0), 20, difference, interval, by_seed)._replace(
        **more
    )


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def axes_of_differences(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if [tick.get_text() for tick in axes.get_xticklabels()] != ["chance"]]


def test_an_arm_at_chance_does_not_flatten_the_others() -> None:
    near = [mark("raw beta", -0.1), mark("simple g", -0.9), mark("no guard", 0.05)]
    figure = ablation_figure([mark("baseline"), *near, mark("no shift", -74.7)])
    (axes,) = axes_of_differences(figure)
    low, high = axes.get_xlim()
    assert -1.5 < low < -1.1
    assert 0.25 < high < 0.5
    (arrow,) = [line for line in axes.lines if line.get_marker() == "<"]
    assert arrow.get_xydata().tolist() == [[low, 4]]
    assert "-74.70 ± 0.20" in texts(figure)
    (legend,) = figure.legends
    assert "off the axis" in [text.get_text() for text in legend.get_texts()]
    without = ablation_figure([mark("baseline"), *near])
    assert "off the axis" not in [text.get_text() for text in without.legends[0].get_texts()]


def test_a_filled_dot_is_a_difference_by_seeds() -> None:
    arms = [
        mark("surely below", -0.9, by_seed=(-1.0, -0.8), verdict="differs"),
        mark("level", -0.1, by_seed=(-0.2, -0.1), verdict="level"),
        mark("nothing shown", -0.5, by_seed=(-1.5, 0.5)),
        mark("one seed", 0.4),
        mark("no baseline of its other seeds", -0.9, covered="1 of 4 seeds"),
    ]
    figure = ablation_figure(arms)
    assert "1 of 4 seeds" in texts(figure)
    (axes,) = axes_of_differences(figure)
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() != "white" for dot in dots] == [True, False, False, False, False]
    caps = [cap.get_xdata()[0] for container in axes.containers for cap in container.lines[1]]
    assert caps == pytest.approx([end for arm in arms for end in (arm.difference - 0.2, arm.difference + 0.2)])
    seeds = [tuple(line.get_xdata()) for line in axes.lines if line.get_marker() == "|" and line.get_markersize() == 9]
    assert seeds == [arm.by_seed for arm in arms[:3]]  # one alone is the dot


def test_kinds_of_conditioning_share_lines_and_scale() -> None:
    arms = [mark("baseline"), mark("raw beta", -1.0), mark("no shift", -3.0)]
    arms += [mark("baseline", kind=GRADIENT), mark("no shift", 2.0, kind=GRADIENT), mark("other", 1.0, kind=GRADIENT)]
    figure = ablation_figure(arms, title="Ablation on toys")
    one, other = axes_of_differences(figure)
    assert one.get_xlim() == other.get_xlim()
    ours, theirs = ([float(c.lines[0].get_ydata()[0]) for c in axes.containers] for axes in (one, other))
    assert (ours, theirs) == ([1, 2], [2, 3])
    assert [texts(figure).count(name) for name in (DF, GRADIENT, "no shift", "other", "Ablation on toys")] == [1] * 5
    assert len({axes.get_position().y0 for axes in figure.axes}) == 1  # "chance" is below all lines in both columns


def test_two_trainings_of_one_name_have_a_line_each() -> None:
    figure = ablation_figure([mark("raw beta", -1.0), mark("raw beta", -2.0)])
    assert {"raw beta", "raw beta (2)", "-1.00 ± 0.20", "-2.00 ± 0.20"} <= set(texts(figure))


def test_all_that_is_written_is_inside_the_picture() -> None:
    long = "naming.batch=32, pretrain.epochs=9, " * 4
    figure = ablation_figure(
        [mark("hidden shifts only", -0.2), mark(long, -99.99, 10.0), mark("x", 1.0, kind=GRADIENT, paper="below -10")]
    )
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.texts]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)
    assert any(text.endswith("…") for text in texts(figure))
    names = [text.get_window_extent() for text in figure.texts if text.get_text() in {"hidden shifts only", "x"}]
    assert max(box.x1 for box in names) < min(axes.bbox.x0 for axes in figure.axes)


def test_every_data_set_with_arms_has_a_picture_of_its_differences(toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {"baseline": [], "raw beta": ["learner.shift_rule=raw"]}
    row = {"presets": ["adacnn-df"], "recipes": ["plus"], "tasks": ["5w1s"], "arms": arms}
    monkeypatch.setitem(TOY, "ablation", [row | {"data": data} for data in ("strokes", "words")])
    results = Path("results/ablation")
    for cell in plan("ablation"):
        write_result(cell, results.parent)
    files = table_files(results, skip=pytest.fail)
    names = ["ablation.md", "ablation.csv", "ablation-strokes.png", "ablation-words.png"]
    assert [path.name for path in files] == names
    with Image.open(io.BytesIO(files[results / "ablation-words.png"])) as picture:
        assert picture.size[0] == 1800
        said = picture.info["Description"].splitlines()
    assert said == [
        "adacnn, plus, 5-way 1-shot, direct feedback, baseline, 50.00, 20.00, None, 0.00, , , , ",
        "adacnn, plus, 5-way 1-shot, direct feedback, raw beta, 50.00, 20.00, 0.00, 0.00, 0.00, , , ",
    ]
