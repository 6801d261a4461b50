"""N ranks equal one rank: losses, accuracies and parameters, whatever is trained."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import rank_cases
import torch
from torch.testing import assert_close

from csn.engine.distributed import ALONE

EXACT = {"rtol": 0, "atol": 1e-10}


def start(world: int, program: list[str], **environment: str) -> list[subprocess.Popen[str]]:
    """Processes as torchrun starts them, without its several seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CSN_TIMEOUT": "60", **environment}
    return [
        subprocess.Popen(
            [sys.executable, *program],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]


def ended(process: subprocess.Popen[str]) -> tuple[str, int]:
    """What a process said, and its status."""
    said, _ = process.communicate(timeout=240)
    return said, process.returncode


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict]]:
    """What one rank, each of two and each of four found."""
    folder = tmp_path_factory.mktemp("ranks")
    program = [str(Path(rank_cases.__file__)), str(folder)]
    started = {world: start(world, program) for world in (2, 4)}
    try:
        alone = rank_cases.outcomes(ALONE, folder / "alone")
        for said, status in map(ended, itertools.chain(*started.values())):
            assert status == 0, said
    finally:
        for process in itertools.chain(*started.values()):
            process.kill()
            process.communicate()
    several = {
        world: [torch.load(folder / f"{world}-{rank}.pt", weights_only=True) for rank in range(world)]
        for world in (2, 4)
    }
    return {1: [alone], **several}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("kind", rank_cases.CASES)
def test_every_rank_finds_what_one_process_finds(found, kind, world):
    expected = found[1][0][kind]
    for rank in found[world]:
        assert rank[kind].keys() == expected.keys()
        for name, value in expected.items():
            assert_close(rank[kind][name], value, **EXACT, msg=lambda text, name=name: f"{name}: {text}")


def test_the_trainings_do_something(found):
    """Otherwise the comparison above could pass with the same numbers everywhere."""
    for case, result in found[1][0].items():
        losses = result["steps"][:, 0]
        assert len(losses.unique()) == len(losses), case
        assert torch.isfinite(losses).all(), case
