"""`csn reproduce`: what is planned, what counts as there, what a budget buys; and a table made from nothing."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest
from toy_tables import SMALL, TOY, write_result

from csn.cli.cell_commands import evaluation_command, pretrained_by, training_command
from csn.cli.main import main, parser
from csn.cli.run_cells import _start, _why
from csn.cli.train import train_config
from csn.engine.lock import lock_folder
from csn.engine.log import read_log
from csn.engine.pretrain import pretrained_alike
from csn.experiments.records.published import published
from csn.experiments.tables import plan as reproduce
from csn.experiments.tables.budget import within_budget
from csn.experiments.tables.cells import Cell, EvaluationTasks
from csn.experiments.tables.plan import plan, tables
from csn.presets import preset_names


def test_larger_tasks_are_fewer():
    counts = [EvaluationTasks(way, 1).tasks for way in (3, 5, 10, 20, 50)]
    assert counts == [1000, 1000, 400, 400, 400]


def test_every_row_of_every_table_can_be_planned():
    for table in tables():
        cells = plan(table, seeds=2)
        assert len({cell.name for cell in cells}) == len(cells)
        files = [cell.result(test) for cell in cells for test in cell.tests]
        assert len(set(files)) == len(files)


def test_how_long_a_row_trains_is_fixed_beforehand_with_a_reason():
    for name, rows in tables().items():
        for row in rows:
            assert row["why"], f"{name}: {row['presets']}"
    trained = {cell.size: cell.config.train.tasks for cell in plan("omniglot", rows=["adacnn-df", "paper"])}
    assert trained == {"5w1s": 40000, "5w5s": 40000, "20w1s": 20000, "20w5s": 20000}


def test_equal_budgets_are_the_same_minutes_and_seeds_for_everyone():
    cells = plan("equal-budgets")
    learners = {"csn", "matching", "prototypical", "maml", "metanet", "snail", "finetune"}
    for data, minutes in (("omniglot", 20), ("mini-imagenet", 20), ("penn-treebank", 10)):
        own = [cell for cell in cells if cell.config.data.name == data]
        assert {cell.minutes for cell in own} == {minutes}
        assert {cell.config.train.seed for cell in own} == {0, 1, 2}
        assert {cell.config.pretrain.epochs for cell in own} == {0}
        assert {cell.config.data.queries for cell in own} == {5}
        named = {cell.config.learner.name for cell in own}
        assert named == (learners if data != "penn-treebank" else {"csn", "matching"})
        assert {cell.config.learner.conditioning for cell in own if cell.config.learner.name == "csn"} == {
            "df",
            "gradient",
        }
        assert {cell.folder for cell in own} == {"equal-budgets"}


def test_the_baselines_of_table_2_are_planned_on_the_stand_in_too():
    cells = plan("mini-imagenet", data="tiny-imagenet-fewshot", seeds=1)
    others = [cell for cell in cells if cell.config.learner.name != "csn"]
    asked = {(cell.config.preset, cell.arm, cell.size) for cell in others if cell.config.recipe != "best"}
    both = ["5w1s", "5w5s"]
    wanted = {(name, "", size) for name in ("matching", "meta-lstm", "maml", "snail", "prototypical") for size in both}
    assert asked == wanted | {("matching", "full context", size) for size in both} | {("metanet", "", "5w1s")}


def test_recipe_best_on_photographs_pretrains_one_key_for_all():
    cells = [
        cell for cell in plan("mini-imagenet", data="tiny-imagenet-fewshot", seeds=1) if cell.config.recipe == "best"
    ]
    learners = {cell.config.learner.name for cell in cells}
    assert learners == {"csn", "matching", "prototypical"}
    assert all(pretrained_alike(cell.config, cells[0].config) for cell in cells)


def test_figures_2_and_3_have_five_seeds_and_every_paper_row_of_language_three():
    figures = {cell.config.preset: cell.seeds for cell in plan("ablation") if cell.config.recipe == "paper"}
    assert figures == dict.fromkeys(figures, 5)
    assert {preset.rpartition("-")[0] for preset in figures} == {"adacnn-32", "adalstm-1"}
    for table in ("penn-treebank", "penn-treebank-masked"):
        papers = [cell for cell in plan(table, seeds=1) if cell.config.recipe == "paper"]
        assert {cell.seeds for cell in papers} == {3}
        assert {cell.config.preset for cell in papers} >= set(published()["penn-treebank"]) - {"lstm-lm"}


def test_baselines_have_rows_with_their_authors_recipes():
    cells = {cell.name: cell for cell in plan("omniglot")}
    assert cells["omniglot-5w1s-maml-plus"].config.network.norm == "support"
    assert cells["omniglot-5w1s-maml-plus"].config.learner.test_steps == 3
    assert cells["omniglot-5w1s-maml-plus-transductive"].config.network.norm == "transductive"
    assert cells["omniglot-20w1s-maml-plus"].config.learner.inner_steps == 5
    assert cells["omniglot-5w1s-meta-sgd-plus"].config.learner.rate == "each"
    assert cells["omniglot-60w1s-prototypical-paper"].config.key.name == "four-blocks"
    assert [test.size for test in cells["omniglot-60w1s-prototypical-paper"].tests] == ["5w1s", "20w1s"]
    assert cells["omniglot-5w1s-mann-paper"].config.key.name == "pixels"
    (oracle,) = plan("penn-treebank", rows=["lstm-lm"])
    assert {test.size for test in oracle.tests} == {"5w1s", "5w2s", "5w3s"}


def test_other_test_tasks_have_files_of_their_own():
    (cell,) = plan("omniglot", rows=["adacnn-df", "paper", "20w1s"])
    assert [cell.result(test) for test in cell.tests] == [
        "omniglot/omniglot-20w1s-adacnn-df-paper.json",
        "omniglot/omniglot-20w1s-adacnn-df-paper-tasks2019.json",
    ]
    command = evaluation_command(cell, cell.tests[1], Path("runs"), Path("results"), threads=1)
    assert command[command.index("--task-seed") + 1] == "2019"


@pytest.mark.parametrize("table", ["omniglot", "mini-imagenet", "penn-treebank"])
def test_our_models_are_in_every_table_of_the_paper(table):
    planned = {cell.config.preset for cell in plan(table)}
    ours = {preset for preset in published()[table] if preset.startswith(("ada", "lstm-ada"))}
    assert ours <= planned <= set(preset_names())


def test_the_ablations_have_one_budget_a_network_and_the_arms_of_section_4_3():
    cells = plan("ablation", seeds=1)
    for base, recipe in (("adacnn-32", "paper"), ("adacnn", "plus"), ("adalstm-1", "plus"), ("adalstm-1", "paper")):
        of_base = [cell for cell in cells if cell.config.preset.startswith(base) and cell.config.recipe == recipe]
        assert len({cell.config.train for cell in of_base}) == 1
        for conditioning in ("df", "gradient"):
            arms = {cell.arm for cell in of_base if cell.config.preset == f"{base}-{conditioning}"}
            assert arms >= {"baseline", "raw beta", "beta inside", "simple g"}
            assert "hard attention" in arms or recipe == "paper"


def test_rows_choose_by_any_of_a_kind_and_by_all_kinds():
    chosen = plan("omniglot", rows=["adacnn-df", "adacnn-gradient", "paper", "5w1s"])
    assert [cell.name for cell in chosen] == ["omniglot-5w1s-adacnn-df-paper", "omniglot-5w1s-adacnn-gradient-paper"]
    assert [cell.arm for cell in plan("ablation", rows=["raw beta", "plus"], seeds=1)] == 4 * ["raw beta"]
    with pytest.raises(ValueError, match=r"omniglot has no row 'adalstm': there are 20w1s, .*adacnn-df, .* files"):
        plan("omniglot", rows=["adalstm"])
    with pytest.raises(ValueError, match=r"no table 'imagenet': choose one of omniglot, mini-imagenet, .*ablation"):
        plan("imagenet")


def test_rows_are_found_by_what_a_table_shows_of_them():
    def names(*rows: str, seeds: int = 1) -> list[str]:
        return [cell.name for cell in plan("omniglot", rows=rows, seeds=seeds)]

    plus = "omniglot-20w1s-adacnn-df-plus"  # which is trained on 20-way tasks, and tested on 5-way ones too
    assert names("5w1s", "plus", "adacnn-df") == [plus, "omniglot-background-20w1s-adacnn-df-plus"]
    assert names("omniglot-5w1s-adacnn-df-plus") == [plus]
    assert names("omniglot-5w1s-adacnn-df-plus", seeds=2) == [plus, f"{plus}-seed1"]
    assert names("omniglot-5w1s-adacnn-df-plus-seed1", seeds=2) == [f"{plus}-seed1"]
    by_alphabet = "omniglot-background-5w5s-adacnn-df-plus-within-alphabet"
    assert names(by_alphabet) == ["omniglot-background-20w5s-adacnn-df-plus"]
    assert names(f"{by_alphabet}.json") == names(f"results/{by_alphabet}.json") == names(by_alphabet)
    with pytest.raises(ValueError, match=f"no row '{plus}-seed2': give --seeds 3 for that seed"):
        names(f"{plus}-seed2", seeds=2)
    (changed,) = plan("omniglot", rows=["omniglot-5w1s-adacnn-df-paper"], changes=["network.filters=8"])
    assert changed.name == "omniglot-5w1s-adacnn-df-paper-filters=8"


def test_options_of_several_words_may_be_repeated():
    options = parser().parse_args(["reproduce", "omniglot", "--rows", "siamese", "--rows", "matching", "5w1s"])
    assert options.rows == ["siamese", "matching", "5w1s"]
    assert parser().parse_args(["reproduce", "omniglot"]).rows == []


def test_a_cell_is_two_commands(toy):
    cell = plan("strokes", rows=["adacnn-df"], seeds=2)[1]
    assert cell.name == "strokes-5w1s-adacnn-df-plus-seed1"
    command = training_command(cell, Path("runs"), threads=1, resume=True)
    assert " ".join(command).startswith(
        "train adacnn-df --recipe plus --data strokes --way 5 --shot 1 --tasks 8 --seed 1"
    )
    assert command[-5:] == ["--threads", "1", "--out", "runs/strokes-5w1s-adacnn-df-plus-seed1", "--resume"]
    asked = evaluation_command(cell, EvaluationTasks(3, 1), Path("runs"), Path("results"), threads=1)
    assert asked[-1] == "results/strokes/strokes-3w1s-adacnn-df-plus-seed1.json"
    assert asked[asked.index("--tasks") + 1] == "2"
    assert (
        cell.result(EvaluationTasks(5, 1, "all-inclusive"))
        == "strokes/strokes-5w1s-adacnn-df-plus-seed1-all-inclusive.json"
    )


@pytest.mark.parametrize("budget", [False, True])
def test_the_command_of_a_cell_trains_what_the_cell_says(budget):
    cells = [cell for table in tables() for cell in plan(table, seeds=2, changes=["train.tasks=7"])]
    cells += plan("ablation")
    for cell in cells:
        bought = within_budget(cell, 100.0, per_task=0.5, validation=2.0) if budget else cell
        options = parser().parse_args(training_command(bought, Path("runs"), threads=1, resume=False))
        assert train_config(options) == bought.config


def test_another_option_makes_another_cell(toy):
    (own, _), (changed, _) = plan("strokes"), plan("strokes", changes=["network.filters=6", "train.tasks=9"])
    assert (own.name, changed.name) == ("strokes-5w1s-adacnn-df-plus", "strokes-5w1s-adacnn-df-plus-filters=6")
    assert plan("strokes", changes=["train.tasks=9"])[0].name == own.name  # how long is no other model
    rates = [plan("strokes", changes=[f"{part}.learning_rate=0.5"])[0].name for part in ("train", "pretrain")]
    assert rates == [f"{own.name}-{part}.learning_rate=0.5" for part in ("train", "pretrain")]


def test_an_option_that_changes_nothing_makes_no_other_cell(toy):
    """Its result would be of the same training, under another name."""
    own, _ = plan("strokes")
    rate = own.config.train.learning_rate
    for change in ("network.filters=4", f"train.learning_rate={rate}", f"train.learning_rate={1000 * rate:g}e-3"):
        (same, _) = plan("strokes", changes=[change])
        assert (same.name, same.config) == (own.name, own.config)
    names = {plan("strokes", changes=[f"train.learning_rate={rate}"])[0].name for rate in ("5e-1", "0.50")}
    assert names == {f"{own.name}-train.learning_rate=0.5"}


def test_rows_that_do_not_read_the_data_are_left_out(capsys):
    assert main(["reproduce", "omniglot", "--data", "toy-language", "--dry-run"]) == 2
    assert "toy-language is of sentences, which no row of omniglot reads" in capsys.readouterr().err
    with pytest.raises(ValueError, match="strokes is of images, which no row of penn-treebank reads"):
        plan("penn-treebank", data="strokes")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("train.seed=5", "--seeds"),
        (" train.seed =5", "--seeds"),
        ("data.name=omniglot", "--data"),
        ("data.way=10", "--rows"),
    ],
)
def test_what_makes_a_table_is_no_option(change, word):
    with pytest.raises(
        ValueError, match=f"--set {change.replace(' ', '')} would change what the table is of: use {word}"
    ):
        plan("omniglot", changes=[change])


def test_other_data_are_for_the_rows_of_the_table_s_own():
    assert {cell.config.data.name for cell in plan("omniglot")} == {"omniglot", "omniglot-background"}
    cells = plan("omniglot", data="strokes")
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.config.data.name for cell in cells} == {"strokes"}
    assert {test.sampling for cell in cells for test in cell.tests} == {"random"}


def test_other_data_are_for_the_rows_that_take_any(monkeypatch):
    """Figure 2 of the paper on a stand-in of Mini-ImageNet, and not the rows of Omniglot or of sentences."""
    own = [cell for cell in plan("ablation", seeds=1) if cell.config.data.name == "mini-imagenet"]
    cells = plan("ablation", data="tiny-imagenet-fewshot", seeds=1)
    assert [cell.config.data.name for cell in cells] == 8 * ["tiny-imagenet-fewshot"]
    assert [cell.name for cell in cells] == [
        cell.name.replace("mini-imagenet", "tiny-imagenet-fewshot", 1) for cell in own
    ]
    assert cells[0].result(cells[0].tests[0]) == "ablation/tiny-imagenet-fewshot-5w1s-adacnn-32-df-paper-baseline.json"
    assert {cell.config.train.tasks for cell in cells} == {14000}
    rows = [row for row in tables()["ablation"] if row["data"] != "mini-imagenet"]
    monkeypatch.setattr(reproduce, "tables", lambda: {"ablation": rows})
    with pytest.raises(ValueError, match="every row of ablation has data of its own: leave out --data"):
        plan("ablation", data="strokes")


def test_the_same_options_in_another_form_make_the_same_cell(toy):
    said = [
        ["network.filters=6", "learner.guard=false"],
        ["learner.guard = false", "network.filters=5", "network.filters= 6"],
    ]
    (one,), (two,) = (plan("strokes", rows=["adacnn-df"], changes=changes) for changes in said)
    assert one == two
    assert one.name == "strokes-5w1s-adacnn-df-plus-guard=false-filters=6"


def test_the_name_of_a_cell_without_its_seed_chooses_all_of_them(toy):
    name = "strokes-5w1s-adacnn-df-plus"
    assert [cell.name for cell in plan("strokes", rows=[name], seeds=3)] == [name, f"{name}-seed1", f"{name}-seed2"]
    assert [cell.name for cell in plan("strokes", rows=[f"{name}-seed1"], seeds=3)] == [f"{name}-seed1"]


def test_rows_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="no cell of omniglot is all of mann, 20w1s"):
        plan("omniglot", rows=["mann", "20w1s"])


def test_data_by_a_relative_path_are_those_of_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets").mkdir()
    planned = []
    monkeypatch.setattr("csn.cli.reproduce._show_plan", lambda cells, *_: planned.extend(cells))
    assert main(["reproduce", "mini-imagenet", "--data", "pets", "--dry-run"]) == 0
    assert {cell.config.data.name for cell in planned} == {str(tmp_path / "pets")}
    assert main(["reproduce", "mini-imagenet", "--data", "nowhere", "--dry-run"]) == 2
    assert "unknown data set 'nowhere'" in capsys.readouterr().err
    assert main(["reproduce", "mini-imagenet", "--data", "no/where", "--dry-run"]) == 2
    assert f"there are no data at {tmp_path / 'no' / 'where'}: check the path" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["omniglot", "omniglot.zip", "strokes", "ablation"])
def test_data_that_are_called_like_others_do_not_take_the_place_of_their_results(name):
    with pytest.raises(ValueError, match=f"results of /my/{name} would have the names of those of .*: rename it"):
        plan("omniglot", data=f"/my/{name}")


def test_a_path_of_data_gives_its_last_part_to_names(toy):
    cell = plan("strokes", data="/home/me/my pets.zip")[0]
    assert cell.name == "my pets-5w1s-adacnn-df-plus"
    assert "/home/me/my pets.zip" in training_command(cell, Path("runs"), threads=1, resume=False)


def test_a_run_that_has_begun_keeps_the_tasks_its_budget_bought(toy, tmp_path, capsys):
    cell = plan("strokes")[0]
    assert cell.with_length_of_run(tmp_path) is None
    bought = within_budget(cell, 100.0, per_task=0.5, validation=2.0)
    folder = tmp_path / cell.name
    folder.mkdir()
    (folder / "config.json").write_text(bought.config.to_json())
    assert main(["reproduce", "strokes", "--rows", "adacnn-df", "--runs", str(tmp_path), "--dry-run"]) == 0
    assert "160" in capsys.readouterr().out  # without a budget, too
    begun = cell.with_length_of_run(tmp_path)
    assert begun is not None
    assert begun.config == bought.config
    (folder / "config.json").write_text(plan("strokes")[1].config.to_json())
    assert main(["reproduce", "strokes", "--runs", str(tmp_path), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert f"{folder} is a run of other options (preset=prototypical, here adacnn-df; " in said
    assert "): remove it, or give other --runs" in said
    (folder / "config.json").write_text('{"model": ')
    with pytest.raises(ValueError, match=r"config.json cannot be read .*: remove .* to train again"):
        cell.with_length_of_run(tmp_path)


def test_a_run_is_trained_on_for_the_tasks_that_are_asked_for(toy, tmp_path, capsys):
    constant = ["--set", "train.schedule=constant"]
    cell = plan("strokes", changes=["train.schedule=constant"])[0]
    folder = tmp_path / cell.name
    folder.mkdir()
    (folder / "config.json").write_text(cell.trained_for(tasks=24, validate_every=12).config.to_json())
    write_result(cell, Path("out"))
    asked = ["reproduce", "strokes", "--rows", "adacnn-df", "--runs", str(tmp_path), "--results", "out", "--dry-run"]

    def planned(*options: str) -> str:
        assert main([*asked, *options]) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if cell.name in line).split("│")[2].strip()

    assert planned(*constant) == "24"  # one of two tests is there, the other of as many tasks
    assert planned(*constant, "--set", "train.tasks=48") == "48"
    assert main([*asked, *constant, "--set", "train.tasks=16"]) == 0
    kept = f"{cell.name}: keeps the 24 tasks that it started with; remove {folder} to start again"
    assert kept in " ".join(capsys.readouterr().out.split())
    assert main([*asked, *constant, "--budget", "90s"]) == 0
    assert kept in " ".join(capsys.readouterr().out.split())
    longer = plan("strokes", changes=["train.schedule=constant", "train.tasks=48", "train.validate_every=6"])[0]
    begun = cell.with_length_of_run(tmp_path)
    assert begun is not None
    for named, every in ((["train.tasks=48"], 12), (["train.tasks=48", "train.validate_every=6"], 6)):
        train = begun.lengthened_as(longer, named).config.train
        assert (train.tasks, train.validate_every) == (48, every)
    falling = plan("strokes")[0]
    (tmp_path / falling.name).mkdir()
    (tmp_path / falling.name / "config.json").write_text(falling.config.to_json())
    assert main([*asked, "--set", "train.tasks=48"]) == 2
    assert "began with 8 tasks and cannot go on to 48, because its learning rate falls" in capsys.readouterr().err


def test_the_plan_says_what_results_were_trained_on_and_how_to_take_them_up(toy, capsys):
    one, two = plan("strokes", rows=["prototypical"], seeds=2)
    write_result(one.trained_for(tasks=2400), Path("results"))
    asked = ["reproduce", "strokes", "--rows", "prototypical", "--seeds", "2", "--dry-run"]

    def planned(*options: str) -> tuple[list[list[str]], str]:
        assert main([*asked, *options]) == 0
        said = capsys.readouterr().out
        lines = [line for line in said.splitlines() if line.startswith(f"│ {one.name}")]
        return [[part.strip() for part in line.split("│")[2:5]] for line in lines], said

    rows, said = planned()
    assert rows[0] == ["", "1/1", "2,400"]
    assert rows[1][1:] == ["0/1", ""]
    assert "--again" not in said
    rows, said = planned("--set", "train.tasks=4800")
    assert rows == [["", "1/1", "2,400"], ["4,800", "0/1", ""]]
    assert "1 cell has results already: --again includes it" in said
    write_result(two, Path("results"))
    assert "2 cells have results already: --again includes them" in planned("--budget", "90s")[1]
    rows, said = planned("--set", "train.tasks=4800", "--again")
    assert rows == [["4,800", "1/1", "2,400"], ["4,800", "1/1", "8"]]
    assert "results already" not in said
    rows, said = planned("--again")  # each as long as it was, whatever the other seed had
    assert rows == [["2,400", "1/1", "2,400"], ["8", "1/1", "8"]]


def test_a_table_from_nothing_and_nothing_twice(toy, capsys, monkeypatch):
    assert main(["reproduce", "strokes", "--dry-run"]) == 0
    assert "2 of 2 cells to train" in capsys.readouterr().out
    assert not Path("results").exists()
    assert main(["reproduce", "strokes", "--jobs", "2", "--threads", "2", "--results", "out", "--runs", "runs"]) == 0
    names = ["strokes-3w1s-adacnn-df-plus", "strokes-5w1s-adacnn-df-plus", "strokes-5w1s-prototypical-plus"]
    rows = list(csv.DictReader(Path("out/strokes/strokes.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["file"] for row in rows] == [f"{name}.json" for name in names]
    stated = json.loads(Path(f"out/strokes/{names[0]}.json").read_text())["summary"]["trained"]["accuracy"]
    assert float(rows[0]["accuracy"]) == pytest.approx(100 * stated, abs=0.01)
    assert [(row["training_tasks"] in ("4", "8"), row["seed"]) for row in rows] == 3 * [(True, "0")]
    assert Path("out/strokes/strokes.png").read_bytes().startswith(b"\x89PNG")
    assert Path("out/strokes/strokes.md").read_text().count("\n") == 5
    replaced = Path(f"out/strokes/{names[2]}.json")
    before = changed(replaced, "evaluation", split="val")
    again = ["reproduce", "strokes", "--rows", "prototypical", "--results", "out", "--runs", "runs", "--again"]
    assert main(again) == 0
    assert json.loads(replaced.read_text())["evaluation"] == before["evaluation"]
    capsys.readouterr()
    monkeypatch.setattr("csn.cli.reproduce.run_all", lambda *_: pytest.fail("trained again"))
    assert main(["reproduce", "strokes", "--results", "out", "--runs", "runs"]) == 0
    assert "0 of 2 cells to train" in capsys.readouterr().out
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--results", "out", "--runs", "runs"]) == 0
    assert "0 of 1 cells to train" in capsys.readouterr().out
    assert Path("out/strokes/strokes.md").read_text().count("\n") == 5  # the table keeps its other rows


def test_a_failing_cell_is_named_and_the_others_go_on(toy, capsys, monkeypatch):
    def command(cell: Cell, *_: object, **__: object) -> list[str]:
        return ["train", "nothing"] if cell.config.preset == "prototypical" else ["data", "list"]

    monkeypatch.setattr("csn.cli.run_cells.training_command", command)
    monkeypatch.setattr("csn.cli.run_cells.evaluation_command", command)
    monkeypatch.setitem(TOY, "strokes", TOY["strokes"][::-1])
    assert main(["reproduce", "strokes"]) == 1
    said = capsys.readouterr()
    assert "strokes-5w1s-prototypical-plus: failed" in said.out
    assert "strokes-5w1s-adacnn-df-plus: done" in said.out
    assert "unknown preset 'nothing'" in Path("runs/reproduce/strokes-5w1s-prototypical-plus.log").read_text()
    why = "csn: unknown preset 'nothing'"
    assert f"strokes-5w1s-prototypical-plus: failed: {why}" in said.out
    log = "runs/reproduce/strokes-5w1s-prototypical-plus.log"
    assert f"failed: strokes-5w1s-prototypical-plus, see {log}: {why}" in said.out


def test_why_a_cell_failed_is_what_its_own_command_said(tmp_path):
    log = tmp_path / "log"
    said = [
        "$ csn train one",
        "csn: of an earlier command",
        "$ csn train one --resume",
        "csn: is being trained by another",
    ]
    log.write_text("\n".join([*said, "  1500 tasks  validation 70.40 ± 9.14 %", ""]))  # the other one goes on writing
    assert _why(2, log) == "csn: is being trained by another"
    log.write_text("csn: before\n$ csn train one\nTraceback:\nMemoryError\n\n")
    assert _why(1, log) == "MemoryError"
    log.write_text("$ csn train one\n")
    assert _why(1, log) == "no message"
    assert _why(-9, log) == "killed by signal 9, perhaps because memory ran out; the same command continues"


def test_data_that_are_not_there_are_named_before_anything_is_trained(toy, capsys, monkeypatch):
    rows = [{"presets": ["adacnn-32-df"], "recipes": ["plus"], "data": "mini-imagenet", "tasks": ["5w1s", "5w5s"]}]
    monkeypatch.setitem(TOY, "strokes", [*rows, TOY["strokes"][1]])
    trained = []
    monkeypatch.setattr("csn.cli.reproduce.run_all", lambda cells, *_: trained.extend(cells) or {})
    assert main(["reproduce", "strokes", "--rows", "adacnn-32-df"]) == 2
    wanted = "mini-imagenet was not found: put it into a folder mini_imagenet, and set CSN_DATA to the parent"
    assert capsys.readouterr().err.count(f"csn: {wanted}") == 1
    assert trained == []
    assert main(["reproduce", "strokes"]) == 1  # the others go on
    assert [cell.config.preset for cell in trained] == ["prototypical"]
    said = capsys.readouterr().out
    assert said.count(wanted) == 1
    assert "2 cells of mini-imagenet are left out" in said
    assert "failed: mini-imagenet-5w5s-adacnn-32-df-plus, its data are missing" in said
    monkeypatch.setattr("csn.cli.reproduce._measured", lambda *_: (0.5, 0.5))
    assert main(["reproduce", "strokes", "--budget", "90s", "--dry-run"]) == 0
    assert "mini-imagenet-5w1s-adacnn-32-df-plus: not measured: its data are missing" in capsys.readouterr().out


def test_a_language_model_needs_a_text(toy, capsys, monkeypatch):
    row = {"presets": ["lstm-lm"], "recipes": ["plus"], "data": "strokes", "tasks": ["5w1s"]}
    monkeypatch.setitem(TOY, "strokes", [row])
    monkeypatch.setattr("csn.cli.reproduce.run_all", lambda *_: pytest.fail("trained"))
    assert main(["reproduce", "strokes"]) == 2
    assert "a language model needs a text, and 'strokes' is not a text" in capsys.readouterr().err


def test_a_longer_training_is_as_good_a_result(toy, tmp_path):
    cell = plan("strokes", rows=["prototypical"])[0]
    assert cell.missing(tmp_path) == list(cell.tests)
    for tasks in (8, 99):
        write_result(cell.trained_for(tasks=tasks), tmp_path)
        assert cell.missing(tmp_path) == []


@pytest.mark.parametrize(("data", "queries", "others"), [("strokes", 15, 1), ("toy-language", 1, 15)])
def test_a_result_has_the_queries_that_are_asked_by_default(toy, tmp_path, monkeypatch, data, queries, others):
    monkeypatch.setitem(
        TOY, "toy-language", [TOY["strokes"][1] | {"presets": ["matching-sentences"], "set": SMALL[1:]}]
    )
    cell = plan(data)[-1]
    write_result(cell, tmp_path, queries=queries, seed=2018)
    assert cell.missing(tmp_path) == []
    write_result(cell, tmp_path, queries=others)
    with pytest.raises(ValueError, match=rf"another test \(queries={others}, here {queries}\)"):
        cell.missing(tmp_path)


def test_data_by_a_path_may_have_a_dot_in_their_name(toy, tmp_path):
    cell = plan("strokes", rows=["prototypical"], data="/my/pets.v2")[0]
    write_result(cell, tmp_path, data="pets.v2")  # as a folder of images is called
    assert cell.missing(tmp_path) == []


def changed(path: Path, part: str, **values: object) -> dict:
    """The contents of a result file with other values in one of its parts."""
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {part: content[part] | values}))
    return content


@pytest.mark.parametrize(
    ("part", "other", "why"),
    [
        ("evaluation", {"split": "val"}, "of another test (split=val, here test)"),
        ("evaluation", {"queries": 5}, "of another test (queries=5, here 15)"),
        ("evaluation", {"seed": 1}, "of another test (seed=1, here 2018)"),
        ("evaluation", {"data": "omniglot"}, "of another test (data=omniglot, here strokes)"),
        ("evaluation", {"tasks": 4}, "of another test (tasks=4, here 2)"),
        ("evaluation", {"attention": "hard"}, "of another test (attention=hard, here soft)"),
        ("evaluation", {"way": 4, "shot": 2}, "of another test (way=4, here 5; shot=2, here 1)"),
        ("evaluation", {"sampling": "within-alphabet"}, "of another test (sampling=within-alphabet, here random)"),
        ("config", {"recipe": "paper"}, "of other options (recipe=paper, here plus)"),
        (
            "config",
            {"network": {"filters": 5}, "train": {"tasks_per_step": 3}},
            "filters=5, here 4; tasks_per_step=3, h",
        ),
        ("config", {"data": {"name": "omniglot"}}, "of other options (data.name=omniglot, here strokes)"),
        ("config", {"pretrain": {"batch": 7}}, "of other options (pretrain.batch=7, here 256)"),
        ("config", {"network": {"eyes": 2}}, "of another version of csn (network 'cnn' has no option 'eyes'"),
    ],
)
def test_a_file_that_holds_something_else_is_not_lost(toy, capsys, monkeypatch, part, other, why):
    monkeypatch.setattr("csn.cli.reproduce.run_all", lambda *_: pytest.fail("trained"))
    cell = plan("strokes", rows=["prototypical"])[0]
    path = write_result(cell, Path("results"))
    if part == "config":
        own = json.loads(cell.config.to_json())
        other = {name: own[name] | value if isinstance(value, dict) else value for name, value in other.items()}
    changed(path, part, **other)
    changed(path, "accuracies", trained=[0.4, 0.6] * (other.get("tasks", 2) // 2))
    before = path.read_bytes()
    for dry in ([], ["--dry-run"]):
        assert main(["reproduce", "strokes", "--rows", "prototypical", *dry]) == 2
        said = capsys.readouterr().err
        assert f"csn: {path} is " in said
        assert why in said
        assert said.endswith("): move or rename it, or replace it with --again\n")
    assert path.read_bytes() == before
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--again", "--dry-run"]) == 0
    assert "1 of 1 cells to train or to test again" in capsys.readouterr().out


def test_every_file_that_holds_something_else_is_named_at_once(toy, capsys):
    paths = [write_result(cell, Path("results")) for cell in plan("strokes")]
    comparison = write_result(plan("strokes")[0], Path("results"), "strokes-3w1s-adacnn-df-plus.json")
    for path in paths:
        changed(path, "evaluation", split="val")
    comparison.write_text('{"rows": []}')
    assert main(["reproduce", "strokes"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("csn: ").partition(" is ")[0] for line in said] == [
        str(path) for path in (comparison, *paths)
    ]
    assert "no result of csn evaluate: move or rename it" in said[0]
    assert main(["reproduce", "strokes", "--again", "--dry-run"]) == 0


@pytest.mark.parametrize("content", [b"", b"[]", b'{"summary": ', bytes(range(128, 256))])
def test_a_damaged_file_in_the_place_of_a_result_is_to_be_moved_or_replaced(toy, capsys, content):
    (cell,) = plan("strokes", rows=["prototypical"])
    path = write_result(cell, Path("results"))
    path.write_bytes(content)
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"csn: {path} is no result file of csn evaluate or a benchmark")
    assert said.endswith(": move or rename it, or replace it with --again\n")
    Path("page.md").write_text("<!-- results strokes -->\n<!-- /results -->\n")
    assert main(["results", "tables", "page.md"]) == 2
    assert capsys.readouterr().err.endswith(": move it away, or remove it\n")


def test_a_file_of_another_folder_is_no_row(toy, capsys):
    (cell,) = plan("strokes", rows=["prototypical"])
    own, other = (write_result(cell, Path(folder)) for folder in ("results", "older"))
    assert main(["reproduce", "strokes", "--rows", str(own), "--again", "--dry-run"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "strokes", "--rows", str(other), "--again", "--dry-run"]) == 2
    assert f"{other} is not in results, from which --rows chooses cells: name a file there" in capsys.readouterr().err


def test_a_file_of_other_options_says_which_they_are(toy, capsys):
    (cell,) = plan("strokes", rows=["prototypical"])
    path = write_result(cell, Path("results"), "strokes-5w1s-prototypical-plus-filters=8.json")
    changed(path, "trained", command="csn train prototypical --set network.filters=8")
    assert main(["reproduce", "strokes", "--rows", str(path), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "(--data, --set, --seeds); it is of `csn train prototypical --set network.filters=8`" in said


def test_a_file_of_another_format_is_refused(toy, tmp_path):
    cell = plan("strokes", rows=["prototypical"])[0]
    path = write_result(cell, tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(ValueError, match="has format 99, this version of csn reads 2"):
        cell.missing(tmp_path)
    assert cell.missing(tmp_path, again=True) == list(cell.tests)


def test_an_interruption_lets_the_running_cells_stop(toy, capsys, monkeypatch):
    monkeypatch.setattr(
        "csn.cli.run_cells._next_command", lambda each: os.kill(os.getpid(), signal.SIGTERM) or "running"
    )
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--set", "train.tasks=100000"]) == 130
    assert "continue with the same command" in capsys.readouterr().out
    assert list(Path("results").iterdir()) == []
    # Asked to stop before it had begun or while it trained, it is gone, and no other holds its run.
    lock_folder(Path("runs/reproduce/strokes-5w1s-prototypical-plus"))
    assert "$ csn train prototypical" in Path("runs/reproduce/strokes-5w1s-prototypical-plus.log").read_text()


def test_a_run_that_was_killed_at_once_goes_on_with_the_pretraining_of_another(toy, monkeypatch):
    cells, started = plan("strokes"), []
    monkeypatch.setattr("csn.cli.run_cells.pretrained_by", lambda *_: cells[0])
    monkeypatch.setattr("csn.cli.run_cells._spawn", lambda command, log: started.append(command))
    options = parser().parse_args(["reproduce", "strokes", "--runs", "runs", "--threads", "1"])
    folder = Path("runs", cells[1].name)
    folder.mkdir(parents=True)

    def words() -> tuple[bool, bool]:
        _start(cells[1], cells[1].tests, cells, options, 1).log.close()
        return "--resume" in started[-1], "--pretrained" in started[-1]

    assert words() == (False, True)
    (folder / ".config.json.half").touch()
    assert words() == (True, True)
    (folder / "pretraining").mkdir()
    (folder / "pretraining" / "last.safetensors").touch()
    assert words() == (True, False)


@pytest.mark.parametrize("option", ["--results", "--runs"])
def test_a_folder_that_takes_no_files_is_named_before_anything_is_trained(toy, capsys, monkeypatch, option):
    monkeypatch.setattr("csn.cli.reproduce.run_all", lambda *_: pytest.fail("trained"))
    Path("taken").touch()
    assert main(["reproduce", "strokes", option, "taken"]) == 2
    assert "cannot write to taken (" in capsys.readouterr().err


def test_pretraining_is_done_once_for_a_table(toy, monkeypatch, capsys):
    named = [*SMALL, "pretrain.epochs=1", "pretrain.batch=512"]
    rows = [
        {"presets": ["adacnn-df"], "recipes": ["plus"], "tasks": ["5w1s", "5w2s"], "set": named},
        {"presets": ["adacnn-gradient"], "recipes": ["plus"], "tasks": ["5w1s"], "set": [*named, "pretrain.batch=256"]},
    ]
    monkeypatch.setattr(reproduce, "tables", lambda: {"strokes": rows})
    cells = plan("strokes")
    assert [pretrained_by(cell, cells, Path("runs")) for cell in cells] == [None, None, None]
    for cell in cells[:2]:
        command = training_command(
            cell, Path("runs"), threads=1, resume=False, pretrained=pretrained_by(cell, cells, Path("runs"))
        )
        assert main(command) == 0
    said = capsys.readouterr().out
    assert said.count("pretraining the network as a classifier") == 1
    assert [pretrained_by(cell, cells, Path("runs")) for cell in cells] == [cells[1], cells[0], None]
    one, two = (Path("runs") / cell.name / "pretraining" for cell in cells[:2])
    assert read_log(one) == read_log(two) != []  # taken over, with the time it took
    (one.parent / "config.json").write_text(cells[2].config.to_json())  # not what was planned
    assert pretrained_by(cells[1], cells, Path("runs")) is None
    assert read_log(two.parent)[0]["seconds"] >= read_log(two)[-1]["seconds"]
