"""The service with its bodies as targets: JSON for tasks of drawings, JSON and text for tasks of sentences."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from typing import Any
from urllib.parse import quote_from_bytes

from picture_seeds import pictures
from places import folder, small_classifier
from sentence_targets import classifier_of_sentences, missing

JSON, PLAIN = b"application/json", b"text/plain"


class _Client:
    """A client of the whole service, in this thread: a request costs no thread, no socket and no client library."""

    def __init__(self, app: Any) -> None:
        self.app, self.loop = app, asyncio.new_event_loop()

    def ask(self, method: str, path: str, content: bytes = b"{}", media: bytes = JSON) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        return self.loop.run_until_complete(self._ask(method, path, content, media))

    async def _ask(self, method: str, path: str, content: bytes, media: bytes) -> tuple[int, bytes]:
        path, _, query = path.partition("?")
        headers = [(b"host", b"localhost"), (b"content-type", media)]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
        scope |= {
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
        }
        scope |= {"client": ("127.0.0.1", 1), "server": ("localhost", 80)}
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@functools.cache
def _service() -> _Client:
    from csn.service.app import create_app
    from csn.service.limits import Limits

    encoders = {} if missing() else {"text": classifier_of_sentences()}
    limits = Limits(requests_per_second=0, tasks=10**9)
    return _Client(create_app(small_classifier(), folder() / "service", limits=limits, encoders=encoders))


@functools.cache
def _task(kind: str, example: bytes) -> str:
    """The address of a task that knows one example."""
    client = _service()
    task = f"/api/tasks/{json.loads(client.ask('POST', '/api/tasks', json.dumps({'kind': kind}).encode())[1])['id']}"
    assert client.ask("POST", f"{task}/examples", example)[0] == 201
    return task


def _asked(task: str, address: str, content: bytes, media: bytes = JSON) -> None:
    """Ask, and undo what was done: the next input meets the same state."""
    client = _service()
    status, answer = client.ask("POST", address, content, media)
    assert status < 500, f"{address}: {status} {answer!r}"
    if status == 201:
        made = f"/api/tasks/{json.loads(answer)['id']}" if address == "/api/tasks" else None
        client.ask("DELETE", made) if made else client.ask("POST", f"{task}/undo")


def drawings(content: bytes) -> None:
    """A body of JSON, at every address that takes one."""
    task = _task("drawings", b'{"label": "o", "pixels": [[0, 0, 1], [0, 1, 1]]}')
    for address in ("/api/tasks", f"{task}/predict", f"{task}/explain", f"{task}/examples"):
        _asked(task, address, content)


def sentences(content: bytes) -> None:
    """A body of JSON or of plain text, as a sentence and as a label."""
    task = _task("text", b'{"label": "o", "text": "one"}')
    for address in (f"{task}/explain", f"{task}/examples"):
        _asked(task, address, content)
    _asked(task, f"{task}/examples?label=x", content, PLAIN)
    _asked(task, f"{task}/examples?label={quote_from_bytes(content[:200])}", b"a sentence", PLAIN)


@functools.cache
def seeds() -> list[bytes]:
    """Bodies for tasks of drawings."""
    image = base64.b64encode(pictures()[0]).decode()
    some = ({"name": "runes"}, {"pixels": [[0, 0.5], [1, 255]]}, {"label": "\u2603", "pixels": [[0, 1]]})
    return [json.dumps(body).encode() for body in (*some, {"image": image}, {"label": "x", "image": image})]


@functools.cache
def sentence_seeds() -> list[bytes]:
    """Bodies for tasks of sentences."""
    some = (
        {"text": "book a flight to rome"},
        {"label": "x", "text": "\u00fcber den Flu\u00df"},
        {"label": "\u05e9", "text": "a"},
    )
    return [json.dumps(body).encode() for body in some]
