"""Learners side by side: the whole command on a small data set, what it uses again, and every wrong turn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from csn.cli import main as cli
from csn.data.images.strokes import load_strokes
from csn.data.registry import DATASETS, DataEntry, load_data
from csn.data.text.toy_language import load_toy_language
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.engine.evaluate import summarise
from csn.engine.steps import ratios
from csn.experiments import compare
from csn.experiments.pages import comparison_table
from csn.experiments.records.protocol import tasks_like
from csn.experiments.timing.floor import Floor

SMALL = ["--set", "network.filters=8", "--set", "train.tasks_per_step=4", "--threads", "1"]
FEW = ["--tasks", "8", "--queries", "2", "--test-tasks", "10", "--test-queries", "3", "--repeats", "3", "--way", "3"]


@pytest.fixture(autouse=True)
def _small_strokes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = load_strokes(alphabets=5, characters=8)
    monkeypatch.setitem(DATASETS, "strokes", DataEntry("a few characters", lambda _: small))
    monkeypatch.setattr(compare, "VALIDATION_TASKS", 4)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, small: Sequence[str] = SMALL) -> int:
    return cli.main(["compare", *arguments, *small])


def prototypical() -> compare.Contender:
    (contender,) = compare.contenders(
        ["prototypical"],
        Path("side"),
        recipe="plus",
        data="strokes",
        way=3,
        shot=1,
        queries=2,
        tasks=8,
        seed=0,
        changes=["network.filters=8"],
    )
    return contender


def test_a_table_a_plot_and_result_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prototypical", "finetune-linear:paper", *FEW, "--out", "side", "--results", "kept") == 0
    shown = capsys.readouterr().out
    content = json.loads(Path("side/comparison.json").read_text())
    learners = {row["learner"]: row for row in content["rows"]}
    assert set(learners) == {"prototypical", "finetune-linear:paper", "nearest neighbour"}
    assert [row["accuracy"] for row in content["rows"]] == sorted(
        (r["accuracy"] for r in content["rows"]), reverse=True
    )
    for name, folder in (("prototypical", "prototypical"), ("finetune-linear:paper", "finetune-linear-paper")):
        result = json.loads(Path("side", folder, "result.json").read_text())
        accuracy = summarise(result["accuracies"]["trained"])
        assert learners[name]["accuracy"] == pytest.approx(accuracy.mean, abs=1e-5)
        assert str(accuracy) in shown
        assert result["evaluation"]["tasks"] == 10
        assert result["config"]["train"]["tasks"] == learners[name]["training"]["tasks"] == 8
        for phase in ("train", "inference"):
            low, middle, high = learners[name]["time"][phase]
            assert 0 < low <= middle <= high
    assert "train" not in learners["nearest neighbour"]["time"]
    assert Path("side/comparison.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(Path("kept/compare/side.json").read_text()) == content
    assert Path("kept/compare/side.png").read_bytes() == Path("side/comparison.png").read_bytes()
    for folder in ("prototypical", "finetune-linear-paper"):
        assert (
            Path("kept/compare/side", f"{folder}.json").read_bytes() == Path("side", folder, "result.json").read_bytes()
        )
    lines = comparison_table(content["rows"], "results/side").splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [f"| {row['learner']}" for row in content["rows"]]
    shown_accuracy = str(summarise(result["accuracies"]["trained"])).removesuffix(" %")
    (line,) = (line for line in lines if "finetune-linear:paper" in line)
    assert f"| {shown_accuracy} | 8 |" in line
    assert line.endswith("[result](results/side/finetune-linear-paper.json) |")


def test_what_is_up_to_date_is_used_again_and_another_budget_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prototypical", *FEW, "--out", "side") == 0
    before = {path: path.read_bytes() for path in Path("side/prototypical").glob("*.*")}
    capsys.readouterr()
    assert run("prototypical", "siamese", *FEW, "--out", "side") == 0
    assert "prototypical: already trained" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before
    assert run("prototypical", *FEW[2:], "--tasks", "12", "--out", "side") == 2
    assert "another number of tasks" in capsys.readouterr().err


def test_a_result_is_of_the_model_whose_bytes_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("prototypical", *FEW, "--out", "side") == 0
    result, best = Path("side/prototypical/result.json"), Path("side/prototypical/best.safetensors")
    before = result.read_text()
    os.utime(result, ns=(1, 1))  # as if the clock had been set back in between
    assert run("prototypical", *FEW, "--out", "side") == 0
    assert result.read_text() == before
    tensors, metadata = load_checkpoint(best)
    save_checkpoint(best, {name: tensor * 2 for name, tensor in tensors.items()}, metadata)
    os.utime(best, ns=(1, 1))
    assert run("prototypical", *FEW, "--out", "side") == 0
    assert result.read_text() != before


def test_a_run_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from csn.cli import train

    with monkeypatch.context() as patch:
        patch.setattr(train.TrainingLoop, "run", lambda *_: "interrupted")
        assert run("prototypical", *FEW, "--out", "side") == 130
    assert "continue with the same command" in capsys.readouterr().out
    assert run("prototypical", *FEW, "--out", "side") == 0
    assert Path("side/comparison.json").exists()


def test_a_budget_in_seconds_becomes_tasks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_data("strokes")
    contender = prototypical()
    clock = iter(range(1000))  # every step takes a second
    monkeypatch.setattr("csn.experiments.compare.time.perf_counter", lambda: float(next(clock)))
    cpu = torch.device("cpu")
    bought = compare.bought_for(contender, data, 10.0, cpu)
    assert bought.config.train.tasks == 10 * contender.config.train.tasks_per_step
    assert bought.config.train.validate_every == bought.config.train.tasks // compare.VALIDATIONS
    bought.folder.mkdir(parents=True)
    (bought.folder / "config.json").write_text(bought.config.to_json())
    monkeypatch.setattr("csn.experiments.compare.seconds_of_task", lambda *_: pytest.fail("measured again"))
    assert compare.bought_for(contender, data, 99.0, cpu) == bought


def test_ratios_are_to_the_first_and_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def lasting(seconds: float):
        def step() -> torch.Tensor:
            nonlocal now
            now += seconds
            return torch.zeros(())

        return step

    monkeypatch.setattr("csn.engine.steps.time.perf_counter", lambda: now)
    found = ratios({"floor": lasting(0.1), "twice": lasting(0.2), "half": lasting(0.05)}, repeats=4)
    assert found["floor"] == [1.0] * 4
    assert found["twice"] == pytest.approx([2.0] * 4)
    assert found["half"] == pytest.approx([0.5] * 4)


def test_the_floor_sends_gradients_through_both_networks() -> None:
    contender = prototypical()
    data = load_data("strokes")
    floor = compare._floor(contender.config, data)
    assert isinstance(floor, Floor)
    floor(tasks_like(contender.config, data, "train", queries=5, seed=0).batch(0, 1)).loss.backward()
    assert all((parameter.grad != 0).any() for parameter in floor.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet"], "unknown preset 'resnet'"),
        (["prototypical:worst"], "unknown recipe 'worst'"),
        (["prototypical", "prototypical"], "compared once"),
        (["lstm-lm"], "running text"),
        (["adalstm-1-df"], "does not read images"),
        (["prototypical", "--way", "99"], "99-way"),
        (["prototypical", "--tasks", "1"], "--tasks must be at least 2"),
        (["prototypical", "--budget", "soon"], "cannot read the budget 'soon'"),
        (["prototypical", "--data", "mnist"], "unknown data set 'mnist'"),
    ],
)
def test_bad_input_is_said_before_anything_is_trained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = SMALL if "prototypical" in arguments[0] else ()
    assert run(*arguments, "--out", "side", small=small) == 2
    assert message in capsys.readouterr().err
    assert not list(Path().rglob("*.safetensors"))


def test_sentences_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "toy-language", DataEntry("", lambda _: load_toy_language()))
    options = [*FEW[:4], "--test-tasks", "4", "--repeats", "3", "--way", "3", "--data", "toy-language", "--out", "side"]
    tiny = ["--set", "network.units=8", "--set", "network.embedding=5", *SMALL[2:]]
    assert run("matching-sentences", *options, small=tiny) == 0
    (row,) = json.loads(Path("side/comparison.json").read_text())["rows"]
    assert row["learner"] == "matching-sentences"


@pytest.mark.parametrize("change", ["train.tasks=7", "data.way=3", "train.validate_every=1", "pretrain.epochs=3"])
def test_what_is_the_same_for_all_cannot_be_set(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prototypical", *FEW, "--set", change) == 2
    said = capsys.readouterr().err
    assert f"--set {change.partition('=')[0]}: the same for all learners of a comparison" in said


def test_a_shorter_comparison_is_not_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    constant = ["adacnn-df:paper", "--out", "side", *FEW]
    assert run(*constant) == 0
    before = Path("side/adacnn-df-paper/last.safetensors").read_bytes()
    assert run(*constant, "--tasks", "16") == 2
    assert "is a run of other options or another number of tasks" in capsys.readouterr().err
    assert Path("side/adacnn-df-paper/last.safetensors").read_bytes() == before


def test_a_stop_in_the_last_validation_of_a_learner_leaves_out_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = False

    def finished(*_: object) -> str:
        nonlocal asked
        asked = True  # by Ctrl-C, after the last look at it
        return "finished"

    @contextmanager
    def stop_signal() -> Iterator[Callable[[], bool]]:
        yield lambda: asked

    monkeypatch.setattr("csn.cli.compare.stop_signal", stop_signal)
    monkeypatch.setattr("csn.cli.compare.run_with_progress", finished)
    assert run("prototypical", "matching", *FEW, "--out", "side") == 130
    assert [path.name for path in Path("side").iterdir()] == ["prototypical"]
