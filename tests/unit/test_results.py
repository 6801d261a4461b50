"""Every accuracy in README and docs is that of the committed result file its row links to."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from csn.cli import main as cli
from csn.config import load_preset
from csn.engine.checkpoint import checkpoint_sha256
from csn.engine.evaluate import summarise
from csn.experiments.pages import fill, marked_pages
from csn.experiments.records.files import read_results, result_paths
from csn.experiments.records.published import published
from csn.experiments.records.verify import check_summary, kept_checkpoint
from csn.experiments.tables.exports import all_table_files, table_files
from csn.presets import preset_names

ROOT = Path(__file__).resolve().parents[2]
# A difference has a sign; it follows the accuracy.
ROW = re.compile(r".*(?<![+-])\b(\d+\.\d\d ± \d+\.\d\d).*\]\((?:\.\./)*(results/[\w./=-]+\.json)(?:#([\w-]+))?\)")
CELL = re.compile(r"\[(\d+\.\d\d ± \d+\.\d\d)\]\((?:\.\./)*(results/[\w./=-]+\.json)(?:#([\w-]+))?\)")
PAGES = [page.relative_to(ROOT).as_posix() for page in marked_pages(ROOT)]
LINKED = ["README.md", *(page for page in PAGES if page != "README.md")]  # README's table is chosen by hand


def rows() -> list[tuple[str, str, str, str]]:
    """Every accuracy that links to its file: a cell of a grid, or a row; those over several seeds link to several."""
    return [
        (page, *match.groups(default="trained"))
        for page in LINKED
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines()
        for match in list(CELL.finditer(line)) or [ROW.search(line)]
        if match and " seeds, " not in line
    ]


def test_pages_have_results() -> None:
    shown = {page for page, *_ in rows()}
    assert {"README.md", "docs/results/omniglot.md", "docs/characters.md"} <= shown <= set(LINKED)


@pytest.mark.parametrize(("page", "shown", "file", "learner"), rows())
def test_a_row_shows_what_its_file_says(page: str, shown: str, file: str, learner: str) -> None:
    result = json.loads((ROOT / file).read_text(encoding="utf-8"))
    learner = learner.replace("-", " ")
    accuracies = result["accuracies"][learner]
    evaluation = result["evaluation"]
    assert len(accuracies) == evaluation["tasks"]
    assert evaluation["tasks"] >= 400 or evaluation["sampling"] == "all-inclusive"
    stated = result["summary"][learner]
    assert shown == f"{100 * stated['accuracy']:.2f} ± {100 * stated['interval']:.2f}"
    # Accuracies of tasks are written with six digits.
    assert (stated["accuracy"], stated["interval"]) == pytest.approx(summarise(accuracies), abs=1e-6)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_of_a_page_lead_to_files_that_are_there(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    here = [target for target in targets if "://" not in target]
    # The site makes a page of each tutorial.
    made = {f"tutorials/{path.stem}.rst" for path in (ROOT / "examples" / "tutorials").glob("*.py")}
    assert [target for target in here if target not in made and not (page.parent / target).exists()] == []


RESULTS = sorted(
    path for path in result_paths(ROOT / "results") if "accuracies" in json.loads(path.read_text(encoding="utf-8"))
)


def test_every_kept_checkpoint_is_that_of_its_results() -> None:
    contents = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in RESULTS]
    kept = {folder: [] for folder in sorted((ROOT / "results").glob("*/models/*"))}
    for path, content in contents:
        folder = kept_checkpoint(path, content)
        if folder is not None:
            assert content["trained"]["checkpoint_sha256"] == checkpoint_sha256(folder), path.name
            kept[folder].append(path.name)
    assert kept
    assert all(kept.values()), "a checkpoint that no result file names"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_result_can_be_checked(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["evaluation"]["split"] == "test"
    assert {"command", "commit", "date", "machine", "config", "trained", "accuracies"} <= set(result)
    assert {"command", "commit", "validation", "validation_curve", "seconds_in_all"} <= set(result["trained"])
    check_summary(result)
    assert not Path(result["trained"].get("run", "")).is_absolute()  # a folder of one machine's tells nobody anything
    curve = dict(result["trained"]["validation_curve"])
    assert result["trained"]["validation"] == pytest.approx(curve[result["trained"]["tasks"]])
    if "perplexity" not in result["trained"]:  # which a language model is chosen by
        assert result["trained"]["validation"] == pytest.approx(max(curve.values()))  # chosen on validation tasks


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_what_the_result_files_make_of_them(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert fill(text, ROOT / "results", (ROOT / page).parent) == text, "run csn results tables"


def test_the_paper_s_numbers_stand_beside_ours_only_where_it_has_them(tmp_path: Path) -> None:
    path = ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json"
    (tmp_path / path.name).write_bytes(path.read_bytes())
    (result,) = read_results(tmp_path)
    assert (result.name, result.published) == ("`adacnn-gradient`, paper", "98.41 ± 0.16")
    assert published()["penn-treebank"]["adalstm-2-df"]["5w3s-all"] == "58.8"
    content = json.loads(path.read_text())
    content["config"]["network"]["filters"] = 32  # no model of the paper
    (tmp_path / path.name).write_text(json.dumps(content))
    (result,) = read_results(tmp_path)
    assert (result.name, result.published) == ("`adacnn-gradient`, paper, filters=32", "")
    assert result.changes == ["filters=32"]
    content["config"]["train"]["learning_rate"] = 0.5
    content["evaluation"]["attention"] = "hard"
    (tmp_path / path.name).write_text(json.dumps(content))
    (result,) = read_results(tmp_path)
    assert result.name == "`adacnn-gradient`, paper, filters=32, learning_rate=0.5, tested with hard attention"


@pytest.mark.parametrize(
    ("preset", "shot", "shown"),
    [("adalstm-2-df", 3, "57.8"), ("adalstm-2-df", 1, ""), ("adalstm-1-df", 3, "")],
)
def test_two_hundred_units_are_the_paper_s_of_two_layers_at_three_shots_alone(
    tmp_path: Path, preset: str, shot: int, shown: str
) -> None:
    content = json.loads(
        (ROOT / "results/penn-treebank/penn-treebank-5w3s-adalstm-2-df-paper.json").read_text(encoding="utf-8")
    )
    config = json.loads(load_preset(preset, "paper").to_json())
    config["network"]["units"] = 200
    config["data"]["shot"] = content["evaluation"]["shot"] = shot
    (tmp_path / "one.json").write_text(json.dumps(content | {"config": config}))
    (result,) = read_results(tmp_path)
    assert result.published == shown
    assert ("units=200" in result.model) == (shown == "")  # or a table has two rows of one name
    assert result.name == f"`{preset}`, paper, units=200"


def test_every_published_row_of_ours_is_a_preset() -> None:
    ours = {preset for rows in published().values() for preset in rows if preset.startswith(("ada", "lstm"))}
    assert ours <= set(preset_names())


def test_report_fills_marked_tables_and_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "omniglot/omniglot-5w1s-adacnn-gradient-paper.json"
    (tmp_path / "results/omniglot").mkdir(parents=True)
    (tmp_path / "results" / name).write_bytes((ROOT / "results" / name).read_bytes())
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("above\n<!-- results omniglot -->\nold\n<!-- /results -->\nbelow\n")
    assert cli.main(["results", "tables", "docs/page.md"]) == 0
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("above", "below", 7)
    assert lines[4].startswith("| 5-way 1-shot | `adacnn-gradient`, paper | 98.41 ± 0.16 | 9")
    assert lines[4].endswith("[result](../results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json) |")


@pytest.mark.parametrize(
    ("page", "files", "message"),
    [
        ("<!-- results mnist -->\n<!-- /results -->", {}, "no result file is for 'mnist'"),
        (
            "<!-- results a -->\n\n<!-- results b -->\n<!-- /results -->",
            {},
            "page.md: the table of '<!-- results a -->' has no end",
        ),
        ("<!-- results a -->\n", {}, "page.md: the table of '<!-- results a -->' has no end"),
        ("<!-- results a --> \n<!-- /results -->", {}, "page.md: cannot read the mark '<!-- results a --> '"),
        ("<!-- results  -->\n<!-- /results -->", {}, "page.md: cannot read the mark '<!-- results  -->'"),
        ("<!-- results a\n<!-- /results -->", {}, "page.md: cannot read the mark '<!-- results a'"),
        ("<!--results a-->\n<!-- /results -->", {}, "page.md: cannot read the mark '<!--results a-->'"),
        ("<!-- Result a -->\n<!-- /results -->", {}, "page.md: cannot read the mark '<!-- Result a -->'"),
        ("<!-- results a -->\n<!-- / results -->", {}, "page.md: cannot read the mark '<!-- / results -->'"),
        ("text\n<!-- /results -->", {}, "page.md: <!-- /results --> ends no table"),
        (
            "<!-- results omniglot snail -->\n<!-- /results -->",
            {"omniglot/x.md": ""},
            "no result in results/omniglot is",
        ),
        (
            "<!-- results compare/x mamml -->\n<!-- /results -->",
            {"compare/x.json": '{"rows": [{"learner": "maml"}]}'},
            "compare/x.json has no mamml: there are maml",
        ),
        ("", {"broken.json": "{"}, "is no result file"),
        ("", {"other.json": "[1]"}, "is no result file of csn evaluate"),
        ("", {"deep.json": "[" * 100_000}, "deep.json is no result file"),
        (
            "<!-- results compare/x -->\n<!-- /results -->",
            {"compare/x.json": '{"rows": [{"learner": "maml"}]}'},
            "compare/x.json has rows that csn does not write (KeyError('accuracy')): measure again",
        ),
        (
            "<!-- results compare/x -->\n<!-- /results -->",
            {"compare/x.json": '{"rows": [1]}'},
            "compare/x.json has no rows of names and values",
        ),
        (
            "<!-- results overhead -->\n<!-- /results -->",
            {"overhead.json": '{"rows": [{"tasks": "5w1s", "phase": "train", "df": [1], "gradient": [1, 2, 3]}]}'},
            "overhead.json has rows that csn does not write (ValueError(",
        ),
        (
            "<!-- results overhead -->\n<!-- /results -->",
            {"overhead.json": '{"rows": [{"phase": "train"}]}'},
            "overhead.json has rows that csn does not write (KeyError('tasks'))",
        ),
        (None, {}, "there is no page"),
    ],
)
def test_report_says_what_is_wrong_and_writes_nothing(
    page: str | None,
    files: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for name, content in files.items():
        (tmp_path / "results" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "results" / name).write_text(content)
    Path("good.md").write_text("")
    if page is not None:
        Path("page.md").write_text(page)
    assert cli.main(["results", "tables", "good.md", "page.md"]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "written" not in said.out
    assert page is None or Path("page.md").read_text() == page


def test_without_pages_every_marked_page_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "compare").mkdir(parents=True)
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    row = {"learner": "maml", "accuracy": 0.5, "interval": 0.01, "time": {"train": [1, 2, 3]}}
    rows = [row | {"training": {"tasks": 8, "seconds": 90}}, row | {"learner": "snail", "training": {"tasks": 0}}]
    Path("results/compare/x.json").write_text(json.dumps({"rows": rows}))
    Path("docs/deep/page.md").write_text("<!-- results compare/x maml -->\n<!-- /results -->\n")
    Path("docs/plain.md").write_text("nothing")
    assert cli.main(["results", "tables"]) == 0
    link = "[result](../../results/compare/x/maml.json)"
    filled = Path("docs/deep/page.md").read_text().splitlines()
    assert filled[3] == f"| maml | 50.00 ± 1.00 | 8 | 1.5 min | 2.00 |  | {link} |"
    assert not any("snail" in line for line in filled)
    Path("docs/deep/page.md").unlink()
    assert cli.main(["results", "tables"]) == 2


def test_a_page_with_a_mistyped_mark_is_no_page_without_tables(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- results omniglot -->\nwithout end")
    (tmp_path / "docs" / "quoted.md").write_text("A table begins with `<!-- results NAME -->`.")
    assert marked_pages(tmp_path) == [tmp_path / "README.md"]


def test_links_lead_from_any_page_to_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "omniglot-20w1s-adacnn-gradient-paper.json"
    (tmp_path / "mine/omniglot").mkdir(parents=True)
    (tmp_path / "mine/omniglot" / name).write_bytes((ROOT / "results/omniglot" / name).read_bytes())
    monkeypatch.chdir(tmp_path / "mine")
    for page, link in {"README.md": "mine/", "elsewhere/page.md": "../mine/", "mine/page.md": ""}.items():
        path = tmp_path / page
        path.parent.mkdir(exist_ok=True)
        path.write_text("<!-- results omniglot -->\n<!-- /results -->\n")
        assert cli.main(["results", "tables", "--results", ".", str(path)]) == 0
        assert f"[result]({link}omniglot/{name})" in path.read_text()
    monkeypatch.chdir(tmp_path / "elsewhere")  # not beside the results
    assert cli.main(["results", "tables", "--results", "../mine", "page.md"]) == 0
    assert f"[result](../mine/omniglot/{name})" in Path("page.md").read_text()
    outside = tmp_path / "mine" / "results"
    (outside / "omniglot").mkdir(parents=True)
    (outside / "omniglot" / name).write_bytes((ROOT / "results/omniglot" / name).read_bytes())
    assert cli.main(["results", "tables", "--results", str(outside), str(tmp_path / "README.md")]) == 0
    assert f"[result](mine/results/omniglot/{name})" in (tmp_path / "README.md").read_text()


def test_tables_beside_the_result_files_are_made_of_them() -> None:
    files = all_table_files(ROOT / "results", skip=pytest.fail)
    texts = {path: content for path, content in files.items() if path.suffix != ".png"}
    assert {"omniglot", "penn-treebank", "ablation", "tiny-imagenet-fewshot"} <= {path.stem for path in texts}
    for path, content in texts.items():
        assert path.read_bytes() == content, f"{path} is not up to date: csn results tables"


def test_pictures_beside_the_result_files_show_them() -> None:
    files = all_table_files(ROOT / "results", skip=pytest.fail)
    pictures = {path: content for path, content in files.items() if path.suffix == ".png"}
    assert {"omniglot", "ablation-omniglot", "ablation-penn-treebank"} <= {path.stem for path in pictures}
    for path, content in pictures.items():
        # Another matplotlib draws other pixels of the same numbers.
        assert description(path.read_bytes()) == description(content), f"{path} is not up to date: csn results tables"
    # A picture whose table no longer makes it would go on showing what once was.
    assert {*(ROOT / "results" / "ablation").glob("*.png")} <= pictures.keys()


def description(picture: bytes) -> str:
    """What a picture says that it shows."""
    with Image.open(io.BytesIO(picture)) as opened:
        return str(opened.info.get("Description"))


def test_a_result_that_cannot_be_read_is_left_out_of_its_table(tmp_path: Path) -> None:
    names = ["penn-treebank-5w1s-adalstm-1-df-plus.json", "penn-treebank-5w2s-adalstm-1-df-plus.json"]
    for name in names:
        (tmp_path / name).write_bytes((ROOT / "results/penn-treebank" / name).read_bytes())
    (tmp_path / names[1]).write_text("{}")
    said: list[str] = []
    table = table_files(tmp_path, skip=said.append)[tmp_path / f"{tmp_path.name}.md"].decode()
    assert [name in table for name in names] == [True, False]
    assert len(said) == 1
    assert names[1] in said[0]


def test_two_results_are_compared_task_by_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(
        (ROOT / "results/omniglot/omniglot-5w1s-adacnn-gradient-paper.json").read_text(encoding="utf-8")
    )
    content["evaluation"]["tasks"] = 3
    one, two, rows = (tmp_path / name for name in ("one.json", "two.json", "rows.json"))
    one.write_text(json.dumps(content | {"accuracies": {"trained": [0.5, 0.7, 0.9]}}))
    two.write_text(json.dumps(content | {"accuracies": {"trained": [0.3, 0.5, 0.7]}}))
    assert cli.main(["results", "diff", str(one), str(two)]) == 0
    said = capsys.readouterr().out
    assert "difference: +20.00 ± 0.00 points, first minus second, over the same 3 tasks" in said
    assert f"{two}: adacnn-gradient, paper, " in said
    other = content["evaluation"] | {"fingerprint": "0" * 64}  # the data are not what they were
    two.write_text(json.dumps(content | {"accuracies": {"trained": [0.3, 0.5, 0.7]}, "evaluation": other}))
    assert cli.main(["results", "diff", str(one), str(two)]) == 2
    assert "are not of the same tasks (fingerprint)" in capsys.readouterr().err
    del other["fingerprint"]  # as older files
    two.write_text(json.dumps(content | {"accuracies": {"trained": [0.3, 0.5, 0.7]}, "evaluation": other}))
    assert cli.main(["results", "diff", str(one), str(two)]) == 0
    content["evaluation"]["way"] = 20
    two.write_text(json.dumps(content | {"accuracies": {"trained": [0.3, 0.5, 0.7]}}))
    assert cli.main(["results", "diff", str(one), str(two)]) == 2
    assert "are not of the same tasks (way)" in capsys.readouterr().err
    rows.write_text(json.dumps({"rows": []}))
    assert cli.main(["results", "diff", str(one), str(rows)]) == 2
    assert "has no accuracies of tasks" in capsys.readouterr().err
    assert cli.main(["results", "diff", str(one), str(tmp_path / "gone.json")]) == 2
    assert "gone.json (No such file or directory): check the path" in capsys.readouterr().err


def test_a_file_says_how_it_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "results/omniglot/omniglot-5w1s-adacnn-df-paper.json"
    assert cli.main(["results", "show", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "omniglot-5w1s-adacnn-df-paper.json: 5-way 1-shot of omniglot, 1,000 tasks" in said
    assert "adacnn-df, paper, seed 0: 98.22 ± 0.20 %" in said
    assert "validation 98.30 % after 37,500 tasks; 19 minutes of training in total" in said
    assert "csn train adacnn-df --recipe paper --data omniglot --way 5 --shot 1 --tasks 40000 --seed 0" in said
    assert "csn evaluate runs/reproduce/omniglot-5w1s-adacnn-df-paper --way 5 --shot 1 --tasks 1000" in said
    assert (
        cli.main(["results", "show", str(ROOT / "results/penn-treebank/penn-treebank-5w3s-adalstm-2-df-paper.json")])
        == 0
    )
    assert ", a command of csn 0.1" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["results", "show", str(ROOT / "results/benchmarks/overhead-amd.json")]) == 2
    assert "overhead-amd.json has no accuracies of tasks" in capsys.readouterr().err
