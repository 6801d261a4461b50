"""Pictures of tasks with blanked words: sentences one below the other, with their blanks aligned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from csn.episode import Episode
from csn.learner import FewShotLearner
from csn.networks.sentences import BLANK, PAD, known
from csn.plots import drawing as draw
from csn.plots.episodes import answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP_MARK = "____"
SIDE = 40  # characters of a sentence shown on either side of the blank
LABELS, MIDDLE, BARS = 130, 430, 704  # of the page: width of the labels, place of the blanks, left edge of the bars
SUPPORT_PITCH, QUERY_PITCH = 22, 40


class Sentence(NamedTuple):
    """The words before and after the blank, and the label of the blanked word."""

    before: str
    after: str
    label: int


class Answer(NamedTuple):
    """A learner's answer to one query: a label, its probability, and the weights of the support (or of the classes)."""

    label: int
    probability: float
    weights: list[float]


class SentenceTask(NamedTuple):
    """One task in words.

    names: the names of the classes.
    weighs: what the weights of the answers mean.
    """

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
        [sentence_in_words(x, int(y), vocabulary) for x, y in zip(part.x[0], part.y[0], strict=True)]
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


def sentence_in_words(row: Tensor, label: int, vocabulary: Sequence[str]) -> Sentence:
    """A row of word ids in words. A row without a blank is a class name given as support."""
    ids = [i for i in known(row).tolist() if i != PAD]
    if BLANK not in ids:
        return Sentence("", f"(the word {' '.join(vocabulary[i] for i in ids)})", label)
    blank = ids.index(BLANK)
    before, after = (" ".join(vocabulary[i] for i in part) for part in (ids[:blank], ids[blank + 1 :]))
    return Sentence(before, after, label)


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
