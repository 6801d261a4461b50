"""Embeddings that were worked out before: one SQLite file, shared by processes, found by the content of an input.

A row is written whole or not at all, and carries a checksum. A file that is damaged is begun anew; where nothing can be
written, nothing is kept. Neither ever stops an answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from csn.data.fetch import cache_dir

MOST_BYTES = 256_000_000  # of embeddings on disk; the oldest go first
MOST_KEPT = 4096  # embeddings of an encoder of one's own, in memory
PER_QUERY = 500  # keys in one SQL statement
SCHEMA = """
CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL);
"""


def content_key(item: Any) -> bytes | None:
    """A digest of what an input is: a text, the numbers of a picture, the bytes of a file; None for other things."""
    total = hashlib.sha256()
    if isinstance(item, str):
        total.update(b"text " + item.encode("utf-8", "surrogatepass"))
    elif isinstance(item, os.PathLike):
        try:
            total.update(b"file " + Path(item).read_bytes())
        except OSError:
            return None
    elif isinstance(item, np.ndarray) and item.dtype.kind in "buif":
        total.update(f"array {item.dtype} {item.shape}".encode() + np.ascontiguousarray(item).tobytes())
    else:
        return None
    return total.digest()


class MemoryCache:
    """Embeddings of an encoder that has no fingerprint, for as long as the process lives."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: another process begins with an empty cache."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        MemoryCache.__init__(self)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The embeddings of those keys that are known."""
        with self._lock:
            return {key: self._found[key] for key in keys if key in self._found}

    def put(self, rows: dict[bytes, np.ndarray]) -> None:
        """Keep embeddings."""
        with self._lock:
            self._found.update(rows)
            while len(self._found) > MOST_KEPT:
                self._found.popitem(last=False)


class DiskCache:
    """Embeddings of an encoder with a fingerprint."""

    def __init__(self, fingerprint: str, path: Path | None = None, most_bytes: int = MOST_BYTES) -> None:
        self.path = cache_dir() / "embeddings.sqlite" if path is None else path
        self._salt, self._most = fingerprint.encode(), most_bytes

    def get(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The embeddings of those keys that are known; damaged rows are left out."""
        salted = {self._salted(key): key for key in keys}
        rows: list[tuple[bytes, bytes, int]] = []
        if salted and self.path.is_file():
            with self._open() as database:
                names = list(salted)
                for start in range(0, len(names), PER_QUERY):
                    part = names[start : start + PER_QUERY]
                    marks = ",".join("?" * len(part))
                    rows += database.execute(f"SELECT key, value, crc FROM embeddings WHERE key IN ({marks})", part)
        return {salted[key]: np.frombuffer(value, np.float32).copy() for key, value, crc in rows if _crc(value) == crc}

    def put(self, rows: dict[bytes, np.ndarray]) -> None:
        """Keep embeddings, and let the oldest go where there are too many."""
        if not rows:
            return
        blobs = [(self._salted(key), row.astype(np.float32).tobytes()) for key, row in rows.items()]
        with self._open() as database, database:
            database.executemany(
                "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", [(k, v, _crc(v)) for k, v in blobs]
            )
            size = database.execute("SELECT COALESCE(SUM(LENGTH(value)), 0) FROM embeddings").fetchone()[0]
            if size > self._most:
                surplus = 1 + (size - self._most) // len(blobs[0][1])
                database.execute(
                    "DELETE FROM embeddings WHERE rowid IN (SELECT rowid FROM embeddings ORDER BY rowid LIMIT ?)",
                    (surplus,),
                )

    def _salted(self, key: bytes) -> bytes:
        return hashlib.sha256(self._salt + key).digest()

    def _open(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        return _Opened(self.path)


class _Opened:
    """A connection to a file that may be damaged, or on a disk that cannot be written: then nothing is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> sqlite3.Connection:
        try:
            return self._connect(self.path)
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):  # not a database: begin anew
                with contextlib.suppress(OSError, sqlite3.Error):
                    self.path.unlink()
                    return self._connect(self.path)
            _warn(self.path, error)
        except OSError as error:
            _warn(self.path, error)
        self.connection = _connected(":memory:")
        return self.connection

    def _connect(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = _connected(str(path))
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self.connection.close()
        if not isinstance(error, sqlite3.Error):
            return False
        if isinstance(error, sqlite3.OperationalError):  # locked, full, or not to be written
            _warn(self.path, error)
        else:
            with contextlib.suppress(OSError):
                self.path.unlink()
        return True


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10)
    try:
        connection.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; {SCHEMA}")
    except BaseException:
        connection.close()
        raise
    return connection


def _warn(path: Path, error: Exception) -> None:
    warnings.warn(
        f"embeddings are not kept in {path} ({error}): they are worked out each time. Set CSN_CACHE to a folder that "
        f"can be written, or use cache=False",
        stacklevel=2,
    )


def _crc(value: bytes) -> int:
    return zlib.crc32(value)
