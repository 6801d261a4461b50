"""Progress that can be read: on a narrow terminal, and after a stop."""

from __future__ import annotations

import io

from rich.console import Console

from csn import run_cells, terminal
from csn.cli import main
from csn.reproduce import plan

NAME = "penn-treebank-5w1s-adalstm-1-gradient-plus-hidden-shifts-only-naming.epochs=0-seed2"


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


def test_what_was_trained_before_and_what_failed_is_no_speed(toy, monkeypatch):
    before, bars = {"strokes-5w1s-adacnn-df-plus": 6}, []
    made = run_cells.progress_bar

    def watched(*columns, **options):
        bars.append(made(*columns, **options))
        return bars[-1]

    def failed(each):
        each.process.wait()
        return "failed"

    monkeypatch.setattr("csn.run_cells.progress_bar", watched)
    monkeypatch.setattr("csn.run_cells._done", lambda cell, runs: before.get(cell.name, 0))
    monkeypatch.setattr("csn.run_cells._next_command", failed)
    monkeypatch.setattr("csn.reproduce.Cell.train_command", lambda *_, **__: ["data", "list"])
    assert main(["reproduce", "strokes"]) == 1
    assert [cell.config.train.tasks for cell in plan("strokes")] == [8, 8]
    (overall,) = bars[0].tasks
    assert (overall.completed, overall.total, overall.speed) == (6, 6, None)
