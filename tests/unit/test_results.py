"""Every accuracy in README and docs is that of the committed result file its row links to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from csn.engine.evaluate import summarise

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r".*\b(\d+\.\d\d ± \d+\.\d\d).*\]\((?:\.\./)?(results/[\w.-]+\.json)(?:#([\w-]+))?\)")
PAGES = ("README.md", "docs/results.md")


def rows() -> list[tuple[str, str, str, str]]:
    return [
        (page, *match.groups(default="trained"))
        for page in PAGES
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines()
        if (match := ROW.search(line))
    ]


def test_both_pages_have_results() -> None:
    assert {page for page, *_ in rows()} == set(PAGES)


@pytest.mark.parametrize(("page", "shown", "file", "learner"), rows())
def test_a_row_shows_what_its_file_says(page: str, shown: str, file: str, learner: str) -> None:
    result = json.loads((ROOT / file).read_text(encoding="utf-8"))
    learner = learner.replace("-", " ")
    accuracies = result["accuracies"][learner]
    evaluation = result["evaluation"]
    assert len(accuracies) == evaluation["tasks"]
    assert evaluation["tasks"] >= 400 or evaluation["formed"] == "all-inclusive"
    mean, interval = summarise(accuracies)
    assert shown == f"{100 * mean:.2f} ± {100 * interval:.2f}"
    assert result["summary"][learner]["accuracy"] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*5w*s*.json")), ids=lambda path: path.name)
def test_a_result_can_be_checked(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["evaluation"]["split"] == "test"
    assert {"command", "commit", "date", "machine", "config", "trained", "accuracies"} <= set(result)
    assert {"command", "commit", "validation", "validation_curve", "seconds_in_all"} <= set(result["trained"])
    best = max(accuracy for _, accuracy in result["trained"]["validation_curve"])
    assert result["trained"]["validation"] == pytest.approx(best)  # chosen on validation tasks
