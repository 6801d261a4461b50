"""Drawing on a page: figures without pyplot or other global state, which `png` turns into bytes.

Lengths are pixels of a page that is `WIDTH` wide. The file has `SCALE` times as many, so it is sharp on dense displays.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN, GAP, SCALE, DPI = 900, 24, 4, 2, 100
NAME_CHARACTER = 7.2  # pixels of a character in names of rows
RIGHT, WRONG = "✓", "✗"
BLUE, ORANGE = "#0072b2", "#d55e00"  # Okabe and Ito: told apart with any colour vision
INK, SOFT, FAINT, LINE, TRACK = "#222222", "#6b6b6b", "#b5b5b5", "#dedede", "#f0f0f0"
Box = tuple[float, float, float, float]  # left, top, width, height


def png(figure: Figure, about: str = "") -> bytes:
    """The picture as a PNG file. `about` says what it shows and is stored in the file as its description."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=SCALE * DPI, metadata={"Description": about} if about else None)
    return file.getvalue()


def blank_figure(height: float) -> Figure:
    """An empty white figure of `WIDTH` by `height` pixels."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError('pictures need matplotlib: pip install "csn[report]"') from error
    return Figure(figsize=(WIDTH / DPI, round(height) / DPI), dpi=DPI, facecolor="white")


def write(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Plain text at pixels from the top left corner of a figure, vertically centred at y."""
    options: dict[str, Any] = {"va": "center_baseline", "color": INK, "parse_math": False} | style
    figure.text(x / WIDTH, 1 - y / _height(figure), text, **options)


def axes_at(figure: Figure, box: Box) -> Axes:
    """Axes in a box of pixels from the top left corner of a figure."""
    (left, top, width, height), whole = box, _height(figure)
    return figure.add_axes((left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole))


def head(figure: Figure, title: str, y: float = 26) -> None:
    """The title of a figure."""
    write(figure, MARGIN, y, title, size=12, weight="bold")


def plain(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Give axes a faint grid below what they show, and no frame above and on the right."""
    axes.grid(axis=grid, color=TRACK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def row_axes(figure: Figure, box: Box, rows: int, ticks: int, **steps: Any) -> Axes:
    """Plain axes in a box with a row for each name, the first on top, and at most `ticks` intervals between ticks.

    `steps` are further options of matplotlib's MaxNLocator.
    """
    from matplotlib.ticker import MaxNLocator

    axes = axes_at(figure, box)
    axes.set(ylim=(rows - 0.5, -0.5), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator(ticks, **steps))
    axes.tick_params(axis="x", labelsize=8, length=2)
    plain(axes, "x")
    axes.spines["left"].set_visible(False)
    return axes


def names_width(names: Iterable[str], least: float, most: float) -> float:
    """The width of a column of names in small type, from `least` to `most`."""
    return min(most, max(least, NAME_CHARACTER * max(map(len, names))))


def row_name(figure: Figure, right: float, y: float, name: str, width: float) -> None:
    """The name of a row, right-aligned at `right` and cut to a width."""
    write(figure, right, y, shortened(name, int(width / NAME_CHARACTER)), size=8.5, ha="right")


def _height(figure: Figure) -> float:
    return float(figure.get_figheight() * figure.dpi)


def shortened(text: str, most: int) -> str:
    """The text, cut to at most `most` characters. A text that was cut ends in "…"."""
    return text if len(text) <= most else text[: most - 1] + "…"


def page(height: float, title: str) -> tuple[Figure, Axes]:
    """A figure with one axes whose coordinates are pixels from the top left corner."""
    figure = blank_figure(height)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(round(height), 0), autoscale_on=False)
    axes.set_axis_off()
    if title:
        text(axes, MARGIN, MARGIN + 8, title, size=12, weight="bold")
    return figure, axes


def text(axes: Axes, x: float, y: float, words: str, width: float = WIDTH, **style: Any) -> None:
    """Plain text, vertically centred at y, cut off where (in small type) it gets wider than `width`."""
    style = {"va": "center_baseline", "size": 9, "color": INK, "parse_math": False} | style
    axes.text(x, y, shortened(words, int(width / 6.6)), None, **style)


def image(axes: Axes, picture: np.ndarray, box: Box, *, edge: str = LINE) -> None:
    """A picture in a box with an edge."""
    left, top, width, height = box
    extent = (left, left + width, top + height, top)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect="auto")
    boxes(axes, [(box, "none", edge)])


def boxes(axes: Axes, shapes: Sequence[tuple[Box, str, str]]) -> None:
    """Rectangles, each with its face and edge colour."""
    from matplotlib.collections import PolyCollection

    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for (x, y, w, h), _, _ in shapes]
    _, faces, edges = zip(*shapes, strict=True)
    axes.add_collection(PolyCollection(corners, facecolors=faces, edgecolors=edges, linewidths=1.3), autolim=False)
