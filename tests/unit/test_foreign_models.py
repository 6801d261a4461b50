"""Checkpoints of strangers: a right checksum makes no file harmless, and none builds more than it holds."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from csn.cli import main as cli
from csn.data import registry
from csn.data.images.strokes import load_strokes
from csn.data.registry import DataEntry
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.engine.log import read_log
from csn.engine.models import bounded, open_model
from csn.engine.run import open_run

TINY = ["--data", "strokes", "--way", "3", "--tasks", "4", "--threads", "1", "--set", "train.validation_tasks=2"]
TINY += ["--set", "network.filters=4"]


@pytest.fixture(autouse=True)
def _small_strokes(monkeypatch: pytest.MonkeyPatch) -> None:
    small = load_strokes(alphabets=5, characters=8)
    monkeypatch.setitem(registry.DATASETS, "strokes", DataEntry("a few characters", lambda _: small))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        small = load_strokes(alphabets=5, characters=8)
        patch.setitem(registry.DATASETS, "strokes", DataEntry("a few characters", lambda _: small))
        assert cli.main(["train", "adacnn-df", *TINY, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run, to be damaged."""
    for path in trained.glob("*.*"):
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def put(metadata: dict[str, Any], path: str, value: Any) -> None:
    """Set what is at section.name.name of a checkpoint's metadata; a missing last name is added."""
    *sections, name = path.split(".")
    for section in sections:
        metadata = metadata[section]
    metadata[name] = value


CHANGES = [
    ("about", 5),
    ("about", {}),
    ("about.config", []),
    ("about.config", {"model": {}}),
    ("about.config.learner.name", "pickle"),
    ("about.config.learner.g_units", 10**7),
    ("about.config.network.filters", 10**9),
    ("about.config.network.filters", 2**63),
    ("about.config.network.dropout", []),
    ("about.config.network", {"name": "resnet", "filters": 10**6}),
    ("about.config.key", {"name": "network", "size": 10**12}),
    ("about.config.data.way", 10**9),
    ("about.config.data.way", -3),
    ("about.input", None),
    ("about.input", [1, 28]),
    ("about.input", [1, 10**6, 10**6]),
    ("about.input", [1, -28, 28]),
    ("about.input", "abc"),
    ("about.vocabulary", 7),
    ("about.vocabulary", {"size": 10**12}),
]


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=[f"{path}={str(value)[:24]}" for path, value in CHANGES])
def test_what_a_file_says_of_itself_is_checked(run: Path, path: str, value: Any) -> None:
    best = run / "best.safetensors"
    tensors, metadata = load_checkpoint(best)
    metadata = copy.deepcopy(metadata)
    put(metadata, path, value)
    save_checkpoint(best, tensors, metadata)
    with pytest.raises(ValueError):
        open_model(best)
    assert cli.main(["evaluate", str(run), "--tasks", "2"]) == 2


def test_a_network_of_ten_million_layers_is_not_built(run: Path) -> None:
    best = run / "best.safetensors"
    tensors, metadata = load_checkpoint(best)
    metadata["about"]["config"] |= {"network": {"name": "lstm", "layers": 10**7}, "learner": {"name": "matching"}}
    metadata["about"] |= {"input": [7], "vocabulary": {"size": 12, "sha256": "0"}}
    save_checkpoint(best, tensors, metadata)
    before = time.process_time()
    with pytest.raises(ValueError, match="does not hold the model that it describes"):
        open_model(best)
    assert time.process_time() - before < 20  # it would take minutes


@pytest.mark.parametrize("change", ["missing", "renamed", "shape", "kind", "empty"])
def test_tensors_that_do_not_fit_are_refused(run: Path, change: str) -> None:
    best = run / "best.safetensors"
    tensors, metadata = load_checkpoint(best)
    name = next(name for name in tensors if "key_function" in name)
    if change == "missing":
        del tensors[name]
    elif change == "renamed":
        tensors["x"] = tensors.pop(name)
    elif change == "shape":
        tensors[name] = torch.zeros(3)
    elif change == "kind":
        tensors = {"optimizer.0.step": torch.zeros(1)}
    else:
        tensors = {}
    save_checkpoint(best, tensors, metadata)
    with pytest.raises(ValueError, match=r"does not hold the model that it describes|truncated"):
        open_model(best)


@pytest.mark.parametrize(
    ("path", "value"),
    [("about", None), ("tasks", "many"), ("best", []), ("since_best", {}), ("unlogged", [3]), ("about.config", 4)],
)
def test_a_training_does_not_go_on_from_what_it_did_not_write(
    run: Path, path: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    last = run / "last.safetensors"
    tensors, metadata = load_checkpoint(last)
    put(metadata, path, value)
    save_checkpoint(last, tensors, metadata)
    assert cli.main(["train", "adacnn-df", *TINY, "--out", str(run), "--resume"]) == 2
    assert "csn: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["optimizer.x.step", "optimizer.999.step", "optimizer.0", "optimizer.0.step.more"])
def test_an_optimizer_of_another_form_is_refused(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    last = run / "last.safetensors"
    tensors, metadata = load_checkpoint(last)
    save_checkpoint(last, tensors | {name: torch.zeros(1)}, metadata)
    assert cli.main(["train", "adacnn-df", *TINY, "--out", str(run), "--resume"]) == 2
    assert "is not a checkpoint to resume from" in capsys.readouterr().err


@pytest.mark.parametrize("header", ["Infinity", "[" * 9999, '{"format": 1, "sha256": "", "metadata": [NaN]}', "3"])
def test_headers_that_are_no_header(tmp_path: Path, header: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors.torch.save({"a": torch.zeros(1)}, metadata={"csn": header}))
    with pytest.raises(ValueError, match="truncated or not a csn checkpoint"):
        load_checkpoint(path)


def test_logs_and_origins_of_strangers(run: Path) -> None:
    (run / "log.jsonl").write_bytes(b'5\n[]\n{"tasks": "x"}\nnull\n\xff\n{"tasks": 3, "seconds": 1.5}\n' + b"[" * 9999)
    assert read_log(run) == [{"tasks": 3, "seconds": 1.5}]
    for content in ("7", "[" * 9999, "{"):
        (run / "origin.json").write_text(content)
        with pytest.raises(ValueError, match=r"origin\.json is damaged"):
            open_run(run)


@pytest.mark.parametrize("content", [b"", b'{"preset": "ada', bytes(range(256)), b"9" * 5000])
def test_damaged_texts_of_a_run_are_named_or_passed_over(run: Path, content: bytes, capsys) -> None:
    again = ["train", "adacnn-df", *TINY, "--out", str(run), "--resume"]
    (run / "log.jsonl").write_bytes((run / "log.jsonl").read_bytes() + content)
    assert cli.main(again) == 0
    assert [record["tasks"] for record in read_log(run)] == [4]
    (run / "config.json").write_bytes(content)
    capsys.readouterr()
    assert cli.main(again) == 2
    assert "config.json is damaged" in capsys.readouterr().err
    (run / "config.json").unlink()
    assert cli.main(again) == 0  # the checkpoint has it too


@pytest.mark.parametrize("name", ["last", "best"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "folder"])
def test_a_damaged_checkpoint_is_never_gone_on_from(run: Path, name: str, damage: str, capsys) -> None:
    path = run / f"{name}.safetensors"
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(content[: len(content) // 2 if damage == "cut" else 0])
    status = cli.main(["train", "adacnn-df", *TINY, "--out", str(run), "--resume"])
    if (name, damage) == ("last", "missing"):  # killed before its first checkpoint: it begins again
        assert status == 0
        return
    assert status == 2
    assert f"{name}.safetensors" in capsys.readouterr().err


def test_a_part_that_raises_leaves_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from csn.networks.cnn import CNN

    command = ["train", "adacnn-df", *TINY, "--tasks", "8", "--set", "train.validate_every=4"]
    assert cli.main([*command, "--out", str(tmp_path / "whole")]) == 0
    head, calls = CNN.head, []

    def fails(self: CNN, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 12:
            raise RuntimeError("a mistake of the network's author")
        return head(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(CNN, "head", fails)
        with pytest.raises(RuntimeError, match="a mistake of the network's author"):  # whose traceback the author needs
            cli.main([*command, "--out", str(tmp_path / "torn")])
    assert cli.main([*command, "--out", str(tmp_path / "torn"), "--resume"]) == 0
    one, other = (load_checkpoint(tmp_path / name / "last.safetensors")[0] for name in ("whole", "torn"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_names_of_folders(tmp_path: Path, capsys) -> None:
    assert cli.main(["train", "adacnn-df", *TINY, "--out", str(tmp_path / "ein Ordner" / "ünï ☃ '\"$(id)\n")]) == 0
    assert cli.main(["train", "adacnn-df", *TINY, "--out", str(tmp_path / "caf\udce9")]) == 2
    assert "is not UTF-8: choose another folder" in capsys.readouterr().err


def test_the_bound_is_for_one_thread_and_one_moment() -> None:
    with pytest.raises(ValueError, match="more than 1 parameter tensors or 100 numbers"), bounded(1, 100):
        torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="or 5 numbers"), bounded(9, 5):
        torch.nn.Linear(2, 3)
    with bounded(2, 9):
        torch.nn.Linear(2, 3)
    torch.nn.Linear(20, 30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "train.clip=-1"], "train.clip must be a number above 0, got -1"),
        (["--set", "train.clip=0"], "train.clip must be a number above 0, got 0"),
        (["--set", "train.momentum=5"], "train.momentum must be at least 0 and below 1, got 5"),
        (["--set", "train.learning_rate=0"], "train.learning_rate must be a number above 0, got 0"),
        (["--set", "train.learning_rate=NaN"], "train.learning_rate must be a number above 0, got nan"),
        (["--set", "train.augment=-1"], "train.augment must be a number of at least 0, got -1"),
        (["--data", ""], "the data set has an empty name"),
        (["--resume"], "holds no run to resume: leave out --resume"),
        (["--set", "network.filters=9999999999999"], "make it smaller"),
        (["--set", "network.filters=999999"], "this machine has too little memory for that: make it smaller"),
        (["--set", "network.dropout=[]"], "option 'network.dropout' takes 3 numbers, got []"),
        (["--device", "quantum"], "device 'quantum' is not available"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nonsense_is_refused_before_anything_is_written(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "adacnn-df", *TINY, "--out", str(tmp_path / "run"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def load(_: object) -> None:
        raise ModuleNotFoundError("No module named 'pooch'", name="pooch")

    monkeypatch.setitem(registry.DATASETS, "strokes", DataEntry("needs it", load))
    assert cli.main(["train", "adacnn-df", *TINY]) == 2
    assert capsys.readouterr().err == "csn: this command needs the package 'pooch': pip install 'csn[data]'\n"


def test_what_a_killed_run_left_behind_goes_with_the_next_start(run: Path) -> None:
    left = [run / ".last.safetensors.abcd1234", run / ".log.jsonl.00000000", run / ".config.json.x_y_z_12"]
    kept = [run / ".result-strokes-test-3w1s.json.abcd1234", run / ".hidden"]
    for path in (*left, *kept):
        path.write_text("half of it")
    assert cli.main(["train", "adacnn-df", *TINY, "--out", str(run), "--resume"]) == 0
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in kept)


def test_the_log_of_a_resumed_run_has_the_means_of_an_undisturbed_one(tmp_path: Path) -> None:
    from csn.engine import train

    options = ["train", "prototypical", *TINY, "--tasks", "300", "--set", "train.validate_every=150"]
    assert cli.main([*options, "--out", str(tmp_path / "whole")]) == 0
    step, killed = train.Trainer._step, []

    def dies(self: train.Trainer) -> train.StepReport:
        if self.tasks == 180 and not killed:
            killed.append(self.tasks)
            raise KeyboardInterrupt
        return step(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.Trainer, "_step", dies)
        assert cli.main([*options, "--out", str(tmp_path / "torn")]) == 130
        assert cli.main([*options, "--out", str(tmp_path / "torn"), "--resume"]) == 0
    logs = []
    for name in ("whole", "torn"):
        records = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        logs.append([{key: value for key, value in record.items() if key != "seconds"} for record in records])
    assert logs[0] == logs[1]
    assert [record["tasks"] for record in logs[0] if "train" in record] == [100, 200, 300]
