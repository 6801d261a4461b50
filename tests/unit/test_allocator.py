"""The allocator keeps large blocks where training and classifiers start, unless the environment says otherwise."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from csn import allocator

# Faults of a page are how often memory was asked for anew: a block of 64 MB, filled again and again.
PROGRAM = """
import resource
{start}
import torch
torch.set_num_threads(1)
def fill():
    x = torch.empty(2**24)
    x.fill_(1)
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
BUILD = "import csn.building; csn.building.build(reads=(4,), way=2, network='ffn')"


def faults(start: str, switch: str) -> int:
    environment = {"PATH": "/usr/bin:/bin", "CSN_KEEP_MEMORY": switch, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=start)], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told anything")
def test_a_program_that_builds_a_learner_asks_for_large_blocks_once():
    kept, handed_back = faults(BUILD, "1"), faults(BUILD, "0")
    assert kept * 5 < handed_back


def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch):
    allocator.keep_freed_memory.cache_clear()
    monkeypatch.setenv("CSN_KEEP_MEMORY", "yes")
    with pytest.raises(ValueError, match=r"CSN_KEEP_MEMORY is 1 .* or 0 .*, got 'yes'"):
        allocator.keep_freed_memory()


def test_it_is_left_alone_where_that_is_asked_for(monkeypatch):
    allocator.keep_freed_memory.cache_clear()
    monkeypatch.setenv("CSN_KEEP_MEMORY", "0")
    assert not allocator.keep_freed_memory()
    allocator.keep_freed_memory.cache_clear()
