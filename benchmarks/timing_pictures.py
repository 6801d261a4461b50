"""What a task costs each learner, and how that grows. `content` is its timing.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from csn.plots.drawing import FAINT, INK, MARGIN, SOFT, TRACK, WIDTH, blank_figure
from csn.plots.episodes import owner_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASES = {"train": "training", "inference": "inference"}
FLOOR = "floor"
MARKERS = {"adacnn-df": "o", "adacnn-gradient": "s", "adalstm-1-df": "o", "adalstm-1-gradient": "s", "maml": "^"}


def timing_figure(content: dict[str, Any], *, title: str = "What a task costs, x the floor") -> Figure:
    """Bars from the floor on a log scale with quartile whiskers (appendix B): a row per bench, a column per phase."""
    benches = [
        [r for r in content["rows"] if r["bench"] == bench and r["learner"] != FLOOR] for bench in content["benches"]
    ]
    sizes = [len(rows) + 1 for rows in benches]
    figure = blank_figure(140 + 36 * sum(sizes))
    figure.set_layout_engine("constrained", rect=(0.02, 0.02, 0.96, 0.9), hspace=0.08)
    panels = figure.subplots(len(benches), 2, squeeze=False, sharex="col", height_ratios=sizes)
    for (bench, floor), rows, row_of_panels in zip(content["floor_seconds"].items(), benches, panels, strict=True):
        for axes, (phase, label) in zip(row_of_panels, PHASES.items(), strict=True):
            _bars(axes, rows, phase)
            axes.set_title(f"{bench}, {label} (floor: {_milliseconds(floor[phase])} a task)", size=9, color=SOFT)
        row_of_panels[1].tick_params(labelleft=False)
    for axes in panels[0]:  # shared by the column: room for the numbers beside the bars
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.4, high * 1.6)
    for axes in panels[-1]:
        axes.set_xlabel("x the floor")
    _headline(figure, title)
    return figure


def _bars(axes: Axes, rows: list[dict[str, Any]], phase: str) -> None:
    """A bar per learner, from the floor to its median."""
    places = np.arange(len(rows))[::-1]
    low, middle, high = np.array([row["time"][phase] for row in rows]).T
    colours = [owner_colour(row["learner"]) for row in rows]
    axes.set_xscale("log")
    axes.barh(places, middle - 1, left=1, height=0.62, color=colours, alpha=0.85)
    axes.errorbar(middle, places, xerr=(middle - low, high - middle), fmt="none", color=INK, linewidth=1, capsize=3)
    for place, value, left, right in zip(places, middle, low, high, strict=True):
        beside, align, points = (right, "left", 5) if value >= 1 else (left, "right", -5)
        axes.annotate(
            f"{value:.2f}" if value < 10 else f"{value:.1f}",
            (beside, place),
            (points, 0),
            textcoords="offset points",
            ha=align,
            va="center_baseline",
            size=8,
            color=INK,
        )
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks(places, [row["learner"] for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    _plain_log(axes.xaxis)
    axes.grid(axis="x", color=TRACK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def growth_figure(
    content: dict[str, Any], *, title: str = "How the time of a task grows, x the floor at the first point"
) -> Figure:
    """A column per axis of growth, a row per phase; medians, with quartiles as a band."""
    growths = content["growth"]
    figure = blank_figure(560)
    figure.set_layout_engine("constrained", rect=(0.02, 0.02, 0.96, 0.84), wspace=0.04)
    panels = figure.subplots(2, len(growths), squeeze=False, sharex="col")
    lines: dict[str, Any] = {}
    for row, (phase, label) in zip(panels, PHASES.items(), strict=True):
        for axes, growth in zip(row, growths, strict=True):
            for learner, curve in growth["curves"][phase].items():
                style, (low, middle, high) = _style(learner), np.array(curve).T
                axes.fill_between(growth["points"], low, high, color=style["color"], alpha=0.15, linewidth=0)
                (lines[learner],) = axes.plot(growth["points"], middle, **style)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(growth["points"], [str(point) for point in growth["points"]])
            axes.set_xticks([], minor=True)
            axes.margins(x=0.12)
            _plain_log(axes.yaxis)
            axes.grid(color=TRACK)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(label)
    for axes, growth in zip(panels[-1], growths, strict=True):
        axes.set_xlabel(growth["axis"])
    figure.legend(
        lines.values(),
        lines.keys(),
        loc="upper left",
        bbox_to_anchor=(0.5 * MARGIN / WIDTH, 0.94),
        ncols=4,
        frameon=False,
        fontsize=8.5,
    )
    _headline(figure, title)
    return figure


def _style(learner: str) -> dict[str, Any]:
    """Ours orange, the others blue, the floor grey; a marker for each of one colour."""
    if learner == FLOOR:
        return {"color": FAINT, "linewidth": 2.5}
    dashed = "--" if learner.endswith("gradient") else "-"
    marker = MARKERS.get(learner, "D")
    return {"color": owner_colour(learner), "linestyle": dashed, "linewidth": 1.3, "marker": marker, "markersize": 4}


def _plain_log(axis: Any) -> None:
    """1, 2, 5, 10 on a log scale in place of powers."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _headline(figure: Figure, title: str) -> None:
    height = figure.get_figheight() * figure.dpi
    figure.text(MARGIN / WIDTH, 1 - 28 / height, title, size=12, weight="bold", color=INK, parse_math=False)
