"""Limits on idle connections: the time until request headers arrive, and the number of connections per address.

uvicorn limits neither. A client that opens many sockets and sends nothing could lock out all others.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from csn.service.errors import ServiceError
from csn.service.limits import Limits


def protocol(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol with these limits, for `uvicorn.Config(http=...)`."""

    class Limited(_Limited):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.limits = limits

    return Limited


class _Limited(H11Protocol):
    """One connection. It is closed if the client takes too long to send headers or to read its answer."""

    limits: Limits
    _headers_due: asyncio.TimerHandle | None = None
    _reading_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse the connection if there are too many, else wait for the first headers."""
        super().connection_made(transport)
        clients = [getattr(other, "client", None) for other in self.connections]
        same = sum(client is not None and self.client is not None and client[0] == self.client[0] for client in clients)
        if same > self.limits.connections_per_address or len(self.connections) > self.limits.connections:
            transport.write(_refusal())
            self.connections.discard(self)
            transport.close()
        else:
            self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Pass data on. The headers are complete once h11 no longer expects a request."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._wait_for_headers()

    def on_response_complete(self) -> None:
        """Wait for the headers of the next request. Part of them may have arrived already."""
        super().on_response_complete()
        self._wait_for_headers()

    def pause_writing(self) -> None:
        """Called by asyncio when the client does not read."""
        self.flow.pause_writing()
        if self._reading_due is None:
            self._reading_due = self.loop.call_later(self.limits.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Called by asyncio when the client reads again."""
        self.flow.resume_writing()
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers of this connection."""
        for timer in (self._headers_due, self._reading_due):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        """Start the timer for the next headers, unless it runs already. It stops when they have arrived."""
        if self.conn.their_state is h11.IDLE:
            if self._headers_due is None:
                self._headers_due = self.loop.call_later(self.limits.header_seconds, self.transport.abort)
        elif self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None


def _refusal() -> bytes:
    """The answer to a refused connection, in the same form as every other error."""
    error = ServiceError(503, "busy", "too many connections are open", "close some, or try again", {"Retry-After": "1"})
    body = bytes(error.response().body)
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Retry-After: 1\r\nConnection: close\r\n\r\n".encode() + body
