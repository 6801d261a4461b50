"""Tasks of blanked words in the terminal: one sentence per line, with the blanks aligned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from csn.data.source import ClassExamples
from csn.engine.answers import Sentence, SentenceTask, sentence_in_words
from csn.plots.drawing import BLUE, ORANGE, RIGHT, WRONG
from csn.plots.sentences import SIDE, around


def sentence_tables(task: SentenceTask, *, title: str = "", width: int = 100) -> Group:
    """The task as tables for a terminal of this width. Weights are summed over the sentences of each label."""
    room = 34 + (4 * len(task.names) if task.answers else 0)  # columns for everything except the sentences
    side = min(SIDE, max(10, (width - room) // 2))
    support, queries = _table(title, "label", "word"), _table("", "", "answer" if task.answers else "word")
    for sentence in task.support:
        support.add_row(str(sentence.label), Text(task.names[sentence.label]), *_cells(sentence, side))
    if task.answers:
        queries.add_column(" ".join(f"{label:3}" for label in range(len(task.names))), justify="right", no_wrap=True)
    for number, sentence in enumerate(task.queries):
        word = task.names[sentence.label]
        if not task.answers:
            queries.add_row("", Text(word), *_cells(sentence, side))
            continue
        answer = task.answers[number]
        right = answer.label == sentence.label
        said = f"{task.names[answer.label]} {100 * answer.probability:.0f} %" + ("" if right else f", is {word}")
        weights = " ".join(f"{100 * weight:3.0f}" for weight in task.by_label(answer))
        mark = Text(RIGHT if right else WRONG, style=BLUE if right else ORANGE)
        queries.add_row(mark, Text(said), *_cells(sentence, side), weights)
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


def _cells(sentence: Sentence, side: int = SIDE) -> list[Text]:
    """The sentence as plain text, because a word may look like markup."""
    return [Text(part) for part in around(sentence, side)]


def class_table(classes: ClassExamples, vocabulary: Sequence[str], count: int, *, title: str = "") -> Table:
    """`count` words spread evenly over a split, each with its number of sentences and its first sentence."""
    if not 1 <= count <= len(classes):
        raise ValueError(f"a table shows 1 to {len(classes)} words of this split, got {count}")
    table = _table(title, "word", "sentences")
    starts = np.cumsum(classes.counts) - classes.counts
    for c in np.linspace(0, len(classes) - 1, count).round().astype(int).tolist():
        first = classes.x[int(starts[c])] if classes.counts[c] else None
        sentence = Sentence("", "", c) if first is None else sentence_in_words(first, c, vocabulary)
        table.add_row(Text(classes.names[c]), str(classes.counts[c]), *_cells(sentence))
    return table
