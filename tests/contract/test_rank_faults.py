"""What happens to one rank reaches all: no rank waits for ever, and each says the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import rank_cases
import rank_faults
import torch
from test_distributed import ended, start
from torch.testing import assert_close

from csn.engine.checkpoint import load_checkpoint
from csn.engine.distributed import ALONE, Ranks, ranks_of_environment
from csn.engine.machine import choose_device


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def seen(folder: Path) -> list[dict[str, str]]:
    """What each of two ranks saw."""
    processes = start(2, [str(Path(rank_faults.__file__)), str(folder)])
    said = [ended(process) for process in processes]
    assert [status for _, status in said] == [0, 9], said
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("options", "rank 1 differs from rank 0 in train.clip (1, not 0): start all ranks with the same command"),
        ("data", "returned ['rows']"),
        ("one", "rank 1 of 2: no data here"),
        ("disk", "No space left on device"),
        ("few", "2 processes cannot share a step of 1 tasks: start fewer, or raise train.tasks_per_step"),
        ("last", "2 processes cannot share a last step of 1 tasks"),
        ("loss", "the loss is nan after 5 tasks: lower train.learning_rate or set train.clip"),
        ("stop", "returned interrupted at 5"),
        ("resume", "returned from 5 finished"),
    ],
)
def test_every_rank_sees_the_same(seen, what, expected):
    assert expected in seen[0][what]
    assert expected in seen[1][what]


def test_only_rank_0_prints_a_shared_error(seen):
    assert [seen[rank]["loss"].partition(":")[0] for rank in range(2)] == ["ValueError", "SharedError"]
    assert [seen[rank]["disk"].partition(":")[0] for rank in range(2)] == ["OSError", "SharedError"]


def test_a_rank_that_is_gone_is_an_error_with_a_remedy(seen):
    assert "rank 0 of 2 lost the others" in seen[0]["dead"]
    assert "add --resume to the command: training goes on from the last checkpoint" in seen[0]["dead"]


def test_what_two_ranks_leave_one_process_leaves_too(seen, folder, tmp_path):
    """A checkpoint knows nothing of ranks: two stopped and went on here, one did it all there."""
    torch.set_default_dtype(torch.float64)
    try:
        rank_cases.trainer("df", tmp_path).run()
    finally:
        torch.set_default_dtype(torch.float32)
    (mine, its), (theirs, said) = (
        load_checkpoint(path / "last.safetensors") for path in (folder / "stopped", tmp_path)
    )
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert_close(mine[name], tensor, rtol=0, atol=1e-10, msg=name)
    assert its.keys() == said.keys()
    assert its["tasks"] == said["tasks"] == 15


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "LOCAL_RANK should be a number, got ''"),
        ({"RANK": "1"}, "WORLD_SIZE should be a number, got ''"),
        ({"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK should be a number, got 'x'"),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK 2 is not below WORLD_SIZE 2"),
    ],
)
def test_a_broken_environment_is_named(variables, message, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        ranks_of_environment()


def test_without_torchrun_there_is_one_process(monkeypatch):
    assert ranks_of_environment() is ALONE
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert ranks_of_environment() == Ranks(3, 8, 1)


def test_no_network_device_is_an_error_with_a_remedy():
    processes = start(
        2, ["-c", "from csn.engine.distributed import connected\nwith connected(): pass"], GLOO_SOCKET_IFNAME="no0"
    )
    for said, status in map(ended, processes):
        assert status == 1
        assert "could not connect to the others" in said
        assert "set GLOO_SOCKET_IFNAME to a network device" in said


@pytest.mark.parametrize(
    ("count", "world", "sizes"), [(5, 2, [3, 2]), (5, 4, [2, 1, 1, 1]), (4, 4, [1] * 4), (7, 1, [7])]
)
def test_shares_are_neighbours_and_as_even_as_can_be(count, world, sizes):
    shares = [Ranks(rank, world, rank).share(count) for rank in range(world)]
    assert [share.stop - share.first for share in shares] == sizes
    assert [task for share in shares for task in range(count)[share.cut]] == list(range(count))
    assert sum(share.weight for share in shares) == pytest.approx(1)


def test_each_process_of_a_machine_takes_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    assert choose_device("auto", 1) == torch.device("cuda:1")
    assert choose_device("cuda", 0) == torch.device("cuda:0")
    assert choose_device("cpu", 5) == torch.device("cpu")
    with pytest.raises(ValueError, match="process 3 of this machine needs a GPU, and there are 2"):
        choose_device("auto", 2)


def test_parts_of_a_step_and_batch_norm_do_not_go_together(tmp_path):
    loop = rank_cases.trainer("batch-norm", tmp_path)
    loop.ranks, loop.config = Ranks(0, 2, 0), dataclasses.replace(loop.config, micro_tasks=1)
    with pytest.raises(ValueError, match="micro_tasks with batch norm needs a single process"):
        loop.check_shares()
