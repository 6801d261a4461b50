"""Attack for as long as one likes: `make fuzz MINUTES=60`, or

    python tests/fuzz/campaign.py --minutes 60 [--processor 5] [--target pickle ...] [--engine random] [--out FILE]

Each target is attacked in processes of its own, with coverage as a guide where atheris is installed
(`pip install "csn[fuzz]"`) and by random edits where it is not. A crash (an exception that is no ValueError, a signal,
30 seconds without an end, 4 GB of memory) leaves its input in tests/fuzz/seeds/<target>/, and the attack goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).parent
SILENCE, MEMORY = 30, 4 << 30  # seconds of one input, bytes of a process
WARM_UP = 120  # seconds to start in
LONGEST = 1 << 20  # bytes of an input


def scratch() -> str | None:
    """The folder for files that are written thousands of times: in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Shared:
    """Tries, processor time, and the input that is tried just now, in a file that outlives the process."""

    HEAD = 24  # bytes: tries, nanoseconds, length of the input

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self.HEAD + LONGEST))
        with open(path, "rb+") as file:
            self.memory = mmap.mmap(file.fileno(), self.HEAD + LONGEST)
        self.before = self.nanoseconds

    @property
    def tries(self) -> int:
        return int.from_bytes(self.memory[:8], "little")

    @property
    def nanoseconds(self) -> int:
        """Of the processor, of this process and those before it."""
        return int.from_bytes(self.memory[8:16], "little")

    @property
    def content(self) -> bytes:
        return self.memory[self.HEAD : self.HEAD + int.from_bytes(self.memory[16:24], "little")]

    def begin(self, content: bytes, elsewhere: int) -> None:
        """Before every try. elsewhere: nanoseconds of the processor that a process of the target has used."""
        content = content[:LONGEST]
        self.memory[self.HEAD : self.HEAD + len(content)] = content
        numbers = (self.tries + 1, self.before + time.process_time_ns() + elsewhere, len(content))
        self.memory[: self.HEAD] = b"".join(number.to_bytes(8, "little") for number in numbers)


def attack(name: str, engine: str, seconds: float, most: float, shared: Shared, corpus: Path) -> None:
    """Attack one target in this process until it crashes, or the time or its seconds of the processor are up."""
    if engine == "atheris":
        import atheris

        with atheris.instrument_imports(include=["csn"]):
            import targets
    else:
        import targets
    target, seeds = targets.TARGETS[name], targets.seeds_of(name)

    def one(content: bytes) -> None:
        shared.begin(content, target.elsewhere())
        if shared.nanoseconds >= most * 1e9:
            os._exit(0)  # libFuzzer cannot be told to end
        target.attack(content)

    if engine == "atheris":
        for content in seeds:
            (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
        limits = [f"-timeout={SILENCE}", f"-rss_limit_mb={MEMORY >> 20}", f"-max_total_time={max(1, int(seconds))}"]
        quiet = ["-verbosity=0", "-print_final_stats=0", f"-artifact_prefix={corpus}/../artifact-", "-max_len=65536"]
        atheris.Setup([sys.argv[0], *limits, *quiet, str(corpus)], one)
        atheris.Fuzz()
        return
    import edits

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY * 2, resource.getrlimit(resource.RLIMIT_AS)[1]))
    random, until = Random(time.time_ns()), time.monotonic() + seconds
    while time.monotonic() < until:
        signal.alarm(SILENCE)  # kills the process, which the one that watches calls a crash
        one(edits.damaged(random.choice(seeds), edits.drawn_edits(random)))
    signal.alarm(0)


def watch(name: str, engine: str, minutes: float, processor: float) -> dict[str, Any]:
    """Attack one target for some minutes, in as many processes as crash."""
    with tempfile.TemporaryDirectory(prefix=f"csn-campaign-{name}-", dir=scratch()) as folder:
        return _watched(name, engine, minutes, processor, Path(folder))


def _watched(name: str, engine: str, minutes: float, processor: float, folder: Path) -> dict[str, Any]:
    (folder / "corpus").mkdir()
    shared, crashes = Shared(folder / "shared"), []
    started = time.monotonic()
    while (left := minutes * 60 - (time.monotonic() - started)) > 1 and len(crashes) < 50:
        if shared.nanoseconds >= processor * 60e9:
            break
        command = [sys.executable, __file__, "--process", name, "--engine", engine, "--folder", str(folder)]
        command += ["--processor", str(processor)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "TMPDIR": str(folder)}
        try:
            ran = subprocess.run(
                [*command, "--minutes", str(left / 60)], capture_output=True, env=environment, timeout=left + WARM_UP
            )
        except subprocess.TimeoutExpired:  # the time is up, and it has not noticed yet
            break
        if ran.returncode == 0:
            continue
        content, said = shared.content, (ran.stdout + ran.stderr).decode(errors="replace")
        said = "\n".join(line for line in said.splitlines() if not line.startswith(("INFO:", "WARNING:")))[-2000:]
        seed = hashlib.sha256(content).hexdigest()[:16]
        (folder / seed).write_bytes(content)  # no seed yet: the next process would begin with it
        crashes.append({"seed": seed, "code": ran.returncode, "said": said})
        print(f"{name}: crash {seed}, exit code {ran.returncode}\n{said}", file=sys.stderr, flush=True)
    for crash in crashes:
        (HERE / "seeds" / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / crash["seed"], HERE / "seeds" / name / crash["seed"])
    spent = (time.monotonic() - started) / 60
    row = {"target": name, "engine": engine, "tries": shared.tries, "minutes": round(spent, 1), "crashes": crashes}
    return row | {"processor minutes": round(shared.nanoseconds / 60e9, 2)}


def main() -> int:
    """Attack, and say what came of it; 1 if anything crashed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="of each target")
    parser.add_argument("--processor", type=float, default=float("inf"), help="end a target after minutes of processor")
    parser.add_argument("--target", action="append", help="by default all of them, one after another")
    parser.add_argument("--engine", choices=("atheris", "random"))
    parser.add_argument("--together", action="store_true", help="all targets at the same time")
    parser.add_argument("--out", type=Path, help="a JSON file of what came of it")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    engine = given.engine or ("atheris" if importlib.util.find_spec("atheris") else "random")
    sys.path.insert(0, str(HERE))
    if given.process:
        shared = Shared(given.folder / "shared")
        attack(given.process, engine, given.minutes * 60, given.processor * 60, shared, given.folder / "corpus")
        return 0
    import targets

    names = given.target or list(targets.TARGETS)
    if unknown := set(names) - set(targets.TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}: there are {', '.join(targets.TARGETS)}")
    for name in names:
        if why := targets.TARGETS[name].missing():
            print(f"{name} is left out: {why}")
    names = [name for name in names if not targets.TARGETS[name].missing()]
    engines = {name: engine if targets.TARGETS[name].is_guided else "random" for name in names}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(1, len(names)) if given.together else 1) as pool:
        found = list(pool.map(lambda name: watch(name, engines[name], given.minutes, given.processor), names))
    for row in found:
        print(f"{row['target']:12} {row['engine']} {row['tries']:9,} tries {row['minutes']:6.1f} minutes", end=" ")
        print(f"({row['processor minutes']:.2f} of the processor) {len(row['crashes'])} crashes")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(row["crashes"] for row in found))


if __name__ == "__main__":
    raise SystemExit(main())
