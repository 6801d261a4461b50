"""Many clients at once, and what a server keeps in memory of many requests.

    python tests/chaos/load.py [--clients 64] [--seconds 20] [--requests 5000]

The server is a fork of this process. Every answer must be right, or a deliberate 503 that says it is busy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from ending import ended
from servers import PNG, SHAPES, Server, add, drawing, new_task

DELIBERATE = ("busy", "too_slow")
WARM_UP = 300  # requests after which everything that is loaded once has been loaded
MOST_GROWTH = 16.0  # megabytes


def taught(base: str) -> str:
    """A task of three classes of one drawing each; its address."""
    task, never = new_task(base), threading.Event()
    for number, shape in enumerate(SHAPES):
        assert add(base, task, str(number), drawing(shape()), f"first-{number}", never)
    return task


def answered(http: httpx.Client, task: str, number: int) -> str:
    """One request of the kind of its number: `right`, `busy`, or what is wrong with the answer."""
    shape, kind = number % len(SHAPES), number // len(SHAPES) % 4
    content = drawing(SHAPES[shape](number % 7 / 200))
    if kind == 0:
        answer, wanted = http.post(f"{task}/predict", content=content, headers=PNG), 200
    elif kind == 1:
        answer, wanted = http.post(f"{task}/explain", content=content, headers=PNG), 200
    elif kind == 2:
        answer, wanted = http.get(f"{task}/examples"), 200
    else:
        answer, wanted = http.post(f"{task}/predict", json={"pixels": [[0, "x"]]}), 422
    if answer.status_code == 503 and answer.json()["error"]["code"] in DELIBERATE:
        return "busy"
    if answer.status_code != wanted:
        return f"status {answer.status_code}"
    if kind < 2 and answer.json()["label"] != str(shape):
        return f"{shape} taken for {answer.json()['label']}"
    return "right"


def crowd(base: str, task: str, clients: int, seconds: float) -> tuple[Counter[str], float]:
    """What so many clients were told, each asking as fast as it is answered, and the longest wait."""
    found: list[Counter[str]] = [Counter() for _ in range(clients)]
    waits = [0.0] * clients
    until = time.monotonic() + seconds

    def ask(client: int) -> None:
        with httpx.Client(base_url=base, timeout=120) as http:
            number = client
            while time.monotonic() < until:
                asked = time.monotonic()
                try:
                    found[client][answered(http, task, number)] += 1
                except httpx.TransportError as error:
                    found[client][type(error).__name__] += 1
                waits[client] = max(waits[client], time.monotonic() - asked)
                number += 1

    threads = [threading.Thread(target=ask, args=[client]) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found, Counter()), max(waits)


def memory(process: int) -> float:
    """Megabytes that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def attack(folder: Path, clients: int, seconds: float, requests: int) -> list[dict[str, Any]]:
    """Both attacks on one server."""
    running = Server(folder)
    try:
        task, began = taught(running.base), time.monotonic()
        told, longest = crowd(running.base, task, clients, seconds)
        rows = [
            {
                "attack": f"{clients} clients at once for {seconds:g} s",
                "tries": told.total(),
                "held": told["right"] + told["busy"],
                "told": dict(told),
                "longest wait in seconds": round(longest, 2),
                "minutes": round((time.monotonic() - began) / 60, 1),
            }
        ]
        began = time.monotonic()
        with httpx.Client(base_url=running.base, timeout=120) as http:
            for number in range(WARM_UP):
                answered(http, task, number)
            before = memory(running.process)
            one_by_one = Counter(answered(http, task, number) for number in range(requests))
            growth = memory(running.process) - before
    finally:
        running.kill()
    rows.append(
        {
            "attack": f"memory over {requests:,} requests",
            "tries": requests,
            "held": (one_by_one["right"] + one_by_one["busy"]) * (growth <= MOST_GROWTH),
            "told": dict(one_by_one),
            "megabytes before": round(before),
            "growth": round(growth, 1),
            "minutes": round((time.monotonic() - began) / 60, 1),
        }
    )
    return rows


def main() -> int:
    """Attack, and say what came of it; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = attack(Path(folder), given.clients, given.seconds, given.requests)
    return ended(rows, given.out)


if __name__ == "__main__":
    raise SystemExit(main())
