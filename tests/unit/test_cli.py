"""The command line as a user meets it: the whole path on a small data set, and every wrong turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from csn.cli import main as cli
from csn.cli.train import run_with_progress
from csn.config import Config, load_preset, merge, parse_option
from csn.data import registry
from csn.data.images.strokes import load_strokes
from csn.data.registry import DataEntry
from csn.engine.run import new_trainer
from csn.engine.train import Trainer

TINY = ["--set", "network.filters=8", "--set", "train.validation_tasks=20", "--threads", "1", "--way", "5"]


@pytest.fixture(autouse=True)
def _small_strokes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = load_strokes(alphabets=5, characters=8)
    monkeypatch.setitem(registry.DATASETS, "strokes", DataEntry("a few characters", lambda _: small))
    monkeypatch.chdir(tmp_path)


def train(*options: str, out: str = "run") -> int:
    return cli.main(["train", "adacnn-df", "--recipe", "plus", "--data", "strokes", *TINY, "--out", out, *options])


def test_the_path_of_a_newcomer(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--tasks", "40", "--set", "train.validate_every=20") == 0
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert [record["tasks"] for record in log if "validation" in record] == [20, 40]
    assert any(Path("run/tensorboard").iterdir())

    assert cli.main(["evaluate", "run", "--tasks", "20", "--references", "--threads", "1"]) == 0
    result = json.loads(Path("run/result-strokes-test-5w1s.json").read_text())
    assert {name: len(values) for name, values in result["accuracies"].items()} == {
        "trained": 20,
        "untrained": 20,
        "nearest neighbour": 20,
    }
    mean = sum(result["accuracies"]["trained"]) / 20
    assert result["summary"]["trained"]["accuracy"] == pytest.approx(mean, abs=1e-6)
    assert f"{100 * mean:.2f} ±" in capsys.readouterr().out
    assert result["evaluation"]["seed"] == 2018
    assert set(result["trained"]) >= {"command", "commit", "machine", "validation_curve", "seconds"}

    assert cli.main(["report", "run"]) == 0
    assert {path.name for path in Path("run/report").iterdir()} >= {"report.md", "learning_curve.png", "episode.png"}
    assert cli.main(["show", "--run", "run", "--out", "picture.png"]) == 0
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


def test_fewer_ways_more_shots_and_hard_attention_than_trained() -> None:
    train("--tasks", "4")
    options = ["--way", "3", "--shot", "2", "--attention", "hard", "--tasks", "10", "--out", "hard.json"]
    assert cli.main(["evaluate", "run", *options]) == 0
    setting = json.loads(Path("hard.json").read_text())["evaluation"]
    assert (setting["way"], setting["shot"], setting["attention"]) == (3, 2, "hard")


def test_resuming_equals_never_having_stopped(monkeypatch) -> None:
    monkeypatch.setattr("csn.core.shortcuts.products._probed", "torch")  # two processes may find another one faster
    train("--tasks", "20", "--set", "train.validate_every=10", out="whole")
    script = [sys.executable, "-c", _STOPPED_AFTER_10]
    assert subprocess.run(script, check=False).returncode == 130
    assert train("--tasks", "20", "--set", "train.validate_every=10", "--resume", out="parts") == 0
    assert Path("parts/best.safetensors").read_bytes() == Path("whole/best.safetensors").read_bytes()
    assert Path("parts/last.safetensors").read_bytes() == Path("whole/last.safetensors").read_bytes()
    logs = {run: list(map(json.loads, Path(run, "log.jsonl").read_text().splitlines())) for run in ("whole", "parts")}
    curves = {run: [(r["tasks"], r["validation"]) for r in log if "validation" in r] for run, log in logs.items()}
    assert curves["parts"] == curves["whole"]


_STOPPED_AFTER_10 = f"""
import os, signal, sys
from csn.cli import main as cli
from csn.data import registry
from csn.data.registry import DataEntry
from csn.core.shortcuts import products
from csn.data.images.strokes import load_strokes
from csn.engine import train
products._probed = "torch"
small = load_strokes(alphabets=5, characters=8)
registry.DATASETS["strokes"] = DataEntry("", lambda _: small)
step = train.Trainer._step
def counted(self):
    report = step(self)
    if self.tasks == 10:
        os.kill(os.getpid(), signal.SIGINT)
    return report
train.Trainer._step = counted
sys.exit(cli.main(["train", "adacnn-df", "--recipe", "plus", "--data", "strokes", *{TINY!r}, "--out", "parts",
                   "--tasks", "20", "--set", "train.validate_every=10", "--threads", "1"]))
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "adacnn"], "unknown preset 'adacnn': did you mean 'adacnn-df'?"),
        (["train", "adacnn-df", "--data", "mnist"], "unknown data set 'mnist': did you mean 'omniglot'?"),
        (["train", "adacnn-df", "--set", "train.rate=1"], "train has no option 'rate'"),
        (["train", "adacnn-df", "--set", "train.tasks=many"], "option 'train.tasks' takes a whole number, got 'many'"),
        (["train", "adacnn-df", "--set", "tasks"], "SECTION.NAME=VALUE"),
        (["train", "adacnn-df", "--tasks", "0"], "train.tasks must be at least 1, got 0"),
        (["train", "adacnn-df", "--way", "1"], "way >= 2"),
        (["train", "adacnn-df", "--way", "99"], "99-way"),
        (["train", "adacnn-df", "--device", "abacus"], "device 'abacus' is not available"),
        (["train", "adacnn-df", "--threads", "0"], "--threads must be at least 1"),
        (["evaluate", "nowhere"], "there is no checkpoint"),
        (["report", "nowhere"], "nowhere"),
        (["data", "get"], "needs a path or the name of a data set"),
        (["data", "check", "mnist"], "unknown data set"),
    ],
)
def test_bad_input_is_said_clearly_and_nothing_is_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "train" and "--data" not in arguments:
        arguments = [*arguments, "--data", "strokes"]
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_an_unknown_option_exits_with_2() -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "adacnn-df", "--speed", "fast"])
    assert stopped.value.code == 2


def test_a_folder_in_use_and_another_configuration_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    train("--tasks", "4")
    before = Path("run/last.safetensors").read_bytes()
    assert train("--tasks", "4") == 2
    assert "resume its run with --resume" in capsys.readouterr().err
    assert train("--tasks", "8", "--resume") == 2  # its rate falls towards the end
    assert "another configuration" in capsys.readouterr().err
    assert Path("run/last.safetensors").read_bytes() == before


def test_a_run_from_before_an_option_existed_goes_on_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_guard(config: Config) -> str:
        options = config.as_dict()
        del options["learner"]["guard"]
        return json.dumps(options)

    with monkeypatch.context() as earlier:
        earlier.setattr(Config, "to_json", without_guard)
        train("--tasks", "4")
    assert train("--tasks", "4", "--resume") == 0
    assert train("--tasks", "4", "--resume", "--set", "learner.guard=false") == 2


def test_a_truncated_checkpoint_and_too_many_ways_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    train("--tasks", "4")
    assert cli.main(["evaluate", "run", "--way", "6"]) == 2
    assert "2 to 5 ways, got 6" in capsys.readouterr().err
    best = Path("run/best.safetensors")
    best.write_bytes(best.read_bytes()[:-100])
    assert cli.main(["evaluate", "run"]) == 2
    assert "truncated" in capsys.readouterr().err


def test_help_comes_without_torch() -> None:
    script = (
        "import sys; from csn.cli import main as cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_a_run_killed_before_its_first_checkpoint_starts_again_on_resume() -> None:
    killed = subprocess.run([sys.executable, "-c", _STOPPED_AFTER_10.replace("SIGINT", "SIGKILL")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not [name for name in os.listdir("parts") if name.endswith(".safetensors")]
    assert train("--tasks", "20", "--set", "train.validate_every=10", "--resume", out="parts") == 0
    assert Path("parts/best.safetensors").exists()


def test_a_result_of_another_test_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    train("--tasks", "4")
    assert cli.main(["evaluate", "run", "--tasks", "10"]) == 0
    path = Path("run/result-strokes-test-5w1s.json")
    before = path.read_bytes()
    assert cli.main(["evaluate", "run", "--tasks", "6"]) == 2
    assert (
        "5w1s.json holds the result of another test (tasks 10, here 6): give --out, or move it away"
        in capsys.readouterr().err
    )
    assert path.read_bytes() == before
    assert cli.main(["evaluate", "run", "--tasks", "10"]) == 0  # the same once more
    assert cli.main(["evaluate", "run", "--tasks", "6", "--attention", "hard"]) == 0
    hard = json.loads(Path("run/result-strokes-test-5w1s-hard.json").read_text())
    assert (hard["evaluation"]["attention"], hard["evaluation"]["tasks"]) == ("hard", 6)


def test_a_model_without_its_history_makes_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    train("--tasks", "4")
    Path("copy").mkdir()
    Path("copy/best.safetensors").write_bytes(Path("run/best.safetensors").read_bytes())
    assert cli.main(["evaluate", "copy"]) == 2
    assert "copy has a model but no log.jsonl and origin.json" in capsys.readouterr().err
    Path("run/origin.json").write_text("{")
    assert cli.main(["evaluate", "run"]) == 2
    assert "origin.json is damaged" in capsys.readouterr().err


def test_a_stop_in_the_last_validation_of_pretraining_is_no_start_of_tasks(tmp_path: Path) -> None:
    small = ["network.filters=4", "data.way=5", "pretrain.epochs=1", "train.tasks=4", "train.validation_tasks=4"]
    config = load_preset("adacnn-df", "plus")
    for change in small:
        config = merge(config, parse_option(change))
    data = registry.load_data("strokes")
    trainer = new_trainer(config, data, tmp_path / "run", device=torch.device("cpu"))
    first = trainer.first
    assert first is not None
    assert run_with_progress(trainer, lambda: first.done) == "interrupted"
    assert (first.done, trainer.tasks) == (True, 0)
    del trainer
    again = new_trainer(config, data, tmp_path / "run", device=torch.device("cpu"), resume=True)
    assert run_with_progress(again, lambda: False) == "finished"
    assert again.tasks == 4


def test_long_waits_between_validations_are_saved_on_the_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(Trainer, "_save", lambda self: saved.append(self.tasks))
    options = ("--tasks", "4", "--set", "train.tasks_per_step=1", "--set", "train.validate_every=2")
    train(*options, out="often")
    assert saved == [2, 4]
    monkeypatch.setattr("csn.engine.train.SAVE_EVERY", 0)
    train(*options, out="always")
    assert saved[2:] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--seed", "-1"), "train.seed must be at least 0, got -1"),
        (("--set", "train.patience=-1"), "train.patience must be at least 0, got -1"),
        (("--device", "cpu:foo"), "cannot read the device 'cpu:foo'"),
    ],
)
def test_options_that_no_training_has(options: tuple[str, str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--tasks", "4", *options) == 2
    assert why in capsys.readouterr().err
    assert not Path("run").exists()
