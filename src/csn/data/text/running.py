"""Whole sentences for a language model: all of a text, including held-out words and their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csn.data.source import Dataset
from csn.data.text.sentences import MARKERS
from csn.networks.sentences import PAD, UNKNOWN

LONGEST = 100  # words of a sentence; further words are cut off
VALIDATION_EVERY = 20  # if a text has no validation sentences, every 20th sentence becomes one


@dataclass(frozen=True)
class RunningText:
    """Sentences of training and validation as word ids, (sentences, longest) int64 with PAD after the words.

    tasks: few-shot tasks from the same text, in the same vocabulary, which knows the held-out words.
    """

    tasks: Dataset
    train: Tensor
    val: Tensor

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of the ids."""
        assert self.tasks.vocabulary is not None
        return self.tasks.vocabulary


def running_text(
    tasks: Dataset, train: Sequence[Sequence[str]], val: Sequence[Sequence[str]] | None = None
) -> RunningText:
    """Sentences as ids of the vocabulary of `tasks`.

    Args:
        tasks: Few-shot tasks from the same text.
        train: Training sentences.
        val: Validation sentences; None takes every 20th training sentence.
    """
    if tasks.vocabulary is None:
        raise ValueError(f"{tasks.name} has no words: a language model needs a text")
    if val is None:
        train, val = (
            [sentence for number, sentence in enumerate(train, start=1) if (number % VALIDATION_EVERY == 0) == kept]
            for kept in (False, True)
        )
    if not train or not val:
        raise ValueError(
            f"a language model needs sentences for training and validation, but {tasks.name} has {len(train)} and "
            f"{len(val)}: bring at least {VALIDATION_EVERY} sentences"
        )
    ids = {word: number for number, word in enumerate(tasks.vocabulary) if number >= len(MARKERS)}
    return RunningText(tasks, _encoded(train, ids), _encoded(val, ids))


def _encoded(sentences: Sequence[Sequence[str]], ids: dict[str, int]) -> Tensor:
    """(sentences, longest)."""
    rows = np.full((len(sentences), min(LONGEST, max(map(len, sentences)))), PAD)
    for row, sentence in zip(rows, sentences, strict=True):
        row[: len(sentence)] = [ids.get(word, UNKNOWN) for word in sentence[:LONGEST]]
    return torch.from_numpy(rows)
