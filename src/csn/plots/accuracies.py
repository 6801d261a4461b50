"""Pictures of results: a panel for each size of tasks, a line for each model with our accuracy above the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from csn.plots import drawing as draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pixels.
HEAD, PANEL_HEAD, ROW, PANEL_FOOT, FOOT = 52, 34, 26, 36, 4
NAMES = (120, 445)  # the least and most for the names of models
NUMBERS = 92
APART = 0.22  # fraction of a line's height: ours is this far above its middle, the paper's this far below
OURS: dict[str, Any] = {"fmt": "o", "color": draw.BLUE, "markersize": 5}
PAPERS: dict[str, Any] = {"fmt": "d", "color": draw.ORANGE, "markersize": 5.5, "markerfacecolor": "white"}
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


def accuracy_figure(marks: Sequence[Mark], *, title: str = "") -> Figure:
    """Panels one below the other, each with its own axis.

    On a common axis, the hardest tasks would leave no room for the differences between models.
    """
    panels = panels_of(marks)
    height = HEAD + FOOT + sum(PANEL_HEAD + ROW * len(lines) + PANEL_FOOT for lines in panels.values())
    figure = draw.blank_figure(height)
    names = draw.names_width((name for lines in panels.values() for name, _ in lines), *NAMES)
    top = float(HEAD)
    for panel, lines in panels.items():
        draw.write(figure, draw.MARGIN, top + 14, draw.shortened(panel, 95), size=10, weight="bold")
        top += PANEL_HEAD
        _draw(figure, lines, top, names)
        top += ROW * len(lines) + PANEL_FOOT
    draw.head(figure, title)
    _legend(figure, paper=any(mark.paper for mark in marks))
    return figure


def panels_of(marks: Sequence[Mark]) -> dict[str, list[tuple[str, Mark]]]:
    """The marks of each panel: one for each data set and size of tasks, or one for a data set with a single model."""
    panels = {}
    for data in dict.fromkeys(mark.data for mark in marks):
        own = [mark for mark in marks if mark.data == data]
        models, sizes = ({getattr(mark, name) for mark in own} for name in ("label", "tasks"))
        if len(models) == 1 and len(sizes) == len(own) > 1:
            panels[f"{data}: {own[0].label}"] = [(mark.tasks, mark) for mark in own]
            continue
        for tasks in dict.fromkeys(mark.tasks for mark in own):
            panels[f"{data}, {tasks}"] = [(mark.label, mark) for mark in own if mark.tasks == tasks]
    return panels


def _draw(figure: Figure, lines: Sequence[tuple[str, Mark]], top: float, names: float) -> None:
    left, right = draw.MARGIN + names, draw.WIDTH - draw.MARGIN - NUMBERS
    box = (left, top, right - left, ROW * len(lines))
    axes = draw.row_axes(figure, box, len(lines), ticks=8, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.spines["bottom"].set_color(draw.FAINT)
    axes.margins(x=0.04)
    whole = (-names / (right - left), 1 + NUMBERS / (right - left))  # the page, as parts of the axis
    for number, (name, mark) in enumerate(lines):
        y, apart = top + ROW * (number + 0.5), APART if mark.paper else 0
        if number % 2:  # so that the eye keeps to a line, from its name to its numbers
            axes.axhspan(number - 0.5, number + 0.5, *whole, color=BAND, linewidth=0, zorder=0, clip_on=False)
        draw.row_name(figure, left - 10, y, name, names)
        both = [(f"{mark.accuracy:.2f} ± {mark.interval:.2f}", -apart, OURS)]
        both += [(mark.paper, apart, PAPERS)] if mark.paper else []
        for shown, shift, style in both:
            accuracy, *interval = (float(part) for part in shown.split(" ± "))
            axes.errorbar(accuracy, number + shift, xerr=interval or None, **style, **INTERVAL)
            draw.write(
                figure, draw.WIDTH - draw.MARGIN, y + ROW * shift, shown, size=7.5, ha="right", color=style["color"]
            )


def _legend(figure: Figure, *, paper: bool) -> None:
    axes = draw.axes_at(figure, (draw.WIDTH - draw.MARGIN - 10, 20, 10, 12))
    axes.set_axis_off()
    ours = "csn, %, 95 % interval, over seeds where named"
    handles = [axes.errorbar([], [], xerr=[], label=ours, **OURS, **INTERVAL)]
    if paper:
        handles.append(axes.errorbar([], [], xerr=[], label="paper", **PAPERS, **INTERVAL))
    axes.legend(
        handles=handles, loc="center right", bbox_to_anchor=(1, 0.5), ncols=2, frameon=False, borderpad=0, fontsize=9
    )
