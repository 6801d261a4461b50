"""Fixtures of several unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_tables import TOY

from csn import reproduce


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table of two small cells, tested on two tasks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "tables", lambda: TOY)
    monkeypatch.setattr(reproduce, "RANDOM_TASKS", {5: 2})
    monkeypatch.setattr("csn.reproduce_command.POLL", 0.05)
