"""Progress that can be read: on a narrow terminal, and after a stop."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from toy_tables import write_result

from csn.cli import run_cells, terminal
from csn.cli.main import main
from csn.experiments.tables.plan import plan

NAME = "penn-treebank-5w1s-adalstm-1-gradient-plus-hidden-shifts-only-pretrain.epochs=0-seed2"


def test_a_long_name_leaves_room_for_count_bar_and_time(monkeypatch):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "console", console)
    progress = terminal.progress_bar("[bold]{task.description}")
    bar = progress.add_task(NAME, total=100_000, completed=9_000)
    progress.update(bar, advance=0)
    console.print(progress.get_renderable())
    (line,) = console.file.getvalue().rstrip("\n").splitlines()
    assert line.startswith("penn-treebank-5w1s")
    assert "…" in line
    assert "━" in line
    assert "9000/100000" in line
    assert "-:--:--" in line


def test_loss_accuracy_and_speed_fit_on_a_line(monkeypatch):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "console", console)
    progress = terminal.progress_bar("{task.description}", "{task.fields[speed]}")
    progress.add_task("loss 0.510  accuracy 85.12 %", total=1400, completed=700, speed="2.3 tasks/s")
    console.print(progress.get_renderable())
    assert "loss 0.510  accuracy 85.12 % 2.3 tasks/s ━" in console.file.getvalue()


def test_units_that_say_nothing_are_a_percentage(monkeypatch):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "console", console)
    progress = terminal.progress_bar("{task.description}")
    progress.add_task("all cells", total=1234.5, completed=617, in_percent=True)
    console.print(progress.get_renderable())
    assert " 50 % " in console.file.getvalue()
    assert "617" not in console.file.getvalue()


def test_a_bar_says_what_is_not_training_on_tasks(toy, tmp_path):
    cell = plan("strokes", changes=["pretrain.epochs=3"])[0]
    log = (tmp_path / "log").open("wb")
    each = run_cells._Running(cell, cell.tests, [["data", "list"]], subprocess.Popen(["true"]), log)
    pretraining = tmp_path / cell.name / "pretraining"
    assert run_cells._phase(each, tmp_path) == ""  # just begun
    pretraining.mkdir(parents=True)
    assert run_cells._phase(each, tmp_path) == "pretraining 1/3 "
    (pretraining / "log.jsonl").write_text(
        '{"tasks": 9, "seconds": 1, "train": {}}\n{"tasks": 9, "seconds": 2, "validation": {}}\n'
    )
    assert run_cells._phase(each, tmp_path) == "pretraining 2/3 "
    (pretraining.parent / "log.jsonl").touch()
    assert run_cells._phase(each, tmp_path) == ""
    each.process.wait()
    assert run_cells._next_command(each) == "running"
    assert run_cells._phase(each, tmp_path) == "testing "
    each.process.wait()
    each.log.close()


def test_a_cell_counts_by_what_its_tasks_cost(toy):
    own, others = plan("strokes", rows=["adacnn-df"], seeds=2), plan("strokes", rows=["prototypical"])
    results, everything = Path("results"), plan("strokes", seeds=2)
    assert set(run_cells.seconds_of_tasks([*own, *others], everything, results).values()) == {1.0}
    path = write_result(own[0], results)
    content = json.loads(path.read_text())
    content["trained"] |= {"seconds_in_all": 12, "validation_curve": [[4, 0.5], [6, 0.5]]}
    path.write_text(json.dumps(content))
    (results / own[1].result(own[1].tests[0])).write_text('{"rows": []}')
    assert set(run_cells.seconds_of_tasks([own[1], *others], everything, results).values()) == {2.0}  # no better guess
    write = write_result(others[0], results)
    content["trained"]["seconds_in_all"] = 3
    write.write_text(json.dumps(content | {"config": json.loads(write.read_text())["config"]}))
    cost = run_cells.seconds_of_tasks([own[1], *others], everything, results)
    assert cost == {own[1].name: 2.0, others[0].name: 0.5}


def test_what_was_trained_before_and_what_failed_is_no_speed(toy, monkeypatch):
    before, bars = {"strokes-5w1s-adacnn-df-plus": 6}, []
    made = run_cells.progress_bar

    def watched(*columns, **options):
        bars.append(made(*columns, **options))
        return bars[-1]

    def failed(each):
        each.process.wait()
        return "failed"

    monkeypatch.setattr("csn.cli.run_cells.progress_bar", watched)
    monkeypatch.setattr("csn.cli.run_cells._trained", lambda cell, runs: before.get(cell.name, 0))
    monkeypatch.setattr("csn.cli.run_cells._next_command", failed)
    monkeypatch.setattr("csn.cli.run_cells.training_command", lambda *_, **__: ["data", "list"])
    assert main(["reproduce", "strokes"]) == 1
    assert [cell.config.train.tasks for cell in plan("strokes")] == [8, 8]
    (overall,) = bars[0].tasks
    assert (overall.completed, overall.total, overall.speed) == (6, 6, None)


def test_a_cell_that_is_tested_is_not_done(toy, tmp_path):
    cell = plan("strokes", rows=["adacnn-df"])[0]
    # Two tasks of 15 queries a class beside its example, every fifth of them new, against one task of 2 queries with a
    # pass backward that counts twice.
    assert cell.config.data.queries == 2
    costs = [2 * 3 * (1 + 15) / 5 / (5 * (1 + 2) * 3), 2 * 5 * (1 + 15) / 5 / (5 * (1 + 2) * 3)]
    assert [run_cells.cost_of(cell, test) for test in cell.tests] == pytest.approx(costs)
    each = run_cells._Running(cell, cell.tests, [["data"], ["list"]], subprocess.Popen(["true"]), io.BytesIO())
    assert each.finished_tests == ()
    each.is_testing = True
    each.commands.pop()
    assert list(each.finished_tests) == []
    each.commands.pop()
    assert each.finished_tests == cell.tests[:1]
    each.process.wait()


def test_the_bar_of_all_cells_is_full_when_the_last_test_is_over(toy, monkeypatch):
    seen, made = [], run_cells.progress_bar

    def watched(*columns, **options):
        progress = made(*columns, **options)
        update = progress.update

        def noted(bar, **fields):
            update(bar, **fields)
            testing = any(task.description.startswith("testing") for task in progress.tasks)
            seen.append((testing, progress.tasks[0].percentage))

        monkeypatch.setattr(progress, "update", noted)
        return progress

    monkeypatch.setattr("csn.cli.run_cells.progress_bar", watched)
    assert main(["reproduce", "strokes", "--rows", "prototypical"]) == 0
    assert seen[-1] == (False, 100)
    while_testing = [percentage for testing, percentage in seen if testing]
    assert while_testing
    assert max(while_testing) < 95  # 8 tasks of training, and a test that counts as a part of one


@pytest.mark.parametrize("command", [["train", "list"], ["data", "list"]])
def test_a_reader_that_has_seen_enough_is_no_error(command):
    """As `csn train list | head -1`: here the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run([sys.executable, "-m", "csn", *command], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_a_full_disk_behind_standard_output_is_said():
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([sys.executable, "-m", "csn", "data", "list"], stdout=full, stderr=subprocess.PIPE)
    assert ran.returncode == 2
    assert b"csn: [Errno 28] No space left on device" in ran.stderr


def test_there_need_be_no_home_no_terminal_no_locale_and_no_output():
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LC_ALL": "C"}
    command = f"{shlex.quote(sys.executable)} -m csn data list"
    for redirected in ("", ">&-", "<&- 2>&-"):
        ran = subprocess.run(
            ["sh", "-c", f"{command} {redirected}"], env=bare, stdin=subprocess.DEVNULL, capture_output=True
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
