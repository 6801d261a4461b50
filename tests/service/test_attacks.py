"""What an attack on the service found, each closed: sizes that lie, bodies that swell, sockets that say nothing."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import time
import zlib
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from kit import PNG, UNHURRIED, ask, circle, classifier, client, cross, drawing, error, new_task, picture, serving

from csn.classifier.classifier import FewShotClassifier
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.service import schemas
from csn.service.store import Store

JSON = {"Content-Type": "application/json"}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def two_headers(first: int, second: int, *, between: bytes = b"") -> bytes:
    """A PNG file that says first x first and then second x second; decoders go by the later one."""
    headers = [chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) for side in (first, second)]
    pixels = chunk(b"IDAT", zlib.compress(bytes(first * (first + 1))))
    return b"\x89PNG\r\n\x1a\n" + headers[0] + between + headers[1] + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("second", [20, 13_000, 60_000])
@pytest.mark.parametrize("between", [b"", chunk(b"tEXt", b"a\0b")])
def test_a_picture_with_two_sizes_is_refused(http, second, between):
    task = new_task(http, o=circle())
    content = two_headers(10, second, between=between)
    assert error(http.post(f"{task}/predict", content=content, headers=PNG)) == (422, "unusable_image")
    body = {"image": base64.b64encode(content).decode()}
    assert error(http.post(f"{task}/predict", json=body)) == (422, "unusable_image")


def test_the_first_bad_pixel_is_the_last_one_read(http):
    task = new_task(http, o=circle())
    rows = [["a"] * 300] * 300
    answer = http.post(f"{task}/predict", json={"pixels": rows})
    assert error(answer) == (422, "invalid_request")
    assert answer.json()["error"]["message"].count("pixels") == 1, "one complaint, not ninety thousand"


def test_json_is_read_beside_the_event_loop_and_has_a_limit_of_its_own(http, monkeypatch):
    task, readers = new_task(http, o=circle()), []
    read = schemas.Input.model_validate_json
    spy = classmethod(lambda cls, content: (readers.append(threading.current_thread().name), read(content))[1])
    monkeypatch.setattr(schemas.Input, "model_validate_json", spy)
    small = json.dumps({"pixels": [[0, 1] * 14] * 28}).encode()
    assert http.post(f"{task}/predict", content=small, headers=JSON).status_code == 200
    assert readers == [name for name in readers if name.startswith("csn")] != []
    long = b'{"pixels": [[' + b"0," * 3_900_000 + b"0]]}"
    assert len(long) < UNHURRIED.body_bytes
    assert error(http.post(f"{task}/predict", content=long, headers=JSON)) == (413, "body_too_large")
    assert error(http.post("/api/tasks", content=long, headers=JSON)) == (413, "body_too_large")
    assert len(readers) == 1


def half_open(base: str, count: int, sent: bytes = b"GET /health HTT") -> list[socket.socket]:
    """Connections that begin a request and never end its headers."""
    place = urlsplit(base)
    found = []
    for _ in range(count):
        found.append(socket.create_connection((place.hostname, place.port), timeout=30))
        found[-1].sendall(sent)
    return found


def test_headers_that_do_not_come_are_given_up(tmp_path):
    with serving(tmp_path, limits=replace(UNHURRIED, header_seconds=0.3)) as base:
        sockets = half_open(base, 3) + half_open(base, 3, sent=b"")
        sockets += half_open(base, 1, sent=b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")  # the second
        for one in sockets[:6]:
            assert closed(one) == b""
        assert b"200 OK" in closed(sockets[6])
        for one in sockets:
            one.close()


def closed(one: socket.socket) -> bytes:
    """What came until the server closed the connection."""
    found = b""
    try:
        while more := one.recv(4096):
            found += more
    except ConnectionResetError:
        pass
    return found


def test_headers_that_drip_are_given_up_too(tmp_path):
    with serving(tmp_path, limits=replace(UNHURRIED, header_seconds=0.5)) as base:
        [one] = half_open(base, 1)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(one)
        one.close()


def drip(one: socket.socket) -> None:
    for _ in range(200):
        one.sendall(b"P")
        time.sleep(0.05)


def test_one_address_cannot_take_every_connection(tmp_path):
    with serving(tmp_path, limits=replace(UNHURRIED, connections_per_address=20, connections=30)) as base:
        sockets = half_open(base, 27)
        answers = [closed(one) for one in sockets[20:]]
        assert all(b'"code":"busy"' in answer and b"HTTP/1.1 503" in answer for answer in answers)
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=base, transport=elsewhere, timeout=60) as other:
            assert other.get("/health").status_code == 200
        for one in sockets:
            one.close()
        with httpx.Client(base_url=base, timeout=60) as again:
            until = time.monotonic() + 20
            while again.get("/health").status_code == 503 and time.monotonic() < until:
                time.sleep(0.02)
            assert again.get("/health").status_code == 200


def test_an_answer_that_came_too_late_was_not_carried_out(tmp_path, monkeypatch):
    held, ended = threading.Event(), threading.Event()
    learn = FewShotClassifier.partial_fit

    def slow(self, x, y, names=None):
        held.wait(20)
        try:
            return learn(self, x, y, names=names)
        finally:
            ended.set()

    limits = replace(UNHURRIED, seconds=3, workers=1, waiting=0)
    with client(tmp_path, limits=limits) as http:
        task = new_task(http, o=circle())
        monkeypatch.setattr(FewShotClassifier, "partial_fit", slow)
        add = {"params": {"label": "x"}, "content": drawing(cross()), "headers": PNG}
        assert error(http.post(f"{task}/examples", **add)) == (503, "too_slow")
        assert error(http.get("/api/tasks")) == (503, "busy"), "its thread is still at work"
        held.set()
        assert ended.wait(20)
        until = time.monotonic() + 20
        while http.get("/health").status_code == 503 and time.monotonic() < until:
            time.sleep(0.02)
        assert http.get(task).json()["examples"] == 1
        assert http.post(f"{task}/examples", **add).status_code == 201
        assert http.get(task).json()["examples"] == 2


def test_a_change_that_has_begun_is_waited_for(tmp_path, monkeypatch):
    write = Store._write
    monkeypatch.setattr(Store, "_write", lambda *given: (time.sleep(3), write(*given))[1])
    with client(tmp_path, limits=replace(UNHURRIED, seconds=2)) as http:
        task = new_task(http, o=circle())
        assert http.get(task).json()["examples"] == 1


def test_a_key_makes_a_retry_safe(tmp_path):
    with client(tmp_path) as http:
        task, other = new_task(http), new_task(http)

        def add(key, task=task, label="o"):
            headers = PNG | {"Idempotency-Key": key}
            return http.post(f"{task}/examples", params={"label": label}, content=drawing(circle()), headers=headers)

        first, again = add("one"), add("one")
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json()["example"] == first.json()["example"]
        assert http.get(task).json()["examples"] == 1
        assert add("two").json()["task"]["examples"] == 2
        assert add("one", other).json()["task"]["examples"] == 1, "another task, another key"
        for _ in range(2):
            sent = http.post(f"{other}/alphabets/Shapes", headers={"Idempotency-Key": "three"})
            assert sent.json()["examples"] == 17
        http.delete(f"{task}/examples/{first.json()['example']['id']}")
        assert error(add("one")) == (409, "already_done")
        assert [error(add(key))[1] for key in ("a b", "x" * 65, "")] == ["invalid_request"] * 3
    with client(tmp_path) as http:
        headers = PNG | {"Idempotency-Key": "two"}
        add_again = http.post(f"{task}/examples", params={"label": "o"}, content=drawing(circle()), headers=headers)
        assert add_again.status_code == 201
        assert http.get(task).json()["examples"] == 1, "and a restart forgets no key"
        assert ask(http, task, circle(0.04))["label"] == "o"


@pytest.mark.parametrize("place", ["way", "labels", "neurons"])
def test_a_task_file_with_infinity_in_it(http, tmp_path, place):
    classifier().fit([picture(circle())], ["o"]).save(tmp_path / "task.csn")
    tensors, about = load_checkpoint(tmp_path / "task.csn")
    endless = float("inf")
    layers = [layer | {"neurons": [endless]} for layer in about["layers"]]
    about |= {"way": {"way": endless}, "labels": {"labels": [endless]}, "neurons": {"layers": layers}}[place]
    save_checkpoint(tmp_path / "bad.csn", tensors, about)
    before = http.get("/api/tasks").json()
    answer = http.post("/api/tasks/file", content=(tmp_path / "bad.csn").read_bytes())
    assert error(answer) == (422, "bad_task_file")
    assert http.get("/api/tasks").json() == before
