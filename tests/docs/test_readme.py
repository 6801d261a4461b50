"""README: its example prints what it says, its commands exist, and a package index can follow its links."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from csn.cli.main import parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (csn .+?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_ten_lines_print_what_they_say() -> None:
    code, printed = re.search(r"```python\n(.*?)```\n+It prints\n+```text\n(.*?)```", README, re.DOTALL).groups()
    assert len(code.splitlines()) <= 10
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_csn_has(command: str) -> None:
    name, *arguments = shlex.split(command)
    options = parser().parse_args(arguments)
    assert name == "csn"
    assert options.command == arguments[0]


def test_make_has_the_targets_that_readme_names() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)", README)) | {"quickstart"} <= targets


def test_a_package_index_gets_absolute_links(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hatchling", reason="the metadata are made by hatchling: pip install hatchling")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from readme import ReadmeHook

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "readme" in project["dynamic"]
    ReadmeHook(str(ROOT), {}).update(project)
    text, repository = project["readme"]["text"], project["urls"]["Repository"]
    links = re.findall(r"(!?)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)]+)\)", text)
    assert len(links) > 20
    for picture, target in links:
        assert target.startswith("https://"), target
        if target.startswith(repository):
            kind, path = re.fullmatch(rf"{repository}/(raw|blob)/main/(.+)", target).groups()
            assert (kind == "raw") == bool(picture)
            assert (ROOT / path).exists(), target


def test_the_pythons_of_the_classifiers_are_those_of_the_page_of_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| Python ([\d., ]+) \| (.+) \|$", page, re.MULTILINE)
    stated = {version for versions, state in rows if "not tried" not in state for version in versions.split(", ")}
    assert listed == stated
    assert project["requires-python"] == ">=" + min(listed, key=lambda version: int(version.partition(".")[2]))
