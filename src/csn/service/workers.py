"""Computation beside the event loop: a bounded number of threads, a bounded queue and a limit on time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from csn.service.errors import ServiceError
from csn.service.limits import Limits

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Runs functions in threads. A request that waited too long is answered; one not yet begun is then never begun."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="csn")
        self.busy = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """work(*args, **kwargs), or 503."""
        limits = self._limits
        if self.busy >= limits.workers + limits.waiting:
            raise ServiceError(503, "busy", "too many requests are waiting", "try again", {"Retry-After": "1"})
        self.busy += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*args, **kwargs))
            return await asyncio.wait_for(future, limits.seconds)
        except asyncio.TimeoutError as error:
            message = f"the answer took more than {limits.seconds:g} seconds"
            raise ServiceError(503, "too_slow", message, "try again with a smaller task") from error
        finally:
            self.busy -= 1

    def close(self) -> None:
        """Wait for what is running and begin nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
