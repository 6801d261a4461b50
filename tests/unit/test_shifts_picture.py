"""The picture of where shifts matter shows every arm of every family where it is."""

from __future__ import annotations

import pytest

from shift_pictures import STYLES, shifts_figure

pytest.importorskip("matplotlib")


def test_marks_are_at_their_means_and_in_the_legend():
    cells = {"rule": {"df-all": (80.0, 2.0), "matching": (60.0, 1.0)}, "xor": {"matching": (70.0, 3.0)}}
    figure = shifts_figure(cells, {"rule": "one decides", "xor": "two decide"}, {"rule": 50.0, "xor": 50.0}, title="t")
    axes, legend = figure.axes
    found = {
        (
            container.get_label(),
            float(container.lines[0].get_xdata()[0]),
            round(float(container.lines[0].get_ydata()[0])),
        )
        for container in axes.containers
    }
    assert found == {("CSN, all shifts", 80.0, 0), ("Matching", 60.0, 0), ("Matching", 70.0, 1)}
    ends = sorted(round(float(x), 6) for c in axes.containers for x in c.lines[2][0].get_segments()[0][:, 0])
    assert ends == [59.0, 61.0, 67.0, 73.0, 78.0, 82.0]
    assert [text.get_text() for text in legend.get_legend().get_texts()] == ["CSN, all shifts", "Matching", "Chance"]
    texts = {text.get_text() for text in figure.texts}
    assert {"t", "rule", "xor", "one decides", "two decide"} <= texts


def test_arms_are_told_apart():
    looks = [(style.color, style.mark, style.filled) for style in STYLES.values()]
    assert len(set(looks)) == len(looks)
