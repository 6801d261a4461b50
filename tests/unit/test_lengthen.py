"""A run that goes on after its end is the longer one, to the bit, and its files say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from csn.cli import main as cli
from csn.config import Config, TrainConfig
from csn.data import registry
from csn.data.images.strokes import load_strokes
from csn.data.registry import DataEntry
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.engine.lengthen import lengthened

TINY = ["--set", "network.filters=4", "--set", "train.validation_tasks=8", "--threads", "1", "--data", "strokes"]
TINY += ["--set", "train.validate_every=4", "--set", "learner.feedback=end-to-end"]


@pytest.fixture(autouse=True)
def _small_strokes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = load_strokes(alphabets=5, characters=8)
    monkeypatch.setitem(registry.DATASETS, "strokes", DataEntry("a few characters", lambda _: small))
    monkeypatch.chdir(tmp_path)


def train(out: str, tasks: int, *options: str) -> int:
    return cli.main(["train", "adacnn-df", *TINY, "--tasks", str(tasks), "--out", out, *options])


def read(path: str) -> dict:
    return json.loads(Path(path).read_text())


def test_eight_tasks_lengthened_to_sixteen_equal_sixteen_to_the_bit() -> None:
    assert train("short", 8) == 0
    assert train("short", 16, "--resume") == 0
    assert train("straight", 16) == 0
    (ours, said), (theirs, expected) = (load_checkpoint(Path(run, "last.safetensors")) for run in ("short", "straight"))
    assert said == expected
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    logs = [Path(run, "log.jsonl").read_text().splitlines() for run in ("short", "straight")]
    curves = [[json.loads(line) for line in log if "validation" in line] for log in logs]
    assert [[each["tasks"], each["validation"]] for each in curves[0]] == [
        [each["tasks"], each["validation"]] for each in curves[1]
    ]


def test_the_files_of_a_longer_run_say_what_it_is_now_and_how_it_came_about(capsys: pytest.CaptureFixture[str]) -> None:
    train("run", 8)
    begun = read("run/origin.json")
    # As if no later model were better than the one that was chosen: it too is of the longer training now.
    tensors, metadata = load_checkpoint(Path("run/last.safetensors"))
    save_checkpoint(Path("run/last.safetensors"), tensors, metadata | {"best": 1.0})
    chosen, said = load_checkpoint(Path("run/best.safetensors"))
    train("run", 12, "--resume", "--set", "train.validate_every=8")
    kept, says = load_checkpoint(Path("run/best.safetensors"))
    assert all(torch.equal(kept[name], chosen[name]) for name in chosen)
    assert says["tasks"] == said["tasks"]
    assert says["about"]["config"] == read("run/config.json")
    assert (says["about"]["config"]["train"]["tasks"], said["about"]["config"]["train"]["tasks"]) == (12, 8)
    train("run", 16, "--resume")
    assert [part["commit"] for part in read("run/origin.json")["earlier"]] == 2 * [begun["commit"]]
    assert read("run/origin.json")["earlier"][0] == begun
    cli.main(["evaluate", "run", "--tasks", "8", "--threads", "1", "--out", "result.json"])
    result = read("result.json")
    assert result["config"]["train"]["tasks"] == 16
    assert [tasks for tasks, _ in result["trained"]["validation_curve"]] == [4, 8, 12, 16]
    assert result["trained"]["earlier"][0] == begun
    assert cli.main(["results", "verify", "result.json"]) == 0
    # The commands of every part are shown, with their commits.
    capsys.readouterr()
    assert cli.main(["results", "show", "result.json"]) == 0
    said = capsys.readouterr().out
    assert said.count("    at ") == 4  # three parts of the training, and the test
    assert f"    at {begun['commit']}" in said


def test_a_run_without_files_about_itself_goes_on_too() -> None:
    train("run", 8)
    for name in ("origin.json", "config.json"):
        Path("run", name).unlink()
        assert train("run", 12 if name == "origin.json" else 16, "--resume") == 0
    assert read("run/origin.json")["earlier"] == []


def test_going_on_as_before_changes_no_file() -> None:
    train("run", 8)
    names = ("config.json", "origin.json", "best.safetensors", "last.safetensors")
    before = {name: Path("run", name).read_bytes() for name in names}
    assert train("run", 8, "--resume") == 0
    assert {name: Path("run", name).read_bytes() for name in before} == before


@pytest.mark.parametrize(
    "options",
    [["4"], ["12", "--set", "train.validation_tasks=4"], ["12", "--seed", "1"], ["12", "--set", "network.filters=8"]],
    ids=" ".join,
)
def test_a_run_that_is_not_the_beginning_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    train("run", 8)
    before = {path: path.read_bytes() for path in Path("run").glob("*.*")}
    assert train("run", int(options[0]), "--resume", *options[1:]) == 2
    assert "resume with the options of its training (at a constant rate also for more" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


def test_only_a_whole_number_of_steps_at_a_constant_rate_is_a_beginning() -> None:
    def goes_on(**short: object) -> bool:
        config = Config(train=TrainConfig(**{"tasks": 8, "tasks_per_step": 4} | short))  # type: ignore[arg-type]
        return lengthened(config, Config(train=TrainConfig(tasks=16, tasks_per_step=4))).train.tasks == 16

    assert goes_on()
    assert not goes_on(tasks=10)
    assert not goes_on(schedule="cosine")
    assert not goes_on(tasks=20)
