"""What else a client can send: accents without end, methods and bodies without number, and a disk that is full."""

from __future__ import annotations

import re
import socket
import sqlite3
import time
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from kit import PNG, UNHURRIED, ask, circle, client, cross, drawing, error, new_task, serving

from csn.service.errors import ServiceError
from csn.service.names import COMPOSED, clean
from csn.service.store import Store, _transaction


def test_accents_without_end_take_no_time():
    storm = "e" + "\u0301" * 100_000 + "\u0323" * 100_000  # minutes of sorting, if it were composed
    started = time.process_time()
    with pytest.raises(ServiceError, match="200001 characters"):
        clean(storm, 60)
    assert time.process_time() - started < 1


def test_a_label_that_is_short_once_composed_is_taken():
    assert clean("한" * 60, 60) == "한" * 60  # three letters each, written as one
    assert clean(" " * 10_000 + "ΐ" * 60, 60) == "ΐ" * 60
    with pytest.raises(ServiceError):
        clean("e" * (COMPOSED * 60 + 1), 60)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("\ufeffstar\u200b", "star"),
        (" \u200b \u2060star\u00ad\u200f ", "star"),
        ("\u263a\ufe0f", "\u263a\ufe0f"),  # an emoji, which ends with what says so
        ("\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f467"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
    ],
)
def test_nothing_unseen_is_around_a_label(text, label):
    assert clean(text, 60) == label
    started = time.process_time()
    with pytest.raises(ServiceError, match="no character"):
        clean(" \u200b" * 500_000, 60)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text", ["\u200b", "\ufeff \u2060", "\u2800", "\u3164\u3164", "\ufe0f", "\U000e0100", "\u115f\u200d"]
)
def test_a_label_that_nobody_can_see_is_refused(text):
    with pytest.raises(ServiceError, match="no character"):
        clean(text, 60)


def test_made_up_methods_are_counted_as_one(tmp_path):
    with client(tmp_path) as http:
        for number in range(20):
            assert http.request(f"X{number}", "/api/tasks").status_code == 405
        counted = http.get("/metrics").text
        assert 'method="other",route="/api/tasks",status="405"} 20' in counted
        assert not re.search('method="X', counted)


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A server whose disk can be filled, and freed again."""
    stores = []
    init = Store.__init__
    monkeypatch.setattr(Store, "__init__", lambda self, folder: (stores.append(self), init(self, folder))[1])
    with client(tmp_path) as http:
        yield http, lambda pages: stores[0]._db.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_said_and_loses_nothing(full):
    http, pages = full
    task = new_task(http, o=circle())
    pages(1)  # none more than there are
    labels = []
    for number in range(60):
        answer = http.post(f"{task}/examples", params={"label": f"x{number}"}, content=drawing(cross()), headers=PNG)
        if answer.status_code != 201:
            break
        labels.append(f"x{number}")
    assert error(answer) == (503, "no_storage")
    assert [found["label"] for found in http.get(f"{task}/classes").json()] == ["o", *labels]
    assert ask(http, task, circle(0.04))["label"] == "o"
    pages(1_000_000)
    again = http.post(f"{task}/examples", params={"label": "late"}, content=drawing(cross()), headers=PNG)
    assert again.status_code == 201
    assert again.json()["task"]["examples"] == len(labels) + 2


def test_a_commit_that_fails_leaves_no_transaction_open():
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE a (id PRIMARY KEY);"
        "CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)"
    )
    with pytest.raises(sqlite3.IntegrityError), _transaction(database):
        database.execute("INSERT INTO b VALUES (1)")
    assert not database.in_transaction
    with _transaction(database):
        database.execute("INSERT INTO a VALUES (1)")
    assert database.execute("SELECT (SELECT COUNT(*) FROM a), (SELECT COUNT(*) FROM b)").fetchone() == (1, 0)


def test_bodies_of_all_requests_together_are_limited(tmp_path):
    limits = replace(UNHURRIED, held_bytes=100_000)
    with serving(tmp_path, limits=limits) as base:
        host, port = urlsplit(base).hostname, urlsplit(base).port
        head = b"POST /api/tasks/file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n"
        with socket.create_connection((host, port), timeout=30) as first:
            first.sendall(head + bytes(60_000))  # and keeps the rest back
            until = time.monotonic() + 20
            while time.monotonic() < until:
                with socket.create_connection((host, port), timeout=30) as second:
                    second.sendall(head + bytes(70_000))
                    answer = second.recv(4096)
                if answer.startswith(b"HTTP/1.1 503"):
                    break
                time.sleep(0.05)  # the first bytes have not arrived yet
            assert answer.startswith(b"HTTP/1.1 503")
            first.sendall(bytes(10_000))
            assert first.recv(4096).startswith(b"HTTP/1.1 422")
        with socket.create_connection((host, port), timeout=30) as third:
            third.sendall(head + bytes(70_000))
            assert third.recv(4096).startswith(b"HTTP/1.1 422"), "bodies that were answered are held no longer"


def test_a_clock_that_is_set_back_hides_no_change(tmp_path, monkeypatch):
    with client(tmp_path) as http:
        task = new_task(http, o=circle())
        before = http.get(task).json()["changed"]
        monkeypatch.setattr("csn.service.store.time.time", lambda: 1e9)
        for label in ("x", "y"):
            http.post(f"{task}/examples", params={"label": label}, content=drawing(cross()), headers=PNG)
            after = http.get(task).json()["changed"]
            assert after > before
            before = after
