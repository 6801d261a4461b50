"""The gate in front of the service: it checks host, origin, token, size and rate, and sets security headers.

Browsers let any web page send requests to 127.0.0.1. So a request must name one of this server's hosts. That stops DNS
rebinding, where a page makes its own host name point here. A request sent by a page must come from a page of this
server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from csn.service.classroom import PHONE, TEACHER, Classroom
from csn.service.errors import ServiceError, unexpected
from csn.service.limits import Limits
from csn.service.metrics import Metrics

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
OPEN = ("/", "/docs", "/health", "/openapi.json", "/favicon.ico")  # hold no user data, so they need no token
PICTURES, JSON = ("image/png", "image/jpeg", "image/webp"), "application/json"
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware that applies the checks.

    Args:
        app: The application behind the gate.
        limits: The limits of the server.
        metrics: Counts every request.
        hosts: Further names of this server. Localhost and plain addresses are always accepted.
        token: The token that requests must send. None if no token is needed.
        classroom: The classroom of this server, whose phones may send their own key. None if there is no classroom.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        hosts: Iterable[str] = (),
        token: str | None = None,
        classroom: Classroom | None = None,
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts = {"localhost", *(host.lower() for host in hosts)}
        self.token = None if token is None else token.encode()
        self.classroom = classroom
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address -> (requests left, when)
        self._held = 0  # bytes of all bodies that have arrived and are not answered yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, pass it on and count it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status, body = time.monotonic(), 0, Body(self._most(scope), self.limits.seconds)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith("/api") else "no-cache")
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, self._limited(receive, body), answer)
        except ServiceError as error:
            await error.response()(scope, receive, answer)
        except Exception as error:
            failure = unexpected(scope["method"], scope["path"], error)
            if status:  # the answer has begun, so it can only be broken off
                raise
            await failure.response()(scope, receive, answer)
        finally:
            self._held -= body.size
            # Made-up paths and methods would create series without limit.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.observe(method, route, status, time.monotonic() - started)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = _host(headers.get("host", ""))
        if not self._is_ours(host):
            raise ServiceError(
                421, "wrong_host", "this server does not accept that host name", "use its address, or --allow-host"
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise ServiceError(403, "foreign_origin", "a page of another site sent this", "use the server's own page")
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] not in ("GET", "HEAD"):
            raise ServiceError(403, "foreign_origin", "a page of another site sent this", "use the server's own page")
        self._check_rate((scope.get("client") or ("unknown",))[0])
        if not scope["path"].startswith("/page/") and scope["path"] not in OPEN:
            self._check_token(scope, headers.get("authorization", ""))
        length = headers.get("content-length", "0")
        most = self._most(scope)
        if not length.isascii() or not length.isdigit() or int(length[:20]) > most:
            raise _too_large(most)

    def _check_token(self, scope: Scope, authorization: str) -> None:
        """What a client may do goes by its token. Of a class, the request learns who asks (`role`)."""
        kind, _, given = authorization.partition(" ")
        sent, room = given.strip().encode() if kind.lower() == "bearer" else b"", self.classroom
        if room is not None and secrets.compare_digest(sent, room.access.phones.encode()):
            room.check(scope["method"], scope["path"])
            scope["role"] = PHONE
        elif self.token is None or secrets.compare_digest(sent, self.token):
            scope["role"] = None if room is None else TEACHER
        else:
            remedy = "send the header Authorization: Bearer TOKEN with the server's token"
            raise ServiceError(
                401, "token_needed", "this server needs its token", remedy, {"WWW-Authenticate": "Bearer"}
            )

    def _most(self, scope: Scope) -> int:
        """The size limit of a body. It is larger for pictures and task files: parsed JSON needs much more memory."""
        given = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        is_file = given in PICTURES or (given != JSON and scope["path"] == "/api/tasks/file")
        return self.limits.body_bytes if is_file else self.limits.json_bytes

    def _is_ours(self, host: str) -> bool:
        """Whether a host is this server's. Plain addresses are accepted: DNS rebinding needs a name."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host in self.hosts
        return True

    def _check_rate(self, client: str) -> None:
        """Limit the rate: each client has a bucket of `burst` requests, refilled at `requests_per_second`."""
        limits, now = self.limits, time.monotonic()
        if not limits.requests_per_second:
            return
        left, when = self._buckets.pop(client, (float(limits.burst), now))
        left = min(limits.burst, left + (now - when) * limits.requests_per_second)
        self._buckets[client] = (max(left - 1, 0), now)
        while len(self._buckets) > limits.clients:
            self._buckets.popitem(last=False)
        if left < 1:
            message = f"more than {limits.requests_per_second:g} requests a second"
            raise ServiceError(429, "too_many_requests", message, "wait a moment", {"Retry-After": "1"})

    def _limited(self, receive: Receive, body: Body) -> Receive:
        """The body, if it arrives in time and there is room for it. Its Content-Length header is not trusted."""

        async def limited() -> Message:
            if body.complete:  # only a disconnection can follow, which has no time limit
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, body.until - time.monotonic()))
            except asyncio.TimeoutError as error:
                raise ServiceError(408, "too_slow", "the body took too long to arrive", "send it faster") from error
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                body.size, self._held = body.size + size, self._held + size
                body.complete = not message.get("more_body", False)
            if body.size > body.most:
                raise _too_large(body.most)
            if self._held > self.limits.held_bytes:
                raise ServiceError(
                    503, "busy", "too many bytes of other requests wait", "try again", {"Retry-After": "1"}
                )
            return message

        return limited


class Body:
    """The body of a request, as much of it as has arrived."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.until = most, time.monotonic() + seconds
        self.size, self.complete = 0, False


def _too_large(most: int) -> ServiceError:
    remedy = "send a smaller picture or task; a picture sent as a file may be larger than JSON"
    return ServiceError(413, "body_too_large", f"this request may have at most {most:,} bytes", remedy)


def _host(header: str) -> str:
    """The host of a Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
