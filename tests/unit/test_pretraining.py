"""The key function is pretrained as a classifier, goes on to the bit, and hands over its best."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from csn.building import build_learner
from csn.cli.main import main
from csn.config import Config, load_preset, merge
from csn.core.model import CSN
from csn.data.images.strokes import load_strokes
from csn.data.registry import load_data
from csn.data.text.toy_language import load_toy_language
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.engine.log import read_log
from csn.engine.reports import StepReport, ValidationReport
from csn.engine.run import new_trainer, open_run
from csn.learner import InputSpec
from csn.plots.episodes import learning_curve

CPU = torch.device("cpu")


def configured(preset: str, **changes) -> Config:
    small = {
        "data": {"name": "toy-language"},
        "network": {"units": 8, "embedding": 8, "embedding_dropout": 0.1},
        "pretrain": {"epochs": 1, "batch": 256, "learning_rate": 0.02},
        "train": {"tasks": 4, "validate_every": 4, "validation_tasks": 40},
    }
    return merge(merge(load_preset(preset, "plus"), small), changes)


def run_all(trainer) -> list[StepReport | ValidationReport]:
    reports = []
    assert trainer.first.run(reports.append) == "finished"
    return reports


def test_pretraining_on_the_training_classes_teaches_about_unseen_ones(tmp_path):
    trainer = new_trainer(configured("adalstm-1-df"), load_toy_language(), tmp_path / "run", device=CPU)
    before = trainer.first._validate().accuracy
    reports = run_all(trainer)
    steps = [report for report in reports if isinstance(report, StepReport)]
    assert steps[-1].loss < 0.8 * steps[0].loss
    validations = [report for report in reports if isinstance(report, ValidationReport)]
    assert validations[-1].tasks == steps[-1].tasks == trainer.first.config.tasks
    assert validations[-1].accuracy > before + 0.1


def test_the_learner_goes_on_from_the_best_network(tmp_path):
    config = configured("adalstm-1-df", pretrain={"epochs": 2})
    trainer = new_trainer(config, load_toy_language(), tmp_path, device=CPU)
    run_all(trainer)
    best, _ = load_checkpoint(tmp_path / "pretraining" / "best.safetensors")
    assert isinstance(trainer.learner, CSN)
    for name, tensor in trainer.learner.key_function.state_dict().items():
        assert_close(tensor, best[f"model.embedding.{name}"])


@pytest.mark.parametrize("preset", ["adalstm-1-df", "matching-sentences"])
def test_interrupted_pretraining_goes_on_to_the_bit(tmp_path, preset):
    data, config = load_toy_language(), configured(preset)
    whole = new_trainer(config, data, tmp_path / "whole", device=CPU)
    run_all(whole)
    halves = new_trainer(config, data, tmp_path / "halves", device=CPU)
    asked = iter([False, False, True])
    assert halves.first.run(should_stop=lambda: next(asked)) == "interrupted"
    halves = new_trainer(config, data, tmp_path / "halves", device=CPU, resume=True)
    assert halves.first.tasks == 2 * 256
    run_all(halves)
    for name, tensor in whole.learner.state_dict().items():
        assert torch.equal(tensor, halves.learner.state_dict()[name]), name


def test_a_run_that_has_gone_on_to_tasks_does_not_pretrain_again(tmp_path):
    config = configured("adalstm-1-df")
    trainer = new_trainer(config, load_toy_language(), tmp_path, device=CPU)
    run_all(trainer)
    trainer.run()
    assert new_trainer(config, load_toy_language(), tmp_path, device=CPU, resume=True).first is None


def test_images_are_classified_too_and_augmented(tmp_path):
    data = load_strokes()
    few = dataclasses.replace(data, splits={s: _first_classes(c, 8) for s, c in data.splits.items()})
    config = merge(
        load_preset("adacnn-df", "plus"),
        {
            "data": {"way": 5, "name": "strokes"},
            "network": {"filters": 4},
            "pretrain": {"epochs": 1, "batch": 32},
            "train": {"augment": 1.0, "tasks": 4, "validation_tasks": 4},
        },
    )
    trainer = new_trainer(config, few, tmp_path, device=CPU)
    assert any(isinstance(report, ValidationReport) for report in run_all(trainer))


def _first_classes(classes, number):
    rows = int(classes.counts[:number].sum())
    return type(classes)(classes.x[:rows], classes.counts[:number], classes.names[:number])


def test_the_command_pretrains_first_and_counts_its_time(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["network.units=8", "pretrain.epochs=1", "train.validate_every=4", "train.validation_tasks=4"]
    command = ["train", "adalstm-1-df", "--recipe", "plus", "--data", "toy-language", "--tasks", "4", "--out", "run"]
    assert main([*command, *(word for option in options for word in ("--set", option))]) == 0
    said = capsys.readouterr().out
    assert "pretraining the network as a classifier" in said
    assert said.index("examples  validation") < said.index("tasks  validation")
    pretraining = read_log(Path("run/pretraining"))
    assert open_run(Path("run")).log[0]["seconds"] >= pretraining[-1]["seconds"] > 0
    assert main(["report", "run"]) == 0
    assert Path("run/report/pretraining_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "(pretraining_curve.png)" in Path("run/report/report.md").read_text()
    axes = learning_curve(pretraining, pretraining=True).axes
    assert axes[1].get_xlabel() == "training examples"
    assert "pretraining" in [text.get_text() for text in axes[0].get_legend().get_texts()]


def test_a_pretrained_network_is_taken_over_to_the_bit(tmp_path):
    data, config = load_toy_language(), configured("adalstm-1-df")
    one = new_trainer(config, data, tmp_path / "one", device=CPU)
    with pytest.raises(ValueError, match="has not finished a pretraining"):
        new_trainer(config, data, tmp_path / "two", device=CPU, pretrained=tmp_path / "one")
    run_all(one)
    taught = {name: tensor.clone() for name, tensor in one.learner.embedding_network.state_dict().items()}
    one.run()
    gradient = configured("adalstm-1-gradient", data={"shot": 2})
    two = new_trainer(gradient, data, tmp_path / "two", device=CPU, pretrained=tmp_path / "one")
    assert run_all(two) == []  # nothing was left to learn
    for name, tensor in two.learner.embedding_network.state_dict().items():
        assert torch.equal(tensor, taught[name]), name
    # Stopped before any task was trained on, it goes on with what it took over.
    again = new_trainer(gradient, data, tmp_path / "two", device=CPU, resume=True)
    assert run_all(again) == []
    assert torch.equal(next(iter(again.learner.embedding_network.parameters())), next(iter(taught.values())))


@pytest.mark.parametrize(
    "change", [{"train": {"seed": 1}}, {"pretrain": {"epochs": 2}}, {"key": {"size": 7}}, {"pretrain": {"epochs": 0}}]
)
def test_another_pretraining_is_not_taken_over(tmp_path, change):
    data = load_toy_language()
    one = new_trainer(configured("adalstm-1-df"), data, tmp_path / "one", device=CPU)
    run_all(one)
    one.run()
    with pytest.raises(ValueError, match="leave out --pretrained"):
        new_trainer(
            configured("adalstm-1-df", **change), data, tmp_path / "two", device=CPU, pretrained=tmp_path / "one"
        )
    assert not (tmp_path / "two").exists()


def test_a_run_that_was_killed_while_it_took_over_can_go_on(tmp_path, monkeypatch):
    data, config = load_toy_language(), configured("adalstm-1-df")
    one = new_trainer(config, data, tmp_path / "one", device=CPU)
    run_all(one)
    one.run()

    def killed_before_the_last(path: Path, *content: Any) -> None:
        if path.name == "last.safetensors":
            raise KeyboardInterrupt
        save_checkpoint(path, *content)

    monkeypatch.setattr("csn.engine.pretrain.save_checkpoint", killed_before_the_last)
    with pytest.raises(KeyboardInterrupt):
        new_trainer(config, data, tmp_path / "two", device=CPU, pretrained=tmp_path / "one")
    assert (tmp_path / "two" / "config.json").exists()
    monkeypatch.undo()
    two = new_trainer(config, data, tmp_path / "two", device=CPU, resume=True, pretrained=tmp_path / "one")
    assert run_all(two) == []


def test_words_that_mean_something_else_are_not_taken_over(tmp_path):
    data, config = load_toy_language(), configured("adalstm-1-df")
    one = new_trainer(config, data, tmp_path / "one", device=CPU)
    run_all(one)
    one.run()
    other = dataclasses.replace(data, vocabulary=(*data.vocabulary[:-2], *data.vocabulary[:-3:-1]))
    with pytest.raises(ValueError, match="leave out --pretrained"):
        new_trainer(config, other, tmp_path / "two", device=CPU, pretrained=tmp_path / "one")


def test_what_cannot_be_pretrained_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"asks for 1000000 examples, but the data has only \d+: ask for fewer"):
        new_trainer(
            configured("adalstm-1-df", pretrain={"batch": 1_000_000}), load_toy_language(), tmp_path / "a", device=CPU
        )
    config = merge(load_preset("maml", "plus"), {"pretrain": {"epochs": 1}})
    with pytest.raises(ValueError, match=r"MAML has no embedding network.*set pretrain.epochs=0"):
        new_trainer(config, load_data("strokes"), tmp_path / "b", device=CPU)


def test_a_network_to_compare_is_that_of_the_learner():
    csn = build_learner(load_preset("adalstm-1-df"), InputSpec((41,), 50))
    matching = build_learner(load_preset("matching-sentences"), InputSpec((41,), 50))
    assert csn.embedding_network is csn.key_function
    assert matching.embedding_network is matching.embedding
