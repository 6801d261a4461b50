"""Pictures of results: a panel for each size of tasks, a line for each model with our accuracy above the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from csn.plots.drawing import BLUE, FAINT, MARGIN, ORANGE, TRACK, WIDTH, axes_at, blank_figure, shortened, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pixels.
HEAD, PANEL_HEAD, ROW, PANEL_FOOT, FOOT = 52, 34, 26, 36, 4
NAMES = (120, 445)  # the least and most for the names of models
NAME_CHARACTER, NUMBERS = 7.2, 92
APART = 0.22  # fraction of a line's height: ours is this far above its middle, the paper's this far below
OURS: dict[str, Any] = {"fmt": "o", "color": BLUE, "markersize": 5}
PAPERS: dict[str, Any] = {"fmt": "d", "color": ORANGE, "markersize": 5.5, "markerfacecolor": "white"}
BAND = "#f7f7f7"
INTERVAL: dict[str, Any] = {"linewidth": 1.4, "capsize": 3}


class Mark(NamedTuple):
    """A line of the picture: our accuracy and interval in per cent, and the paper's as printed ("98.41 ± 0.16")."""

    data: str
    tasks: str
    label: str
    accuracy: float
    interval: float
    paper: str = ""


class Panel(NamedTuple):
    """Marks that share an axis, by the names of their lines."""

    title: str
    lines: list[tuple[str, Mark]]


def accuracy_figure(marks: Sequence[Mark], *, title: str = "") -> Figure:
    """Panels one below the other, each with its own axis.

    On a common axis, the hardest tasks would leave no room for the differences between models.
    """
    panels = panels_of(marks)
    height = HEAD + FOOT + sum(PANEL_HEAD + ROW * len(panel.lines) + PANEL_FOOT for panel in panels)
    figure = blank_figure(height)
    names = sorted([*NAMES, NAME_CHARACTER * max(len(name) for panel in panels for name, _ in panel.lines)])[1]
    top = float(HEAD)
    for panel in panels:
        write(figure, MARGIN, top + 14, shortened(panel.title, 95), size=10, weight="bold")
        top += PANEL_HEAD
        _draw(figure, panel, top, names)
        top += ROW * len(panel.lines) + PANEL_FOOT
    write(figure, MARGIN, 26, title, size=12, weight="bold")
    _legend(figure, paper=any(mark.paper for mark in marks))
    return figure


def panels_of(marks: Sequence[Mark]) -> list[Panel]:
    """A panel for each data set and size of tasks. A data set with a single model has one panel for all sizes."""
    panels = []
    for data in dict.fromkeys(mark.data for mark in marks):
        own = [mark for mark in marks if mark.data == data]
        models, sizes = ({getattr(mark, name) for mark in own} for name in ("label", "tasks"))
        if len(models) == 1 and len(sizes) == len(own) > 1:
            panels.append(Panel(f"{data}: {own[0].label}", [(mark.tasks, mark) for mark in own]))
            continue
        for tasks in dict.fromkeys(mark.tasks for mark in own):
            panels.append(Panel(f"{data}, {tasks}", [(mark.label, mark) for mark in own if mark.tasks == tasks]))
    return panels


def _draw(figure: Figure, panel: Panel, top: float, names: float) -> None:
    """The lines of a panel: name, marks, numbers."""
    from matplotlib.ticker import MaxNLocator

    left, right = MARGIN + names, WIDTH - MARGIN - NUMBERS
    axes = axes_at(figure, (left, top, right - left, ROW * len(panel.lines)))
    axes.set_ylim(len(panel.lines) - 0.5, -0.5)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="x", labelsize=8, length=2)
    axes.grid(axis="x", color=TRACK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.margins(x=0.04)
    whole = (-names / (right - left), 1 + NUMBERS / (right - left))  # the page, as parts of the axis
    for number, (name, mark) in enumerate(panel.lines):
        y, apart = top + ROW * (number + 0.5), APART if mark.paper else 0
        if number % 2:  # so that the eye keeps to a line, from its name to its numbers
            axes.axhspan(number - 0.5, number + 0.5, *whole, color=BAND, linewidth=0, zorder=0, clip_on=False)
        write(figure, left - 10, y, shortened(name, int(names / NAME_CHARACTER)), size=8.5, ha="right")
        both = [(f"{mark.accuracy:.2f} ± {mark.interval:.2f}", -apart, OURS)]
        both += [(mark.paper, apart, PAPERS)] if mark.paper else []
        for shown, shift, style in both:
            accuracy, *interval = (float(part) for part in shown.split(" ± "))
            axes.errorbar(accuracy, number + shift, xerr=interval or None, **style, **INTERVAL)
            write(figure, WIDTH - MARGIN, y + ROW * shift, shown, size=7.5, ha="right", color=style["color"])


def _legend(figure: Figure, *, paper: bool) -> None:
    """The legend, on the line of the title."""
    axes = axes_at(figure, (WIDTH - MARGIN - 10, 20, 10, 12))
    axes.set_axis_off()
    handles = [
        axes.errorbar(
            [],
            [],
            xerr=[],
            label="csn, %, 95 % interval, over seeds where named",
            **OURS,
            **INTERVAL,
        )
    ]
    if paper:
        handles.append(axes.errorbar([], [], xerr=[], label="paper", **PAPERS, **INTERVAL))
    axes.legend(
        handles=handles, loc="center right", bbox_to_anchor=(1, 0.5), ncols=2, frameon=False, borderpad=0, fontsize=9
    )
