"""docs/distributed.md has the numbers of the result files of benchmarks/scaling.py and benchmarks/streaming.py."""

from __future__ import annotations

import json
from pathlib import Path

import scaling

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks"


def content(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_result_file():
    page = scaling.PAGE.read_text(encoding="utf-8")
    assert scaling.BEGIN in page
    assert scaling.filled(page, content("scaling")) == page, "run python benchmarks/scaling.py --page"
    assert f"{content('scaling')['bytes']:,} bytes" in " ".join(page.split())


def test_what_is_said_of_streaming_is_in_its_file():
    [found], page = content("streaming")["rows"], " ".join(scaling.PAGE.read_text(encoding="utf-8").split())
    for said in (
        f"{found['images']:,} JPEG images ({found['megabytes on disk']} MB",
        f"took {found['seconds to list']:.0f} seconds",
        f"{100 * found['share of time waiting']:.1f} % of its time",
        f"the workers used {found['processor seconds of the workers']:.1f} seconds of processor time, and the loop "
        f"{found['processor seconds of the loop']:.0f}.",
        f"{found['megabytes of memory after 5 steps']:,} MB after 5 steps and at most {found['most']:,} MB",
    ):
        assert said in page, said


def test_the_model_by_hand():
    """Two processes halve the tasks, and pass half of the bytes on twice."""
    assert scaling.modelled(1.0, 2.0, 8.0, (4.0, 0.25), 2, 10) == 1.0 + 2.0 * 5 + 2 * (1.0 + 0.25)
    rows = [
        {"norm": "batch", "processes": 1, "threads": 1, "tasks": tasks, "processor": 1.0 + 2.0 * tasks}
        for tasks in (8, 1)
    ]
    [first, *_] = scaling.model(rows, 0)
    assert (first["tasks"], round(first["speed"], 2)) == (8, round((1 + 16) / (1 + 2), 2))
