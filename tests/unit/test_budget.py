"""`csn reproduce --budget`: what a time buys, and that the seeds and arms of a model train alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_tables import TOY, write_result

from csn.cli.main import main
from csn.cli.terminal import read_seconds
from csn.config import Config, TrainConfig
from csn.experiments.tables.budget import settled_length, within_budget
from csn.experiments.tables.cells import Cell
from csn.experiments.tables.plan import plan


def begin(cell: Cell, runs: Path) -> None:
    """A run of a cell that has got as far as its options."""
    (runs / cell.name).mkdir(parents=True)
    (runs / cell.name / "config.json").write_text(cell.config.to_json())


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("20", 20)])
def test_a_budget_is_read(text, seconds):
    assert read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30 min", "-1m", "0s", "h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="write 90s, 30m or 2h"):
        read_seconds(text)


def test_a_budget_buys_tasks_and_validations(toy):
    cell = plan("strokes")[0]
    bought = within_budget(cell, 100.0, per_task=0.5, validation=2.0)
    # 20 s for ten validations, 80 s for 160 tasks
    assert (bought.config.train.tasks, bought.config.train.validate_every) == (160, 16)
    assert "train.validate_every=16" in bought.changes
    few = within_budget(cell, 30.0, per_task=0.5, validation=10.0)
    assert (few.config.train.tasks, few.config.train.validate_every) == (40, 40)
    with pytest.raises(ValueError, match=r"budget of 5 s is too small.*one validation on 4 tasks take 1\d s"):
        within_budget(cell, 5.0, per_task=0.5, validation=10.0)


def test_a_budget_buys_the_same_for_every_seed(toy, monkeypatch):
    times = iter([(0.5, 2.0), (0.25, 1.0)])
    monkeypatch.setattr("csn.cli.reproduce._measured", lambda *_: next(times))
    planned = []
    monkeypatch.setattr("csn.cli.reproduce._show_plan", lambda _, cells, *__: planned.extend(cells))
    assert main(["reproduce", "strokes", "--seeds", "3", "--budget", "100s", "--dry-run"]) == 0
    assert [cell.config.train.tasks for cell in planned] == 3 * [160] + 3 * [360]


def test_what_a_cell_takes_is_measured_with_its_threads(toy, monkeypatch):
    seen = []
    monkeypatch.setattr("csn.cli.reproduce.seconds_of_task", lambda *_: seen.append(torch.get_num_threads()) or 0.1)
    monkeypatch.setattr("csn.cli.reproduce.seconds_of_validation", lambda *_: 0.1)
    before = torch.get_num_threads()
    command = ["reproduce", "strokes", "--rows", "prototypical", "--budget", "9s", "--threads", "4", "--jobs", "2"]
    assert main([*command, "--dry-run"]) == 0
    assert (seen, torch.get_num_threads()) == ([2], before)


@pytest.mark.parametrize("settle", [begin, write_result])
def test_a_budget_buys_what_it_bought_the_other_seeds_before(toy, monkeypatch, capsys, settle):
    monkeypatch.setattr("csn.cli.reproduce._measured", lambda *_: (0.25, 1.0))
    lengths: dict[str, Config] = {}
    monkeypatch.setattr(
        "csn.cli.reproduce._show_plan",
        lambda _, cells, *__: lengths.update({c.name: c.config for c in cells}),
    )
    before = within_budget(plan("strokes", seeds=3)[2], 100.0, per_task=0.5, validation=2.0)
    settle(before, Path("out"))
    command = ["reproduce", "strokes", "--seeds", "3", "--budget", "100s", "--runs", "out", "--results", "out"]
    assert main([*command, "--rows", "strokes-5w1s-adacnn-df-plus", "--dry-run"]) == 0
    assert {config.train.tasks for config in lengths.values()} == {160}
    assert f"trains as long as {before.name}: all seeds" in capsys.readouterr().out
    lengths.clear()
    assert main([*command, "--rows", "prototypical", "--dry-run"]) == 0
    assert {config.train.tasks for config in lengths.values()} == {360}  # another model has a length of its own


@pytest.fixture
def planned(toy, monkeypatch, capsys):
    """Plans a command in dry run: the training options of each cell that is open, and what was said."""
    cells: list[Cell] = []
    monkeypatch.setattr("csn.cli.reproduce._show_plan", lambda _, open_cells, *__: cells.extend(open_cells))

    def plans(*options: str) -> tuple[dict[str, TrainConfig], str]:
        cells.clear()
        assert main(["reproduce", "strokes", "--rows", "prototypical", "--dry-run", *options]) == 0
        return {cell.name: cell.config.train for cell in cells}, capsys.readouterr().out

    return plans


def test_new_seeds_train_as_long_as_the_table_says(planned):
    first, second, _ = plan("strokes", rows=["prototypical"], seeds=3)
    write_result(first.trained_for(tasks=24, validate_every=12), Path("results"))
    lengths, said = planned("--seeds", "3")
    assert {train.tasks for train in lengths.values()} == {second.config.train.tasks} == {8}
    assert said == ""
    assert planned("--seeds", "3", "--set", "train.tasks=16")[0][second.name].tasks == 16


def test_minutes_of_a_row_are_a_budget(toy, planned, monkeypatch):
    monkeypatch.setitem(TOY, "strokes", [TOY["strokes"][0], TOY["strokes"][1] | {"minutes": 2, "seeds": 2}])
    monkeypatch.setattr("csn.cli.reproduce._measured", lambda *_: (0.5, 2.0))
    lengths, _ = planned()
    assert [train.tasks for train in lengths.values()] == [200, 200]  # 120 s, less ten validations of 2 s


def test_a_result_is_made_again_as_long_as_it_was_but_a_budget_has_the_word(planned, monkeypatch):
    first, second = plan("strokes", rows=["prototypical"], seeds=2)
    for cell in (first, second):
        write_result(cell.trained_for(tasks=24), Path("results"))
    lengths, said = planned("--seeds", "2", "--again")
    assert {train.tasks for train in lengths.values()} == {24}
    assert f"{first.name}: trains as long as its earlier result" in said
    monkeypatch.setattr("csn.cli.reproduce._measured", lambda *_: (0.25, 1.0))
    bought = planned("--seeds", "2", "--again", "--budget", "20s")[0]
    assert {train.tasks for train in bought.values()} == {64}
    # of a seed alone, the others keep theirs, and it is as long as they are
    assert planned("--seeds", "2", "--again", "--budget", "20s", "--rows", second.name)[0][second.name].tasks == 24


def test_a_half_tested_cell_is_trained_as_long_as_it_was(toy, capsys):
    cell = plan("strokes", rows=["adacnn-df"])[0]
    write_result(cell.trained_for(tasks=24), Path("results"))
    assert main(["reproduce", "strokes", "--rows", "adacnn-df", "--dry-run"]) == 0
    assert f"{cell.name}: trains as long as its earlier result" in capsys.readouterr().out


def test_a_language_model_is_trained_in_full_and_that_is_said(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("csn.cli.reproduce._measured", lambda *_: pytest.fail("measured"))
    assert main(["reproduce", "penn-treebank", "--rows", "lstm-lm", "--budget", "1s", "--seeds", "2", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.count("penn-treebank-5w1s-lstm-lm-plus: trains in full: --budget counts tasks") == 1
    assert said.count("200,000") == 2


def test_two_words_for_a_length_are_refused(toy, capsys):
    assert main(["reproduce", "strokes", "--budget", "9s", "--set", "train.tasks=8", "--dry-run"]) == 2
    assert "--budget and --set train.tasks both set the length of training: give one of them" in capsys.readouterr().err


def test_what_cannot_be_read_settles_no_length(toy):
    one, two, three = plan("strokes", rows=["prototypical"], seeds=3)
    begin(plan("strokes", rows=["adacnn-df"])[0], Path("runs"))
    Path("runs", "strokes-5w1s-adacnn-df-plus").rename(Path("runs", one.name))  # a run of other options
    write_result(one, Path("results"), split="val")  # another test
    write_result(two.trained_for(tasks=16), Path("results"))
    found = settled_length(three, [one, two, three], Path("runs"), Path("results"))
    assert found is not None
    assert (found.name, found.config.train.tasks) == (two.name, 16)


@pytest.mark.parametrize(
    ("change", "least"),
    [("validation_tasks=0", 2), ("validation_tasks=-1", 2), ("tasks_per_step=0", 1), ("tasks=0", 1)],
)
def test_too_few_tasks_are_refused_before_anything_is_measured(toy, capsys, change, least):
    name, _, value = change.partition("=")
    assert main(["reproduce", "strokes", "--budget", "100s", "--set", f"train.{change}", "--dry-run"]) == 2
    assert f"train.{name} must be at least {least}, got {value}" in capsys.readouterr().err
