"""tools/dependencies.py: what csn needs, under which licences, and what is known against it."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import dependencies as tool

ROOT = Path(__file__).parents[2]


def advisory(**affected: object) -> dict[str, object]:
    return {
        "id": "X-1",
        "summary": "bad",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "Num_Py"}, **affected}],
    }


@pytest.mark.parametrize(
    ("version", "affected", "concerned"),
    [
        ("2.0", {"versions": ["1.9", "2.0"]}, True),
        ("2.1", {"versions": ["1.9", "2.0"]}, False),
        ("2.0", {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}]}, False),
        ("1.9", {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}]}, True),
        (
            "1.10",
            {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "1.9"}, {"last_affected": "1.10"}]}]},
            True,
        ),
        (
            "1.11",
            {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "1.9"}, {"last_affected": "1.10"}]}]},
            False,
        ),
        ("1.9", {"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_an_advisory_concerns_the_versions_it_names(version, affected, concerned):
    assert tool.concerns(advisory(**affected), {"num-py": version}) == ["num-py"] * concerned
    assert tool.concerns(advisory(**affected) | {"withdrawn": "2026"}, {"num-py": version}) == []
    assert tool.concerns(advisory(**affected), {"other": version}) == []


def test_the_listing_names_licences_and_finds_what_is_known(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "needed", lambda extras: {"numpy": "1.0"})
    monkeypatch.setattr(sys, "argv", ["dependencies.py"])
    assert tool.main() == 0
    said = capsys.readouterr().out
    assert re.search(r"numpy +1\.0 +BSD", said)
    assert "Give --advisories to look for known vulnerabilities" in said
    known = json.loads(json.dumps(advisory(versions=["1.0"])).replace("Num_Py", "numpy"))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("X-1.json", json.dumps(known))
    monkeypatch.setattr(sys, "argv", ["dependencies.py", "--advisories", str(tmp_path / "all.zip")])
    assert tool.main() == 1
    assert "numpy 1.0: X-1 bad" in capsys.readouterr().out


def test_what_is_needed_is_found_however_far_down():
    found = tool.needed(["sklearn"])
    assert {"torch", "scikit-learn", "scipy", "threadpoolctl", "filelock"} <= set(found)
    assert "csn" not in found
    assert "fastapi" not in tool.needed([]), "an extra that was not asked for"


def pins(python: str) -> dict[str, str]:
    """The name and version of each line of constraints.txt that holds for a version of Python."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    chosen = [one for one in wanted if one.marker is None or one.marker.evaluate({"python_version": python})]
    names = [tool.plain(one.name) for one in chosen]
    assert len(names) == len(set(names)), "two versions for one Python"
    return {name: str(one.specifier).removeprefix("==") for name, one in zip(names, chosen, strict=True)}


def test_every_python_that_csn_names_has_a_version_of_each_package():
    project = (ROOT / "pyproject.toml").read_text()
    pythons = re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    assert pythons[0] == "3.10"
    assert f'target-version = "py{pythons[0].replace(".", "")}"' in project
    newest = set(pins(pythons[-1]))
    for python in pythons:
        assert newest <= set(pins(python)), f"Python {python} has packages without a version"


def test_what_is_needed_is_pinned_and_every_hash_belongs_to_such_a_version():
    pinned = pins("3.11")
    lines = [line for line in (ROOT / "constraints-hashes.txt").read_text().splitlines() if not line.startswith("#")]
    hashed = {}
    for line in lines:
        found = re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line)
        assert found is not None, line
        hashed[tool.plain(found[1])] = found[2]
    assert {name: pinned.get(name) for name in hashed if name != "setuptools"} == {
        name: version for name, version in hashed.items() if name != "setuptools"
    }
    needed = set(tool.needed(["all", "dev"])) - {"setuptools"}
    assert len(needed) > 50
    assert not needed - set(pinned), "add the versions to constraints.txt"
    assert not needed - set(hashed) - {"torch"}, "run tools/dependencies.py --hashes > constraints-hashes.txt"
