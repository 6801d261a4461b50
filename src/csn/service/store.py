"""Tasks on disk: one SQLite file. A change is one transaction, so a crash leaves the state before it or after it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from csn.service.workers import begin_change

Keys = Mapping[str, Sequence[str]]  # keys of clients -> ids of examples
VERSION = 2  # version 1 knew only drawings
KEYS = 1000  # number of the latest request keys kept per task
SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL,
    examples INTEGER NOT NULL, classes INTEGER NOT NULL,
    present TEXT NOT NULL,  -- JSON: the ids of its examples in the order they were learned
    history TEXT NOT NULL,  -- JSON: changes that can be undone, the latest last
    kind TEXT NOT NULL DEFAULT 'drawings',
    made_with TEXT NOT NULL DEFAULT ''  -- the encoder of its keys; nothing for drawings
);
CREATE TABLE IF NOT EXISTS examples (
    id TEXT PRIMARY KEY, task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    label TEXT NOT NULL, input BLOB NOT NULL, picture BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS examples_of_task ON examples (task);
CREATE TABLE IF NOT EXISTS done (  -- what was learned under a key of the client's, so that a retry learns it once
    number INTEGER PRIMARY KEY, task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    key TEXT NOT NULL, examples TEXT NOT NULL,  -- JSON: ids
    UNIQUE (task, key)
);
"""
OLDER = """
ALTER TABLE tasks ADD COLUMN kind TEXT NOT NULL DEFAULT 'drawings';
ALTER TABLE tasks ADD COLUMN made_with TEXT NOT NULL DEFAULT '';
"""


@dataclass(frozen=True)
class Example:
    """A remembered example.

    id: random id.
    label: its class.
    input: the learner's input as bytes. For photographs and sentences, the key as float32.
    picture: a PNG or JPEG for display. For sentences, the text in UTF-8.
    """

    id: str
    label: str
    input: bytes
    picture: bytes


@dataclass
class Record:
    """A task.

    history: changes that can be undone, the latest last: {"added": ids} or {"removed": [[place, id], ...]}.
    kind: "drawings", "photos" or "text".
    made_with: the fingerprint of the encoder of its keys. Empty for drawings.
    """

    id: str
    name: str
    created: float
    changed: float
    examples: list[Example] = field(default_factory=list)
    history: list[dict[str, list[Any]]] = field(default_factory=list)
    kind: str = "drawings"
    made_with: str = ""

    @property
    def classes(self) -> dict[str, list[Example]]:
        """The examples of every class, in the order in which the classes were first learned."""
        found: dict[str, list[Example]] = {}
        for example in self.examples:
            found.setdefault(example.label, []).append(example)
        return found


class Store:
    """Tasks by id. Any thread may call it, but only one process may open the file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "tasks.sqlite"
        self.path.touch(mode=0o600)  # what people taught is for the server's account alone
        self._lock = threading.Lock()
        self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=1)
        try:
            # Exclusive: a second server would not see the tasks that the first one holds in memory.
            self._db.executescript(
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; BEGIN EXCLUSIVE; COMMIT"
            )
            self._db.execute("PRAGMA foreign_keys = ON")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= found <= VERSION:
                raise ValueError(f"{self.path} has version {found}, this csn reads {VERSION}: use another folder")
            before = OLDER if found == 1 else ""
            self._db.executescript(f"BEGIN; {before} {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
        except sqlite3.OperationalError as error:
            self._db.close()
            raise ValueError(f"{self.path} is in use by another server: stop it, or use another folder") from error
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise ValueError(f"{self.path} is not a database of csn ({error}): move it away or use another") from error
        except ValueError:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def insert(self, record: Record, most: int) -> bool:
        """Store a new task if there are fewer than `most`. Returns whether it was stored."""
        with self._lock, _transaction(self._db):
            if self._db.execute("SELECT COUNT(*) FROM tasks").fetchone()[0] >= most:
                return False
            self._db.execute(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, 0, 0, '[]', '[]', ?, ?)",
                (record.id, record.name, record.created, record.changed, record.kind, record.made_with),
            )
            self._write(record, record.examples)
        return True

    def save(self, record: Record, added: list[Example], keys: Keys | None = None) -> None:
        """Store a changed task and its new examples.

        Args:
            record: The changed task.
            added: Examples that it did not have before.
            keys: The clients' keys for this change, each with the ids of what was learned under it.
        """
        with self._lock, _transaction(self._db):
            self._write(record, added)
            for key, ids in (keys or {}).items():
                row = (record.id, key, json.dumps(ids))
                self._db.execute("INSERT INTO done (task, key, examples) VALUES (?, ?, ?)", row)
            if keys:
                old = "SELECT number FROM done WHERE task = ? ORDER BY number DESC LIMIT -1 OFFSET ?"
                self._db.execute(f"DELETE FROM done WHERE number IN ({old})", (record.id, KEYS))

    def done(self, task: str, key: str) -> list[str] | None:
        """The ids of the examples that were learned under a key, or None if the key is new."""
        with self._lock:
            row = self._db.execute("SELECT examples FROM done WHERE task = ? AND key = ?", (task, key)).fetchone()
        return None if row is None else json.loads(row[0])

    def load(self, task: str) -> Record | None:
        """A task with its examples and history."""
        with self._lock:
            row = self._db.execute(
                "SELECT name, created, changed, present, history, kind, made_with FROM tasks WHERE id = ?", (task,)
            ).fetchone()
            if row is None:
                return None
            examples = self._examples("task = ?", task)
        present = [examples[id] for id in json.loads(row[3])]
        return Record(task, row[0], row[1], row[2], present, json.loads(row[4]), row[5], row[6])

    def kind(self, task: str) -> str | None:
        """The kind of a task, or None if there is no such task."""
        with self._lock:
            row = self._db.execute("SELECT kind FROM tasks WHERE id = ?", (task,)).fetchone()
        return None if row is None else str(row[0])

    def example(self, task: str, example: str) -> Example:
        """An example of a task, which may be removed but restorable."""
        with self._lock:
            return self._examples("task = ? AND id = ?", task, example)[example]

    def delete(self, task: str) -> bool:
        """Remove a task and all its examples. Returns whether there was one."""
        with self._lock, _transaction(self._db):
            return self._db.execute("DELETE FROM tasks WHERE id = ?", (task,)).rowcount > 0

    def rows(self) -> list[dict[str, Any]]:
        """A summary of every task, the latest change first."""
        names = ("id", "name", "kind", "created", "changed", "examples", "classes")
        with self._lock:
            found = self._db.execute(f"SELECT {', '.join(names)} FROM tasks ORDER BY changed DESC, id").fetchall()
        return [dict(zip(names, row, strict=True)) for row in found]

    def totals(self) -> tuple[int, int]:
        """The numbers of tasks and of examples."""
        with self._lock:
            tasks, examples = self._db.execute("SELECT COUNT(*), COALESCE(SUM(examples), 0) FROM tasks").fetchone()
        return tasks, examples

    def _examples(self, where: str, *values: str) -> dict[str, Example]:
        rows = self._db.execute(f"SELECT id, label, input, picture FROM examples WHERE {where}", values)
        return {row[0]: Example(*row) for row in rows}

    def _write(self, record: Record, added: list[Example]) -> None:
        """Write a task within a transaction. Examples that no undo can restore are deleted."""
        record.changed = max(time.time(), record.changed + 0.001)  # even if the clock is set back
        present = [example.id for example in record.examples]
        kept = {*present, *(id for change in record.history for _, id in change.get("removed", ()))}
        self._db.executemany(
            "INSERT INTO examples VALUES (?, ?, ?, ?, ?)",
            [(e.id, record.id, e.label, e.input, e.picture) for e in added],
        )
        self._db.execute(
            "UPDATE tasks SET changed = ?, examples = ?, classes = ?, present = ?, history = ? WHERE id = ?",
            (
                record.changed,
                len(present),
                len(record.classes),
                json.dumps(present),
                json.dumps(record.history),
                record.id,
            ),
        )
        self._db.execute(
            "DELETE FROM examples WHERE task = ? AND id NOT IN (SELECT value FROM json_each(?))",
            (record.id, json.dumps(sorted(kept))),
        )


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit all statements or none. None is committed if the request was given up before."""
    begin_change()
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise
