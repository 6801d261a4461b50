"""`csn reproduce --print-commands`: what a scheduler runs is what the table needs, in an order that works."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from csn.cli.cell_commands import as_text, commands_of
from csn.cli.main import main, parser
from csn.experiments.records.files import results_in
from csn.experiments.tables.plan import plan

SEVERAL = [
    {"name": "a", "command": "A", "after": []},
    {"name": "b", "command": "B", "after": ["a"]},
    {"name": "c", "command": "C", "after": []},
    {"name": "d", "command": "D", "after": ["a"]},
]


def run(command: str) -> int:
    """A printed command, in this environment."""
    return subprocess.run(command.replace("csn ", f"{sys.executable} -m csn "), shell=True, check=False).returncode


def test_what_waits_stands_behind_what_it_waits_for():
    assert as_text(SEVERAL, "lines").splitlines() == ["A && B && D", "C"]
    assert json.loads(as_text(SEVERAL, "json")) == SEVERAL


def test_every_cell_is_trained_and_tested_by_commands_that_can_start_again(toy, capsys):
    assert main(["reproduce", "strokes", "--print-commands", "json", "--threads", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    cells = plan("strokes")
    assert [each["name"] for each in found] == [cell.name for cell in cells]
    for each, cell in zip(found, cells, strict=True):
        train, *tests = [shlex.split(part)[1:] for part in each["command"].split(" && ")]
        assert parser().parse_args(train).restartable
        assert parser().parse_args(train).out == Path("runs/reproduce") / cell.name
        assert [str(parser().parse_args(test).out) for test in tests] == [
            f"results/{cell.result(t)}" for t in cell.tests
        ]
    assert list(Path().iterdir()) == []  # nothing was started


def test_one_cell_pretrains_for_all_that_would_do_it_alike(toy):
    changes = ["pretrain.epochs=1"]
    cells = [*plan("strokes", rows=["adacnn-df"], changes=changes), *plan("strokes", rows=["adacnn-df"], seeds=2)]
    alike = plan("strokes", rows=["adacnn-df"], changes=[*changes, "train.tasks=6"])
    found = commands_of([cells[0], *alike], cells, Path("runs"), Path("results"), threads=1, again=False)
    assert [each["after"] for each in found] == [[], [cells[0].name]]
    assert f"--pretrained runs/{cells[0].name}" in found[1]["command"]
    assert "--pretrained" not in found[0]["command"]


def test_joblib_runs_what_was_printed(toy, capsys):
    joblib = pytest.importorskip("joblib")
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--print-commands", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(run)(line) for line in lines) == [0]
    made = [path for path in Path("results").rglob("*.json") if "prototypical" in path.name]
    assert [len(results_in(path)) for path in made] == [1] * len(plan("strokes", rows=["prototypical"])[0].tests)
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--print-commands"]) == 0
    assert capsys.readouterr().out.strip() == ""  # nothing is left to do


def test_submitit_runs_what_was_printed(toy, tmp_path, capsys):
    submitit = pytest.importorskip("submitit")
    assert main(["reproduce", "strokes", "--rows", "prototypical", "--print-commands", "json", "--threads", "1"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)
    executor = submitit.LocalExecutor(folder=tmp_path / "jobs")
    executor.update_parameters(timeout_min=5)
    program = f"{sys.executable} -m csn"
    job = executor.submit(subprocess.call, cell["command"].replace("csn ", f"{program} "), shell=True)
    assert job.result() == 0
    assert list(Path("results").rglob("*prototypical*.json"))
