"""What a learner answers in one task, as numbers and, for sentences, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from csn.data.source import EpisodeSource
from csn.episode import Episode
from csn.learner import FewShotLearner
from csn.networks.sentences import BLANK, PAD, known


@torch.no_grad()
def answers(learner: FewShotLearner[Any], episode: Episode) -> tuple[Tensor, Tensor | None]:
    """Probabilities (m, C), and attention (m, n) if the learner has any. The learner's mode is restored afterwards."""
    training = learner.training
    learner.eval()
    try:
        task = learner.describe(episode.support, episode.way)
        attention = learner.attend(episode.query.x, task)
        answered = learner.predict(episode.query.x, task).softmax(-1)[0]
        return answered, None if attention is None else attention[0]
    finally:
        learner.train(training)


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


def task_in_words(source: EpisodeSource, index: int, learner: FewShotLearner[Any] | None) -> SentenceTask:
    """Episode `index` of a text, with a learner's answers."""
    return sentence_task(source.batch(index, 1), source.data.vocabulary or (), source.class_names(index), learner)


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
