"""A few kills and one of every other disaster; the scripts here go on for as long as one likes.

They fork processes that have torch, and run in processes of their own, so that nothing of pytest's is forked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason='a service is killed: pip install "csn[service]"')

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


def struck(script: str, *arguments: str) -> list[dict[str, object]]:
    """What a script here says came of its attacks."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    rows = json.loads(ran.stdout.splitlines()[-1])
    return rows if isinstance(rows, list) else [rows]


def test_a_training_that_is_killed_goes_on_to_the_bit():
    [row] = struck("trainings.py", "--kills", "3")
    assert row["held"] == row["tries"] == 3


def test_a_service_that_is_killed_loses_no_drawing_and_learns_none_twice():
    [row] = struck("servers.py", "--kills", "3")
    assert (row["held"], row["lost"], row["learned twice"]) == (3, 0, 0)
    assert row["acknowledged"] >= 9


def test_a_crowd_is_answered_and_leaves_nothing_in_memory():
    crowd, memory = struck("load.py", "--clients", "64", "--seconds", "2", "--requests", "120")
    assert crowd["held"] == crowd["tries"] > 0, crowd
    assert memory["held"] == memory["tries"] == 120, memory


def test_disasters_lose_nothing():
    assert all(row["held"] == row["tries"] for row in struck("disasters.py"))
