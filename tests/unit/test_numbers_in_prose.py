"""Numbers that sentences quote: each with an interval follows from the result files, or says that it does not."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from csn.experiments.records.files import read_results, result_paths
from csn.experiments.records.published import published
from csn.experiments.records.statistics import by_seed

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = re.compile(r"<!-- results [^>]*? -->\n.*?<!-- /results -->", re.DOTALL)  # tested against their files elsewhere
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=- )")
NUMBER = re.compile(r"\d+\.\d+ ± \d+\.\d+")
OF_OTHER_PAPERS = {
    "49.42 ± 0.78",  # Prototypical Networks on Mini-ImageNet, which the paper's table 2 does not list
    "68.20 ± 0.66",
    "99.07 ± 0.16",  # SNAIL's version of 2018
    "99.78 ± 0.09",
}


def in_words(mean: float, interval: float) -> str:
    """Without a sign, as in "0.53 ± 0.17 above"."""
    return f"{abs(100 * mean):.2f} ± {100 * interval:.2f}"


def of_tasks(accuracies: np.ndarray) -> str:
    """Mean and interval of accuracies or differences, one of each task."""
    return in_words(accuracies.mean(), 1.96 * accuracies.std(ddof=1) / len(accuracies) ** 0.5)


@functools.cache
def what_the_files_say() -> frozenset[str]:
    """Every accuracy, its mean over seeds, and every difference of two on the same tasks."""
    folders = {path.parent for path in result_paths(ROOT / "results")}
    on_same_tasks = defaultdict(list)
    for seeds in (seeds for folder in folders for seeds in by_seed(read_results(folder))):
        accuracies = np.array([each.content["accuracies"][each.learner] for each in seeds])
        asked = seeds[0].content["evaluation"]
        key = (seeds[0].data, seeds[0].tasks, asked["seed"], asked["queries"], accuracies.shape[1])
        on_same_tasks[key] += [*accuracies, accuracies.mean(0)]
    characters, drawings, *stems = (
        json.loads((ROOT / f"results/benchmarks/{name}.json").read_text(encoding="utf-8"))
        for name in ("characters", "drawings", "shared-stem", "shared-stem-gradient")
    )
    said = {in_words(*row["accuracy"]) for row in (*characters["rows"], *drawings["rows"])}
    said |= {in_words(stem["difference"], stem["interval"]) for stem in stems}
    adaptation = json.loads((ROOT / "results/shifts/adaptation.json").read_text(encoding="utf-8"))
    said |= {in_words(row["accuracy"], row["interval"]) for row in adaptation["rows"]}
    said |= {in_words(*share) for tasks in characters["unknown"]["tasks"].values() for share in tasks.values()}
    said |= {number for models in published().values() for cells in models.values() for number in cells.values()}
    for alike in on_same_tasks.values():
        said |= {of_tasks(one) for one in alike}
        said |= {of_tasks(one - other) for one, other in itertools.combinations(alike, 2)}
    return frozenset(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_with_an_interval_follow_from_the_result_files(page: Path) -> None:
    text = TABLE.sub("", page.read_text(encoding="utf-8"))
    paragraphs = [paragraph for paragraph in PARAGRAPH.split(text) if "no result file" not in paragraph]
    quoted = {number for paragraph in paragraphs for number in NUMBER.findall(paragraph)}
    assert quoted - what_the_files_say() - OF_OTHER_PAPERS == set(), "no result file says so: csn results diff"


def test_a_number_that_no_file_says_would_be_found() -> None:
    said = what_the_files_say()
    assert "98.22 ± 0.20" in said  # an accuracy: omniglot/omniglot-5w1s-adacnn-df-paper.json
    assert "0.53 ± 0.19" in said  # a difference: adaCNN at 20-way 1-shot, paper less plus
    assert "98.22 ± 0.21" not in said
    assert quotes_of_pages() > 100  # the pattern still finds what sentences quote


def quotes_of_pages() -> int:
    return sum(len(NUMBER.findall(TABLE.sub("", page.read_text(encoding="utf-8")))) for page in PAGES)


def test_the_page_on_export_says_how_long_an_answer_takes():
    [row] = json.loads((ROOT / "results/benchmarks/page.json").read_text(encoding="utf-8"))["rows"]
    page = " ".join((ROOT / "docs/export.md").read_text(encoding="utf-8").split())
    for words in (
        f"(load {row['load']:.1f}): an answer came {row['p50_ms']:.0f} ms after the movement",
        f"at most {row['p95_ms']:.0f} ms for 95 %",
        f"the next one {row['between_p50_ms']:.0f} ms later",
        f"It took {row['processor_ms']:.0f} ms of processor time",
    ):
        assert words in page


def test_the_page_on_speed_has_the_costs_of_the_doors():
    rows = json.loads((ROOT / "results/benchmarks/doors.json").read_text(encoding="utf-8"))["rows"]
    section = (
        (ROOT / "docs/speed.md").read_text(encoding="utf-8").split("## What the doors cost")[1].split("\nFile:")[0]
    )
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\|.*\d \|", line)]
    of_files = [(row["ms"], "{1:.2f} ({0:.2f} - {2:.2f})".format(*row["ratio"])) for row in rows]
    assert [cells[3] for cells in table] == [ratio for _, ratio in of_files]
    assert all(abs(float(cells[1]) - ms) < 0.051 for cells, (ms, _) in zip(table, of_files, strict=True))


@pytest.mark.parametrize("data", ["sinusoids", "breast cancer"])
def test_errors_of_real_numbers_are_those_of_their_file(data):
    rows = json.loads((ROOT / "results/shifts/regression.json").read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs/where-shifts-matter.md").read_text(encoding="utf-8")
    [line] = re.findall(rf"^\| [a-z ]*{data} \|.*$", page.split("## Real numbers")[1], re.MULTILINE)
    for row in (row for row in rows if row["data"] == data):
        mean, errors = np.mean(row["errors"]), row["errors"]
        assert np.isfinite(errors).all(), row["learner"]
        spread = f" ({min(errors):.2f} to {max(errors):.2f})" if len(errors) > 1 else ""
        assert f"| {mean:.2f}{spread} |" in line, row["learner"]


def test_the_claim_on_cost_holds_for_every_kind_of_conditioning():
    rows = json.loads((ROOT / "results/benchmarks/overhead-amd.json").read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs/results/cost.md").read_text(encoding="utf-8")
    claim = re.search(
        r"training step of a CSN costs ([\d.]+) to ([\d.]+) times .* an answer ([\d.]+)\s+to ([\d.]+)", page, re.DOTALL
    )
    assert claim is not None
    for phase, stated in (("train", claim.groups()[:2]), ("inference", claim.groups()[2:])):
        ratios = [row[kind][1] for row in rows if row["phase"] == phase for kind in ("df", "df-end-to-end", "gradient")]
        assert stated == (f"{min(ratios):.2f}", f"{max(ratios):.2f}")


def test_a_shared_stem_reaches_what_prototypical_networks_reach_in_the_stated_time():
    page = (ROOT / "docs/speed.md").read_text(encoding="utf-8")
    ratios = []
    for kind, name in (("direct feedback", "shared-stem"), ("error gradient", "shared-stem-gradient")):
        found = json.loads((ROOT / f"results/benchmarks/{name}.json").read_text(encoding="utf-8"))
        rows = {(row["arm"], row["seed"]): row for row in found["rows"]}
        for arm in ("two stems", "shared stem"):
            ends = ", ".join(f"{100 * rows[arm, seed]['last']:.2f}" for seed in range(3))
            step, other = (found["arms"][each]["step_ms"] for each in (arm, "prototypical"))
            assert f"| adaCNN, {kind}, {arm} | {ends} | {step:.1f} | {step / other:.2f} |" in page
        assert f"+{100 * found['difference']:.2f} ± {100 * found['interval']:.2f} points" in page
        for seed in range(3):
            theirs, ours = (rows[arm, seed]["validations"] for arm in ("prototypical", "shared stem"))
            for reached in {accuracy for _, _, accuracy in theirs if accuracy >= 0.9}:
                first = [next(time for _, time, accuracy in curve if accuracy >= reached) for curve in (ours, theirs)]
                ratios.append(first[0] / first[1])
    assert f"in {min(ratios):.2f} to {max(ratios):.2f} times its processor time" in " ".join(page.split())
