"""Two hosts that are cut off from each other while they train: python tests/chaos/hosts.py, as root, on Linux.

A host is a network namespace. A cut that is shorter than the ranks' patience costs time only; a longer one ends both
hosts with an error that says so, and the same command goes on when the link is back. What is left must be what two
processes of one host leave, to the bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ranks import ENVIRONMENT, OPTIONS, curve, seen, start

PATIENCE = 20  # seconds
HOSTS = ("csn-a", "csn-b")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@contextlib.contextmanager
def network() -> Iterator[None]:
    """Two namespaces with a link between them."""
    for host in HOSTS:
        run("ip", "netns", "add", host)
    try:
        run("ip", "link", "add", "csn0", "netns", HOSTS[0], "type", "veth", "peer", "name", "csn0", "netns", HOSTS[1])
        for number, host in enumerate(HOSTS, start=1):
            run("ip", "-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "csn0")
            for device in ("lo", "csn0"):
                run("ip", "-n", host, "link", "set", device, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)


def link(state: str) -> None:
    """Cut the link (down) or mend it (up)."""
    run("ip", "-n", HOSTS[0], "link", "set", "csn0", state)


def train(folder: Path, port: int) -> list[subprocess.Popen[bytes]]:
    """The training, a rank on each host."""
    environment = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "csn0", "CSN_TIMEOUT": str(PATIENCE)}
    processes = []
    for number, host in enumerate(HOSTS):
        rank = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
        rank |= {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(port), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        command = ["ip", "netns", "exec", host, sys.executable, "-m", "csn", "train", *OPTIONS]
        with Path(f"{folder}-{host}.out").open("ab") as log:
            processes.append(
                subprocess.Popen(
                    [*command, "--out", str(folder), "--restartable"],
                    env={**environment, **rank},
                    stdout=log,
                    stderr=log,
                )
            )
    return processes


def reach(folder: Path, tasks: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until so many tasks are in the log."""
    while seen(folder) < tasks:
        assert all(process.poll() is None for process in processes), said(folder)
        time.sleep(0.05)


def said(folder: Path) -> str:
    return "\n".join(Path(f"{folder}-{host}.out").read_text()[-1500:] for host in HOSTS)


def main() -> None:
    """Everything, with a line each."""
    if os.geteuid() != 0:
        raise SystemExit("network namespaces are for root")
    with tempfile.TemporaryDirectory() as scratch:
        whole, cut = Path(scratch) / "whole", Path(scratch) / "cut"
        assert start(whole, 2).wait() == 0
        with network():
            processes = train(cut, 29511)
            reach(cut, 300, processes)
            link("down")
            before, began = seen(cut), time.monotonic()
            time.sleep(5)
            assert seen(cut) <= before + 100, "the link was not cut"
            link("up")
            reach(cut, before + 200, processes)
            print(f"cut for 5 s at {before} tasks: went on after {time.monotonic() - began:.0f} s")
            reach(cut, 1200, processes)
            link("down")
            began = time.monotonic()
            statuses = [process.wait() for process in processes]
            waited = time.monotonic() - began
            assert statuses == [2, 2], (statuses, said(cut))
            errors = [line for line in said(cut).splitlines() if line.startswith("csn: ")]
            assert len(errors) == 2, errors
            print(f"cut for good: both ended after {waited:.0f} s (patience {PATIENCE} s), with")
            print("\n".join(f"  {error[:160]} ..." for error in errors))
            link("up")
            at = seen(cut)
            assert [process.wait() for process in train(cut, 29512)] == [0, 0], said(cut)
        for name in ("best.safetensors", "last.safetensors"):
            assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
        assert curve(cut) == curve(whole)
        print(f"the same command went on from {at} tasks; files and log as of one host: {json.dumps(curve(cut)[-1])}")


if __name__ == "__main__":
    main()
