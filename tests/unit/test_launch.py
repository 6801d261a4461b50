"""`--devices N`: the same command in N processes, and one status for all of them."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from csn.cli import launch as module
from csn.cli.main import main


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """What would have been started."""
    found: list[tuple[int, list[str]]] = []

    def elastic_launch(config, program: str) -> Callable[..., None]:
        return lambda *arguments: found.append((config.nproc_per_node, list(arguments)))

    monkeypatch.setattr(module, "elastic_launch", elastic_launch)
    for name in ("OMP_NUM_THREADS", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"):
        monkeypatch.setenv(name, "1")
    return found


def fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def elastic_launch(config, program: str) -> Callable[..., None]:
        def run(*arguments: str) -> None:
            raise error

        return run

    monkeypatch.setattr(module, "elastic_launch", elastic_launch)


@pytest.mark.parametrize("option", [["--devices", "3"], ["--devices=3"]])
def test_every_process_gets_the_command_without_the_option(started, option):
    assert main(["train", "adacnn-df", *option, "--out", "run", "--set", "train.tasks_per_step=6"]) == 0
    command = ["-m", "csn", "train", "adacnn-df", "--out", "run", "--set", "train.tasks_per_step=6"]
    assert started == [(3, command)]
    assert main(["evaluate", "run", *option]) == 0
    assert started[1] == (3, ["-m", "csn", "evaluate", "run"])


@pytest.mark.parametrize(("code", "status"), [(75, 75), (2, 2), (130, 130), (-9, 137)])
def test_the_status_is_that_of_the_rank_that_failed_first(started, monkeypatch, code, status):
    failure = ProcessFailure(local_rank=1, pid=999_999, exitcode=code, error_file="nowhere")
    fails(monkeypatch, ChildFailedError("csn", {1: failure}))
    assert main(["evaluate", "run", "--devices", "2"]) == status


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_to_the_starter_is_told_like_one_to_a_rank(started, monkeypatch, number, status):
    fails(monkeypatch, SignalException("asked to stop", number))
    assert main(["evaluate", "run", "--devices", "2"]) == status


def test_what_is_wrong_is_said_once_and_nothing_is_started(started, capsys):
    assert main(["train", "adacnn-df", "--devices", "0"]) == 2
    assert "--devices must be at least 1, got 0: give the number of processes" in capsys.readouterr().err
    assert main(["train", "adacnn-df", "--devices", "100000"]) == 2
    assert "--devices must be at most" in capsys.readouterr().err
    assert main(["train", "no-such-preset", "--devices", "2"]) == 2
    assert "unknown preset" in capsys.readouterr().err
    assert started == []
