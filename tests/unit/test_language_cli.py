"""The language task on the command line: random and all-inclusive test tasks, the oracle, pictures, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from csn import cli
from csn.data.partition import PartitionSource
from csn.data.toy_language import load_toy_language
from csn.engine.evaluate import EVALUATION_SEED

TINY = ["--data", "toy-language", "--threads", "1", "--set", "train.validation_tasks=10"]
SMALL = ["--set", "model.units=8", "--set", "model.embedding=8"]


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
    assert cli.main(["evaluate", str(run), "--tasks", "5", "--beside", "--threads", "1"]) == 0
    found = result(run / "result-toy-language-test-5w1s.json")
    assert found["evaluation"]["queries"] == 1
    assert found["evaluation"]["formed"] == "random"
    assert {name: len(values) for name, values in found["accuracies"].items()} == {"trained": 5, "untrained": 5}


def test_all_inclusive_evaluation_solves_every_group_of_words_once(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(run), "--all-inclusive", "--shot", "2", "--threads", "1"]) == 0
    found = result(run / "result-toy-language-test-5w2s-all-inclusive.json")
    data = load_toy_language()
    groups = PartitionSource(data, "test", way=5, shot=2, queries=1, seed=EVALUATION_SEED)
    assert len(found["accuracies"]["trained"]) == found["evaluation"]["tasks"] == len(groups) == 12  # 60 words
    assert found["evaluation"]["formed"] == "all-inclusive"
    assert found["evaluation"]["left_out"] == list(groups.left_out)
    assert "12 all-inclusive test tasks" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--all-inclusive", "--tasks", "20"], "leave out --tasks"),
        (["--all-inclusive", "--split", "val", "--queries", "190"], "190 queries a class need 5 classes of 191"),
        (["--all-inclusive", "--split", "val", "--queries", "65"], "makes 1 group of 5 classes, an interval needs"),
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
