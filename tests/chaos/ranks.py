"""Kill ranks of a training until it has had enough: python tests/chaos/ranks.py [--kills 20] [--ranks 2].

torchrun starts the ranks again after each kill, and what the training leaves must be what an undisturbed one leaves, to
the bit. Then ranks are asked to stop, fewer of them go on, and a second training in the folder is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = ["adacnn-df", "--recipe", "plus", "--data", "strokes", "--way", "5", "--tasks", "2400"]
OPTIONS += ["--device", "cpu", "--threads", "1"]
CHANGES = ["network.filters=4", "network.norm=none", "train.tasks_per_step=4", "train.validate_every=40"]
CHANGES += ["train.validation_tasks=8", "pretrain.epochs=0"]
OPTIONS += [word for change in CHANGES for word in ("--set", change)]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
ENVIRONMENT["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"


def start(folder: Path, ranks: int, *more: str, restarts: int = 0) -> subprocess.Popen[bytes]:
    """A training under torchrun, or in one process."""
    command = ["-m", "csn", "train", *OPTIONS, "--out", str(folder), *more]
    if ranks > 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command = [*torchrun, "--max-restarts", str(restarts), *command]
    with Path(f"{folder}.out").open("ab") as log:
        return subprocess.Popen([sys.executable, *command], env=ENVIRONMENT, stdout=log, stderr=log)


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes of the ranks."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return [int(pid) for pid in path.read_text().split() if b"csn" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    except OSError:
        return []


def seen(folder: Path) -> int:
    """Tasks in the log so far."""
    try:
        lines = (folder / "log.jsonl").read_text().splitlines()
        return max((json.loads(line)["tasks"] for line in lines if line.endswith("}")), default=0)
    except OSError:
        return 0


def curve(folder: Path) -> list[dict[str, object]]:
    """The log but for its times."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def killed_and_resumed(folder: Path, ranks: int, kills: int, rng: random.Random) -> int:
    """A training of which a rank is killed so many times; how many were killed before it was done."""
    process, done, before = start(folder, ranks, restarts=2 * kills), 0, 0
    while process.poll() is None:
        time.sleep(0.02)
        if done < kills and seen(folder) > before and len(pids := workers(process)) == ranks:
            time.sleep(rng.random())
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
            except OSError:
                continue
            done, before = done + 1, seen(folder)
            while process.poll() is None and set(workers(process)) & set(pids):
                time.sleep(0.02)
    assert process.returncode == 0, Path(f"{folder}.out").read_text()[-3000:]
    return done


def stopped(process: subprocess.Popen[bytes], folder: Path, tasks: int) -> int:
    """The status of a training of which one process is asked to stop after so many tasks."""
    while seen(folder) < tasks:
        assert process.poll() is None, Path(f"{folder}.out").read_text()[-3000:]
        time.sleep(0.05)
    os.kill((workers(process) or [process.pid])[-1], signal.SIGTERM)
    return process.wait()


def fewer_and_fewer(folder: Path) -> None:
    """Four ranks are stopped, two go on while a third training is refused, and one ends it."""
    assert stopped(start(folder, 4), folder, 400) == 1  # torchrun's own; each rank ends with 75
    at = seen(folder)
    second = start(folder, 2, "--resume")
    while seen(folder) <= at:
        time.sleep(0.05)
    assert start(folder, 1, "--resume").wait() == 2
    assert "is being trained by another process" in Path(f"{folder}.out").read_text()
    assert stopped(second, folder, 1000) == 1
    assert seen(folder) > at
    assert start(folder, 1, "--resume").wait() == 0


def row(attack: str, tries: int, started: float, **more: object) -> dict[str, object]:
    """What came of an attack, all of which held, for tools/hardening.py."""
    minutes = round((time.monotonic() - started) / 60, 1)
    return {"attack": attack, "tries": tries, "held": tries, "minutes": minutes, **more}


def main() -> None:
    """Attack, and say what came of it; a failed assertion ends it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root, started = Path(scratch), time.monotonic()
        whole, torn, fewer = root / "whole", root / "torn", root / "fewer"
        assert start(whole, given.ranks).wait() == 0, Path(f"{whole}.out").read_text()[-3000:]
        kills = killed_and_resumed(torn, given.ranks, given.kills, random.Random(given.seed))
        for name in ("best.safetensors", "last.safetensors"):
            assert (torn / name).read_bytes() == (whole / name).read_bytes(), name
        assert curve(torn) == curve(whole)
        assert not list(torn.glob(".*")), "temporary files were left"
        found = [row(f"one of {given.ranks} ranks killed, all started again by torchrun", kills, started)]
        started = time.monotonic()
        fewer_and_fewer(fewer)
        ends = {"ended with": curve(fewer)[-1], "one set of ranks": curve(whole)[-1]}
        found.append(row("training of 4 ranks stopped and gone on with by 2, then by 1", 1, started, **ends))
    print(json.dumps(found))
    if given.out:
        given.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
