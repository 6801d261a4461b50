"""`csn results verify`: a result file whose checkpoint is there is asked again; what was changed is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from csn.cli.main import main
from csn.data.images.strokes import load_strokes
from csn.engine.evaluate import summarise
from csn.experiments.records.protocol import setting_of, source_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and its result file."""
    folder = tmp_path_factory.mktemp("made")
    sets = ["network.filters=4", "train.validate_every=4", "train.validation_tasks=4"]
    options = [word for change in sets for word in ("--set", change)]
    run, out = str(folder / "run"), str(folder / "result.json")
    assert main(["train", "prototypical", "--way", "5", "--tasks", "4", *options, "--out", run]) == 0
    assert main(["evaluate", run, "--tasks", "6", "--queries", "3", "--references", "--out", out]) == 0
    return folder


def test_a_result_holds(made, capsys):
    assert main(["results", "verify", str(made / "result.json")]) == 0
    assert "6 of 6 tasks equal" in capsys.readouterr().out


def changed(made: Path, tmp_path: Path, change) -> Path:
    content = json.loads((made / "result.json").read_text())
    change(content)
    (tmp_path / "result.json").write_text(json.dumps(content))
    return tmp_path / "result.json"


def test_other_answers_of_the_checkpoint_are_found(made, tmp_path, capsys):
    def lie(content):
        accuracies = content["accuracies"]["trained"]
        accuracies[0], accuracies[1] = accuracies[1] + 0.2, accuracies[0] - 0.2

    def consistent(content):
        lie(content)
        mean, interval = summarise(content["accuracies"]["trained"])
        content["summary"]["trained"] = {"accuracy": mean, "interval": interval}

    assert main(["results", "verify", str(changed(made, tmp_path, consistent))]) == 1
    assert "4 of 6 tasks equal" in capsys.readouterr().out
    assert main(["results", "verify", str(changed(made, tmp_path, lie))]) == 2
    assert "was changed by hand" in capsys.readouterr().err


def test_a_checkpoint_that_is_kept_beside_the_result_is_asked(made, tmp_path, capsys):
    path = changed(made, tmp_path, lambda content: content["trained"].update(run="elsewhere/run"))
    kept = tmp_path / "models" / "run"
    kept.mkdir(parents=True)
    for name in ("best.safetensors", "origin.json"):
        (kept / name).write_bytes((made / "run" / name).read_bytes())
    assert main(["results", "verify", str(path)]) == 0
    assert "6 of 6 tasks equal" in capsys.readouterr().out


def test_a_missing_checkpoint_is_said_with_the_way_to_make_it(made, tmp_path, capsys):
    path = changed(made, tmp_path, lambda content: content["trained"].update(run="elsewhere"))
    assert main(["results", "verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert "checkpoint is not here" in said
    content = json.loads(path.read_text())
    assert f"  {content['trained']['command']}\n  {content['command']}\n" in said
    assert main(["results", "verify", str(path), "--run", str(made / "run")]) == 0
    assert "6 of 6 tasks equal" in capsys.readouterr().out


def test_another_model_or_other_data_is_refused(made, tmp_path, capsys):
    path = changed(made, tmp_path, lambda content: content["trained"].update(checkpoint_sha256="0" * 64))
    assert main(["results", "verify", str(path)]) == 2
    assert "not the one that was evaluated" in capsys.readouterr().err
    path = changed(made, tmp_path, lambda content: content["evaluation"].update(fingerprint="0" * 64))
    assert main(["results", "verify", str(path)]) == 2
    assert "is not what it was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["summary"]["untrained"].update(accuracy=0.01), "of 'untrained', but its tasks have"),
        (lambda content: content["trained"].update(tasks=2), "of its training what the run"),
        (lambda content: content["trained"].update(validation=0.99), "does (validation)"),
        (lambda content: content["trained"].update(validation_curve=[[4, 0.99]]), "does (validation_curve)"),
        (lambda content: content["trained"].update(command="csn train other"), "does (command)"),
        (lambda content: content["trained"].update(perplexity=9.5), "does (perplexity)"),
        (lambda content: content["evaluation"].update(split="nowhere"), "got 'nowhere': evaluate again"),
        (lambda content: content["config"].update(network=[]), "'network' is a section"),
    ],
)
def test_whatever_was_changed_is_found(made, tmp_path, capsys, change, message):
    assert main(["results", "verify", str(changed(made, tmp_path, change))]) == 2
    assert message in capsys.readouterr().err


def test_an_older_result_or_one_of_an_interrupted_training_holds(made, tmp_path):
    def older(content):
        del content["config"]["data"]["bad_files"], content["evaluation"]["fingerprint"]
        content["trained"]["validation_curve"] = []

    assert main(["results", "verify", str(changed(made, tmp_path, older))]) == 0


def test_a_folder_without_a_checkpoint_is_refused(made, tmp_path, capsys):
    assert main(["results", "verify", str(made / "result.json"), "--run", str(tmp_path)]) == 2
    assert f"{tmp_path} has no checkpoint best.safetensors: name the folder of the run" in capsys.readouterr().err


def test_a_setting_brings_back_its_tasks(made):
    data = load_strokes()
    content = json.loads((made / "result.json").read_text())
    source = source_of(content["evaluation"], data, "examples")
    assert setting_of(source, 6, "soft") == content["evaluation"]
    assert (source.way, source.shot, source.queries, source.split) == (5, 1, 3, "test")


def test_a_fingerprint_tells_splits_apart():
    splits = load_strokes().splits
    prints = {classes.fingerprint for classes in splits.values()}
    assert len(prints) == len(splits)
    assert splits["val"].fingerprint == load_strokes().splits["val"].fingerprint


def test_a_run_of_other_options_is_refused(made, tmp_path, capsys):
    def other(content):
        content["config"]["network"]["filters"] = 5
        del content["trained"]["checkpoint_sha256"]

    assert main(["results", "verify", str(changed(made, tmp_path, other))]) == 2
    assert "another configuration than the result: name the right one" in capsys.readouterr().err


def test_results_of_the_shipped_weights_are_asked_again_without_a_run(tmp_path, monkeypatch, capsys):
    """Their checkpoint comes with the package; of another training by that name it is not the one."""
    content = json.loads((ROOT / "results/characters/characters-strokes-5w1s.json").read_text())
    few = content["accuracies"]["trained"][:6]
    mean, interval = summarise(few)
    content["accuracies"]["trained"], content["evaluation"]["tasks"] = few, len(few)
    content["summary"]["trained"] = {"accuracy": mean, "interval": interval}
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)  # away from any run
    assert main(["results", "verify", str(path)]) == 0
    assert "6 of 6 tasks equal" in capsys.readouterr().out

    content["trained"]["validation"] = 0.5
    path.write_text(json.dumps(content))
    assert main(["results", "verify", str(path)]) == 0
    assert "its checkpoint is not here" in capsys.readouterr().out
