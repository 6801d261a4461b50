"""Rows of tables: what a result is called, which seeds and arms belong together, and files that cannot be used."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from csn.cli import main as cli
from csn.config import config_from_json, load_preset, merge
from csn.engine.evaluate import summarise
from csn.experiments.pages import accuracy_table, arms_table, grid_table, overhead_table
from csn.experiments.records.files import read_results
from csn.experiments.records.result import PRETRAINED, changed_options
from csn.experiments.records.statistics import by_seed
from csn.experiments.tables.plan import plan

ROOT = Path(__file__).resolve().parents[2]


def changed(config: dict[str, Any], options: dict[str, dict[str, object]]) -> dict[str, Any]:
    """A configuration with some options of some sections changed."""
    return config | {section: config[section] | values for section, values in options.items()}


def test_older_costs_of_adaptation_have_a_column_less() -> None:
    older = {"tasks": "5w1s", "phase": "train", "df": [1, 1.1, 1.2], "gradient": [1.2, 1.3, 1.4]}
    younger = older | {"df-end-to-end": [1.1, 1.2, 1.3]}
    assert overhead_table([younger]).splitlines() == [
        "| tasks | phase | direct feedback | direct feedback, end to end | error gradient |",
        "|---|---|---|---|---|",
        "| 5w1s | train | 1.10 (1.00 - 1.20) | 1.20 (1.10 - 1.30) | 1.30 (1.20 - 1.40) |",
    ]
    assert "end to end" not in overhead_table([older, younger])
    measured = older | {"df-least": [1, 1, 1], "peak_mb": {"floor": 1000, "df": 1100, "gradient": 1200}}
    header, _, row = overhead_table([measured]).splitlines()
    assert header.endswith("| error gradient | peak MB: floor, direct feedback, error gradient |")
    assert row.endswith("| 1,000, 1,100, 1,200 |")


def test_the_arms_of_an_ablation_stand_against_their_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    baseline = ROOT / "results" / "ablation" / "penn-treebank-5w1s-adalstm-1-df-plus-baseline.json"
    content = json.loads(baseline.read_text(encoding="utf-8"))
    content["evaluation"]["tasks"] = 3
    Path("results/ablation").mkdir(parents=True)
    arms = {
        "z": ({}, [0.5, 0.7, 0.9]),
        "b": ({"learner": {"shift_rule": "raw"}}, [0.4, 0.8, 0.9]),
        "a": ({"network": {"units": 32}}, [0.4, 0.6, 0.8]),
    }
    for name, (change, accuracies) in arms.items():
        mean, interval = summarise(accuracies)
        made = content | {"accuracies": {"trained": accuracies}}
        made |= {"summary": {"trained": {"accuracy": mean, "interval": interval}}}
        made["config"] = changed(content["config"], change)
        Path(f"results/ablation/{name}.json").write_text(json.dumps(made))
    Path("page.md").write_text("<!-- results arms ablation penn-treebank -->\n<!-- /results -->\n")
    assert cli.main(["results", "tables", "page.md"]) == 0
    rows = [line.split(" | ") for line in Path("page.md").read_text().splitlines()[3:-1]]
    # As the plan has them; what it does not have comes last, by what it changes.
    assert [row[1] for row in rows] == ["baseline", "raw beta", "units=32"]
    spread = 1.96 * 0.1 / 3**0.5
    assert [row[3] for row in rows] == ["", f"+0.00 ± {100 * spread:.2f}", "-10.00 ± 0.00"]
    assert rows[0][0] == "| `adalstm-1-df`, plus, 5-way 1-shot"
    assert [row[4] for row in rows] == ["", "", ""]  # the paper's, which has another recipe
    assert rows[1][6] == "[result](results/ablation/b.json) |"
    again = content | {"accuracies": {"trained": [0.1, 0.1, 0.1]}, "config": json.loads(json.dumps(content["config"]))}
    again["config"]["train"]["seed"] = 1  # of the baseline alone, so that no other arm stands against it
    Path("results/ablation/s.json").write_text(json.dumps(again))
    assert cli.main(["results", "tables", "page.md"]) == 0
    assert [line.split(" | ")[3] for line in Path("page.md").read_text().splitlines()[4:-1]] == [r[3] for r in rows[1:]]
    other = json.loads(Path("results/ablation/b.json").read_text()) | {"accuracies": {"trained": [0.5, 0.3, 0.1]}}
    other["config"]["train"]["seed"] = 1
    Path("results/ablation/t.json").write_text(json.dumps(other))
    assert cli.main(["results", "tables", "page.md"]) == 0
    against = Path("page.md").read_text().splitlines()[4].split(" | ")[3]
    assert against == "+10.00 ± 9.80 (± 127.06 over 2 seeds, by seed +0.00 to +20.00)"  # tasks of 15, 15 and 0 points
    other["config"]["train"]["seed"] = 2  # which the baseline does not have
    Path("results/ablation/u.json").write_text(json.dumps(other))
    assert cli.main(["results", "tables", "page.md"]) == 0
    against = Path("page.md").read_text().splitlines()[4].split(" | ")[3]
    assert against == "+10.00 ± 9.80 (2 of 3 seeds, ± 127.06 over 2 seeds, by seed +0.00 to +20.00)"
    for name in ("s", "t", "u"):
        Path(f"results/ablation/{name}.json").unlink()
    unnamed = content | {"config": content["config"] | {"pretrain": {"epochs": 0}}}
    Path("results/ablation/y.json").write_text(json.dumps(unnamed | {"accuracies": {"trained": [0.1, 0.1, 0.1]}}))
    assert cli.main(["results", "tables", "page.md"]) == 0
    *others, last = [line.split(" | ") for line in Path("page.md").read_text().splitlines()[3:-1]]
    assert others == rows  # a baseline of its own, and nobody else's
    assert last[:2] == ["| `adalstm-1-df`, plus, not pretrained, 5-way 1-shot", "baseline"]
    Path("results/ablation/y.json").unlink()
    made["summary"]["untrained"], made["accuracies"]["untrained"] = made["summary"]["trained"], [0.2, 0.2, 0.2]
    Path("results/ablation/z.json").write_text(json.dumps(made | {"config": content["config"]}))  # shown beside it
    assert cli.main(["results", "tables", "page.md"]) == 0
    assert len(Path("page.md").read_text().splitlines()) == 7
    Path("page.md").write_text("<!-- results arms ablation strokes -->\n<!-- /results -->\n")
    assert cli.main(["results", "tables", "page.md"]) == 2


def test_an_arm_stands_against_the_baseline_that_was_trained_as_it_was(tmp_path: Path) -> None:
    baseline = ROOT / "results" / "ablation" / "penn-treebank-5w1s-adalstm-1-df-plus-baseline.json"
    content = json.loads(baseline.read_text(encoding="utf-8"))
    content["evaluation"]["tasks"] = 3
    content["config"]["learner"]["feedback"] = load_preset("adalstm-1-df", "plus").learner.feedback

    def against(*arms: tuple[dict[str, dict[str, object]], float]) -> list[str]:
        """The differences, by the order of the arms."""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for number, (changes, accuracy) in enumerate(arms):
            made = json.loads(json.dumps(content | {"accuracies": {"trained": [accuracy] * 3}}))
            made["summary"]["trained"] = {"accuracy": accuracy, "interval": 0.0}
            for section, options in changes.items():
                part = made["evaluation"] if section == "evaluation" else made["config"][section]
                part.update(options)
            (folder / f"{number}.json").write_text(json.dumps(made))
        lines = [line.split(" | ") for line in arms_table(read_results(folder), folder.parent).splitlines()[2:]]
        return [line[3] for line in sorted(lines, key=lambda line: line[-1])]

    raw = {"learner": {"shift_rule": "raw"}}
    short, long = {"train": {"tasks": 10}}, {"train": {"tasks": 20}}
    assert against((short, 0.5), (long, 0.7), (raw | short, 0.4), (raw | long, 0.4)) == [
        "",
        "",
        "-10.00 ± 0.00",
        "-30.00 ± 0.00",
    ]
    assert against((short, 0.5), (raw | long, 0.4)) == ["", ""]
    few = {"data": {"queries": 1}}
    assert against(({}, 0.8), (few, 0.5), (raw | few, 0.4))[2] == "-10.00 ± 0.00"
    assert against(({}, 0.8), (raw | {"evaluation": {"queries": 9}}, 0.4)) == ["", ""]
    assert against(({"evaluation": {"attention": "hard"}}, 0.8), (raw, 0.4)) == ["", ""]
    one, two = {"train": {"seed": 1}}, {"train": {"seed": 2}}
    assert against((one, 0.5), (raw | two, 0.4)) == ["", ""]
    assert against((one, 0.5), (raw | one, 0.4), (raw | two, 0.9)) == ["", "-10.00 ± 0.00 (1 of 2 seeds)"]


def test_the_paper_s_arms_stand_beside_ours_where_data_and_recipe_are_its_own(tmp_path: Path) -> None:
    path = ROOT / "results" / "ablation" / "penn-treebank-5w1s-adalstm-1-df-plus-baseline.json"
    content = json.loads(path.read_text(encoding="utf-8"))

    def papers(preset: str, data: str, change: dict[str, object], recipe: str = "paper", **asked: object) -> str:
        config = merge(load_preset(preset, recipe), {"data": {"name": data, "way": 5, "shot": 1}, **change})
        made = content | {"config": json.loads(config.to_json())}
        made["evaluation"] = content["evaluation"] | {"data": data, "attention": config.learner.attention} | asked
        (tmp_path / "arm.json").write_text(json.dumps(made))
        (row,) = arms_table(read_results(tmp_path), tmp_path.parent).splitlines()[2:]
        return row.split(" | ")[4]

    inside, raw, simple = (
        {"learner": change} for change in ({"shift_rule": "inside"}, {"shift_rule": "raw"}, {"g": "simple"})
    )
    language, images = "penn-treebank", "mini-imagenet"
    kinds = ("df", "gradient")
    assert [papers(f"adalstm-1-{kind}", language, inside) for kind in kinds] == ["-3.10", "-5.85"]
    all_of_them = {"sampling": "all-inclusive"}
    assert [papers(f"adalstm-1-{kind}", language, inside, **all_of_them) for kind in kinds] == ["-2.25", "-5.90"]
    assert [papers(f"adacnn-32-{kind}", images, inside) for kind in kinds] == ["-0.25", "-0.46"]
    assert [papers(f"adalstm-1-{kind}", language, raw) for kind in kinds] == ["about -7", "about -7"]
    assert [papers(f"adalstm-1-{kind}", language, simple) for kind in kinds] == ["below -10", "chance (20 %)"]
    assert [papers(f"adacnn-32-{kind}", images, simple) for kind in kinds] == ["below -10", "about -3"]
    nothing = [
        papers("adalstm-1-df", language, {}),  # the baseline
        papers("adalstm-1-df", language, inside, "plus"),
        papers("adalstm-1-df", language, inside | {"network": {"units": 32}}),
        papers("adalstm-1-df", language, inside, attention="hard"),
        papers("adalstm-1-df", language, raw, **all_of_them),
        papers("adalstm-1-df", language, inside, shot=2),
        papers("adacnn-32-df", "tiny-imagenet-fewshot", inside),
        papers("adacnn-df", "omniglot", inside),
    ]
    assert nothing == [""] * len(nothing)


def test_options_of_data_and_pretraining_tell_rows_apart() -> None:
    def changes_of(config: dict[str, Any]) -> list[str]:
        return list(changed_options(config_from_json(json.dumps(config))))

    config = json.loads(load_preset("adalstm-1-df", "plus").to_json())
    assert changes_of(config) == []
    config["data"] |= {"queries": 7, "vary": True, "way": 20, "shot": 3, "name": "elsewhere"}
    config["pretrain"] |= {"epochs": 9, "batch": 32}
    assert changes_of(config) == ["queries=7", "vary=True", "pretrain.batch=32", "pretrain.epochs=9"]
    config["pretrain"]["epochs"] = 0  # which has words of its own
    assert changes_of(config) == ["queries=7", "vary=True"]
    named = json.loads(load_preset("adacnn-df", "plus").to_json())
    named["pretrain"] = dataclasses.asdict(PRETRAINED)
    assert changes_of(named) == []
    named["pretrain"]["epochs"] = 8
    assert changes_of(named) == ["pretrain.epochs=8"]
    assert {cell.config.pretrain for cell in plan("omniglot", rows=["adacnn-df", "plus", "20w1s"])} == {PRETRAINED}


def test_the_paper_s_number_stands_beside_no_other_attention(tmp_path: Path) -> None:
    path = ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["evaluation"]["attention"] = "hard"
    (tmp_path / path.name).write_text(json.dumps(content))
    (result,) = read_results(tmp_path)
    assert (result.name, result.published) == ("`adacnn-gradient`, paper, tested with hard attention", "")


def test_a_grid_has_a_line_a_model(tmp_path: Path) -> None:
    content = json.loads(
        (ROOT / "results/penn-treebank/penn-treebank-5w3s-adalstm-2-df-plus.json").read_text(encoding="utf-8")
    )
    (tmp_path / "three.json").write_text(json.dumps(content))
    content["evaluation"]["shot"], content["config"]["network"]["units"] = 1, 300  # the preset's, at 1 shot
    (tmp_path / "one.json").write_text(json.dumps(content))
    content["config"]["preset"] = "adalstm-2-gradient"
    content["config"]["learner"]["conditioning"] = "gradient"
    (tmp_path / "other.json").write_text(json.dumps(content))
    head, _, *lines = grid_table(read_results(tmp_path), tmp_path.parent).splitlines()
    assert head == "| model | 5-way 1-shot | 5-way 3-shot |"
    assert [line.split(" | ")[0] for line in lines] == ["| `adalstm-2-df`, plus", "| `adalstm-2-gradient`, plus"]
    three = f"[55.24 ± 1.36]({tmp_path.name}/three.json)<br>paper 57.8"
    assert f"| [55.24 ± 1.36]({tmp_path.name}/one.json)<br>paper 41.25<br>6 min | {three}" in lines[0]
    assert lines[1].endswith("min |  |")
    (tmp_path / "twice.json").write_text(json.dumps(content | {"evaluation": content["evaluation"] | {"queries": 9}}))
    with pytest.raises(ValueError, match=r"are both of `adalstm-2-gradient`, plus, 5-way 1-shot: keep one"):
        grid_table(read_results(tmp_path), tmp_path.parent)
    # A longer training of another seed is no seed of the same row.
    content["config"]["train"] |= {"seed": 1, "tasks": 4000}
    content["trained"]["validation_curve"].append([4000, 0.5])
    (tmp_path / "twice.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"train both alike, not on 2,000 and 4,000 tasks, or keep one of them"):
        grid_table(read_results(tmp_path), tmp_path.parent)


def test_trainings_that_differ_in_the_seed_share_a_row(tmp_path: Path) -> None:
    content = json.loads(
        (ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json").read_text(encoding="utf-8")
    )
    content["evaluation"]["tasks"] = 3
    for seed, accuracies in ((0, [0.5, 0.7, 0.9]), (1, [0.7, 0.7, 0.7]), (2, [0.9, 0.7, 0.5])):
        content["config"]["train"]["seed"] = seed
        content["accuracies"] = {"trained": accuracies}
        mean, interval = summarise(accuracies)
        content["summary"] = {"trained": {"accuracy": mean, "interval": interval}}
        (tmp_path / f"{2 - seed}.json").write_text(json.dumps(content))
    (row,) = accuracy_table(read_results(tmp_path), tmp_path.parent).splitlines()[2:]
    # Every task has a mean of 0.7 over the seeds, so that between tasks there is no spread left.
    assert "| 70.00 ± 0.00 (± 0.00 over 3 seeds, 70.00 to 70.00) |" in row
    assert row.endswith(
        f"| [result]({tmp_path.name}/2.json), [result]({tmp_path.name}/1.json), [result]({tmp_path.name}/0.json) |"
    )
    content["config"]["train"]["learning_rate"] *= 2  # another training, of a seed that is there
    (tmp_path / "3.json").write_text(json.dumps(content))
    content["evaluation"]["seed"] += 1
    (tmp_path / "4.json").write_text(json.dumps(content))
    rows = accuracy_table(read_results(tmp_path), tmp_path.parent).splitlines()[2:]
    assert [row.count("[result]") for row in rows] == [3, 1, 1]


def test_a_row_of_several_seeds_says_how_long_each_was_trained(tmp_path: Path) -> None:
    content = json.loads((ROOT / "results/omniglot/omniglot-5w1s-adacnn-df-plus.json").read_text(encoding="utf-8"))
    for seed, (chosen, in_all, seconds) in enumerate([(2500, 3000, 200), (500, 2600, 260), (3000, 3000, 130)]):
        content["config"]["train"]["seed"] = seed
        curve = [[chosen, 0.5], [in_all, 0.5]]
        content["trained"] |= {"tasks": chosen, "seconds_in_all": seconds, "validation_curve": curve}
        (tmp_path / f"{seed}.json").write_text(json.dumps(content))
    results = read_results(tmp_path)
    (row,) = accuracy_table(results, tmp_path.parent).splitlines()[2:]
    assert "| 500 to 3,000 of 2,600 to 3,000 tasks, 2 to 4 min |" in row
    assert "| 500 to 3,000 of 2,600 to 3,000 tasks, 2 to 4 min |" in arms_table(results, tmp_path.parent)
    assert "<br>2 to 4 min |" in grid_table(results, tmp_path.parent)
    (row,) = accuracy_table(results[:1], tmp_path.parent).splitlines()[2:]
    assert "| 2,500 of 3,000 tasks, 3 min |" in row


def test_seeds_share_a_row_if_they_were_asked_the_same_by_whatever_version(tmp_path: Path) -> None:
    content = json.loads(
        (ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json").read_text(encoding="utf-8")
    )
    files = {name: json.loads(json.dumps(content)) for name in ("old", "young", "val", "queries", "other-data")}
    for section, option in (("data", "bad_files"), ("learner", "feedback")):
        files["old"]["config"][section].pop(option, None)  # from before there was such an option
    del files["old"]["evaluation"]["fingerprint"]
    for name in files.keys() - {"old"}:
        files[name]["config"]["train"]["seed"] = 1
        files[name]["config"]["data"]["bad_files"] = "stop"
    files["val"]["evaluation"]["split"] = "val"
    files["queries"]["evaluation"]["queries"] = 3
    for name in ("old", "young", "val", "queries"):
        (tmp_path / f"{name}.json").write_text(json.dumps(files[name]))
    assert sorted([each.path.stem for each in seeds] for seeds in by_seed(read_results(tmp_path))) == [
        ["old", "young"],
        ["queries"],
        ["val"],
    ]
    files["other-data"]["evaluation"]["fingerprint"] = "0" * 64
    (tmp_path / "other-data.json").write_text(json.dumps(files["other-data"]))
    assert ["young"] in [[each.path.stem for each in seeds] for seeds in by_seed(read_results(tmp_path))]


def test_a_copy_is_no_other_seed(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_bytes((ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json").read_bytes())
    with pytest.raises(ValueError, match=r"one.json and .*two.json are of one training, with seed 0: keep one of them"):
        by_seed(read_results(tmp_path))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("evaluation", {}, "does not say data, way, shot, tasks in 'evaluation'"),
        ("trained", {"tasks": 1, "seconds": None}, "does not say seconds, seconds_in_all, validation, "),
        ("accuracies", {}, "does not say trained in 'accuracies'"),
        ("summary", {}, "does not say trained in 'summary'"),
        (
            "config",
            {"network": {"colour": "red"}},
            "is of another version of csn (network 'cnn' has no option 'colour'",
        ),
        (
            "config",
            {"network": 5},
            "is of another version of csn ('network' is a section of options: give names and values, got 5)",
        ),
        (
            "config",
            {"model": {"learner": "csn"}},
            "is of another version of csn (this configuration has all its options in",
        ),
        ("format", 1, "has format 1 (that of csn 0.1, whose configurations have a section 'model')"),
        ("format", 3, "has format 3, this version of csn reads 2: use the version that wrote it"),
        ("config", [], "has no object of names and values as 'config'"),
        ("trained", [], "has no object of names and values as 'trained'"),
        ("evaluation", None, "has no object of names and values as 'evaluation'"),
        ("summary", "high", "has no object of names and values as 'summary'"),
        ("accuracies", 0.9, "has no object of names and values as 'accuracies'"),
        ("command", None, "does not say the command that made it"),
        ("summary.trained", {"accuracy": "high"}, "does not say accuracy and interval of trained"),
        ("summary.trained", {"accuracy": 10**400, "interval": 0}, "does not say accuracy and interval of trained"),
        (
            "summary.trained",
            {"accuracy": 0.5, "interval": 0.1, "ece": "low"},
            "has a value of trained in 'summary' that is not a number",
        ),
        ("summary.best", {}, "is of best, where only trained, untrained, nearest neighbour can be"),
        ("summary.untrained", {}, "does not have both a summary and accuracies of untrained"),
        ("accuracies.trained", [0.5], "tasks, but has 1 accuracies of trained"),
        ("accuracies.trained", [0.5, None], "has no list of numbers as accuracies of trained"),
        ("evaluation.split", 5, "must have text as split in 'evaluation'"),
        ("evaluation.sampling", "twice", "has 'twice' as sampling in 'evaluation', where random or"),
        ("evaluation.way", True, "does not say way in 'evaluation'"),
        ("trained.earlier", {"commit": "a"}, "has no list of commits as 'earlier' in 'trained'"),
        ("trained.earlier", [{"command": "csn"}], "has no list of commits as 'earlier' in 'trained'"),
        ("trained.validation_curve", [5], "has no pairs of tasks and accuracy"),
    ],
)
def test_a_file_that_says_too_little_is_named(
    part: str, value: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(
        (ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json").read_text(encoding="utf-8")
    )
    path, (section, dot, name) = tmp_path / "odd.json", part.partition(".")
    path.write_text(json.dumps(content | {section: content[section] | {name: value} if dot else value}))
    (tmp_path / "page.md").write_text("")
    assert cli.main(["results", "tables", "--results", str(tmp_path), str(tmp_path / "page.md")]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert message in said
