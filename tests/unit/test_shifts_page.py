"""docs/where-shifts-matter.md and docs/graft.md show what the result files say."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

import shifts as study

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_shows_what_the_files_say():
    file = io.StringIO()
    study.show(study.rows_in(ROOT / "results" / "shifts"), Console(file=file, width=100))
    page = (ROOT / "docs" / "where-shifts-matter.md").read_text(encoding="utf-8")
    lines = [line.rstrip() for line in file.getvalue().splitlines() if line.startswith("|")]
    assert len(lines) > 4
    missing = [line for line in lines if line not in page]
    assert missing == [], "fill it with python benchmarks/shifts.py --page docs/where-shifts-matter.md"


def test_every_cell_is_of_a_commit_without_changes():
    for row in study.rows_in(ROOT / "results" / "shifts"):
        assert len(row["commit"]) == 40
        assert row["seconds"] == 3.0


def test_a_graft_takes_the_time_that_its_page_says():
    """And at most 1.1 times that of csn's own network."""
    rows = json.loads((ROOT / "results" / "benchmarks" / "graft.json").read_text())["rows"]
    page = (ROOT / "docs" / "graft.md").read_text(encoding="utf-8")
    assert len(rows) == 4
    for row in rows:
        kind = {"df": "direct feedback", "gradient": "gradient"}[row["conditioning"]]
        times = row["training_step"], row["inference_step"]
        assert f"| {kind}, 5-way {row['shot']}-shot | {times[0]:.2f} | {times[1]:.2f} |" in page
        assert max(times) <= 1.1


def test_ways_to_adapt_are_as_good_and_as_fast_as_the_page_says():
    rows = json.loads((ROOT / "results" / "shifts" / "adaptation.json").read_text())["rows"]
    page = (ROOT / "docs" / "graft.md").read_text(encoding="utf-8")
    names = {"csn.graft, df": "`csn.graft`, direct feedback", "csn.graft, gradient": "`csn.graft`, gradient"}
    assert len(rows) == 12
    for way in {row["way"] for row in rows}:
        cells = [
            f"{100 * row['accuracy']:.2f} ± {100 * row['interval']:.2f} % | {row['milliseconds']:.1f} ms"
            for shot in (1, 5)
            for row in rows
            if (row["way"], row["shot"]) == (way, shot)
        ]
        assert f"| {names.get(way, way)} | {' | '.join(cells)} |" in page


def test_intervals_by_hand():
    """Of 1, 2 and 3: mean 2, standard deviation 1, and t = 4.303 of two degrees of freedom over the root of 3."""
    mean, half = study.mean_of([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.303 / math.sqrt(3))
    assert study.in_words([1.0, 2.0, 3.0]) == "2.0 [-0.5, 4.5] (3)"
    assert study.in_words([2.0], sign="+") == "+2.0 (1)"
    assert study.in_words([]) == ""


def test_differences_are_of_the_seeds_that_both_arms_have(tmp_path):
    rows = [
        {"family": "rule", "arm": arm, "seed": seed, "accuracy": accuracy}
        for arm, seed, accuracy in (("df-all", 0, 0.5), ("df-all", 1, 0.6), ("matching", 1, 0.4))
    ]
    (tmp_path / "shifts-rule.json").write_text(json.dumps({"rows": rows}))
    file = io.StringIO()
    study.show(study.rows_in(tmp_path), Console(file=file))
    assert "| rule | 55.0 [-8.5, 118.5] (2) | 40.0 (1) |" in file.getvalue()
    assert "| rule | +20.0 (1) |" in file.getvalue()


def test_a_page_is_filled_between_its_marks(tmp_path):
    rows = [{"family": "rule", "arm": "df-all", "seed": 0, "accuracy": 0.5}]
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- shifts -->\nold\n<!-- /shifts -->\nafter\n")
    study.fill(rows, page)
    assert "\n| rule | 50.0 (1) |\n" in page.read_text()
    assert page.read_text().startswith("before\n<!-- shifts -->\n| accuracy, % | CSN, all shifts |\n")
    assert page.read_text().endswith("\n<!-- /shifts -->\nafter\n")
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="has no marks"):
        study.fill(rows, page)
