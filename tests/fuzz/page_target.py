"""The exported page's reader of task files, which node runs, fed with files whose parts contradict each other."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import resource
import select
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import edits
from places import in_file

READER = Path(__file__).with_name("page_reader.mjs")
SOURCE = Path(__file__).parents[2] / "src" / "csn" / "export" / "web" / "taskfile.js"
SILENCE = 20  # seconds of one file
TORCH = {"U8": "uint8", "I64": "int64", "F32": "float32", "F16": "float16", "BOOL": "bool"}


def missing() -> str | None:
    """Why the page's reader cannot be attacked here, or None."""
    return None if shutil.which("node") else "the page's reader is attacked by node, which is not installed"


class Reader:
    """A process of node that reads one file after the other."""

    def __init__(self) -> None:
        module = in_file(SOURCE.read_bytes(), "taskfile.mjs")  # node takes a .js file for an older kind
        command = ["node", "--max-old-space-size=1024", str(READER), str(module)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=_any_memory)
        self.nanoseconds = 0
        atexit.register(self.close)

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        with self.process:
            self.process.kill()

    def read(self, content: bytes) -> str:
        """What came of a file: read, refused or something else."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack("<I", len(content)) + content)
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], SILENCE)[0]:
            self.process.kill()
            return f"{SILENCE} seconds of silence"
        answer = json.loads(self.process.stdout.readline() or '{"said": "node has ended", "microseconds": 0}')
        self.nanoseconds = answer["microseconds"] * 1000
        return str(answer["said"])


def _any_memory() -> None:
    """The campaign limits addresses, of which node reserves many more than it uses."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


@functools.cache
def _reader() -> Reader:
    return Reader()


def read(content: bytes) -> None:
    """Read a file as the page does."""
    said = _reader().read(content)
    if said == "refused":
        raise ValueError(said)
    if said != "read":
        _reader().close()
        _reader.cache_clear()
        raise AssertionError(f"the page's reader: {said}")


def elsewhere() -> int:
    """Nanoseconds of the processor that node has used."""
    return _reader().nanoseconds if _reader.cache_info().currsize else 0


def variants(seeds: Callable[[], list[bytes]], content: bytes) -> Iterator[bytes]:
    """Seeds with a changed description of their tensors and a changed task, with the page's checksum."""
    random = Random(zlib.crc32(content))
    for _ in range(4):
        seed = random.choice(seeds())
        (length,) = struct.unpack("<Q", seed[:8])
        header, body = json.loads(seed[8 : 8 + length]), seed[8 + length :]
        about = json.loads(header.pop("__metadata__")["csn"])["metadata"]
        for _ in range(random.choice([0, 1, 1, 2])):
            header = edits.changed_json(header, random)
        for _ in range(random.choice([0, 0, 1, 2])):
            about = edits.changed_json(about, random)
        with contextlib.suppress(UnicodeEncodeError):
            yield packed(header, about, body[: random.choice([len(body), len(body), len(body) // 2, 0])])


def packed(header: Any, about: Any, body: bytes) -> bytes:
    """A task file with this description of its tensors, whatever it says, and with a checksum over it."""
    metadata = json.dumps(about, sort_keys=True)
    total = hashlib.sha256(metadata.encode())
    for name, part in sorted(header.items()) if isinstance(header, dict) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            shape, (start, end) = part["shape"], part["data_offsets"]
            shown = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
            total.update(f"{name} torch.{TORCH[part['dtype']]} ({shown})".encode() + body[start:end])
    csn = f'{{"format": 1, "sha256": "{total.hexdigest()}", "metadata": {metadata}}}'
    described = {"__metadata__": {"csn": csn}, **header} if isinstance(header, dict) else header
    head = json.dumps(described).encode()
    return struct.pack("<Q", len(head)) + head + body
