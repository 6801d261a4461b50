"""Fixtures of several unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from toy_tables import TOY

from csn.experiments.tables import arms


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A table of two small cells, tested on two tasks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("csn.experiments.tables.plan.tables", lambda: TOY)
    monkeypatch.setattr("csn.experiments.tables.cells.RANDOM_TASKS", {5: 2})
    monkeypatch.setattr("csn.cli.run_cells.POLL", 0.05)
    # Wide enough that no name of a cell is folded, whatever terminal the tests run in.
    monkeypatch.setattr("csn.cli.reproduce.console", Console(width=120))
    arms._arms.cache_clear()
    yield
    arms._arms.cache_clear()  # the arms of the toy, if a test has any
