"""A service that is killed while clients teach it, and started again on the same folder.

    python tests/chaos/servers.py --kills 200 [--minutes 60]

Clients send every drawing with a key of its own, and again until it is acknowledged. In the end each one must be there,
once. The server is a fork of this process and is killed with SIGKILL.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from ending import ended
from kit import PNG, circle, classifier, cross, drawing, learner, wave

from csn.service.app import create_app
from csn.service.limits import Limits
from csn.service.server import bind, server

LIMITS = Limits(requests_per_second=0, examples=100_000, classes=100, undos=10)
CLIENTS = 4
SHAPES = (circle, cross, wave)


class Server:
    """A server at one address, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listener = bind("127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        learner()  # made once, before the forks
        self.start()

    def start(self) -> None:
        """Serve from a fork of this process."""
        self.process = os.fork()
        if self.process == 0:
            with contextlib.suppress(BaseException):
                server(create_app(classifier(), self.folder, limits=LIMITS), LIMITS).run(sockets=[self.listener])
            os._exit(1)

    def kill(self) -> None:
        """Without a warning."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def add(base: str, task: str, label: str, content: bytes, key: str, stop: threading.Event) -> bool:
    """Send a drawing until it is acknowledged."""
    while not stop.is_set():
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.post(
                f"{base}{task}/examples",
                params={"label": label},
                content=content,
                headers=PNG | {"Idempotency-Key": key},
                timeout=20,
            )
            if answer.status_code == 201:
                return True
            assert answer.status_code == 503, answer.text
        time.sleep(0.02)
    return False


def attack(folder: Path, kills: int, seed: int, minutes: float = math.inf) -> dict[str, Any]:
    """Teach with several clients, kill so often if the time allows, and count what is there in the end."""
    started, random, stop = time.monotonic(), Random(seed), threading.Event()
    running = Server(folder)
    task = new_task(running.base)
    acknowledged: Counter[str] = Counter()

    def teach(number: int) -> None:
        for count in range(10**6):
            name = f"client {number} drawing {count}"
            content = drawing(SHAPES[number % 3](count % 50 / 300))
            if not add(running.base, task, f"class {number}", content, name.replace(" ", "-"), stop):
                return
            acknowledged[f"class {number}"] += 1

    clients = [threading.Thread(target=teach, args=[number]) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    killed = 0
    while killed < kills and time.monotonic() < started + 60 * minutes:
        before, until = acknowledged.total(), time.monotonic() + 60
        while acknowledged.total() < before + 3 and time.monotonic() < until:  # it was at work, not starting
            time.sleep(0.005)
        time.sleep(random.random() * 0.05)
        running.kill()
        running.start()
        killed += 1
    stop.set()
    for client in clients:
        client.join()
    found = Counter(example["label"] for example in _examples(running.base, task))
    running.kill()
    lost = sum((acknowledged - found).values())
    # A client's last drawing may have been learned without an acknowledgement: it was never told so.
    twice = sum(max(0, found[label] - acknowledged[label] - 1) for label in found)
    return {
        "attack": "service killed while it learns",
        "tries": killed,
        "held": killed if not lost and not twice else 0,
        "acknowledged": acknowledged.total(),
        "lost": lost,
        "learned twice": twice,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }


def new_task(base: str) -> str:
    """A task of its own; its address."""
    while True:
        with contextlib.suppress(httpx.TransportError):
            return f"/api/tasks/{httpx.post(f'{base}/api/tasks', json={}, timeout=60).json()['id']}"


def _examples(base: str, task: str) -> list[dict[str, str]]:
    while True:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{base}{task}/examples", timeout=60).json()


def main() -> int:
    """Attack, and say what came of it; 1 if anything was lost or learned twice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which it is not killed again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = attack(Path(folder), given.kills, given.seed, given.minutes)
    return ended([found], given.out)


if __name__ == "__main__":
    raise SystemExit(main())
