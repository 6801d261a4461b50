"""Where shifts matter, as a picture: a line for each family of tasks, a mark for each arm with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from csn.plots.drawing import BLUE, FAINT, INK, MARGIN, ORANGE, SOFT, TRACK, WIDTH, axes_at, blank_figure, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD, ROW, FOOT, NAMES = 124, 46, 40, 300  # pixels
BAND = "#f7f7f7"


class ArmStyle(NamedTuple):
    """The look of an arm: its name in the legend, colour, mark, and whether the mark is filled."""

    label: str
    color: str
    mark: str
    filled: bool = True


STYLES: Mapping[str, ArmStyle] = {
    "df-all": ArmStyle("CSN, all shifts", BLUE, "o"),
    "df-hidden": ArmStyle("CSN, hidden shifts alone", BLUE, "^", filled=False),
    "df-output": ArmStyle("CSN, output shift alone", BLUE, "s", filled=False),
    "gradient-all": ArmStyle("CSN by the gradient, all", BLUE, "x"),
    "none": ArmStyle("CSN, no shift", FAINT, "s"),
    "matching": ArmStyle("Matching", ORANGE, "o"),
    "prototypical": ArmStyle("Prototypical", ORANGE, "s", filled=False),
    "repeated": ArmStyle("Repeated description", ORANGE, "^", filled=False),
    "maml": ArmStyle("MAML", INK, "D"),
    "finetune": ArmStyle("Fine-tuned head", SOFT, "v", filled=False),
}
Cells = Mapping[str, Mapping[str, tuple[float, float]]]


def shifts_figure(cells: Cells, about: Mapping[str, str], chance: Mapping[str, float], *, title: str) -> Figure:
    """family -> arm -> (mean, half of the interval or NaN) in per cent; about: a line on each; chance: in per cent."""
    figure = blank_figure(HEAD + ROW * len(cells) + FOOT)
    write(figure, MARGIN, 24, title, size=12, weight="bold")
    left, right = MARGIN + NAMES, WIDTH - MARGIN
    axes = axes_at(figure, (left, HEAD, right - left, ROW * len(cells)))
    axes.set(xlim=(15, 101), ylim=(len(cells) - 0.5, -0.5))
    axes.set_yticks([])
    axes.set_xlabel("accuracy, %", fontsize=8.5)
    axes.tick_params(axis="x", labelsize=8, length=2)
    axes.grid(axis="x", color=TRACK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    arms = [arm for arm in STYLES if any(arm in of for of in cells.values())]
    handles: dict[str, Any] = {}
    for row, (family, found) in enumerate(cells.items()):
        y = HEAD + ROW * (row + 0.5)
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, -NAMES / (right - left), 1, color=BAND, linewidth=0, clip_on=False)
        write(figure, MARGIN, y - 8, family, size=9.5, weight="bold")
        write(figure, MARGIN, y + 8, about[family], size=8, color=SOFT)
        (guess,) = axes.plot([chance[family]] * 2, [row - 0.4, row + 0.4], color=FAINT, linewidth=1.2, linestyle=":")
        guess.set_label("Chance")
        handles["chance"] = guess
        for place, arm in enumerate(arms):
            if arm not in found:
                continue
            style, (mean, interval) = STYLES[arm], found[arm]
            handles[arm] = axes.errorbar(
                mean,
                row + 0.72 * ((place + 0.5) / len(arms) - 0.5),
                xerr=None if math.isnan(interval) else interval,
                fmt=style.mark,
                color=style.color,
                markersize=4.5,
                markerfacecolor=style.color if style.filled else "white",
                linewidth=1.0,
                label=style.label,
            )
    legend = axes_at(figure, (MARGIN, 42, WIDTH - 2 * MARGIN, 68))
    legend.set_axis_off()
    shown = [handles[name] for name in (*arms, "chance")]
    legend.legend(handles=shown, loc="center left", ncols=4, frameon=False, fontsize=8.5)
    return figure
