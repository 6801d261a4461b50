"""A disk that fills up, a folder that cannot be written, SIGTERM, two trainings in one folder.

    python tests/chaos/disasters.py

After each the run goes on from where it was, and is in the end what it would have been, to the bit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ending import ended
from trainings import Doom, command, differences, images, left, operations, run

BLOCK = 64 << 10
NOBODY = 65534
INTERRUPTED = 75  # the exit code of a training that saved itself and can go on


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of its own with little room, where the rights allow one; whether they do."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=640k", "tmpfs", str(folder)], capture_output=True)
    try:
        yield made.returncode == 0
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", str(folder)], check=True)


def says_why(code: int, said: str) -> bool:
    """Whether a command ended with a message of its own, whatever a thread of TensorBoard's had to say."""
    return code in (1, 2) and any(line.startswith("csn: ") for line in said.splitlines()[-3:])


def full_disk(data: Path, folder: Path, whole: dict[str, Any]) -> str:
    """Room for the start of a run and not for all of it; then there is more room."""
    with small_disk(folder / "disk") as is_small:
        out, ballast = folder / "disk" / "run", folder / "disk" / "ballast"
        if is_small:
            prepare: Callable[[], object] = lambda: Doom(out, -1, None, before(10, lambda: fill(ballast)))  # noqa: E731
        else:  # no file of more than a few hundred bytes: the first checkpoint does not fit
            prepare = limit_files
        code, said = run(command(data, out), prepare)
        if not says_why(code, said):
            return f"exit code {code}: {said[-800:]}"
        ballast.unlink(missing_ok=True)
        return resumed(data, out, whole)


def fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(BLOCK))
        except OSError:
            pass


def limit_files() -> None:
    """Let no file grow beyond 3000 bytes, with an error and not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def before(moment: int, act: Callable[[], None]) -> Callable[[int], None]:
    """Act at one operation."""
    return lambda count: act() if count == moment else None


def terminated(data: Path, folder: Path, whole: dict[str, Any]) -> str:
    """SIGTERM in the middle."""
    out = folder / "terminated"
    act = before(22, lambda: os.kill(os.getpid(), signal.SIGTERM))
    code, said = run(command(data, out), lambda: Doom(out, -1, None, act))
    if code != INTERRUPTED:
        return f"exit code {code}: {said[-800:]}"
    return resumed(data, out, whole)


def two_at_once(data: Path, folder: Path, whole: dict[str, Any]) -> str:
    """A second training in the folder of one that is at work: it is turned away, and the first one is not disturbed."""
    out, seen = folder / "two", folder / "seen"

    def second() -> None:
        other = subprocess.run([sys.executable, "-m", "csn", *command(data, out, "--resume")], capture_output=True)
        seen.write_text(json.dumps([other.returncode, other.stderr.decode()]))

    code, said = run(command(data, out), lambda: Doom(out, -1, None, before(22, second)))
    refused, why = json.loads(seen.read_text())
    if code != 0 or refused != 2 or "being trained by another process" not in why:
        return f"exit codes {code} and {refused}: {said[-400:]} {why[-400:]}"
    return "; ".join(differences(left(out), whole))


def no_folder(data: Path, folder: Path, whole: dict[str, Any]) -> str:
    """A place where nobody can make a folder."""
    code, said = run(command(data, Path("/proc/csn/run")))
    return "" if says_why(code, said) else f"exit code {code}: {said[-800:]}"


def read_only(data: Path, folder: Path, whole: dict[str, Any]) -> str:
    """The folder turns read-only in the middle, and writable again; root, whom that does not stop, becomes nobody."""
    out = folder / "frozen"

    def freeze() -> None:
        os.chmod(out, 0o555)
        if os.getuid() == 0:
            os.seteuid(NOBODY)

    code, said = run(command(data, out), lambda: Doom(out, -1, None, before(21, freeze)))
    out.chmod(0o755)
    return resumed(data, out, whole) if says_why(code, said) else f"exit code {code}: {said[-800:]}"


def resumed(data: Path, out: Path, whole: dict[str, Any]) -> str:
    """Go on to the end; what differs from a run that nothing happened to."""
    code, said = run(command(data, out, *(["--resume"] if out.exists() and any(out.iterdir()) else [])))
    return "; ".join(differences(left(out), whole)) if code == 0 else f"exit code {code}: {said[-800:]}"


DISASTERS = {
    "disk that fills up": full_disk,
    "SIGTERM": terminated,
    "two trainings in one folder": two_at_once,
    "folder that cannot be made": no_folder,
    "folder that turns read-only": read_only,
}


def main() -> int:
    """Every disaster once; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CSN_CACHE"] = f"{folder}/cache"
        data = images(folder / "images")
        folder.chmod(0o755)  # nobody passes through
        operations(data, folder / "whole")
        whole = left(folder / "whole")
        for attack, strike in DISASTERS.items():
            started = time.monotonic()
            wrong = strike(data, folder, whole)
            minutes = round((time.monotonic() - started) / 60, 1)
            rows.append({"attack": attack, "tries": 1, "held": int(not wrong), "minutes": minutes})
            if wrong:
                print(f"{attack}: {wrong}", file=sys.stderr)
    return ended(rows, given.out)


if __name__ == "__main__":
    raise SystemExit(main())
