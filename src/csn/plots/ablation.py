"""Pictures of ablations, like the paper's figures 2 and 3: a panel for each model and recipe, a line for each arm.

Each arm has a bar for its accuracy. Bars of similar arms are hard to compare, so a dot with an interval shows the
difference to the baseline. The two kinds of conditioning are side by side.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from csn.plots import drawing as draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pixels.
HEAD, PANEL_HEAD, ROW, PANEL_FOOT, FOOT = 70, 72, 25, 36, 4
NAMES = (90, 230)  # the least and most for the names of arms
GAP, BARS, ACCURACIES, DIFFERENCES = 18, 54, 38, 98
# An arm whose interval reaches this many times as far as the median one has an arrow at the edge.
FAR = 6
DOT: dict[str, Any] = {"fmt": "o", "color": draw.BLUE, "markersize": 5.5, "linewidth": 1.4, "capsize": 3.5, "zorder": 3}
SEEDS: dict[str, Any] = {"color": draw.SOFT, "markersize": 9, "markeredgewidth": 1.2}


class ArmMark(NamedTuple):
    """A line of a panel. Numbers are in per cent; differences are None without a baseline.

    panel: its model and recipe.
    kind: the kind of conditioning.
    by_seed: the difference of each seed.
    paper: the paper's difference as text.
    chance: the accuracy of guessing.
    covered: how many of its seeds have a baseline, if not all.
    interval: the interval of the difference, over seeds if there are several, else over tasks.
    verdict: what the seeds show, "differs", "level" or "".
    """

    panel: str
    kind: str
    label: str
    accuracy: float
    chance: float
    difference: float | None = None
    interval: float = 0.0
    by_seed: tuple[float, ...] = ()
    paper: str = ""
    covered: str = ""
    verdict: str = ""

    @property
    def reach(self) -> list[float]:
        """The ends of its interval, and its seeds."""
        if self.difference is None:
            return []
        return [self.difference - self.interval, self.difference + self.interval, *self.by_seed]


def ablation_figure(arms: Sequence[ArmMark], *, title: str = "") -> Figure:
    """A panel for every model and recipe, one below the other, all with the same scales."""
    panels = {name: _lines([arm for arm in arms if arm.panel == name]) for name in dict.fromkeys(a.panel for a in arms)}
    kinds = list(dict.fromkeys(arm.kind for arm in arms))
    height = HEAD + FOOT + sum(PANEL_HEAD + ROW * len(lines) + PANEL_FOOT for lines in panels.values())
    figure = draw.blank_figure(height)
    names = draw.names_width((arm.label for arm in arms), *NAMES)
    width = (draw.WIDTH - 2 * draw.MARGIN - names) / len(kinds)
    top, scales = float(HEAD), (_ends(arms), max(arm.accuracy for arm in arms))
    for panel, lines in panels.items():
        draw.write(figure, draw.MARGIN, top + 16, panel, size=10.5, weight="bold")
        top += PANEL_HEAD
        for number, label in enumerate(lines):
            draw.row_name(figure, draw.MARGIN + names - 8, top + ROW * (number + 0.5), label, names)
        for column, kind in enumerate(kinds):
            its = {number: line[kind] for number, line in enumerate(lines.values()) if kind in line}
            if its:
                left = draw.MARGIN + names + column * width
                place = (left, top, width - (GAP if len(kinds) > 1 else 0), ROW * len(lines))
                _column(figure, its, place, kind, scales)
        top += ROW * len(lines) + PANEL_FOOT
    draw.head(figure, title)
    _legend(figure, arms)
    return figure


def _lines(arms: Iterable[ArmMark]) -> dict[str, dict[str, ArmMark]]:
    """The lines of a panel by name, each with one arm per kind of conditioning.

    If two arms have the same name, such as trainings of different length, the second gets another line.
    """
    lines: dict[str, dict[str, ArmMark]] = {}
    seen = Counter[tuple[str, str]]()
    for arm in arms:
        seen[arm.label, arm.kind] += 1
        number = seen[arm.label, arm.kind]
        lines.setdefault(arm.label if number == 1 else f"{arm.label} ({number})", {})[arm.kind] = arm
    return lines


def _ends(arms: Iterable[ArmMark]) -> tuple[float, float]:
    """The ends of the axis of differences. Arms far below, for example at chance, must not flatten the others."""
    reaches = [reach for arm in arms if (reach := arm.reach)]
    if not reaches:
        return -1, 1
    far = FAR * statistics.median(max(map(abs, reach)) for reach in reaches)
    near = list(itertools.chain.from_iterable(reach for reach in reaches if max(map(abs, reach)) <= far))
    low, high = min([0, *near]), max([0, *near])
    margin = 0.08 * (high - low) or 1
    return low - margin, high + margin


def _column(
    figure: Figure, arms: Mapping[int, ArmMark], place: draw.Box, kind: str, scales: tuple[tuple[float, float], float]
) -> None:
    """Draw the arms of one kind, by the numbers of their lines: bars, differences, and both as numbers.

    `scales` are the ends of the axis of differences, and the highest accuracy.
    """
    left, top, width, height = place
    ends, highest = scales
    middle, right = left + BARS + ACCURACIES + GAP, left + width - DIFFERENCES
    draw.write(figure, left, top - 32, kind, size=9, color=draw.SOFT, weight="bold")
    draw.write(figure, left, top - 10, "accuracy, %", size=8, color=draw.SOFT)
    draw.write(figure, middle, top - 10, "against the baseline, points", size=8, color=draw.SOFT)
    bars = _axes(figure, (left, top, BARS, height), (0, highest))
    differences = _axes(figure, (middle, top, right - middle, height), ends)
    chance = next(iter(arms.values())).chance
    bars.axvline(chance, color=draw.INK, linewidth=0.8, linestyle=(0, (2, 2)), zorder=3)
    bars.set_xticks([chance], ["chance"])
    differences.axvline(0, color=draw.SOFT, linewidth=1)
    for number, arm in arms.items():
        y = top + ROW * (number + 0.5)
        bars.barh(
            number, arm.accuracy, height=0.66, color=draw.FAINT if arm.difference is None else draw.BLUE, alpha=0.85
        )
        draw.write(figure, left + BARS + ACCURACIES, y, f"{arm.accuracy:.2f}", size=8, ha="right")
        if arm.difference is None:
            continue
        _difference(differences, number, arm)
        shown, weight = f"{arm.difference:+.2f} ± {arm.interval:.2f}", "bold" if arm.verdict == "differs" else "normal"
        below, color = (arm.covered, draw.SOFT) if arm.covered else (arm.paper and f"paper: {arm.paper}", draw.ORANGE)
        draw.write(figure, left + width, y - (6 if below else 0), shown, size=8, ha="right", weight=weight)
        if below:
            draw.write(figure, left + width, y + 6, below, size=7, ha="right", color=color)


def _axes(figure: Figure, box: draw.Box, ends: tuple[float, float]) -> Axes:
    *_, width, height = box
    axes = draw.row_axes(figure, box, round(height / ROW), ticks=4 if width < 250 else 8)
    axes.set(xlim=ends, autoscale_on=False)
    axes.tick_params(axis="x", colors=draw.SOFT)
    axes.spines["bottom"].set_color(draw.LINE)
    return axes


def _difference(axes: Axes, y: int, arm: ArmMark) -> None:
    """Draw a dot with its interval above those of single seeds. An arm off the axis gets an arrow."""
    assert arm.difference is not None
    low, high = axes.get_xlim()
    if not low <= arm.difference <= high:
        edge, marker = (low, "<") if arm.difference < low else (high, ">")
        axes.plot(edge, y, marker, color=draw.BLUE, markersize=8, clip_on=False)
        return
    if len(arm.by_seed) > 1:
        axes.plot(arm.by_seed, [y] * len(arm.by_seed), "|", **SEEDS)
    face = draw.BLUE if arm.verdict == "differs" else "white"
    axes.errorbar(arm.difference, y, xerr=arm.interval, markerfacecolor=face, **DOT)


def _legend(figure: Figure, arms: Sequence[ArmMark]) -> None:
    from matplotlib.lines import Line2D

    def mark(shape: str, label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker=shape, label=label, **({"color": draw.BLUE} | style))

    low, high = _ends(arms)
    handles = [
        mark("o", "differs: 95 % interval over seeds leaves out 0"),
        mark("o", "no difference shown", markerfacecolor="white"),
    ]
    if any(len(arm.by_seed) > 1 for arm in arms):
        handles.append(mark("|", "single seeds", **SEEDS))
    if any(arm.difference is not None and not low <= arm.difference <= high for arm in arms):
        handles.append(mark("<", "off the axis"))
    place = ((draw.MARGIN - 8) / draw.WIDTH, 1 - 0.4 / figure.get_figheight())
    style: dict[str, Any] = {"handletextpad": 0.2, "columnspacing": 1.2, "borderaxespad": 0, "fontsize": 8.5}
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, ncols=len(handles), frameon=False, **style)
