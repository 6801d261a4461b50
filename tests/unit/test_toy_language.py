"""The made-up language: the same everywhere, its splits apart, and a word's neighbours tell which word it is."""

from __future__ import annotations

import hashlib

import pytest
import torch
import torch.nn.functional as F

from csn.data.source import SPLITS, Dataset, EpisodeSource
from csn.data.text.toy_language import DETERMINERS, LEXICON, TOPICS, WORDS, load_toy_language, toy_sentences
from csn.networks.sentences import BLANK, known


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_toy_language()


def test_every_word_is_spelled_in_its_own_way() -> None:
    words = [word for topics in LEXICON.values() for topic in topics for word in topic]
    assert len({*words, *DETERMINERS}) == len(words) + 3 == TOPICS * sum(WORDS.values()) + 3


def test_sentences_are_the_same_everywhere() -> None:
    text = toy_sentences()
    assert (
        hashlib.sha256("\n".join(map(" ".join, text)).encode()).hexdigest()
        == "10a31bfbbd1434fca0087987145d7813ab175f902c0ed78158ede2dcd0a85d8d"
    )
    assert toy_sentences(sentences=50) == text[:50]
    assert toy_sentences(seed=1, sentences=50) != text[:50]
    assert {len(sentence) for sentence in text} == set(range(5, 12))  # 11 words: the default reach cuts nothing


def test_splits(data: Dataset) -> None:
    assert {split: len(data.splits[split]) for split in SPLITS} == {"train": 516, "val": 30, "test": 60}
    again = load_toy_language()
    for split in SPLITS:
        assert torch.equal(again.splits[split].x, data.splits[split].x)
        assert data.splits[split].x.shape[1:] == (21,)
        assert (data.splits[split].x[:, 10] == BLANK).all()
    held_out = {*data.splits["val"].names, *data.splits["test"].names}
    assert len(held_out) == 90
    assert not held_out & {*data.splits["train"].names, *data.vocabulary}
    assert data.splits["test"].counts.min() >= 8  # 3 shots and 5 queries of any word
    assert load_toy_language(seed=1).splits["test"].names != data.splits["test"].names


def test_neighbours_predict_the_word(data: Dataset) -> None:
    """Words in common at the same place, nothing learned: about 45 % at 5 shots, where chance is 20 %."""
    source = EpisodeSource(data, "test", way=5, shot=5, queries=5, seed=0)
    places = [7, 8, 9, 11, 12, 13]
    right = []
    for index in range(100):
        episode = source.batch(index, 1)
        support, query = (
            F.one_hot(known(part.x[0])[:, places], len(data.vocabulary)).flatten(1).float()
            for part in (episode.support, episode.query)
        )
        scores = query @ support.view(5, 5, -1).mean(1).T
        right.append((scores.argmax(1) == episode.query.y[0]).float().mean())
    assert torch.stack(right).mean() > 0.35


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="seed >= 0 and sentences >= 1, got 0 and 0"):
        load_toy_language(sentences=0)
    with pytest.raises(ValueError, match=r"60 test words .* the text has"):
        load_toy_language(sentences=40)
    with pytest.raises(ValueError, match=r"61-way .* need 61 classes"):
        EpisodeSource(load_toy_language(), "test", way=61, shot=1, queries=1, seed=0)
