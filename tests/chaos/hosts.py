"""Two hosts that are cut off from each other while they train: python tests/chaos/hosts.py, as root, on Linux.

A host is a network namespace. A cut that is shorter than the ranks' patience costs time only; a longer one ends both
hosts with an error that says so, and the same command goes on when the link is back. What is left must be what two
processes of one host leave, to the bit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ranks import ENVIRONMENT, OPTIONS, curve, row, seen, start

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


def train(folder: Path, port: int, patience: int) -> list[subprocess.Popen[bytes]]:
    """The training, a rank on each host."""
    environment = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "csn0", "CSN_TIMEOUT": str(patience)}
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


def cut_for_a_while(folder: Path, processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """The link is cut and mended: the training waits, and goes on."""
    reach(folder, 300, processes)
    link("down")
    before = seen(folder)
    time.sleep(seconds)
    assert seen(folder) <= before + 100, "the link was not cut"
    link("up")
    reach(folder, before + 200, processes)


def cut_for_good(folder: Path, processes: list[subprocess.Popen[bytes]]) -> list[str]:
    """The link is cut: both hosts end with an error each, which are returned."""
    reach(folder, 1200, processes)
    link("down")
    statuses = [process.wait() for process in processes]
    assert statuses == [2, 2], (statuses, said(folder))
    errors = [line for line in said(folder).splitlines() if line.startswith("csn: ")]
    assert len(errors) == 2, errors
    link("up")
    return errors


def main() -> None:
    """Attack, and say what came of it; a failed assertion ends it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--patience", type=int, default=20, help="seconds that hosts wait for each other")
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    given = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("network namespaces are for root")
    with tempfile.TemporaryDirectory() as scratch:
        whole, cut = Path(scratch) / "whole", Path(scratch) / "cut"
        assert start(whole, 2).wait() == 0, Path(f"{whole}.out").read_text()[-3000:]
        with network():
            processes, began = train(cut, 29511, given.patience), time.monotonic()
            seconds = given.patience / 4
            cut_for_a_while(cut, processes, seconds)
            found = [row(f"link between 2 hosts cut for {seconds:g} s", 1, began)]
            began = time.monotonic()
            errors = cut_for_good(cut, processes)
            again = train(cut, 29512, given.patience)
            assert [process.wait() for process in again] == [0, 0], said(cut)
        for name in ("best.safetensors", "last.safetensors"):
            assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
        assert curve(cut) == curve(whole)
        found.append(row("link cut for good, both hosts ended, mended and gone on with", 1, began, errors=errors))
    print(json.dumps(found))
    if given.out:
        given.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
