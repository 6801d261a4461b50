"""Pictures and pages: the learning curve of a run, an episode with what a learner makes of it, a sheet of a data set.

Every picture is a `Figure` that belongs to nobody (no pyplot, no global state) until `png` turns it into bytes. Lengths
are pixels of a page `WIDTH` wide; the file has `SCALE` times as many, so that it stays sharp on a dense display.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csn.data.source import ClassExamples, EpisodeSource
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import Accuracy
from csn.engine.run import TrainedRun
from csn.episode import Episode
from csn.learner import FewShotLearner

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN, SCALE, DPI = 900, 24, 2, 100
RIGHT, WRONG = "✓", "✗"
INK, SOFT, FAINT, TRACK = "#222222", "#6b6b6b", "#b5b5b5", "#f0f0f0"
BLUE, ORANGE = "#0072b2", "#d55e00"  # Okabe and Ito: told apart with any colour vision
CURVE_POINTS = 200  # a longer training curve is drawn as the means of this many stretches
SHEET_EXAMPLES = 20
Box = tuple[float, float, float, float]  # left, top, width, height


class Answers(NamedTuple):
    """What a learner says of a task's queries: class, its probability, and a weight per support row (or class)."""

    classes: list[int]
    probabilities: list[float]
    weights: Tensor  # (m, n) attention, or (m, C) probabilities of a learner without attention
    attention: bool


def png(figure: Figure) -> bytes:
    """The picture as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=SCALE * DPI)
    return file.getvalue()


def learning_curve(log: Sequence[dict[str, Any]], *, title: str = "") -> Figure:
    """Training and validation accuracy with its interval and best point, and training loss, over tasks."""
    train, validation = ([record for record in log if kind in record] for kind in ("train", "validation"))
    if not train and not validation:
        raise ValueError("the log holds no training or validation record: there is no curve to draw; train first")
    figure = _figure(560, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for axes, name, unit in ((above, "accuracy", 100), (below, "loss", 1)):
        x = np.array([record["tasks"] for record in train])
        y = np.array([unit * record["train"][name] for record in train], dtype=float)
        stretches = np.array_split(np.arange(len(x)), min(len(x), CURVE_POINTS) or 1)
        if len(stretches) < len(x):
            axes.plot(x, y, color=FAINT, linewidth=0.6, alpha=0.5)
            x, y = (np.array([values[stretch].mean() for stretch in stretches]) for values in (x, y))
        axes.plot(x, y, color=SOFT, linewidth=1.2, marker="." if len(x) == 1 else "", label="training")
    if validation:
        x = np.array([record["tasks"] for record in validation])
        y, half = (100 * np.array([r["validation"][name] for r in validation]) for name in ("accuracy", "interval"))
        above.fill_between(x, y - half, y + half, color=BLUE, alpha=0.2, linewidth=0)
        above.plot(x, y, color=BLUE, linewidth=1.8, marker=".", label="validation, 95 % interval")
        best = int(y.argmax())
        label = f"best: {Accuracy(y[best] / 100, half[best] / 100)} after {x[best]:,} tasks"
        above.plot(x[best], y[best], "*", color=ORANGE, markeredgecolor="white", markersize=17, label=label, zorder=3)
        above.axvline(x[best], color=ORANGE, linewidth=0.8, linestyle=":")
        below.axvline(x[best], color=ORANGE, linewidth=0.8, linestyle=":")
    above.set_ylim(top=min(100.5, above.get_ylim()[1]))
    above.set_ylabel("accuracy, %")
    below.set_ylabel("training loss")
    below.set_xlabel("training tasks")
    below.xaxis.set_major_formatter("{x:,.0f}")
    for axes in (above, below):
        axes.grid(color=TRACK)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    above.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, borderpad=0.2)
    figure.suptitle(title, fontsize=12, fontweight="bold", color=INK, parse_math=False)
    return figure


def episode_figure(
    episode: Episode, *, names: Sequence[str] | None = None, learner: FewShotLearner | None = None, title: str = ""
) -> Figure:
    """One task: a column per class with its support above; below, its queries or, with a learner, a row per query.

    Such a row shows the answer, and under each class the weights of its support, in the order of the support above.
    """
    if episode.tasks != 1:
        raise ValueError(f"a picture shows one task, got a batch of {episode.tasks}: draw them one at a time")
    way, labels, truth = episode.way, episode.support.y[0].tolist(), episode.query.y[0].tolist()
    rows = [[i for i, label in enumerate(labels) if label == c] for c in range(way)]  # support rows of each class
    answers = None if learner is None else _answers(learner, episode)
    support, queries = _pictures(episode.support.x[0]), _pictures(episode.query.x[0])
    gutter = 84 if answers is None else 168
    left, column = MARGIN + gutter, (WIDTH - 2 * MARGIN - gutter) / way
    width = min(column - 4, 96.0)
    height = width * support[0].shape[0] / support[0].shape[1]
    shots, asked = max(map(len, rows)), max(truth.count(c) for c in range(way))
    lines = 2 if names is not None and column >= 90 else 0
    top = MARGIN + (34 if title else 0) + 22 + 15 * lines
    below = top + shots * (height + 4) + 34
    pitch = height + 4 if answers is None else 54 if len(truth) <= 20 else 44
    bottom = below + pitch * (asked if answers is None else len(truth))
    figure, axes = _page(bottom + MARGIN + (0 if answers is None else 26), title)

    for c in range(way):
        middle = left + (c + 0.5) * column
        _text(axes, middle, top - 15 * lines - 10, f"class {c}" if column >= 60 else f"{c}", ha="center", weight="bold")
        for line, part in enumerate(names[c].split("/")[:lines] if names is not None else ()):
            _text(axes, middle, top - 15 * (lines - line) + 6, _cut(part, column), ha="center", size=8, color=SOFT)
        for place, row in enumerate(rows[c]):
            _image(axes, support[row], (middle - width / 2, top + place * (height + 4), width, height))
        if answers is None:
            for place, j in enumerate(j for j, label in enumerate(truth) if label == c):
                _image(axes, queries[j], (middle - width / 2, below + place * pitch, width, height))
    _text(axes, MARGIN, top + min(height / 2, 14), "support", weight="bold")
    _text(axes, MARGIN, below + min(height / 2, 14) if answers is None else below - 14, "queries", weight="bold")
    if answers is not None:
        _draw_answers(axes, answers, queries, truth, rows, (left, below, column, pitch))
    return figure


def _draw_answers(
    axes: Axes, answers: Answers, queries: list[np.ndarray], truth: list[int], rows: list[list[int]], grid: Box
) -> None:
    """The rows of `episode_figure`, a query each: image, mark, answer, and bars under the classes."""
    left, top, column, pitch = grid
    full = max(float(answers.weights.max()), 1e-9)
    groups = rows if answers.attention else [[c] for c in range(len(rows))]
    cell, room = pitch - 8, column - (6 if column < 60 else 12)
    tracks: list[Box] = []
    bars: dict[bool, list[Box]] = {True: [], False: []}  # of the query's own class, of the others
    frames: dict[bool, list[Box]] = {True: [], False: []}  # the answers: right, wrong
    for j, (true, answer) in enumerate(zip(truth, answers.classes, strict=True)):
        y, right = top + j * pitch, true == answer
        side = cell * queries[j].shape[1] / queries[j].shape[0]
        _image(axes, queries[j], (MARGIN, y, min(side, 60), cell), edge=BLUE if right else ORANGE)
        mark, x = RIGHT if right else WRONG, MARGIN + min(side, 60) + 9
        style = {"weight": "bold", "color": BLUE if right else ORANGE}
        _text(axes, x, y + cell / 2 - 8, f"{mark} class {answer}", **style)
        note = f"{100 * answers.probabilities[j]:.0f} %" + ("" if right else f", is class {true}")
        _text(axes, x, y + cell / 2 + 8, note, size=8, color=SOFT)
        frames[right].append((left + answer * column + 1, y - 2, column - 2, cell + 4))
        for c, group in enumerate(groups):
            x, numbered = left + c * column + (column - room) / 2, max(map(len, groups)) == 1 and column >= 60
            step = (cell - 4) / max(len(group), 1)
            for place, row in enumerate(group):
                weight = float(answers.weights[j, row])
                thick = 10 if numbered else min(0.75 * step, 14)
                middle = y + cell / 2 + 9 if numbered else y + 2 + (place + 0.5) * step
                tracks.append((x, middle - thick / 2, room, thick))
                bars[c == true].append((x, middle - thick / 2, room * weight / full, thick))
                if numbered:
                    _text(axes, x, y + cell / 2 - 8, f"{weight:.2f}", size=8, color=INK if c == true else SOFT)
    _boxes(axes, tracks, facecolor=TRACK)
    _boxes(axes, bars[False], facecolor=FAINT)
    _boxes(axes, bars[True], facecolor=INK)
    for right, colour in ((True, BLUE), (False, ORANGE)):
        _boxes(axes, frames[right], facecolor="none", edgecolor=colour, linewidth=1.3)
    order = ", in the order of the support" if max(map(len, groups)) > 1 else ""
    what = f"attention to each support example{order}" if answers.attention else "probability of each class"
    caption = f"Bars: {what} (full: {full:.2f}); black: the query's own class. Frame: the answer."
    _text(axes, MARGIN, top + len(truth) * pitch + 16, caption, size=8, color=SOFT)


def contact_sheet(classes: ClassExamples, count: int, *, title: str = "") -> Figure:
    """`count` classes spread evenly over a split, a row each, with their first examples (at most `SHEET_EXAMPLES`)."""
    if not 1 <= count <= len(classes):
        raise ValueError(f"a sheet shows 1 to {len(classes)} classes of this split, got {count}")
    chosen = np.linspace(0, len(classes) - 1, count).round().astype(int)
    starts = np.cumsum(classes.counts) - classes.counts
    gutter, columns = 136, min(SHEET_EXAMPLES, int(classes.counts[chosen].max()))
    column = min((WIDTH - 2 * MARGIN - gutter) / columns, 100.0)
    width = column - 3
    pitch = width * classes.x.shape[-2] / classes.x.shape[-1] + 3 if classes.x.ndim == 4 else column
    top = MARGIN + (34 if title else 0)
    figure, axes = _page(top + count * pitch + MARGIN - 3, title)
    for row, c in enumerate(chosen):
        y, parts = top + row * pitch, classes.names[c].split("/")[:2]
        for line, part in enumerate(parts):
            offset = 12 * (line - (len(parts) - 1) / 2)
            colour = INK if line == 0 else SOFT
            _text(axes, MARGIN, y + pitch / 2 - 1.5 + offset, _cut(part, gutter), size=7.5, color=colour)
        first, last = starts[c], starts[c] + min(columns, classes.counts[c])
        for place, picture in enumerate(_pictures(classes.x[first:last])):
            _image(axes, picture, (MARGIN + gutter + place * column, y, width, pitch - 3))
    return figure


def episode_names(source: EpisodeSource, index: int) -> list[str]:
    """Names of the classes of episode `index`, in the order of their labels."""
    if index < 0:
        raise ValueError(f"episodes are counted from 0, got {index}")
    ends = np.cumsum(source.classes.counts)
    return [source.classes.names[int(np.searchsorted(ends, row, side="right"))] for row in source.rows(index)[0][:, 0]]


def write_report(run: TrainedRun, source: EpisodeSource, index: int, folder: Path) -> list[Path]:
    """Write learning_curve.png, episode.png (episode `index` of `source`) and report.md; the files written."""
    if not run.log:
        raise ValueError(f"{run.folder / 'log.jsonl'} is missing or empty: there is no training to report")
    title = f"{run.config.preset} ({run.config.recipe}) on {run.config.data.name}"
    curve = learning_curve(run.log, title=f"{title}, {run.config.data.way}-way {run.config.data.shot}-shot")
    about = f"{source.split.capitalize()} task {index} of {source.data.name}, {source.way}-way {source.shot}-shot"
    names = episode_names(source, index)
    episode = episode_figure(source.batch(index, 1), names=names, learner=run.learner, title=about)
    contents = {"learning_curve.png": png(curve), "episode.png": png(episode), "report.md": _page_of(run, about)}
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def _page_of(run: TrainedRun, about: str) -> bytes:
    """report.md."""
    config, best = run.config, Accuracy(run.metadata["validation"], run.metadata["interval"])
    facts = {
        "preset": config.preset,
        "recipe": config.recipe,
        "data": config.data.name,
        "tasks": f"{config.data.way}-way {config.data.shot}-shot, {config.data.queries} queries a class",
        "trained": f"{run.log[-1]['tasks']:,} of {config.train.tasks:,} tasks, seed {config.train.seed}",
        "time (h:mm:ss)": datetime.timedelta(seconds=round(run.log[-1]["seconds"])),
        "best model": f"after {run.metadata['tasks']:,} tasks",
        "validation accuracy": f"**{best}** (mean of {config.train.validation_tasks:,} tasks, 95 % interval)",
    }
    results = [row for path in sorted(run.folder.glob("result-*.json")) for row in _result_rows(path)]
    none = [f"None yet: `csn evaluate {run.folder}` measures it on unseen tasks."]
    page = [
        f"# {config.preset} ({config.recipe}) on {config.data.name}, {config.data.way}-way {config.data.shot}-shot\n",
        *_table(("", ""), facts.items()),
        "\n## Accuracy on unseen tasks\n",
        *(_table(("tasks", "attention", "learner", "accuracy, 95 % interval"), results) if results else none),
        "\n## Learning curve\n\n![Accuracy and loss over training tasks](learning_curve.png)",
        f"\n## A task\n\n![{about}](episode.png)\n\n{about}.",
        f"\n## Configuration\n\n```json\n{config.to_json()}```\n",
    ]
    return "\n".join(page).encode()


def _result_rows(path: Path) -> list[tuple[str, ...]]:
    """A row for each learner of a result file of `csn evaluate`."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        of = result["evaluation"]
        tasks = f"{of['data']}, {of['way']}-way {of['shot']}-shot, {of['tasks']:,} {of['split']} tasks"
        numbers = {name: Accuracy(value["accuracy"], value["interval"]) for name, value in result["summary"].items()}
        return [(tasks, of["attention"], name, str(accuracy)) for name, accuracy in numbers.items()]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no result of csn evaluate ({error!r}): evaluate again or remove it") from error


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]


@torch.no_grad()
def _answers(learner: FewShotLearner, episode: Episode) -> Answers:
    """The learner's answers in evaluation mode, its own mode left as it was."""
    training = learner.training
    learner.eval()
    try:
        task = learner.describe(episode.support, episode.way)
        probabilities = learner.predict(episode.query.x, task).softmax(-1)[0]
        attend = getattr(learner, "attend", None)
        weights = probabilities if attend is None else attend(episode.query.x, task)[0]
    finally:
        learner.train(training)
    best, classes = probabilities.max(-1)
    return Answers(classes.tolist(), best.tolist(), weights, attend is not None)


def _pictures(x: Tensor) -> list[np.ndarray]:
    """(n, channels, height, width) -> n pictures (height, width[, 3]) in [0, 1]; one channel is ink on white paper."""
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise ValueError(
            f"pictures need images of shape (1 or 3 channels, height, width), got inputs of shape {tuple(x.shape[1:])}"
        )
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    if bool((x.min() < 0) | (x.max() > 1)):
        x = (x - x.min()) / (x.max() - x.min())
    return list((1 - x[:, 0] if x.shape[1] == 1 else x.permute(0, 2, 3, 1)).numpy())


def _figure(height: float, **options: Any) -> Figure:
    """An empty white figure of `WIDTH` by `height` pixels."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError('pictures need matplotlib: pip install "csn[report]"') from error
    return Figure(figsize=(WIDTH / DPI, round(height) / DPI), dpi=DPI, facecolor="white", **options)


def _page(height: float, title: str) -> tuple[Figure, Axes]:
    """A figure with one axes whose coordinates are pixels from the top left corner."""
    figure = _figure(height)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(round(height), 0), autoscale_on=False)
    axes.set_axis_off()
    if title:
        _text(axes, MARGIN, MARGIN + 8, title, size=12, weight="bold")
    return figure, axes


def _text(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Plain text, vertically centred at y."""
    axes.text(x, y, text, **{"va": "center_baseline", "size": 9, "color": INK, "parse_math": False} | style)


def _cut(text: str, width: float) -> str:
    """`text`, shortened to fit a width in small type."""
    room = int(width / 6.6)
    return text if len(text) <= room else text[: room - 1] + "…"


def _image(axes: Axes, picture: np.ndarray, box: Box, *, edge: str = "#d9d9d9") -> None:
    left, top, width, height = box
    extent = (left, left + width, top + height, top)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, extent=extent, aspect="auto")
    _boxes(axes, [box], facecolor="none", edgecolor=edge, linewidth=0.6 if edge == "#d9d9d9" else 1.8)


def _boxes(axes: Axes, boxes: Sequence[Box], **style: Any) -> None:
    from matplotlib.collections import PolyCollection

    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    axes.add_collection(PolyCollection(corners, **{"linewidth": 0} | style), autolim=False)
