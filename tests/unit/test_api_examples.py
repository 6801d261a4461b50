"""Every public name stands in the API reference, with an example that runs."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import csn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S))


def test_the_reference_has_every_public_name() -> None:
    assert sorted(SECTIONS) == sorted(csn.__all__)
    for name, section in SECTIONS.items():
        assert re.search(rf"^\.\. auto(class|function):: csn\.{name}$", section, re.M), name


@pytest.mark.parametrize("name", csn.__all__)
def test_the_example_of_a_name_runs(name: str) -> None:
    examples = re.findall(r"```pycon\n(.*?)```", SECTIONS[name], re.S)
    assert examples, f"{name} has no example"
    found = doctest.DocTestParser().get_doctest("".join(examples), {"csn": csn}, name, str(PAGE), 0)
    assert any(example.want for example in found.examples), f"the example of {name} shows nothing"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found, out=said.append).failed == 0, "".join(said)
