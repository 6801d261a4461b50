"""Modules have at most 350 lines and functions at most 60 (CONTRIBUTING), with no exception."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import csn

ROOT = Path(csn.__file__).parent
MODULE, FUNCTION = 350, 60


def too_long(text: str) -> list[str]:
    """What is longer than its limit."""
    lines = len(text.splitlines())
    found = [f"the module has {lines} lines"] if lines > MODULE else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            found += [f"{node.name} has {lines} lines"] if lines > FUNCTION else []
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_and_functions_are_short(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8")) == []


def test_the_test_sees_what_is_too_long() -> None:
    function = "def f():\n" + "    pass\n" * FUNCTION
    assert too_long(function.replace("    pass\n", "", 1)) == []
    assert too_long(function) == ["f has 61 lines"]
    assert too_long("async " + function) == ["f has 61 lines"]
    assert too_long("x = 0\n" * (MODULE + 1)) == ["the module has 351 lines"]
