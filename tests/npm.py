"""Packages of npm for tests: from the folder that CSN_NODE_MODULES names, or installed for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def install(name: str, folder: Path) -> Path:
    """`folder`/node_modules with a package in it; the test is skipped, saying so, where there is none to be had."""
    modules = folder / "node_modules"
    if given := os.environ.get("CSN_NODE_MODULES"):
        if not (Path(given) / name).is_dir():
            pytest.skip(f"CSN_NODE_MODULES={given} holds no {name}")
        modules.symlink_to(Path(given).resolve())
        return modules
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"this test needs npm, to install {name}: apt-get install npm")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), name]
    if subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=False).returncode:
        pytest.skip(f"npm cannot install {name} here")
    return modules
