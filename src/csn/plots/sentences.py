"""Tasks of blanked words to look at, on a page and in the terminal: sentences under each other, blank under blank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text
from torch import Tensor

from csn.data.source import ClassExamples
from csn.episode import Episode
from csn.learner import FewShotLearner
from csn.networks.sentences import BLANK, PAD, known
from csn.plots.drawing import (
    BLUE,
    FAINT,
    INK,
    MARGIN,
    ORANGE,
    RIGHT,
    SOFT,
    TRACK,
    WIDTH,
    WRONG,
    Box,
    draw_boxes,
    draw_text,
    page,
)
from csn.plots.episodes import answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP_MARK = "____"
SIDE = 40  # characters of a sentence shown on either side of the blank
LABELS, MIDDLE, BARS = 130, 430, 704  # of the page: width of the labels, place of the blanks, left edge of the bars
SUPPORT_PITCH, QUERY_PITCH = 22, 40


@dataclass(frozen=True)
class Sentence:
    """The words before and after the blank, and the label of the blanked word."""

    before: str
    after: str
    label: int


@dataclass(frozen=True)
class Answer:
    """What a learner says of one query: a label, its probability, and weights of the support (or of the classes)."""

    label: int
    probability: float
    weights: list[float]


@dataclass(frozen=True)
class SentenceTask:
    """One task in words. names: of the classes; weighs: what the weights of the answers are."""

    names: tuple[str, ...]
    support: list[Sentence]
    queries: list[Sentence]
    answers: list[Answer]
    weighs: str

    def weight_labels(self, answer: Answer) -> list[int]:
        """The label that each weight belongs to."""
        whole = len(answer.weights) == len(self.support)
        return [sentence.label for sentence in self.support] if whole else list(range(len(self.names)))

    def by_label(self, answer: Answer) -> list[float]:
        """Its weights, summed over the sentences of each label."""
        total = [0.0] * len(self.names)
        for label, weight in zip(self.weight_labels(answer), answer.weights, strict=True):
            total[label] += weight
        return total


def sentence_task(
    episode: Episode, vocabulary: Sequence[str], names: Sequence[str], learner: FewShotLearner[Any] | None = None
) -> SentenceTask:
    """One task of `episode` in words of the vocabulary, with the answers of a learner."""
    if episode.tasks != 1:
        raise ValueError(f"a picture shows one task, got a batch of {episode.tasks}: show them one at a time")
    support, queries = (
        [_sentence(x, int(y), vocabulary) for x, y in zip(part.x[0], part.y[0], strict=True)]
        for part in (episode.support, episode.query)
    )
    if learner is None:
        return SentenceTask(tuple(names), support, queries, [], "")
    probabilities, attention = answers(learner, episode)
    weights = probabilities if attention is None else attention
    found = [
        Answer(int(p.argmax()), float(p.max()), row) for p, row in zip(probabilities, weights.tolist(), strict=True)
    ]
    weighs = "probability of each word" if attention is None else "attention to each sentence of the support"
    return SentenceTask(tuple(names), support, queries, found, weighs)


def _sentence(row: Tensor, label: int, vocabulary: Sequence[str]) -> Sentence:
    """A row of word ids in words; a row without a blank is a word that the learner was told."""
    ids = [i for i in known(row).tolist() if i != PAD]
    if BLANK not in ids:
        return Sentence("", f"(the word {' '.join(vocabulary[i] for i in ids)})", label)
    blank = ids.index(BLANK)
    before, after = (" ".join(vocabulary[i] for i in part) for part in (ids[:blank], ids[blank + 1 :]))
    return Sentence(before, after, label)


def sentence_tables(task: SentenceTask, *, title: str = "", width: int = 100) -> Group:
    """The task for a terminal of some width; weights are summed over the sentences of each label."""
    room = 34 + (4 * len(task.names) if task.answers else 0)  # for everything but the sentences
    side = min(SIDE, max(10, (width - room) // 2))
    support, queries = _table(title, "label", "word"), _table("", "", "answer" if task.answers else "word")
    for sentence in task.support:
        support.add_row(str(sentence.label), Text(task.names[sentence.label]), *_around(sentence, side))
    if task.answers:
        queries.add_column(" ".join(f"{label:3}" for label in range(len(task.names))), justify="right", no_wrap=True)
    for number, sentence in enumerate(task.queries):
        word = task.names[sentence.label]
        if not task.answers:
            queries.add_row("", Text(word), *_around(sentence, side))
            continue
        answer = task.answers[number]
        right = answer.label == sentence.label
        said = f"{task.names[answer.label]} {100 * answer.probability:.0f} %" + ("" if right else f", is {word}")
        weights = " ".join(f"{100 * weight:3.0f}" for weight in task.by_label(answer))
        mark = Text(RIGHT if right else WRONG, style=BLUE if right else ORANGE)
        queries.add_row(mark, Text(said), *_around(sentence, side), weights)
    parts: list[Table | Text] = [support, Text(), queries]
    if task.answers:
        parts.append(Text(f"The columns on the right: {task.weighs}, by label, in %."))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title or None, box=None, title_justify="left", pad_edge=False)
    table.add_column("sentence", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _around(sentence: Sentence, side: int = SIDE) -> tuple[Text, Text, Text]:
    """As plain text (a word may look like markup): what fits before the blank, the blank, what fits after it."""
    before, after = sentence.before, sentence.after
    before = before if len(before) <= side else "…" + before[1 - side :]
    after = after if len(after) <= side else after[: side - 1] + "…"
    return Text(before), Text(GAP_MARK), Text(after)


def sentence_figure(task: SentenceTask, *, title: str = "") -> Figure:
    """The task on a page: the support above; below a row per query, with the answer and bars of its weights."""
    top = MARGIN + (36 if title else 0) + 24
    below = top + SUPPORT_PITCH * len(task.support) + 34
    figure, axes = page(below + QUERY_PITCH * len(task.queries) + MARGIN + (24 if task.answers else 0), title)
    draw_text(axes, MARGIN, top - 18, "support", weight="bold")
    for number, sentence in enumerate(task.support):
        y = top + (number + 0.5) * SUPPORT_PITCH
        name = f"{sentence.label} {task.names[sentence.label]}"
        draw_text(axes, MARGIN, y, name, LABELS, weight="bold", color=SOFT)
        _draw_sentence(axes, sentence, y)
    draw_text(axes, MARGIN, below - 18, "queries", weight="bold")
    shapes: list[tuple[Box, str, str]] = []
    for number, sentence in enumerate(task.queries):
        y, word = below + (number + 0.5) * QUERY_PITCH, task.names[sentence.label]
        _draw_sentence(axes, sentence, y)
        if not task.answers:
            draw_text(axes, MARGIN, y, word, LABELS, color=SOFT)
            continue
        answer = task.answers[number]
        mark, colour = (RIGHT, BLUE) if answer.label == sentence.label else (WRONG, ORANGE)
        draw_text(axes, MARGIN, y - 8, f"{mark} {task.names[answer.label]}", LABELS, weight="bold", color=colour)
        note = f"{100 * answer.probability:.0f} %" + ("" if answer.label == sentence.label else f", is {word}")
        draw_text(axes, MARGIN, y + 8, note, LABELS, size=8, color=SOFT)
        shapes += _bars(task, answer, sentence.label, y)
    if shapes:
        draw_boxes(axes, shapes)
        caption = f"Bars: {task.weighs}, in the order above; black: of the query's own word."
        draw_text(axes, MARGIN, below + QUERY_PITCH * len(task.queries) + 14, caption, size=8, color=SOFT)
    return figure


def _draw_sentence(axes: Axes, sentence: Sentence, y: float) -> None:
    before, blank, after = (text.plain for text in _around(sentence))
    draw_text(axes, MIDDLE - 20, y, before, ha="right", size=8)
    draw_text(axes, MIDDLE, y, blank, ha="center", size=8, weight="bold", color=BLUE)
    draw_text(axes, MIDDLE + 20, y, after, size=8)


def _bars(task: SentenceTask, answer: Answer, truth: int, y: float) -> list[tuple[Box, str, str]]:
    """An upright bar per weight, on a track as high as 1."""
    width, full = (WIDTH - MARGIN - BARS) / len(answer.weights), QUERY_PITCH - 8
    shapes: list[tuple[Box, str, str]] = []
    for place, (weight, label) in enumerate(zip(answer.weights, task.weight_labels(answer), strict=True)):
        left, high = BARS + place * width, full * weight
        shapes.append(((left + 1, y - full / 2, width - 2, full), TRACK, "none"))
        shapes.append(((left + 1, y + full / 2 - high, width - 2, high), INK if label == truth else FAINT, "none"))
    return shapes


def class_table(classes: ClassExamples, vocabulary: Sequence[str], count: int, *, title: str = "") -> Table:
    """`count` words spread evenly over a split, with the number of their sentences and the first of these."""
    if not 1 <= count <= len(classes):
        raise ValueError(f"a table shows 1 to {len(classes)} words of this split, got {count}")
    table = _table(title, "word", "sentences")
    starts = np.cumsum(classes.counts) - classes.counts
    for c in np.linspace(0, len(classes) - 1, count).round().astype(int).tolist():
        first = classes.x[int(starts[c])] if classes.counts[c] else None
        sentence = Sentence("", "", c) if first is None else _sentence(first, c, vocabulary)
        table.add_row(Text(classes.names[c]), str(classes.counts[c]), *_around(sentence))
    return table
