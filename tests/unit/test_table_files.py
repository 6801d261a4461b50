"""The tables beside result files: the same whatever command wrote them last."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from toy_tables import TOY, write_result

from csn.experiments.tables.files import all_table_files, table_files
from csn.experiments.tables.plan import plan

NAME = "strokes-5w1s-prototypical-plus"


def files_in(content: bytes) -> list[str]:
    return [row["file"] for row in csv.DictReader(content.decode().splitlines())]


def test_a_table_has_every_seed_and_change_of_its_cells_and_nothing_else(toy):
    results, said = Path("results"), list[str]()
    own, changed = ([*plan("strokes", rows=["prototypical"], seeds=11, changes=c)] for c in ((), ["model.filters=6"]))
    for cell in (own[0], own[9], own[10], changed[0], changed[2]):
        write_result(cell, results)
    # Another arm, another test, and one that is not what its name says.
    write_result(own[0], results, f"{NAME}-raw-beta.json")
    write_result(own[0], results, f"{NAME}-filters=6-all-inclusive.json", formed="all-inclusive")
    write_result(own[0], results, f"{NAME}-seed3.json", shot=2)
    expected = [f"{NAME}{rest}.json" for rest in ("", "-seed9", "-seed10", "-filters=6", "-filters=6-seed2")]
    table = table_files("strokes", results, skip=said.append)
    assert files_in(table[results / "strokes.csv"]) == expected
    assert len(said) == 1
    assert f"{NAME}-seed3.json is of another training or test than its name says" in said[0]
    assert table_files("strokes", results, data="strokes", skip=said.append) == table
    (results / "strokes.md").touch()
    assert all_table_files(results, skip=said.append) == table


def test_other_data_have_one_table_with_the_rows_of_all(toy, monkeypatch):
    monkeypatch.setitem(TOY, "words", [{"presets": ["matching"], "recipes": ["plus"], "tasks": ["5w1s"]}])
    results = Path("results")
    for table, preset in (("strokes", "prototypical"), ("words", "matching")):
        write_result(plan(table, rows=[preset], data="/my/pets")[0], results)
    for table in ("strokes", "words"):
        content = table_files(table, results, data="/my/pets", skip=pytest.fail)[results / "pets.csv"]
        assert files_in(content) == [f"pets-5w1s-{name}-plus.json" for name in ("prototypical", "matching")]


def test_a_table_has_the_rows_of_others_on_its_data_too_whichever_wrote_it_last(toy, monkeypatch):
    monkeypatch.setitem(TOY, "words", [{"presets": ["matching"], "recipes": ["plus"], "tasks": ["5w1s"]}])
    monkeypatch.setitem(TOY, "texts", [{"presets": ["adalstm-1-df"], "recipes": ["plus"], "tasks": ["5w1s"]}])
    elsewhere = TOY["strokes"][1] | {"data": "omniglot"}
    monkeypatch.setitem(TOY, "strokes", [*TOY["strokes"], elsewhere])
    results = Path("results")
    for cell in (*plan("strokes", rows=["prototypical"]), *plan("words", data="strokes")):
        write_result(cell, results)
    expected = [f"{data}-5w1s-prototypical-plus.json" for data in ("omniglot", "strokes")]
    expected.append("strokes-5w1s-matching-plus.json")
    own = table_files("strokes", results, skip=pytest.fail)
    assert files_in(own[results / "strokes.csv"]) == expected
    assert table_files("words", results, data="strokes", skip=pytest.fail) == own
    text = own[results / "strokes.md"].decode()
    assert [f"| 5-way 1-shot of {data} |" in text for data in ("omniglot", "strokes")] == [True, True]


def test_a_size_in_the_name_of_the_data_stays(toy):
    cell = plan("strokes", rows=["adacnn-df"], data="/my/pets-5w1s")[0]
    assert [cell.result(test) for test in cell.tests] == [
        f"pets-5w1s-{size}-adacnn-df-plus.json" for size in ("3w1s", "5w1s")
    ]


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(content.decode().splitlines()))


def test_numbers_say_what_was_trained_up_to_the_chosen_model_and_in_all(toy):
    results = Path("results")
    path = write_result(plan("strokes", rows=["prototypical"])[0], results)
    content = json.loads(path.read_text())
    content["trained"] |= {"tasks": 4, "seconds": 1.5, "seconds_in_all": 2.5, "validation_curve": [[4, 0.6], [6, 0.5]]}
    path.write_text(json.dumps(content))  # stopped after 6 of its 8 tasks
    (row,) = rows_of(table_files("strokes", results, skip=pytest.fail)[results / "strokes.csv"])
    named = ("training_tasks", "seconds", "tasks_in_all", "seconds_in_all")
    assert [row[name] for name in named] == ["4", "1.5", "6", "2.5"]
    assert "arm" not in row


def test_numbers_of_an_ablation_are_against_the_baseline_of_their_seed(toy, monkeypatch):
    arms = {"baseline": [], "raw beta": ["model.shift_rule=raw"]}
    row = {"presets": ["adalstm-1-df"], "recipes": ["paper"], "tasks": ["5w1s"], "arms": arms, "data": "penn-treebank"}
    monkeypatch.setitem(TOY, "ablation", [row])
    results = Path("results/ablation")
    accuracies = [[0.4, 0.6], [0.4, 0.6], [0.3, 0.6], [0.6, 0.8], [0.9, 0.9]]
    cells = plan("ablation", rows=["baseline"], seeds=2) + plan("ablation", rows=["raw beta"], seeds=3)
    for cell, own in zip(cells, accuracies, strict=True):
        path = write_result(cell, results)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"accuracies": {"trained": own}}))
    rows = rows_of(table_files("ablation", Path("results"), skip=pytest.fail)[results / "ablation.csv"])
    named = ("arm", "seed", "against_baseline", "against_baseline_interval", "paper")
    assert [tuple(row[name] for name in named) for row in rows] == [
        ("baseline", "0", "", "", ""),
        ("baseline", "1", "", "", ""),
        ("raw beta", "0", "-5.00", "9.80", ""),
        ("raw beta", "1", "20.00", "0.00", ""),
        ("raw beta", "2", "", "", ""),  # whose baseline is not there
    ]


def test_the_table_of_the_ablations_has_those_on_other_data_too(tmp_path, monkeypatch):
    monkeypatch.setattr("csn.experiments.tables.cells.RANDOM_TASKS", {5: 2})
    results = tmp_path / "ablation"
    own, changed = (plan("ablation", rows=["baseline"], changes=changes) for changes in ((), ["model.filters=8"]))
    stand_in = plan("ablation", rows=["adacnn-32-df"], data="/my/pets")
    cells = [own[0], changed[0], *stand_in[:2], *plan("ablation", rows=["adacnn-df", "raw beta"])]
    paths = [write_result(cell, results) for cell in cells]
    (results / "broken.json").write_text("{")
    said = list[str]()
    table = table_files("ablation", tmp_path, skip=said.append)
    pictures = {f"ablation-{data}.png" for data in ("mini-imagenet", "omniglot", "pets")}
    assert {path.name for path in table} == {"ablation.md", "ablation.csv", *pictures}
    assert set(files_in(table[results / "ablation.csv"])) == {path.name for path in paths}
    assert "pets-5w1s-adacnn-32-df-paper-raw-beta.json" in files_in(table[results / "ablation.csv"])
    assert "| `adacnn-32-df`, paper, pets, 5-way 1-shot | raw beta |" in table[results / "ablation.md"].decode()
    assert table_files("ablation", tmp_path, data="/my/pets", skip=said.append) == table
    (results / "ablation.md").touch()
    assert all_table_files(tmp_path, skip=said.append) == table
    assert said == []


def test_a_table_of_data_at_a_path_is_written_anew_too(toy):
    results = Path("results")
    write_result(plan("strokes", rows=["prototypical"], data="/my/pets")[0], results)
    made = table_files("strokes", results, data="/my/pets", skip=pytest.fail)
    (results / "pets.md").write_text("what once was")
    assert all_table_files(results, skip=pytest.fail) == made != {}
