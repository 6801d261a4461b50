"""Pictures: the learning curve of a run, an episode with what a learner makes of it, a sheet of a data set.

Every picture is a `Figure` on a page of csn.plots.drawing, and `csn.plots.drawing.png` turns it into bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from csn.data.source import ClassExamples
from csn.engine.answers import answers
from csn.engine.evaluate import Accuracy
from csn.episode import Episode
from csn.learner import FewShotLearner
from csn.plots import drawing as draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVE_POINTS = 200  # a longer training curve is drawn as the means of this many stretches
SHEET_EXAMPLES = 20
EXPLAINED = 8


def learning_curve(log: Sequence[dict[str, Any]], *, title: str = "", pretraining: bool = False) -> Figure:
    """Training and validation accuracy with its interval and best point, and training loss, over tasks.

    A language model is trained on sentences. Its training accuracy is that of the next word, and its best point has the
    lowest perplexity. With `pretraining`, the log is that of a pretraining, which counts examples.
    """
    train, validation = ([record for record in log if kind in record] for kind in ("train", "validation"))
    language = any("perplexity" in record["validation"] for record in validation)
    unit_name, of_training = ("sentences", "training, next word") if language else ("tasks", "training")
    if pretraining:
        unit_name, of_training = "examples", "pretraining"
    if not train and not validation:
        raise ValueError("the log holds no training or validation record: there is no curve to draw; train first")
    figure = draw.blank_figure(560)
    figure.set_layout_engine("constrained", rect=(0.02, 0.02, 0.96, 0.91))  # below the title
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for axes, name, label, unit in ((above, "accuracy", "accuracy, %", 100), (below, "loss", "training loss", 1)):
        x, y = np.array([(r["tasks"], unit * r["train"][name]) for r in train], dtype=float).reshape(-1, 2).T
        if len(x) > CURVE_POINTS:
            axes.plot(x, y, color=draw.FAINT, linewidth=0.6, alpha=0.5)
            x, y = (np.array([part.mean() for part in np.array_split(values, CURVE_POINTS)]) for values in (x, y))
        axes.plot(x, y, color=draw.SOFT, linewidth=1.2, marker="." if len(x) <= 20 else "", label=of_training)
        axes.set_ylabel(label)
        draw.plain(axes)
    if validation:
        points = [
            (r["tasks"], 100 * r["validation"]["accuracy"], 100 * r["validation"]["interval"]) for r in validation
        ]
        x, y, half = np.array(points).T
        above.fill_between(x, y - half, y + half, color=draw.BLUE, alpha=0.2, linewidth=0)
        above.plot(x, y, color=draw.BLUE, linewidth=1.8, marker=".", label="validation, 95 % interval")
        best = max((i for i, r in enumerate(validation) if r["validation"].get("best")), default=int(y.argmax()))
        label = f"best: {Accuracy(y[best] / 100, half[best] / 100)} after {x[best]:,.0f} {unit_name}"
        above.plot(
            x[best], y[best], "*", color=draw.ORANGE, markeredgecolor="white", markersize=17, label=label, zorder=3
        )
        for axes in (above, below):
            axes.axvline(x[best], color=draw.ORANGE, linewidth=0.8, linestyle=":")
    above.set_ylim(top=min(100.5, above.get_ylim()[1]))
    below.set_xlabel(f"training {unit_name}")
    below.xaxis.set_major_formatter("{x:,.0f}")
    above.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, borderpad=0.2)
    draw.head(figure, title)
    return figure


def comparison_figure(rows: Sequence[dict[str, Any]], *, title: str = "") -> Figure:
    """Accuracy with its interval against the time of a task, in training and in inference. Learners are numbered."""
    figure = draw.blank_figure(480)
    figure.set_layout_engine("constrained", rect=(0.02, 0.02, 0.96, 0.9))
    *panels, names = figure.subplots(1, 3, width_ratios=(5, 5, 3))
    panels[1].sharey(panels[0])  # before drawing, because a learner without training time is in one panel only
    for axes, phase, label in zip(panels, ("train", "inference"), ("training", "inference"), strict=True):
        for number, row in enumerate(rows, start=1):
            if phase not in row["time"]:
                continue
            (low, x, high), y, half = row["time"][phase], 100 * row["accuracy"], 100 * row["interval"]
            color = owner_colour(row["learner"])
            axes.errorbar(x, y, half, [[x - low], [high - x]], "o", color=color, markersize=11, linewidth=1)
            axes.text(x, y, str(number), color="white", size=7, weight="bold", ha="center", va="center_baseline")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_xlabel(f"{label}, time per task, x the floor")
        draw.plain(axes)
    panels[0].set_ylabel("accuracy, %")
    names.set_axis_off()
    for number, row in enumerate(rows, start=1):
        line = f"{number:>2}  {row['learner']}"
        names.text(0, 1 - 0.06 * number, line, color=owner_colour(row["learner"]), size=9, parse_math=False)
    draw.head(figure, title)
    return figure


def owner_colour(learner: str) -> str:
    """The colour of a learner. Conditionally shifted neurons stand out."""
    return draw.ORANGE if learner.startswith(("ada", "lstm-ada")) else draw.BLUE


def episode_figure(
    episode: Episode, *, names: Sequence[str] | None = None, learner: FewShotLearner[Any] | None = None, title: str = ""
) -> Figure:
    """One task, with a column per class. Supports are at the top, and below are queries or a learner's answers.

    An answer is a row with the query, the answered class, and under each class the weights of its support examples.
    """
    if episode.tasks != 1:
        raise ValueError(f"a picture shows one task, got a batch of {episode.tasks}: draw them one at a time")
    support, queries = _pictures(episode.support.x[0]), _pictures(episode.query.x[0])
    shown, query_rows = (  # the rows of each class
        [(part.y[0] == c).nonzero()[:, 0].tolist() for c in range(episode.way)]
        for part in (episode.support, episode.query)
    )
    gutter = 84 if learner is None else 168
    left, column = draw.MARGIN + gutter, (draw.WIDTH - 2 * draw.MARGIN - gutter) / episode.way
    shots = max(map(len, shown))
    width = min(column - draw.GAP, 96 if shots <= 2 else 64)
    height = width * support[0].shape[0] / support[0].shape[1]
    lines = 2 if names is not None and column >= 90 else 0
    top = draw.MARGIN + (36 if title else 0) + 20 + 15 * lines
    below = top + shots * (height + draw.GAP) + 32
    pitch = height + draw.GAP if learner is None else 54 if len(queries) <= 15 else 44
    bottom = below + pitch * (max(map(len, query_rows)) if learner is None else len(queries))
    figure, axes = draw.page(bottom + draw.MARGIN + (0 if learner is None else 26), title)
    for c in range(episode.way):
        middle, edge = left + (c + 0.5) * column, left + (c + 0.5) * column - width / 2
        head = f"class {c}" if column >= 60 else f"{c}"
        draw.text(axes, middle, top - 15 * lines - 12, head, ha="center", weight="bold")
        for line, part in enumerate(names[c].split("/")[:lines] if names is not None else ()):
            draw.text(axes, middle, top - 15 * (lines - line) + 4, part, column, ha="center", size=8, color=draw.SOFT)
        for place, row in enumerate(shown[c]):
            draw.image(axes, support[row], (edge, top + place * (height + draw.GAP), width, height))
        for place, row in enumerate(query_rows[c] if learner is None else ()):
            draw.image(axes, queries[row], (edge, below + place * pitch, width, height))
    draw.text(axes, draw.MARGIN, top + min(height / 2, 14), "support", weight="bold")
    draw.text(axes, draw.MARGIN, below + (min(height / 2, 14) if learner is None else -14), "queries", weight="bold")
    if learner is not None:
        _draw_answers(axes, learner, episode, shown, (left, below, column, pitch))
    return figure


def _draw_answers(
    axes: Axes, learner: FewShotLearner[Any], episode: Episode, shown: list[list[int]], grid: draw.Box
) -> None:
    """The rows of `episode_figure`, a query each: image, mark, answer, and bars under the classes."""
    (left, top, column, pitch), truth = grid, episode.query.y[0].tolist()
    probabilities, attention = answers(learner, episode)
    weights = probabilities if attention is None else attention
    groups = [[c] for c in range(episode.way)] if attention is None else shown
    single, full = max(map(len, groups)) == 1, max(float(weights.max()), 1e-9)
    cell, room = pitch - 8, column - (6 if column < 60 else 12)
    shapes: list[tuple[draw.Box, str, str]] = []
    for j, picture in enumerate(_pictures(episode.query.x[0])):
        y, answer = top + j * pitch, int(probabilities[j].argmax())
        mark, colour = (draw.RIGHT, draw.BLUE) if answer == truth[j] else (draw.WRONG, draw.ORANGE)
        side = min(cell * picture.shape[1] / picture.shape[0], 60)
        draw.image(axes, picture, (draw.MARGIN, y, side, cell), edge=colour)
        draw.text(axes, draw.MARGIN + side + 9, y + cell / 2 - 8, f"{mark} class {answer}", weight="bold", color=colour)
        note = f"{100 * probabilities[j, answer]:.0f} %" + ("" if answer == truth[j] else f", is class {truth[j]}")
        draw.text(axes, draw.MARGIN + side + 9, y + cell / 2 + 8, note, size=8, color=draw.SOFT)
        shapes.append(((left + answer * column + 1, y - 2, column - 2, cell + 4), "none", colour))
        for c, group in enumerate(groups):
            x, step, own = left + c * column + (column - room) / 2, (cell - 4) / max(len(group), 1), c == truth[j]
            for place, row in enumerate(group):
                weight, thick, middle = float(weights[j, row]), min(0.75 * step, 14), y + 2 + (place + 0.5) * step
                if single and column >= 60:  # room for the number above its bar
                    thick, middle = 10, y + cell / 2 + 9
                    draw.text(axes, x, y + cell / 2 - 8, f"{weight:.2f}", size=8, color=draw.INK if own else draw.SOFT)
                shapes.append(((x, middle - thick / 2, room, thick), draw.TRACK, "none"))
                shapes.append(
                    ((x, middle - thick / 2, room * weight / full, thick), draw.INK if own else draw.FAINT, "none")
                )
    draw.boxes(axes, shapes)
    what = "probability of each class" if attention is None else "attention to each support example"
    what += "" if single else ", in the order of the support"
    caption = f"Bars: {what} (full: {full:.2f}); black: the query's own class. Frame: the answer."
    draw.text(axes, draw.MARGIN, top + len(truth) * pitch + 16, caption, size=8, color=draw.SOFT)


def explanation_figure(
    queries: Tensor,
    examples: Tensor,
    rows: Sequence[tuple[str, float, list[tuple[int, str, float]]]],
    *,
    title: str = "",
) -> Figure:
    """A row per query: its answer with the probability, then the examples behind it, at sizes that show their weights.

    Args:
        queries: (m, channels, h, w).
        examples: (n, channels, h, w).
        rows: For each query the answer, its probability, and (example, label, weight) sorted by falling weight. At most
            `EXPLAINED` examples are shown.
        title: The title of the picture.
    """
    query_pictures, remembered = _pictures(queries), _pictures(examples)
    top, pitch, left = draw.MARGIN + (36 if title else 0), 104.0, draw.MARGIN + 230
    figure, axes = draw.page(top + pitch * len(rows) + draw.MARGIN, title)
    bars: list[tuple[draw.Box, str, str]] = []
    for j, (answer, probability, sources) in enumerate(rows):
        y = top + j * pitch
        draw.image(axes, query_pictures[j], (draw.MARGIN, y, 72, 72))
        draw.text(axes, draw.MARGIN + 84, y + 26, answer, 130, weight="bold", color=draw.BLUE)
        draw.text(axes, draw.MARGIN + 84, y + 46, f"{100 * probability:.0f} %", size=8, color=draw.SOFT)
        for place, (index, label, weight) in enumerate(sources[:EXPLAINED]):
            x = left + place * 80
            draw.image(axes, remembered[index], (x, y, 56, 56))
            bars += [((x, y + 62, 56, 6), draw.TRACK, "none"), ((x, y + 62, 56 * weight, 6), draw.INK, "none")]
            draw.text(axes, x, y + 78, f"{label} {weight:.2f}", 74, size=8, color=draw.SOFT)
    draw.boxes(axes, bars)
    return figure


def contact_sheet(classes: ClassExamples, count: int, *, title: str = "") -> Figure:
    """`count` classes spread evenly over a split, a row each, with their first examples (at most `SHEET_EXAMPLES`)."""
    if not 1 <= count <= len(classes):
        raise ValueError(f"a sheet shows 1 to {len(classes)} classes of this split, got {count}")
    chosen = np.linspace(0, len(classes) - 1, count).round().astype(int)
    ends, examples = np.cumsum(classes.counts), np.minimum(classes.counts, SHEET_EXAMPLES)
    rows = [_pictures(classes.x[ends[c] - classes.counts[c] :][: examples[c]]) for c in chosen]
    gutter, top = 136, draw.MARGIN + (36 if title else 0)
    width = min((draw.WIDTH - 2 * draw.MARGIN - gutter) / max(map(len, rows)) - draw.GAP, 96)
    height = width * rows[0][0].shape[0] / rows[0][0].shape[1]
    figure, axes = draw.page(top + count * (height + draw.GAP) - draw.GAP + draw.MARGIN, title)
    for row, (c, pictures) in enumerate(zip(chosen, rows, strict=True)):
        y, parts = top + row * (height + draw.GAP), classes.names[c].split("/")[:2]
        for line, part in enumerate(parts):
            middle = y + height / 2 + 12 * (line - (len(parts) - 1) / 2)
            draw.text(axes, draw.MARGIN, middle, part, gutter, size=7.5, color=draw.SOFT if line else draw.INK)
        for place, picture in enumerate(pictures):
            draw.image(axes, picture, (draw.MARGIN + gutter + place * (width + draw.GAP), y, width, height))
    return figure


def _pictures(x: Tensor) -> list[np.ndarray]:
    """(n, channels, height, width) -> n pictures (height, width[, 3]) in [0, 1]; one channel is ink on white paper."""
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise ValueError(f"pictures need images (1 or 3 channels, height, width), got shape {tuple(x.shape[1:])}")
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    if float(x.min()) < 0 or float(x.max()) > 1:
        x = (x - x.min()) / (x.max() - x.min()).clamp_min(1e-9)
    return list((1 - x[:, 0] if x.shape[1] == 1 else x.permute(0, 2, 3, 1)).numpy())
