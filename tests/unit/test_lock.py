"""Two trainings at once: the second in a folder is refused, and a closed terminal lets the first save and stop."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from csn.cli.main import main
from csn.cli.terminal import stop_signal
from csn.engine.lock import lock_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither these locks nor SIGHUP")

_HOLD = """
import sys; from pathlib import Path; from csn.engine.lock import lock_folder
lock = lock_folder(Path(sys.argv[1])); print("held", flush=True); sys.stdin.read()
"""


def test_a_folder_is_trained_by_one_process_at_a_time(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "network.filters=4", "--set", "train.validation_tasks=2", "--tasks", "4", "--threads", "1"]
    command = ["train", "prototypical", "--data", "strokes", "--out", "run", *small]
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert main(command) == 2
        assert "run is being trained by another process: wait for it or stop it" in capsys.readouterr().err
        other.communicate()
    assert list(Path("run").iterdir()) == []  # the lock left nothing, so the folder counts as new
    assert main(command) == 0


def test_a_process_may_take_its_own_lock_again_and_gives_it_back(tmp_path):
    locks = [lock_folder(tmp_path / "run") for _ in range(2)]
    assert locks[0] is locks[1]
    locks.clear()
    gc.collect()
    script = [sys.executable, "-c", _HOLD, str(tmp_path / "run")]
    assert subprocess.run(script, stdin=subprocess.DEVNULL, check=False, capture_output=True).returncode == 0


def test_a_closed_terminal_asks_to_stop_unless_it_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with stop_signal() as should_stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert should_stop()
            assert should_stop.status == 75  # start it again
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with stop_signal() as should_stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not should_stop()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_is_answered_and_the_second_one_ends_at_once(capsys):
    with stop_signal() as should_stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert should_stop()
        assert should_stop.status == 130
        assert "press Ctrl-C again to stop at once without saving" in capsys.readouterr().out
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_windows_has_no_lock_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.warns(RuntimeWarning, match=r"Windows has no lock for .*run: make sure that no other process trains"):
        assert lock_folder(tmp_path / "run") is None
    assert (tmp_path / "run").is_dir()
