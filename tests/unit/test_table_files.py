"""The tables beside result files: the same whatever command wrote them last."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from toy_tables import TOY, write_result

from csn.experiments.tables.exports import all_table_files, table_files
from csn.experiments.tables.plan import plan

NAME = "strokes-5w1s-prototypical-plus"


def files_in(content: bytes) -> list[str]:
    return [row["file"] for row in csv.DictReader(content.decode().splitlines())]


def test_a_table_has_every_result_of_its_folder_by_size_model_and_seed(toy):
    results, said = Path("results/strokes"), list[str]()
    own, other = (plan("strokes", rows=["prototypical"], seeds=11, changes=c) for c in ((), ["network.filters=6"]))
    for cell in (own[10], own[9], other[2], other[0], own[0]):
        write_result(cell, results.parent)
    write_result(own[0], results.parent, f"deeper/{NAME}-3-ways.json", way=3)
    expected = [f"{NAME}{rest}.json" for rest in ("-3-ways", "", "-seed9", "-seed10", "-filters=6", "-filters=6-seed2")]
    table = table_files(results, skip=said.append)
    assert files_in(table[results / "strokes.csv"]) == expected
    text = table[results / "strokes.md"].decode()
    assert f"[result]({NAME}.json), [result]({NAME}-seed9.json)" in text
    assert f"[result](deeper/{NAME}-3-ways.json)" in text
    assert said == []
    (results / "strokes.md").touch()
    assert all_table_files(results.parent, skip=said.append) == table
    assert table_files(results.parent / "gone", skip=said.append) == {}


def test_data_at_a_path_give_their_last_part_to_folder_and_files(toy):
    cell = plan("strokes", rows=["adacnn-df"], data="/my/pets-5w1s")[0]
    assert [cell.result(test) for test in cell.tests] == [
        f"pets-5w1s/pets-5w1s-{size}-adacnn-df-plus.json" for size in ("3w1s", "5w1s")
    ]
    write_result(cell, Path("results"))
    assert Path("results/pets-5w1s/pets-5w1s.csv") in table_files(Path("results/pets-5w1s"), skip=pytest.fail)


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(content.decode().splitlines()))


def test_numbers_say_what_was_trained_up_to_the_chosen_model_and_in_all(toy):
    results = Path("results/strokes")
    path = write_result(plan("strokes", rows=["prototypical"])[0], results.parent)
    content = json.loads(path.read_text())
    content["trained"] |= {"tasks": 4, "seconds": 1.5, "seconds_in_all": 2.5, "validation_curve": [[4, 0.6], [6, 0.5]]}
    path.write_text(json.dumps(content))  # stopped after 6 of its 8 tasks
    (row,) = rows_of(table_files(results, skip=pytest.fail)[results / "strokes.csv"])
    named = ("training_tasks", "seconds", "tasks_in_all", "seconds_in_all")
    assert [row[name] for name in named] == ["4", "1.5", "6", "2.5"]
    assert "arm" not in row


def test_numbers_of_an_ablation_are_against_the_baseline_of_their_seed(toy, monkeypatch):
    arms = {"baseline": [], "raw beta": ["learner.shift_rule=raw"]}
    row = {"presets": ["adalstm-1-df"], "recipes": ["paper"], "tasks": ["5w1s"], "arms": arms, "data": "penn-treebank"}
    monkeypatch.setitem(TOY, "ablation", [row])
    results = Path("results/ablation")
    accuracies = [[0.4, 0.6], [0.4, 0.6], [0.3, 0.6], [0.6, 0.8], [0.9, 0.9]]
    cells = plan("ablation", rows=["baseline"], seeds=2) + plan("ablation", rows=["raw beta"], seeds=3)
    for cell, own in zip(cells, accuracies, strict=True):
        path = write_result(cell, Path("results"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"accuracies": {"trained": own}}))
    rows = rows_of(table_files(results, skip=pytest.fail)[results / "ablation.csv"])
    named = ("arm", "seed", "against_baseline", "against_baseline_interval", "paper")
    assert [tuple(row[name] for name in named) for row in rows] == [
        ("baseline", "0", "", "", ""),
        ("baseline", "1", "", "", ""),
        ("raw beta", "0", "-5.00", "9.80", ""),
        ("raw beta", "1", "20.00", "0.00", ""),
        ("raw beta", "2", "", "", ""),  # whose baseline is not there
    ]


def test_the_table_of_the_ablations_has_a_picture_for_each_data_set(tmp_path, monkeypatch):
    monkeypatch.setattr("csn.experiments.tables.cells.RANDOM_TASKS", {5: 2})
    results, said = tmp_path / "ablation", list[str]()
    own, changed = (plan("ablation", rows=["baseline"], changes=changes) for changes in ((), ["train.clip=8"]))
    stand_in = plan("ablation", rows=["adacnn-32-df"], data="/my/pets")
    pets = [next(cell for cell in stand_in if cell.arm == arm) for arm in ("baseline", "raw beta")]
    cells = [own[0], changed[0], *pets, *plan("ablation", rows=["adacnn-df", "raw beta"])]
    paths = [write_result(cell, tmp_path) for cell in cells]
    (results / "broken.json").write_text("{")
    table = table_files(results, skip=said.append)
    pictures = {f"ablation-{data}.png" for data in ("mini-imagenet", "omniglot", "pets")}
    assert {path.name for path in table} == {"ablation.md", "ablation.csv", *pictures}
    assert set(files_in(table[results / "ablation.csv"])) == {path.name for path in paths}
    assert "| `adacnn-32-df`, paper, pets, 5-way 1-shot | raw beta |" in table[results / "ablation.md"].decode()
    (why,) = said
    assert "broken.json is no result file" in why
