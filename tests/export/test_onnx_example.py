"""The example in JavaScript learns and predicts with exported graphs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from csn.cli.main import main

pytest.importorskip("onnxscript", reason="ONNX is an extra: pip install csn[onnx]")
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx" / "learn.mjs"


def test_a_program_in_javascript_learns_and_predicts(tmp_path):
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("the example needs node and npm: apt-get install nodejs npm")
    modules = os.environ.get("CSN_NODE_MODULES")  # a folder with the packages, to spare the download
    if modules is None:
        install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "onnxruntime-node"]
        if subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=300, check=False).returncode:
            pytest.skip("npm cannot install onnxruntime-node here")
    else:
        (tmp_path / "node_modules").symlink_to(Path(modules).resolve())
    assert main(["export", "characters", "--to", "onnx", "--out", str(tmp_path / "graphs")]) == 0
    shutil.copy(EXAMPLE, tmp_path / "learn.mjs")
    ran = subprocess.run(
        [node, "learn.mjs", "graphs"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["zigzag", "circle", "cross"]
