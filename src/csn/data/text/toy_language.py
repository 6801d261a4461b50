"""The embedded text: a made-up language in which the neighbours of a word tell what kind of word it is. No download.

Every content word belongs to a kind (noun, verb, adjective) and a topic. Its letters show neither. A sentence

    DET [ADJ] NOUN VERB DET [ADJ] NOUN [PREP DET NOUN]

has a topic. Its subject and verb belong to this topic, and its object to the topic that the verb requires. Adjectives
have the topic of their noun, and the preposition that of the verb. Now and then any of them has another topic, and a
few words are the marker of a rare word, as in other texts. A single sentence therefore says much about its blanked
word, and the relation of a word to its neighbours can be learned from other words.

The same seed gives the same sentences on every machine: each sentence is made from one row of uniform numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import numpy as np

from csn.data.source import Dataset
from csn.data.text.running import RunningText, running_text
from csn.data.text.sentences import MARKERS, draw_words, sentence_counts, text_dataset
from csn.networks.sentences import UNKNOWN

Kind = Literal["noun", "verb", "adjective", "preposition"]
TOPICS = 8
WORDS: dict[Kind, int] = {"noun": 40, "verb": 20, "adjective": 20, "preposition": 1}  # of every topic
DETERMINERS = ("da", "de", "di")
FAITHFUL = 0.9  # how often a word has the topic that its place requires
RARE = 0.03  # how often a content word is the marker of a rare word
HELD_OUT_RANGE = (10, 400)  # sentences; this allows all but the rarest content words, and no determiner
_NUMBERS = 48  # uniform numbers that a sentence may use


def load_toy_language(*, seed: int = 0, sentences: int = 8000, test_words: int = 60, **options: Any) -> Dataset:
    """`sentences` sentences as classes of blanked words, x: (r, 2 reach + 1) int64; sentences.py has the rules.

    No sentence is longer than 11 words, so the default reach of 10 cuts nothing. The options are
    those of `text_dataset`.
    """
    text = toy_sentences(seed=seed, sentences=sentences)
    held_out = draw_words(sentence_counts(text), test_words, HELD_OUT_RANGE, seed=seed)
    defaults = {"val_words": 30, "val_range": HELD_OUT_RANGE, "seed": seed, "vocabulary_min": 2, "reach": 10}
    return text_dataset("toy-language", text, held_out, **{**defaults, **options})


def toy_text() -> RunningText:
    """The same sentences for a language model, with tasks whose vocabulary knows the held-out words."""
    return running_text(load_toy_language(vocabulary="all"), toy_sentences())


def toy_sentences(*, seed: int = 0, sentences: int = 8000) -> list[list[str]]:
    """The sentences. A longer text begins with all sentences of a shorter one."""
    if seed < 0 or sentences < 1:
        raise ValueError(f"toy-language needs seed >= 0 and sentences >= 1, got {seed} and {sentences}")
    numbers = np.random.default_rng([seed, 1]).random((sentences, _NUMBERS))
    return [list(_sentence(iter(row))) for row in numbers.tolist()]


def _lexicon() -> dict[Kind, tuple[tuple[str, ...], ...]]:
    """Words by kind and topic, two syllables each, in an order that shows neither."""
    syllables = [consonant + vowel for consonant in "bfghjklmnprstvz" for vowel in "aeiou"]
    number = count()
    lexicon: dict[Kind, tuple[tuple[str, ...], ...]] = {}
    for kind, size in WORDS.items():
        # 2371 has no factor in common with the 75 x 75 pairs of syllables: every number gets its own pair.
        pairs = [[divmod(2371 * next(number) % 5625, 75) for _ in range(size)] for _ in range(TOPICS)]
        lexicon[kind] = tuple(tuple(syllables[a] + syllables[b] for a, b in topic) for topic in pairs)
    return lexicon


LEXICON = _lexicon()


def _sentence(numbers: Iterator[float]) -> Iterator[str]:
    """One sentence from a row of uniform numbers."""
    topic = int(TOPICS * next(numbers))
    yield from _noun_phrase(numbers, topic)
    yield _content(numbers, "verb", topic)
    yield from _noun_phrase(numbers, (3 * topic + 1) % TOPICS)
    if next(numbers) < 0.4:
        yield _content(numbers, "preposition", topic)
        yield from _noun_phrase(numbers, (3 * topic + 4) % TOPICS)


def _noun_phrase(numbers: Iterator[float], topic: int) -> Iterator[str]:
    yield DETERMINERS[int(len(DETERMINERS) * next(numbers))]
    if next(numbers) < 0.6:
        yield _content(numbers, "adjective", topic)
    yield _content(numbers, "noun", topic)


def _content(numbers: Iterator[float], kind: Kind, topic: int) -> str:
    """A word of a kind and, mostly, of a topic."""
    rare, stray, other, which, again = (next(numbers) for _ in range(5))
    if rare < RARE:
        return MARKERS[UNKNOWN]
    words = LEXICON[kind][topic if stray < FAITHFUL else int(TOPICS * other)]
    return words[int(len(words) * min(which, again))]  # the smaller of two: early words are more common
