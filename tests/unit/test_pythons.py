"""Other Pythons of this machine read every source file, and run what needs no packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILE = """
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
"""
HELP = "import sys; sys.path.insert(0, sys.argv.pop(1)); from csn.cli.main import main; main(['--help'])"


def interpreter(version: str) -> str:
    """A Python of this version, from the path or from pyenv; the test is skipped if there is none."""
    found = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [str(path / "bin" / "python") for path in sorted(pyenv.glob(f"{version}.*"))]
    for name in [*names, found] if found else names:  # pyenv's own command may lead to no interpreter
        asked = subprocess.run([name, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
        if asked.stdout.strip() == f"({version.replace('.', ', ')})":
            return name
    pytest.skip(f"there is no Python {version} here")


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_a_python_reads_all_sources_and_shows_the_help(version):
    python = interpreter(version)
    for folder in ("src", "benchmarks", "tests", "tools", "examples"):
        read = subprocess.run([python, "-c", COMPILE, str(ROOT / folder)], capture_output=True, text=True)
        assert read.returncode == 0, read.stderr[-500:]
    shown = subprocess.run([python, "-c", HELP, str(ROOT / "src")], capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr[-500:]
    assert "csn train" in shown.stdout


def test_this_python_is_one_that_csn_names():
    assert (3, 10) <= sys.version_info[:2] <= (3, 14)
