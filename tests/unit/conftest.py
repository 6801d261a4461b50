"""Fixtures of several unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_tables import TOY


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table of two small cells, tested on two tasks."""
    monkeypatch.chdir(tmp_path)
    for module in ("reproduce", "table_files"):
        monkeypatch.setattr(f"csn.{module}.tables", lambda: TOY)
    monkeypatch.setattr("csn.cells.RANDOM_TASKS", {5: 2})
    monkeypatch.setattr("csn.run_cells.POLL", 0.05)
