"""Pictures of tables: every size of tasks on an axis of its own, the paper's marks beside ours and not over them."""

from __future__ import annotations

import pytest
from matplotlib.colors import same_color

from csn.plots.accuracies import Mark, accuracy_figure, panels_of
from csn.plots.drawing import BLUE, ORANGE

EASY = Mark("omniglot", "5-way 1-shot", "adacnn-df, paper", 98.38, 0.18, "98.42 ± 0.21")
OTHER = Mark("omniglot", "5-way 1-shot", "siamese, plus", 97.37, 0.26, "97.3")
HARD = Mark("omniglot", "20-way 1-shot", "adacnn-df, paper", 78.74, 0.85)


def test_hard_tasks_do_not_stretch_the_axis_of_easy_ones() -> None:
    easy, hard, _ = accuracy_figure([EASY, OTHER, HARD]).axes  # and the legend's
    low, high = easy.get_xlim()
    assert 96.9 < low < 97.11
    assert 98.63 < high < 98.8
    assert hard.get_xlim()[0] < 77.9


def test_the_papers_mark_is_below_ours_with_its_interval_where_it_has_one() -> None:
    figure = accuracy_figure([EASY, OTHER])
    axes, _ = figure.axes
    ours, papers, others, without = axes.containers
    for one, two in ((ours, papers), (others, without)):
        assert same_color(one.lines[0].get_color(), BLUE)
        assert same_color(two.lines[0].get_color(), ORANGE)
        above, below = (axes.transData.transform(each.lines[0].get_xydata())[0, 1] for each in (one, two))
        assert above - below > 8  # pixels: more than a mark is high, so that none hides another
    assert [cap.get_xdata()[0] for cap in papers.lines[1]] == pytest.approx([98.21, 98.63])
    assert [cap.get_xdata()[0] for cap in ours.lines[1]] == pytest.approx([98.20, 98.56])
    assert not without.lines[1]
    assert {"98.38 ± 0.18", "98.42 ± 0.21", "97.3"} <= {text.get_text() for text in figure.texts}


def test_the_paper_is_in_the_legend_where_it_is_in_the_picture() -> None:
    legends = [accuracy_figure(marks).axes[-1].get_legend() for marks in ([EASY, HARD], [HARD])]
    assert [[text.get_text() for text in legend.get_texts()] for legend in legends] == [
        ["csn, %, 95 % interval, over seeds where named", "paper"],
        ["csn, %, 95 % interval, over seeds where named"],
    ]


def test_a_single_model_of_a_data_set_has_one_panel_of_all_its_tasks() -> None:
    background = [HARD._replace(data="omniglot-background", tasks=tasks) for tasks in ("5-way 1-shot", "20-way 1-shot")]
    panels = panels_of([EASY, OTHER, HARD, *background])
    assert [(panel, [name for name, _ in lines]) for panel, lines in panels.items()] == [
        ("omniglot, 5-way 1-shot", ["adacnn-df, paper", "siamese, plus"]),
        ("omniglot, 20-way 1-shot", ["adacnn-df, paper"]),
        ("omniglot-background: adacnn-df, paper", ["5-way 1-shot", "20-way 1-shot"]),
    ]


@pytest.mark.parametrize("longer", [1, 20])
def test_long_names_are_inside_the_picture_and_leave_room(longer: int) -> None:
    label = "adacnn-df, plus, classes named first, trained on 20-way tasks" * longer
    tasks = "20-way 1-shot, within alphabet" * longer
    figure = accuracy_figure([Mark("omniglot-background", tasks, label, 50, 1, "49.9 ± 0.1"), EASY], title="t")
    figure.canvas.draw()
    texts = {text.get_text(): text.get_window_extent() for text in figure.texts}
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in texts.values())
    assert sum(name.endswith("…") for name in texts) == (2 if longer > 1 else 0)
    axes = figure.axes[0]
    assert axes.get_position().width > 0.3
    names = [box for name, box in texts.items() if name.startswith("adacnn")]
    assert max(box.x1 for box in names) < axes.bbox.x0
    assert texts["49.9 ± 0.1"].x0 > axes.bbox.x1
