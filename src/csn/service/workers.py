"""Computation outside the event loop: a bounded number of threads, a bounded queue and a time limit.

A request is either answered in time or given up. Before a thread changes anything permanently, it asks its `Ticket`.
The ticket either allows the change, and then the request waits for it, or it ends the work. So the answer 'too slow'
guarantees that nothing was changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from csn.service.errors import ServiceError
from csn.service.limits import Limits

P = ParamSpec("P")
T = TypeVar("T")

_thread = threading.local()


class GivenUp(Exception):  # noqa: N818 (no error: nobody waits any more)
    """Raised in a thread whose request has already been answered as too slow."""


class Ticket:
    """Whether the work of one request may still change something."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changing = self._given_up = False

    def begin_change(self) -> None:
        """Make the request wait from here on. Raises GivenUp if it has stopped waiting."""
        with self._lock:
            if self._given_up:
                raise GivenUp
            self._changing = True

    def give_up(self) -> bool:
        """Give the work up unless it is already changing something. Returns whether it was given up."""
        with self._lock:
            self._given_up = not self._changing
            return self._given_up


def begin_change() -> None:
    """Call this before a transaction. Raises GivenUp if the request of this thread was given up."""
    ticket: Ticket | None = getattr(_thread, "ticket", None)
    if ticket is not None:
        ticket.begin_change()


class Workers:
    """Runs functions in threads. Work counts as busy until its thread has ended, even if its request was given up."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="csn")
        self._lock = threading.Lock()
        self.busy = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """work(*args, **kwargs), or error 503, in which case nothing was changed."""
        limits, ticket = self._limits, Ticket()
        if self.busy >= limits.workers + limits.waiting:
            raise ServiceError(503, "busy", "too many requests are waiting", "try again", {"Retry-After": "1"})

        def task() -> T:
            _thread.ticket = ticket
            return work(*args, **kwargs)

        self._count(1)
        future = self._pool.submit(task)
        future.add_done_callback(lambda _: self._count(-1))
        answer = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({answer}, timeout=limits.seconds)
        if not done and ticket.give_up():
            answer.cancel()  # work that has not begun never will
            message = f"the answer took more than {limits.seconds:g} seconds, and nothing was changed"
            raise ServiceError(503, "too_slow", message, "try again", {"Retry-After": "1"})
        return await answer

    def close(self) -> None:
        """Wait for running work and start nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _count(self, change: int) -> None:
        with self._lock:
            self.busy += change
