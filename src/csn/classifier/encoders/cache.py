"""A cache of embeddings: one SQLite file, shared by processes, and looked up by the content of an input.

A row is written whole or not at all, and carries a checksum. A damaged file is replaced by a new one. If the file
cannot be written, nothing is kept. Neither case prevents an answer.
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

MOST_BYTES = 256_000_000  # of embeddings on disk; the oldest are deleted first
MOST_KEPT = 4096  # embeddings in memory, per encoder of the user's own
PER_QUERY = 500  # keys in one SQL statement
SCHEMA = """
CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL);
"""


def content_key(item: Any) -> bytes | None:
    """A digest of a text, of a picture's numbers or of a file's bytes. None for inputs of other types."""
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
    """Embeddings of an encoder without a fingerprint. They are kept until the process ends."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """An empty state: another process starts with an empty cache."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        MemoryCache.__init__(self)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The cached embeddings of these keys."""
        with self._lock:
            return {key: self._found[key] for key in keys if key in self._found}

    def put(self, rows: dict[bytes, np.ndarray]) -> None:
        """Keep embeddings, and drop the oldest if there are too many."""
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
        """The cached embeddings of these keys, without damaged rows."""
        salted = {self._salted(key): key for key in keys}
        rows: list[tuple[bytes, bytes, int]] = []
        if salted and os.path.isfile(self.path):  # Path.is_file raises if the folder may not be entered
            with self._open() as database:
                names = list(salted)
                for start in range(0, len(names), PER_QUERY):
                    part = names[start : start + PER_QUERY]
                    marks = ",".join("?" * len(part))
                    rows += database.execute(f"SELECT key, value, crc FROM embeddings WHERE key IN ({marks})", part)
        return {
            salted[key]: np.frombuffer(value, np.float32).copy() for key, value, crc in rows if _is_whole(value, crc)
        }

    def put(self, rows: dict[bytes, np.ndarray]) -> None:
        """Keep embeddings, and delete the oldest if there are too many."""
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
    """A connection to the cache file. If the file is damaged or cannot be written, nothing is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> sqlite3.Connection:
        try:
            return self._connect(self.path)
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):  # not a database: replace the file
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
        if isinstance(error, sqlite3.OperationalError):  # locked, full or not writable
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
        f"embeddings cannot be kept in {path} ({error}): they are computed each time. Set CSN_CACHE to a folder that "
        f"can be written, or use cache=False",
        stacklevel=2,
    )


def _is_whole(value: object, crc: object) -> bool:
    """Whether a row is as it was written. SQLite keeps values of any type in any column."""
    return isinstance(value, bytes) and len(value) % 4 == 0 and _crc(value) == crc


def _crc(value: bytes) -> int:
    return zlib.crc32(value)
