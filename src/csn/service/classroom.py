"""A class: phones teach one task together, and a name that is new waits until the teacher lets it pass."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import segno

from csn.classifier.inputs import prepare
from csn.service.errors import ServiceError
from csn.service.images import unusable
from csn.service.names import clean, looks
from csn.service.store import Example, Record
from csn.service.tasks import Tasks

TEACHER, PHONE = "teacher", "phone"
LETTERS, LENGTH = "abcdefghjkmnpqrstuvwxyz23456789", 8  # of the phones' key: none that look alike


class Access(NamedTuple):
    """Who may come in to a class.

    teacher: the token of the teacher's screen. phones: the key of the phones. address: where phones find the server.
    """

    teacher: str
    phones: str
    address: str

    @classmethod
    def new(cls, address: str, teacher: str | None = None) -> Access:
        """Random secrets; `teacher` where it is chosen."""
        key = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        return cls(teacher or secrets.token_urlsafe(16), key, address)

    @property
    def link(self) -> str:
        """What a phone opens."""
        return f"{self.address}/#token={self.phones}"

    def qr(self) -> str:
        """The link as a picture: an SVG as a data URL, dark on white in every theme, for phones read nothing else."""
        return segno.make(self.link, error="m").svg_data_uri(border=3, dark="#14161c", light="#fff")


class Waiting(NamedTuple):
    """A drawing of a name that is new.

    example: the drawing.
    key: the client's Idempotency-Key, or None.
    phone: the address of the phone.
    """

    example: Example
    key: str | None
    phone: str


class Classroom:
    """The task of a class and the names that wait. Safe to call from any thread."""

    def __init__(self, access: Access, tasks: Tasks) -> None:
        self.access, self.tasks = access, tasks
        self.task = tasks.create("Class").id
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, list[Waiting]] = OrderedDict()
        self._refused: set[str] = set()

    def check(self, method: str, path: str) -> None:
        """ServiceError unless phones may ask this: they add, recognise and read, and change nothing that is there."""
        task = f"/api/tasks/{self.task}"
        reads = ("/api/about", "/api/classroom", task, f"{task}/examples", f"{task}/classes")
        asks = (f"{task}/examples", f"{task}/predict", f"{task}/explain")
        if path not in {"GET": reads, "POST": asks}.get(method, ()):
            message = "phones may add drawings to the task of the class and recognise, nothing else"
            raise ServiceError(403, "teacher_only", message, "ask your teacher")

    @property
    def waiting(self) -> dict[str, list[Example]]:
        """The drawings that wait, by name; the name that has waited longest first."""
        with self._lock:
            return {label: [one.example for one in some] for label, some in self._waiting.items()}

    def check_kept(self, task: str) -> None:
        """ServiceError if a task is that of the class, which nobody may delete while the class is there."""
        if task == self.task:
            message = "this is the task of the class, and phones are using it"
            raise ServiceError(409, "task_in_use", message, "remove its classes, or stop the server")

    def offer(self, item: Any, label: str, key: str | None = None, phone: str = "") -> tuple[Record, Example] | None:
        """Learn a phone's drawing, or let it wait if its name is new.

        Args:
            item: The drawing.
            label: Its name.
            key: The client's Idempotency-Key, or None. A drawing that waits or was learned under it is offered once.
            phone: The address of the phone.

        Returns:
            What was learned, or None if the drawing waits.
        """
        label = clean(label, self.tasks.limits.label)
        with self._lock:
            if key is not None and any(one.key == key for some in self._waiting.values() for one in some):
                return None
            if (learned := self.tasks.learned(self.task, key)) is not None:
                return learned
            names = list(self.tasks.view(self.task).classes)
            known = label if label in names else {looks(name): name for name in names}.get(looks(label))
            if known is None:
                self._wait(item, label, key, phone)
                return None
            return self.tasks.add(self.task, item, known, key)

    def let_pass(self, label: str) -> Record:
        """Learn the drawings that wait under a name. From then on phones may use it."""
        with self._waits(label) as some:
            self._refused.discard(looks(label))
            keys = {one.key: [one.example.id] for one in some if one.key is not None}
            return self.tasks.add_known(self.task, [one.example for one in some], keys)

    def refuse(self, label: str) -> None:
        """Throw away the drawings that wait under a name. Phones cannot offer it again."""
        with self._waits(label):
            self._refused.add(looks(label))

    def _wait(self, item: Any, label: str, key: str | None, phone: str) -> None:
        if looks(label) in self._refused:
            raise ServiceError(403, "name_refused", "your teacher does not want this name", "choose another")
        self._check_room(phone)
        try:
            ink = prepare([item], self.tasks.kinds.drawings.input_)[0]
        except ValueError as error:
            raise unusable(str(error)) from error
        named = {looks(name): name for name in self._waiting}.get(looks(label), label)
        self._waiting.setdefault(named, []).append(Waiting(self.tasks.known(named, ink), key, phone))

    def _check_room(self, phone: str) -> None:
        """ServiceError if too many drawings wait, of all phones or of this one."""
        limits, phones = self.tasks.limits, [one.phone for some in self._waiting.values() for one in some]
        for count, most, whose in (
            (len(phones), limits.moderated, "drawings"),
            (phones.count(phone), limits.moderated_per_address, "drawings of this phone"),
        ):
            if count >= most:
                message = f"{most} {whose} wait for the teacher already"
                raise ServiceError(409, "too_many_waiting", message, "use a name that is known, or wait")

    @contextmanager
    def _waits(self, label: str) -> Iterator[list[Waiting]]:
        """The drawings of a name; they wait no longer if what is done with them succeeds."""
        with self._lock:
            if label not in self._waiting:
                raise ServiceError(
                    404, "no_such_name", "no such name is waiting", "ask /api/classroom for those that are"
                )
            yield self._waiting[label]
            del self._waiting[label]
