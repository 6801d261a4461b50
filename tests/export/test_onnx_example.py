"""The example in JavaScript learns and predicts with exported graphs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import npm
from csn.cli.main import main

pytest.importorskip("onnxscript", reason="ONNX is an extra: pip install csn[onnx]")
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx" / "learn.mjs"


def test_a_program_in_javascript_learns_and_predicts(tmp_path):
    npm.install("onnxruntime-node", tmp_path)
    assert main(["export", "characters", "--to", "onnx", "--out", str(tmp_path / "graphs")]) == 0
    shutil.copy(EXAMPLE, tmp_path / "learn.mjs")
    ran = subprocess.run(
        ["node", "learn.mjs", "graphs"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["zigzag", "circle", "cross"]
