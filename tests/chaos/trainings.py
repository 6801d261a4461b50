"""Trainings that are killed at a counted file operation, and what is left of them.

    python tests/chaos/trainings.py --kills 200 [--minutes 60]

Each training is a fork of this process, so that torch is loaded once. Before the N-th operation on a file of its folder
(to open one for writing, the middle of a write, fsync, chmod, rename, remove) it kills itself with SIGKILL.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from ending import ended
from PIL import Image

from csn.cli.main import main as csn
from csn.engine.checkpoint import load_checkpoint

WATCHED = ("open", "os.rename", "os.remove", "os.chmod", "os.mkdir", "os.truncate")
OPTIONS = "data.image_size=8 data.queries=1 network.filters=2 key.size=2 learner.g_units=2 train.tasks_per_step=2 "
OPTIONS += "train.validate_every=4 train.validation_tasks=2"
TASKS = 14


def images(folder: Path) -> Path:
    """A folder of six classes of six images."""
    rng = np.random.default_rng(0)
    for name, number in itertools.product("abcdef", range(6)):
        path = folder / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
    return folder


def command(data: Path, out: Path, *more: str) -> list[str]:
    """`csn train` on them."""
    given = ["train", "adacnn-df", "--data", str(data), "--way", "2", "--shot", "1", "--tasks", str(TASKS)]
    return [
        *given,
        "--threads",
        "1",
        "--out",
        str(out),
        *(part for one in OPTIONS.split() for part in ("--set", one)),
        *more,
    ]


class Doom:
    """Counts operations on files below a folder, and kills this process before the last of them.

    counter: a file that grows by a byte with each. act: is called with the number of each.
    """

    def __init__(
        self,
        folder: Path,
        last: int,
        counter: Path | None = None,
        act: Callable[[int], object] = lambda count: None,
    ) -> None:
        self.folder, self.last, self.count, self.act = f"{folder}/", last, 0, act
        self.counter = None if counter is None else os.open(counter, os.O_WRONLY | os.O_CREAT, 0o644)
        fsync, fdopen = os.fsync, os.fdopen
        sys.addaudithook(self._audit)
        os.fsync = lambda handle: (self.tick(), fsync(handle))[1]  # type: ignore[assignment]
        os.fdopen = lambda *given, **options: _Halting(fdopen(*given, **options), self.tick)  # type: ignore[assignment]

    def tick(self) -> None:
        """One operation more."""
        self.count += 1
        if self.counter is not None:
            os.write(self.counter, b".")
        self.act(self.count)
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if event not in WATCHED or not isinstance(given[0], str | os.PathLike):
            return
        writes = event != "open" or (isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR))
        if writes and os.fspath(given[0]).startswith(self.folder):
            self.tick()


class _Halting:
    """A file in whose writes there is a middle."""

    def __init__(self, file: Any, tick: Callable[[], None]) -> None:
        self.file, self.tick = file, tick

    def __enter__(self) -> _Halting:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, content: Any) -> int:
        """Half of it, a chance to die, and the rest."""
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self.tick()
        return half + self.file.write(content[half:])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def run(arguments: list[str], prepare: Callable[[], object] = lambda: None) -> tuple[int, str]:
    """A command in a fork of this process: its exit code (negative: a signal) and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            code = 70
            with contextlib.suppress(BaseException):
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                prepare()
                code = csn(arguments)
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def operations(data: Path, out: Path) -> int:
    """How many operations a whole training makes; its folder is the one to compare with.

    A training in this process comes first: what torch does for the first time every fork would do again.
    """
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert csn(command(data, out.parent / "first")) == 0
    until = time.monotonic() + 30
    while threading.active_count() > 1 and time.monotonic() < until:  # the progress bar's own thread ends by and by
        time.sleep(0.1)
    counter = out.parent / "operations"

    def prepare() -> None:
        Doom(out, -1, counter)

    code, said = run(command(data, out), prepare)
    assert code == 0, said
    return counter.stat().st_size


def left(out: Path) -> dict[str, Any]:
    """What a run is: its weights, its counters, its log without the times, the names of its files."""
    found: dict[str, Any] = {"files": sorted(p.name for p in out.iterdir() if not p.name.startswith("events"))}
    for name in ("last", "best"):
        tensors, about = load_checkpoint(out / f"{name}.safetensors")
        found[name] = {key: tensor.numpy().tobytes() for key, tensor in tensors.items()}
        found[f"{name} counters"] = {key: about.get(key) for key in ("tasks", "best", "since_best", "validation")}
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    found["log"] = [{key: value for key, value in line.items() if "second" not in key} for line in lines]
    return found


def kill(data: Path, out: Path, moments: list[int]) -> int:
    """Train, dying at each of some moments and going on from there, then to the end; how often it died."""
    died = 0
    for moment in moments:
        resume = ["--resume"] if out.exists() and any(out.iterdir()) else []
        code, said = run(command(data, out, *resume), lambda moment=moment: Doom(out, moment))  # type: ignore[misc]
        assert code in (0, -signal.SIGKILL), said
        died += code != 0
    resume = ["--resume"] if out.exists() and any(out.iterdir()) else []
    code, said = run(command(data, out, *resume))
    assert code == 0, said
    return died


def attack(folder: Path, kills: int, seed: int, minutes: float = math.inf) -> dict[str, Any]:
    """At least so many kills, if the time allows: spread over a whole training, then at random and several in a row."""
    data, random, started = images(folder / "images"), Random(seed), time.monotonic()
    total = operations(data, folder / "whole")
    whole, died, held, number = left(folder / "whole"), 0, 0, 0
    step = max(1, total // kills)
    while died < kills and time.monotonic() < started + 60 * minutes:
        first = 1 + number * step
        moments = [first] if first <= total else [random.randint(1, total) for _ in range(random.randint(1, 4))]
        out = folder / f"run{number}"
        these = kill(data, out, moments)
        same = left(out) == whole
        if not same:
            print(f"killed at {moments}: {differences(left(out), whole)}", file=sys.stderr)
        died, held, number = died + these, held + these * same, number + 1
    spent = round((time.monotonic() - started) / 60, 1)
    return {"attack": "training killed at a file operation", "tries": died, "held": held, "minutes": spent}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Which parts differ."""
    return [
        key if key != "files" else f"{key} {set(one[key]) ^ set(other[key])}" for key in one if one[key] != other[key]
    ]


def main() -> int:
    """Attack, and say what came of it; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further training is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CSN_CACHE"] = f"{folder}/cache"
        found = attack(Path(folder), given.kills, given.seed, given.minutes)
    return ended([found], given.out)


if __name__ == "__main__":
    raise SystemExit(main())
