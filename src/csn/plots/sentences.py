"""Pictures of tasks with blanked words: sentences one below the other, with their blanks aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from csn.engine.answers import Answer, Sentence, SentenceTask
from csn.plots import drawing as draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP_MARK = "____"
SIDE = 40  # characters of a sentence shown on either side of the blank
LABELS, MIDDLE, BARS = 130, 430, 704  # of the page: width of the labels, place of the blanks, left edge of the bars
SUPPORT_PITCH, QUERY_PITCH = 22, 40


def around(sentence: Sentence, side: int = SIDE) -> tuple[str, str, str]:
    """The text that fits before the blank, the blank, and the text that fits after it."""
    before, after = sentence.before, sentence.after
    before = before if len(before) <= side else "…" + before[1 - side :]
    after = after if len(after) <= side else after[: side - 1] + "…"
    return before, GAP_MARK, after


def sentence_figure(task: SentenceTask, *, title: str = "") -> Figure:
    """The task on a page: the support above; below a row per query, with the answer and bars of its weights."""
    top = draw.MARGIN + (36 if title else 0) + 24
    below = top + SUPPORT_PITCH * len(task.support) + 34
    figure, axes = draw.page(below + QUERY_PITCH * len(task.queries) + draw.MARGIN + (24 if task.answers else 0), title)
    draw.text(axes, draw.MARGIN, top - 18, "support", weight="bold")
    for number, sentence in enumerate(task.support):
        y = top + (number + 0.5) * SUPPORT_PITCH
        name = f"{sentence.label} {task.names[sentence.label]}"
        draw.text(axes, draw.MARGIN, y, name, LABELS, weight="bold", color=draw.SOFT)
        _draw_sentence(axes, sentence, y)
    draw.text(axes, draw.MARGIN, below - 18, "queries", weight="bold")
    shapes: list[tuple[draw.Box, str, str]] = []
    for number, sentence in enumerate(task.queries):
        y, word = below + (number + 0.5) * QUERY_PITCH, task.names[sentence.label]
        _draw_sentence(axes, sentence, y)
        if not task.answers:
            draw.text(axes, draw.MARGIN, y, word, LABELS, color=draw.SOFT)
            continue
        answer = task.answers[number]
        mark, colour = (draw.RIGHT, draw.BLUE) if answer.label == sentence.label else (draw.WRONG, draw.ORANGE)
        draw.text(axes, draw.MARGIN, y - 8, f"{mark} {task.names[answer.label]}", LABELS, weight="bold", color=colour)
        note = f"{100 * answer.probability:.0f} %" + ("" if answer.label == sentence.label else f", is {word}")
        draw.text(axes, draw.MARGIN, y + 8, note, LABELS, size=8, color=draw.SOFT)
        shapes += _bars(task, answer, sentence.label, y)
    if shapes:
        draw.boxes(axes, shapes)
        caption = f"Bars: {task.weighs}, in the order above; black: of the query's own word."
        draw.text(axes, draw.MARGIN, below + QUERY_PITCH * len(task.queries) + 14, caption, size=8, color=draw.SOFT)
    return figure


def _draw_sentence(axes: Axes, sentence: Sentence, y: float) -> None:
    before, blank, after = around(sentence)
    draw.text(axes, MIDDLE - 20, y, before, ha="right", size=8)
    draw.text(axes, MIDDLE, y, blank, ha="center", size=8, weight="bold", color=draw.BLUE)
    draw.text(axes, MIDDLE + 20, y, after, size=8)


def _bars(task: SentenceTask, answer: Answer, truth: int, y: float) -> list[tuple[draw.Box, str, str]]:
    """An upright bar per weight, on a track as high as 1."""
    width, full = (draw.WIDTH - draw.MARGIN - BARS) / len(answer.weights), QUERY_PITCH - 8
    shapes: list[tuple[draw.Box, str, str]] = []
    for place, (weight, label) in enumerate(zip(answer.weights, task.weight_labels(answer), strict=True)):
        left, high = BARS + place * width, full * weight
        shapes.append(((left + 1, y - full / 2, width - 2, full), draw.TRACK, "none"))
        shapes.append(
            ((left + 1, y + full / 2 - high, width - 2, high), draw.INK if label == truth else draw.FAINT, "none")
        )
    return shapes
