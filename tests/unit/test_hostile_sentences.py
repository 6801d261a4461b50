"""Sentences, their tables and what is printed of them, as an attacker writes them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_encoders import needs_text

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.cache import DiskCache
from csn.classifier.encoders.encoder import Encoder
from csn.classifier.inputs import prepare
from csn.cli import main as cli
from csn.cli.inputs import labelled, unlabelled
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.experiments.tables.exports import table_files
from csn.learner import InputSpec
from csn.printable import cell, csv_text, json_text, printable


def as_vectors(sentences: list[str]) -> np.ndarray:
    return np.array([[len(sentence), 1.0] for sentence in sentences])


@pytest.mark.parametrize("length", [256, 4000])
def test_a_sentence_longer_than_a_file_name_is_learned(length: int) -> None:
    classifier = FewShotClassifier(encoder=as_vectors).fit(["x" * length, "y"], ["long", "short"])
    assert classifier.predict(["x" * length]).tolist() == ["long"]


@needs_text
@pytest.mark.parametrize("text", ["\0", "\x01\x02", "\ufeff", "\u200d" * 10, " " * 40_000 + "hello"])
def test_a_text_without_a_word_is_refused(text: str) -> None:
    classifier = FewShotClassifier(encoder="text", cache=False)
    with pytest.raises(ValueError, match=r"input 1 .* no letter, digit or sign"):
        classifier.fit(["a sentence", text], ["a", "b"])


@needs_text
@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "w " * 499_999,
        "e" + "\u0301\u0323" * 50_000,
        "\u202eevil\u202d",
        "a\0b",
        "[PAD] [CLS]",
        "👩‍👩‍👧‍👦" * 1000,
    ],
    ids=["100,000 letters", "half a million words", "accents", "reversed", "NUL", "names of pieces", "joined"],
)
def test_odd_texts_are_vectors_of_length_one(text: str) -> None:
    found = FewShotClassifier(encoder="text", cache=False).fit([text, "b"], [0, 1]).transform([text])
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)


@needs_text
def test_half_a_character_is_named() -> None:
    classifier = FewShotClassifier(encoder="text", cache=False)
    with pytest.raises(ValueError, match="input 1 holds half a character"):
        classifier.fit(["a", "b \ud800"], [0, 1])


def test_a_cache_that_cannot_be_looked_at_prevents_no_answer(tmp_path: Path) -> None:
    cache = DiskCache("encoder", tmp_path / ("x" * 300) / "embeddings.sqlite")  # as in a folder that is not one's own
    assert cache.get([b"key"]) == {}
    with pytest.warns(UserWarning, match="embeddings cannot be kept"):
        cache.put({b"key": np.ones(2, dtype=np.float32)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nhello, world,greet\nbye,part\n", "line 2, has more fields than the header: put quotes"),
        ('text,label\n"two\nlines",a\nb\n', "line 4, has fewer fields"),
        ("text,label,label\na,b,c\n", "has 2 columns label: rename all but one"),
        ("text,text,label\na,b,c\n", "has 2 columns text: rename all but one"),
        ("text,label\na,b\nc,\n", "has no label in row 2 below its header"),
        ("text,label\na,b\nc, \t\n", "has no label in row 2 below its header"),
        ("text,label\na,b\n".encode("utf-16"), "is not a CSV file in UTF-8"),
        ("text;label\na;b\n", "has no column label or class"),
        ('text,label\n"a"b,c\n', "is not a CSV file in UTF-8"),
    ],
)
def test_a_table_that_would_be_misread_is_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        labelled(path, "text", None)


def test_labels_differ_by_more_than_blanks_around_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,star\nb, star \n", encoding="utf-8")
    assert labelled(tmp_path / "t.csv", "text", None).labels == ["star", "star"]


def test_thousands_of_columns_are_read(tmp_path: Path) -> None:
    header, row = (",".join(f"{name}{i}" for i in range(5000)) for name in ("c", ""))
    (tmp_path / "t.csv").write_text(f"{header},text,label\n{row},a b,x\n", encoding="utf-8")
    assert labelled(tmp_path / "t.csv", "text", None)[:2] == (["a b"], ["x"])


LINES = "\ufeffone\u2028still one\x85and\x0bthis\r\n\r\ntwo\rthree\n"


def test_a_file_and_standard_input_have_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.txt").write_bytes(LINES.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINES.encode())))
    found = unlabelled([str(tmp_path / "t.txt")], "text")
    assert found.items == ["one\u2028still one\x85and\x0bthis", "two", "three"]
    assert unlabelled(["-"], "text") == found


def test_a_byte_order_mark_is_no_part_of_a_label(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.eye(2))
    (tmp_path / "l.txt").write_bytes("\ufeffa\na\n".encode())
    assert labelled(tmp_path / "v.npy", "none", tmp_path / "l.txt").labels == ["a", "a"]


def test_standard_input_in_another_encoding_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n")))
    with pytest.raises(ValueError, match="standard input is not text in UTF-8"):
        unlabelled(["-"], "text")


FORMULAS = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "\uff1d1+1"]


def test_a_spreadsheet_computes_no_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = FewShotClassifier(encoder=None).fit(np.eye(len(FORMULAS)), FORMULAS)
    classifier.save(tmp_path / "task.csn")
    np.save(tmp_path / "v.npy", np.eye(len(FORMULAS)))
    arguments = ["predict", str(tmp_path / "task.csn"), str(tmp_path / "v.npy"), "--top", "6"]
    assert cli.main([*arguments, "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert [row[1] for row in rows[1:]] == ["'" + label for label in FORMULAS]
    assert not [part for row in rows for part in row if part.startswith(tuple("=@\t\uff1d"))]
    assert cli.main([*arguments, "--json"]) == 0
    assert [answer["label"] for answer in json.loads(capsys.readouterr().out)] == FORMULAS


def test_numbers_stay_numbers_in_a_table() -> None:
    assert [cell(value) for value in ("-1", "+2.5", -3, 0.5, "-inf", "plain")] == [
        "-1",
        "+2.5",
        "-3",
        "0.5",
        "-inf",
        "plain",
    ]


def test_a_spreadsheet_computes_nothing_of_a_result_file(tmp_path: Path) -> None:
    real = Path(__file__).resolve().parents[2] / "results/ablation/penn-treebank-5w1s-adalstm-1-df-plus-baseline.json"
    content = json.loads(real.read_text(encoding="utf-8"))
    for folder in ("ablation", "others"):
        (tmp_path / folder).mkdir()
        for seed, hostile in enumerate(FORMULAS):
            content["trained"]["commit"], content["config"]["train"]["seed"] = hostile, seed
            (tmp_path / folder / f"={seed}.json").write_text(json.dumps(content))
        text = table_files(tmp_path / folder, skip=print)[tmp_path / folder / f"{folder}.csv"].decode()
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["commit"] for row in rows] == ["'" + hostile for hostile in FORMULAS]
        assert [row["file"] for row in rows] == [f"'={seed}.json" for seed in range(len(FORMULAS))]
        assert float(rows[0]["accuracy"]) == pytest.approx(100 * content["summary"]["trained"]["accuracy"], abs=0.01)
        assert not [part for row in rows for part in row.values() if part.startswith(tuple("=+-@\t\r"))]


def test_numbers_below_zero_stay_numbers_in_the_table_of_an_ablation() -> None:
    assert csv_text([["a", None, -0.25, "+0.00", "-10.00"], ["-x", "\r=1", "\n@a", 3, 1e-7]]) == (
        "a,,-0.25,+0.00,-10.00\n'-x,'\\x0d=1,\"'\n@a\",3,1e-07\n"
    )


def test_a_terminal_obeys_no_label() -> None:
    label = "\x1b[31m \x9b31m \u202eevil \u2067live \ud800"
    for shown in (printable(label), cell(label), json_text([label])):
        assert all(part not in shown for part in ("\x1b", "\x9b", "\u202e", "\u2067", "\ud800"))
    assert json.loads(json_text([label])) == [label]


WORDS = InputSpec((41,), vocabulary=("<pad>", "<blank>", "<unk>", "a", "b"))


@pytest.mark.parametrize("empty", [[], np.zeros((0, 41), dtype=int), torch.zeros(0, 41, dtype=torch.int64)])
def test_no_sentences_are_refused_as_such(empty: object) -> None:
    with pytest.raises(ValueError, match="no examples: expected at least one sentence"):
        prepare(empty, WORDS)


def test_word_numbers_of_any_type_are_checked() -> None:
    assert prepare(np.full((1, 41), 3, dtype=np.uint64), WORDS).tolist() == [[3] * 41]
    with pytest.raises(ValueError, match=r"whole word numbers \(n, T\) in \[0, 5\)"):
        prepare(np.full((1, 41), 2**64 - 1, dtype=np.uint64), WORDS)


def test_a_long_sentence_makes_a_short_message() -> None:
    with pytest.raises(ValueError, match="exactly one <blank>") as error:
        prepare(["x" * 100_000], WORDS)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("threshold", [10**400, -(10**400)])
@pytest.mark.parametrize("score", ["of an earlier version", None])
def test_a_threshold_that_no_float_can_hold_is_refused(threshold: int, score: str | None, tmp_path: Path) -> None:
    path = tmp_path / "task.csn"
    FewShotClassifier(encoder=None).fit(np.eye(2), ["a", "b"]).save(path)
    tensors, about = load_checkpoint(path)
    save_checkpoint(
        path, tensors, about | {"unknown_threshold": threshold} | ({"unknown_score": score} if score else {})
    )
    with pytest.raises(ValueError, match="does not hold a whole task: its unknown_threshold is"):
        FewShotClassifier.load(path)
    with pytest.raises(ValueError, match="unknown_threshold is a number"):
        FewShotClassifier(encoder=None, unknown_threshold=threshold).fit(np.eye(2), ["a", "b"]).predict(np.eye(2))


def test_keys_that_the_encoder_cannot_have_made_are_refused(tmp_path: Path) -> None:
    path, encoder = tmp_path / "task.csn", Encoder(as_vectors, kind="text", fingerprint="lengths")
    FewShotClassifier(encoder=encoder).fit(["one", "three"], ["a", "b"]).save(path)
    about = load_checkpoint(path)[1]
    save_checkpoint(path, {"keys": torch.full((2, 2), 1e300, dtype=torch.float64)}, about)
    with pytest.raises(ValueError, match="its keys are too large for the encoder's precision"):
        FewShotClassifier.load(path, encoder=encoder)
