"""The operations on tasks: learn, forget, undo, recognise, export, import. The state of a task is its `Record`.

The models are shared and hold no state. Each task has a classifier with its own memory, made from the record when it is
first needed. Requests for the same task run one after the other, so answers do not depend on other clients.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from torch import Tensor

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.explanation import Explanation
from csn.classifier.neurons import NeuronShift
from csn.classifier.taskfile import read_task
from csn.service.errors import ServiceError
from csn.service.images import ink_png, unusable
from csn.service.kinds import DRAWINGS, TEXT, Kinds, explained, neurons_of, recalled, rows_of, shown_of
from csn.service.limits import Limits
from csn.service.names import clean
from csn.service.store import Example, Keys, Record, Store

LOCKS = 256


class Live(NamedTuple):
    """A task in memory, with its classifier."""

    record: Record
    classifier: FewShotClassifier


class Tasks:
    """All tasks of a server. Safe to call from any thread."""

    def __init__(self, kinds: Kinds, store: Store, limits: Limits) -> None:
        self.kinds, self.store, self.limits = kinds, store, limits
        self.done: Counter[tuple[str, str]] = Counter()  # operations by kind, for the metrics
        # A task's id selects its lock. Locks are never discarded, so they hold even if the task is not in memory.
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._live_lock = threading.Lock()

    def create(self, name: str = "Untitled", kind: str = DRAWINGS, examples: Sequence[Example] = ()) -> Record:
        """A new task under a random id."""
        now, made_with = time.time(), self.kinds.made_with(kind)
        name = clean(name, self.limits.name, "name")
        record = Record(secrets.token_urlsafe(12), name, now, now, list(examples), [], kind, made_with)
        if not self.store.insert(record, self.limits.tasks):
            raise ServiceError(
                409,
                "too_many_tasks",
                f"the server already has {self.limits.tasks} tasks",
                "delete one that is not needed",
            )
        return record

    def kind(self, task: str) -> str:
        """The kind of a task."""
        if (kind := self.store.kind(task)) is None:
            raise _no_task()
        return kind

    def view(self, task: str) -> Record:
        """A task as it is now."""
        with self._open(task) as live:
            return _copy(live.record)

    def delete(self, task: str) -> None:
        """Delete a task with all its examples."""
        with self._lock(task):
            with self._live_lock:
                self._live.pop(task, None)
            if not self.store.delete(task):
                raise _no_task()

    def add(self, task: str, item: Any, label: str, key: str | None = None) -> tuple[Record, Example]:
        """Learn an input. If the key was used before, return what was learned then and change nothing."""
        label = clean(label, self.limits.label)
        with self._open(task) as live:
            if (known := self._done(live.record, key)) is not None:
                return _copy(live.record), known[0]
            self._check_room([e.label for e in live.record.examples], [label])
            kind = live.record.kind
            try:
                shown = shown_of(kind, item)
                live.classifier.partial_fit([item], [label], names=[shown.decode() if kind == TEXT else None])
            except ValueError as error:
                raise _unusable(kind, error) from error
            kept = rows_of(kind, live.classifier)[-1]
            example = Example(secrets.token_urlsafe(9), label, kept.numpy().tobytes(), shown)
            self._added(live, [example], {} if key is None else {key: [example.id]})
            return _copy(live.record), example

    def add_known(self, task: str, examples: Sequence[Example], keys: Keys | None = None) -> Record:
        """Learn drawings that are already in the model's form. If one of the keys was used before, change nothing.

        Args:
            task: The id of the task.
            examples: The drawings with their labels.
            keys: The clients' keys for this change, each with the ids of its examples.
        """
        with self._open(task) as live:
            if any(self._done(live.record, key) is not None for key in keys or ()):
                return _copy(live.record)
            if live.record.kind != DRAWINGS:
                message = f"this task is of {live.record.kind}, the sample is of drawings"
                raise ServiceError(409, "wrong_kind", message, "use a task of drawings")
            self._check_room([e.label for e in live.record.examples], [e.label for e in examples])
            recalled(DRAWINGS, live.classifier, examples)
            self._added(live, list(examples), keys or {})
            return _copy(live.record)

    def learned(self, task: str, key: str | None) -> tuple[Record, Example] | None:
        """What was learned under a client's key, or None if the key is new."""
        with self._open(task) as live:
            known = self._done(live.record, key)
            return None if known is None else (_copy(live.record), known[0])

    def remove(self, task: str, *, example: str | None = None, label: str | None = None) -> Record:
        """Forget an example or a class exactly, as if it had never been learned."""
        with self._open(task) as live:
            record = live.record
            gone = [(i, e.id) for i, e in enumerate(record.examples) if example == e.id or label == e.label]
            if not gone:
                what = "example" if label is None else "class"
                raise ServiceError(404, f"no_such_{what}", f"this task has no such {what}", f"list its {what}s first")
            places = {i for i, _ in gone}
            live.classifier.forget(indices=sorted(places))
            record.examples = [e for i, e in enumerate(record.examples) if i not in places]
            self._remember(record, {"removed": [[i, id] for i, id in gone]})
            self.store.save(record, [])
            self.done[record.kind, "forgotten"] += len(gone)
            return _copy(record)

    def undo(self, task: str) -> Record:
        """Undo the latest change of the memory."""
        with self._open(task) as live:
            record = live.record
            if not record.history:
                raise ServiceError(409, "nothing_to_undo", "this task has no change to undo", "change something first")
            change = record.history.pop()
            if "added" in change:
                gone = set(change["added"])
                live.classifier.forget(indices=[i for i, e in enumerate(record.examples) if e.id in gone])
                record.examples = [e for e in record.examples if e.id not in gone]
            else:
                for place, id in change["removed"]:
                    record.examples.insert(place, self.store.example(task, id))
                with self._live_lock:  # rebuilt when it is next needed, because the order of examples matters
                    self._live.pop(task, None)
            self.store.save(record, [])
            return _copy(record)

    def explain(self, task: str, item: Any, *, sources: bool = True) -> tuple[Explanation, Record]:
        """The answer for an input, with the examples that decided it unless `sources` are left out."""
        with self._open(task) as live:
            if not live.record.examples:
                raise _nothing_learned()
            try:
                found = explained(live.classifier, item, sources=sources)
            except ValueError as error:
                raise _unusable(live.record.kind, error) from error
            self.done[live.record.kind, "recognised" if found.label is not None else "unknown"] += 1
            return found, _copy(live.record)

    def shifts(self, task: str, item: Any) -> NeuronShift:
        """The effect of the recalled rows on the network's neurons, among the most probable classes."""
        with self._open(task) as live:
            if live.record.kind != DRAWINGS:
                raise ServiceError(409, "no_shifts", "only tasks of drawings have a network with shifts", "use explain")
            if not live.record.examples:
                raise _nothing_learned()
            try:
                return neurons_of(live.classifier, item)
            except ValueError as error:
                raise _unusable(DRAWINGS, error) from error

    def export(self, task: str) -> bytes:
        """A task as a file (docs/task_format.md)."""
        with self._open(task) as live, TemporaryDirectory(prefix="csn-") as folder:
            if not live.record.examples:
                raise ServiceError(409, "nothing_learned", "there is nothing to export", "add an example first")
            path = Path(folder) / "task.csn"
            live.classifier.save(path)
            return path.read_bytes()

    def import_file(self, content: bytes, name: str) -> Record:
        """Create a task from a file. Only its drawings (or keys) and labels are used; the rest is computed again."""
        with TemporaryDirectory(prefix="csn-") as folder:
            path = Path(folder) / "task.csn"
            path.write_bytes(content)
            try:
                kind = self.kinds.of_file(read_task(path).about)
                reader = self.kinds.blank(kind).restore(path)
            except ValueError as error:
                message = str(error).replace(str(path), "the file")
                remedy = "send a file that this server (or one with the same model) exported"
                raise ServiceError(422, "bad_task_file", message, remedy) from error
        labels = [clean(str(label), self.limits.label) for label in reader.labels_]
        self._check_room([], labels)
        if kind == DRAWINGS:
            drawn = zip(labels, reader.inputs_, strict=True)
            return self.create(name, kind, [self.known(label, x) for label, x in drawn])
        most, examples = self.limits.characters, []
        for label, row, called in zip(labels, rows_of(kind, reader), reader.memory_.names, strict=True):
            shown = (called or "")[:most].encode(errors="replace")
            examples.append(Example(secrets.token_urlsafe(9), label, row.numpy().tobytes(), shown))
        return self.create(name, kind, examples)

    def known(self, label: str, x: Tensor) -> Example:
        """An example made from an image in the model's form, (1, h, w) uint8."""
        return Example(secrets.token_urlsafe(9), label, x.numpy().tobytes(), ink_png(x[0].numpy()))

    def _done(self, record: Record, key: str | None) -> list[Example] | None:
        """The examples that were learned under a key, or None if the key is new."""
        ids = None if key is None else self.store.done(record.id, key)
        if ids is None:
            return None
        known = [example for example in record.examples if example.id in ids]
        if len(known) < len(ids):
            message = "the input sent under this key was learned and has since been removed"
            raise ServiceError(409, "already_done", message, "use a new key to learn it again")
        return known

    def _added(self, live: Live, examples: list[Example], keys: Keys) -> None:
        record = live.record
        record.examples = [*record.examples, *examples]
        self._remember(record, {"added": [example.id for example in examples]})
        self.store.save(record, examples, keys)
        self.done[record.kind, "learned"] += len(examples)

    def _remember(self, record: Record, change: dict[str, list[Any]]) -> None:
        record.history = [*record.history, change][-self.limits.undos :]

    def _check_room(self, old: list[str], new: list[str]) -> None:
        limits, remedy = self.limits, "remove some first, or use another task"
        if len(old) + len(new) > limits.examples:
            raise ServiceError(409, "too_many_examples", f"a task holds {limits.examples} examples", remedy)
        if len({*old, *new}) > limits.classes:
            raise ServiceError(409, "too_many_classes", f"a task holds {limits.classes} classes", remedy)

    def _lock(self, task: str) -> threading.Lock:
        return self._locks[hash(task) % LOCKS]

    @contextmanager
    def _open(self, task: str) -> Iterator[Live]:
        """Lock a task for this thread.

        A ServiceError is raised before any change. After any other error, the task in memory is dropped, and the next
        request reads it from the file.
        """
        with self._lock(task):
            live = self._find(task)
            try:
                yield live
            except ServiceError:
                raise
            except BaseException:
                with self._live_lock:
                    self._live.pop(task, None)
                raise

    def _find(self, task: str) -> Live:
        with self._live_lock:
            if task in self._live:
                self._live.move_to_end(task)
                return self._live[task]
        record = self.store.load(task)
        if record is None:
            raise _no_task()
        classifier = self.kinds.blank(record.kind)
        if record.made_with != self.kinds.made_with(record.kind):
            message = f"this task was learned with {record.made_with}, which this server does not have"
            raise ServiceError(409, "other_encoder", message, "teach a new task, or install that encoder again")
        recalled(record.kind, classifier, record.examples)
        with self._live_lock:
            self._live[task] = Live(record, classifier)
            while len(self._live) > self.limits.live:
                self._live.popitem(last=False)
        return Live(record, classifier)


def _copy(record: Record) -> Record:
    """A copy of a record with its own lists, so later changes of the original do not affect it."""
    return replace(record, examples=list(record.examples), history=list(record.history))


def _unusable(kind: str, error: ValueError) -> ServiceError:
    return unusable(str(error), "text" if kind == TEXT else "image")


def _nothing_learned() -> ServiceError:
    message = "this task remembers no examples yet"
    return ServiceError(409, "nothing_learned", message, "add an example of each class first")


def _no_task() -> ServiceError:
    return ServiceError(404, "no_such_task", "there is no such task", "create one, or list the tasks first")
