"""Few-shot language modelling (section 4.2): an example is a sentence with a blanked word, which is its class.

There are three kinds of words. *Test words* are given, *validation words* are drawn, and all others may be training
classes. Test and validation words are held out: a sentence with such a word is not part of the training text. The
vocabulary is made from the training text alone. Held-out words, and words that occur only next to them, are therefore
out of vocabulary. Each word out of vocabulary has its own negative number. Networks read all of them as UNKNOWN, but a
key may see that support and query share one.

A held-out sentence is an example only once, of the held-out word that occurs in the fewest sentences. So no sentence is
in two splits, and rare words lose the fewest sentences. No sentence is both support and query of a validation or test
task, not even under two different words (in Vinyals et al. 2016 support and query do not overlap either). A training
sentence is an example of every training word in it, because little text would be left otherwise. A training task may
therefore contain it twice, under two words. That reveals only that the answer is not the other word.

Identical sentences are used once, because a support could contain its query otherwise. Sentences of one word are left
out, because nothing surrounds the blank.

A row has the words up to `reach` steps before and after the blank. Words further away are cut off, and PAD fills the
places beyond the sentence. The blank is at step `reach`. If the blanked word occurs again in its sentence, it is
UNKNOWN there, as a held-out word would be anyway. So every row has exactly one BLANK, and nothing reveals the word.
Outside the training text, words out of vocabulary are -1, -2, ... In the training text, held-out words are hidden.

Shape letters: `r` examples, `T` = 2 reach + 1 steps.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from csn.data.source import ClassExamples, Dataset, Split
from csn.networks.sentences import BLANK, PAD, UNKNOWN

MARKERS = (
    "<pad>",
    "<blank>",
    "<unk>",
)  # names of PAD, BLANK and UNKNOWN; as words of a text they are read as UNKNOWN and never blanked
Vocabulary = Literal["training", "all"]
HeldOutFrom = Literal["all", "more"]
TrainingText = Literal["free", "masked"]
Sentences = Iterable[Sequence[str]]
Ints = NDArray[np.int64]
SPLIT_SEED = 2018
_ROWS = 2048  # rows made at a time; their intermediate arrays stay in the cache


def text_dataset(
    name: str,
    sentences: Sentences,
    test_words: Collection[str],
    *,
    more: Sentences = (),
    val_words: int = 200,
    val_range: tuple[int, int] = (6, 100),
    seed: int = SPLIT_SEED,
    never: Collection[str] = (),
    class_min: int = 4,
    vocabulary_min: int = 1,
    vocabulary: Vocabulary = "training",
    held_out_from: HeldOutFrom = "all",
    training_text: TrainingText = "free",
    reach: int = 20,
) -> Dataset:
    """Sentences as classes of blanked words, x: (r, T) int64 word numbers. PAD, BLANK and UNKNOWN come first.

    Args:
        name: The name of the data set.
        sentences: The text, as lists of words.
        test_words: The classes of the test split.
        more: Sentences that may be held-out examples but not training text.
        val_words: How many validation words to draw. Each removes its sentences from the training text.
        val_range: The least and most sentences in which a validation word occurs.
        seed: Seed of the draw of validation words.
        never: Words that are never a class.
        class_min: The least sentences of a training class. Below shot + queries, a class is of no use.
        vocabulary_min: The least training sentences of a word in the vocabulary.
        vocabulary: "all" to make the vocabulary from all the text, for the oracle. Examples and splits stay the same.
        held_out_from: "more" to take held-out examples from `more` only, for models that have read `sentences`. Words
            and training text stay the same.
        training_text: "masked" to train on all of `sentences`, with held-out words UNKNOWN. It is far more text, and
            it shows the surroundings of held-out words. It needs held_out_from "more", so that tests stay unread.
        reach: Words on either side of the blank.
    """
    _check_numbers(reach=(reach, 1), class_min=(class_min, 2), vocabulary_min=(vocabulary_min, 1))
    _check_choices(vocabulary, held_out_from, training_text)
    text = _Text.of(sentences, more)
    _check_test_words(name, text, test_words)
    never_val = {*test_words, *never}
    drawn = draw_words(text.counts(), val_words, val_range, seed=seed, never=never_val, purpose="validation")
    held_out: dict[Split, tuple[str, ...]] = {"val": drawn, "test": tuple(sorted(test_words))}
    numbers = {split: text.numbers(words) for split, words in held_out.items()}
    splits, left = _divided(text, numbers, held_out_from, training_text)
    rest = np.flatnonzero(left[text.sentence])
    in_sentences = np.bincount(text.word[rest], minlength=len(text.words))
    in_sentences[np.concatenate(list(numbers.values()))] = 0  # masked words must stay unknown
    ids = _number(text, text.frequency if vocabulary == "all" else in_sentences, vocabulary_min)
    classes = (in_sentences >= class_min) & ~np.isin(np.arange(len(text.words)), text.numbers([*MARKERS, *never]))
    held_out["train"] = tuple(sorted(text.words[word] for word in np.flatnonzero(classes)))
    _check_training_words(name, held_out, class_min, left)
    splits["train"] = rest[classes[text.word[rest]]]
    seen: dict[Split, Ints] = {"train": np.where(ids < 0, UNKNOWN, ids), "val": ids, "test": ids}
    return Dataset(
        name,
        {split: text.examples(splits[split], held_out[split], of, reach) for split, of in seen.items()},
        (*MARKERS, *(text.words[word] for word in np.argsort(ids)[np.sort(ids) > UNKNOWN])),
    )


def _check_training_words(name: str, words: Mapping[Split, tuple[str, ...]], class_min: int, left: np.ndarray) -> None:
    """Raise ValueError unless there is a training class. `left` marks the sentences of the training text."""
    if not words["train"]:
        raise ValueError(
            f"{name} has no training word in {class_min} sentences: without those that have {len(words['test'])} test "
            f"and {len(words['val'])} validation words, {int(left.sum())} of {len(left)} are left. Hold out fewer or "
            f"rarer words"
        )


def draw_words(
    counts: Mapping[str, int],
    number: int,
    sentences: tuple[int, int],
    *,
    seed: int = SPLIT_SEED,
    never: Collection[str] = (),
    purpose: str = "test",
) -> tuple[str, ...]:
    """Draw `number` words from those that occur in sentences[0] to sentences[1] sentences and are not in `never`.

    The result is sorted. Words are chosen by a hash of seed and word, so the draw depends neither on the version of
    NumPy nor on the order of the text.
    """
    least, most = sentences
    passed = {*never, *MARKERS}
    candidates = [word for word, count in counts.items() if least <= count <= most and word not in passed]
    if len(candidates) < number or number < 1:
        raise ValueError(
            f"{number} {purpose} words that occur in {least} to {most} sentences were asked for, but the text has only "
            f"{len(candidates)}: ask for 1 to {len(candidates)}, widen the range or bring more text"
        )
    return tuple(sorted(sorted(candidates, key=lambda w: hashlib.sha256(f"{seed}/{w}".encode()).digest())[:number]))


def sentence_counts(sentences: Sentences) -> dict[str, int]:
    """The number of different sentences that each word occurs in."""
    return _Text.of(sentences, ()).counts()


@dataclass(frozen=True)
class _Text:
    """A text as numbers, with words numbered in order of appearance. A pair is a word's first place in a sentence."""

    words: tuple[str, ...]
    number: dict[str, int]  # of a word
    flat: Ints  # (words of all sentences,) numbers
    starts: Ints  # (sentences + 1,) where in `flat` each begins
    trainable: NDArray[np.bool_]  # (sentences,)
    sentence: Ints  # (pairs,) the pairs are sorted by sentence
    word: Ints  # (pairs,)
    position: Ints  # (pairs,) in `flat`
    frequency: Ints  # (different words,) sentences that hold the word

    @classmethod
    def of(cls, sentences: Sentences, more: Sentences) -> _Text:
        """A text of the different sentences with at least two words, in the order of their first occurrence."""
        unique = dict.fromkeys(tuple(sentence) for sentence in sentences if len(sentence) > 1)
        own = len(unique)
        unique.update(dict.fromkeys(tuple(sentence) for sentence in more if len(sentence) > 1))
        if not unique:
            raise ValueError("a text needs sentences of two words or more, got none: check that it is the right file")
        lengths = np.fromiter(map(len, unique), np.int64, len(unique))
        number: dict[str, int] = defaultdict(count().__next__)  # a new word gets the next number
        flat = np.fromiter(map(number.__getitem__, chain.from_iterable(unique)), np.int64, int(lengths.sum()))
        keys = np.repeat(np.arange(len(unique)), lengths) * len(number) + flat
        pairs, position = np.unique(keys, return_index=True)
        sentence, word = np.divmod(pairs, len(number))
        return cls(
            words=tuple(number),
            number=dict(number),
            flat=flat,
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            trainable=np.arange(len(unique)) < own,
            sentence=sentence,
            word=word,
            position=position,
            frequency=np.bincount(word, minlength=len(number)),
        )

    @property
    def sentences(self) -> int:
        return len(self.trainable)

    def counts(self) -> dict[str, int]:
        return dict(zip(self.words, self.frequency.tolist(), strict=True))

    def numbers(self, words: Iterable[str]) -> Ints:
        """The numbers of those words that occur in the text."""
        return np.array([self.number[word] for word in words if word in self.number], dtype=np.int64)

    def rarest(self, words: Ints) -> Ints:
        """The pair with the rarest word of every sentence that holds any of these words, (sentences,)."""
        pairs = np.flatnonzero(np.isin(self.word, words))
        order = np.lexsort((self.word[pairs], self.frequency[self.word[pairs]], self.sentence[pairs]))
        _, first = np.unique(self.sentence[pairs][order], return_index=True)
        chosen: Ints = pairs[order][first]
        return chosen

    def examples(self, pairs: Ints, names: tuple[str, ...], ids: Ints, reach: int) -> ClassExamples:
        """The examples `pairs` of classes `names`, in that order. A class without examples stays, with a count of 0."""
        rank = np.full(len(self.words), -1)
        rank[self.numbers(names)] = np.arange(len(names))
        pairs = pairs[np.argsort(rank[self.word[pairs]], kind="stable")]
        x = np.empty((len(pairs), 2 * reach + 1), np.int64)
        for row in range(0, len(pairs), _ROWS):
            x[row : row + _ROWS] = self._windows(pairs[row : row + _ROWS], ids, reach)
        return ClassExamples(torch.from_numpy(x), np.bincount(rank[self.word[pairs]], minlength=len(names)), names)

    def _windows(self, pairs: Ints, ids: Ints, reach: int) -> Ints:
        """(r, T) rows of the pairs."""
        position, word = self.position[pairs][:, None], self.word[pairs][:, None]  # (r, 1)
        start, end = self.starts[self.sentence[pairs]][:, None], self.starts[self.sentence[pairs] + 1][:, None]
        steps = position - reach + np.arange(2 * reach + 1)  # (r, T) in `flat`
        inside = (start <= steps) & (steps < end)
        found = self.flat[np.where(inside, steps, position)]
        x = np.where(inside, np.where(found == word, UNKNOWN, ids[found]), PAD)
        x[steps == position] = BLANK
        return x


def _divided(
    text: _Text, numbers: dict[Split, Ints], held_out_from: HeldOutFrom, training_text: TrainingText
) -> tuple[dict[Split, Ints], NDArray[np.bool_]]:
    """Pairs of the held-out splits, and the sentences that are left: the training text, which gives the vocabulary."""
    chosen = text.rarest(np.concatenate([numbers["val"], numbers["test"]]))
    left = text.trainable.copy()
    if training_text == "free":
        left[text.sentence[chosen]] = False
    if held_out_from == "more":
        chosen = chosen[~text.trainable[text.sentence[chosen]]]
    return {split: chosen[np.isin(text.word[chosen], words)] for split, words in numbers.items()}, left


def _number(text: _Text, counts: Ints, least: int) -> Ints:
    """Ids of the words: 3, 4, ... by falling count, then by the alphabet; -1, -2, ... if the count is below `least`.

    The markers of other preprocessings are UNKNOWN: they stand for many words.
    """
    known = [word for word in np.flatnonzero(counts >= max(1, least)).tolist() if text.words[word] not in MARKERS]
    known.sort(key=lambda word: (-counts[word], text.words[word]))
    ids = -1 - np.arange(len(text.words))
    ids[text.numbers(MARKERS)] = UNKNOWN
    ids[known] = np.arange(len(known)) + len(MARKERS)
    return ids


def _check_numbers(**options: tuple[int, int]) -> None:
    for option, (value, least) in options.items():
        if value < least:
            raise ValueError(f"{option} must be at least {least}, got {value}")


def _check_choices(vocabulary: str, held_out_from: str, training_text: str) -> None:
    for option, value, choices in (
        ("vocabulary", vocabulary, get_args(Vocabulary)),
        ("held_out_from", held_out_from, get_args(HeldOutFrom)),
        ("training_text", training_text, get_args(TrainingText)),
    ):
        if value not in choices:
            raise ValueError(f"{option} must be one of {', '.join(choices)}, got {value!r}")
    if training_text == "masked" and held_out_from == "all":
        raise ValueError(
            "training_text 'masked' trains on sentences with held-out words: choose held_out_from 'more' with it"
        )


def _check_test_words(name: str, text: _Text, words: Collection[str]) -> None:
    absent = sorted(set(words) - text.number.keys())
    if absent or not words:
        raise ValueError(
            f"the {len(words)} test words of {name} must occur in its {text.sentences} different sentences of two "
            f"words or more, got {len(absent)} that do not: {', '.join(absent[:5])}"
        )
