"""docs/paper_map.md leads somewhere: every name in it can be imported, every test file is there."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
NAMES = sorted({*re.findall(r"`(csn(?:\.\w+)+)`", PAGE)})


def test_the_page_names_what_it_should() -> None:
    assert {"csn.core.neurons.shifted_activation", "csn.experiments.timing.tables"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_to_code(name: str) -> None:
    assert pkgutil.resolve_name(name) is not None, f"{name} is not there"


def test_its_tests_are_there() -> None:
    files = re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)`", PAGE)
    assert files
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert {*files} <= there
