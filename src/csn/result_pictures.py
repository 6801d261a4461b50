"""Results as pictures: a mark or a bar with its interval for each, the paper's number beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from csn.drawing import BLUE, FAINT, INK, MARGIN, ORANGE, TRACK, WIDTH, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, HEAD, FOOT = 22, 76, 56  # pixels
LABEL_CHARACTER, GROUP_CHARACTER = 0.0066, 0.0086  # of the width, in their sizes
MOST_WORDS = 0.6  # of the width: the rest is for the marks


class Mark(NamedTuple):
    """A line of the picture: ours with its interval, the paper's (None where it has none), all in per cent."""

    group: str
    label: str
    accuracy: float
    interval: float
    paper: float | None = None


def accuracy_figure(marks: Sequence[Mark], *, title: str = "", bars: bool = False) -> Figure:
    """One line a mark, under the name of its group; bars begin at 0, as those of figures 2 and 3."""
    drawn = {"fmt": "none", "ecolor": INK} if bars else {"fmt": "o", "color": BLUE, "markersize": 5}
    groups = list(dict.fromkeys(mark.group for mark in marks))
    lines = len(marks) + len(groups)
    height = HEAD + FOOT + ROW * lines
    figure = blank_figure(height)
    words = [LABEL_CHARACTER * len(mark.label) for mark in marks] + [GROUP_CHARACTER * len(group) for group in groups]
    left = 0.03 + min(MOST_WORDS, max([0.15, *words]))
    axes = figure.add_axes((left, FOOT / height, 0.96 - left, ROW * lines / height))
    y, ticks, names = 0, [], []
    for group in groups:
        at, name = axes.get_yaxis_transform(), _short(group, GROUP_CHARACTER)
        axes.text(-0.01, y, name, transform=at, ha="right", va="center", weight="bold", size=9)
        for mark in (mark for mark in marks if mark.group == group):
            y += 1
            if bars:
                axes.barh(y, mark.accuracy, height=0.7, color=BLUE, alpha=0.85)
            axes.errorbar(mark.accuracy, y, xerr=mark.interval, linewidth=1.4, **drawn)
            if mark.paper is not None:
                axes.plot(mark.paper, y, "d", color=ORANGE, markersize=6, markerfacecolor="white", zorder=3)
            ticks.append(y)
            names.append(_short(mark.label, LABEL_CHARACTER))
        y += 1
    axes.set_ylim(lines - 0.4, -0.6)
    axes.set_yticks(ticks, names, size=8, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("accuracy, %")
    axes.grid(axis="x", color=TRACK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    ours = axes.errorbar([], [], xerr=[], label="csn, 95 % interval", **drawn)
    paper = axes.plot([], [], "d", color=ORANGE, markerfacecolor="white", markersize=6, label="paper")
    handles = [ours, *(paper if any(mark.paper is not None for mark in marks) else [])]
    axes.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, borderaxespad=0.2, fontsize=9
    )
    figure.text(MARGIN / WIDTH, 1 - 26 / height, title, size=12, weight="bold", color=INK, parse_math=False)
    return figure


def _short(text: str, character: float) -> str:
    """A text that has room beside the marks."""
    most = int(MOST_WORDS / character)
    return text if len(text) <= most else text[: most - 1] + "…"
