"""Every limit of the service, and who may ask at all."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import threading
import time
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from kit import PNG, UNHURRIED, ask, circle, client, cross, drawing, error, new_task, picture, png, serving, wave

from csn.baselines.nearest import NearestNeighbour
from csn.classifier.classifier import FewShotClassifier
from csn.service.app import create_app
from csn.service.store import Store


def test_a_body_is_limited_by_its_header_and_by_its_bytes(tmp_path):
    with client(tmp_path, limits=replace(UNHURRIED, body_bytes=5000, json_bytes=3000)) as http:
        task = new_task(http, o=circle())
        long = drawing(circle()) + bytes(5000)
        assert error(http.post(f"{task}/predict", content=long, headers=PNG)) == (413, "body_too_large")
        pieces = (long[i : i + 500] for i in range(0, len(long), 500))  # sent in chunks: no length is announced
        assert error(http.post(f"{task}/predict", content=pieces, headers=PNG)) == (413, "body_too_large")
        for kind in ("application/json", "text/plain", ""):
            name = http.post("/api/tasks", content=b'{"name": "' + b"x" * 3000 + b'"}', headers={"Content-Type": kind})
            assert error(name) == (413, "body_too_large")
        assert ask(http, task, circle())["label"] == "o"


def test_a_body_that_does_not_come_in_time_is_given_up(tmp_path):
    with (
        serving(tmp_path, limits=replace(UNHURRIED, seconds=0.3)) as base,
        socket.create_connection((urlsplit(base).hostname, urlsplit(base).port), timeout=30) as slow,
    ):
        slow.sendall(b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        slow.sendall(b'Content-Type: application/json\r\n\r\n{"name"')
        assert slow.recv(4096).startswith(b"HTTP/1.1 408")


def test_a_computation_that_takes_too_long_is_answered_and_the_server_goes_on(tmp_path, monkeypatch):
    held = threading.Event()
    rows = Store.rows
    monkeypatch.setattr(Store, "rows", lambda self: (held.wait(20), rows(self))[1])
    with client(tmp_path, limits=replace(UNHURRIED, seconds=0.3, workers=2)) as http:
        try:
            assert error(http.get("/api/tasks")) == (503, "too_slow")
            assert http.get("/health").status_code == 200
        finally:
            held.set()


def test_no_more_than_a_number_of_requests_wait(tmp_path, monkeypatch):
    held = threading.Event()
    rows = Store.rows
    monkeypatch.setattr(Store, "rows", lambda self: (held.wait(20), rows(self))[1])
    with client(tmp_path, limits=replace(UNHURRIED, workers=1, waiting=0)) as http:
        found = []

        def hold() -> None:
            while (held_up := http.get("/api/tasks")).status_code == 503:  # it met a check of health
                time.sleep(0.01)
            found.append(held_up)

        asking = threading.Thread(target=hold)
        asking.start()
        try:
            until = time.monotonic() + 20
            while (refused := http.get("/health")).status_code == 200 and time.monotonic() < until:
                time.sleep(0.02)
            assert error(refused) == (503, "busy")
            assert refused.headers["retry-after"] == "1"
        finally:
            held.set()
            asking.join()
        assert found[0].status_code == 200


def test_a_client_may_ask_so_often(tmp_path):
    with client(tmp_path, limits=replace(UNHURRIED, requests_per_second=0.001, burst=5)) as http:
        answers = [http.get("/health") for _ in range(6)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert error(answers[5]) == (429, "too_many_requests")
        assert answers[5].headers["retry-after"] == "1"


def test_examples_classes_tasks_and_labels_are_limited_and_nothing_is_lost(tmp_path):
    limits = replace(UNHURRIED, examples=3, classes=2, tasks=2, label=4)
    with client(tmp_path, limits=limits) as http:
        task = new_task(http, o=circle(), x=cross())

        def add(label):
            return http.post(f"{task}/examples", params={"label": label}, content=drawing(wave()), headers=PNG)

        assert error(add("w")) == (409, "too_many_classes")
        assert add("x").status_code == 201
        assert error(add("x")) == (409, "too_many_examples")
        assert error(http.post(f"{task}/alphabets/Shapes")) == (409, "too_many_examples")
        assert error(add("12345")) == (422, "bad_label")
        assert error(add("  ")) == (422, "bad_label")
        file = http.get(f"{task}/file").content
        assert http.post("/api/tasks", json={}).status_code == 201
        assert error(http.post("/api/tasks", json={})) == (409, "too_many_tasks")
        assert error(http.post("/api/tasks/file", content=file)) == (409, "too_many_tasks")
        assert http.get(task).json()["examples"] == 3


def test_undo_reaches_back_so_far(tmp_path):
    with client(tmp_path, limits=replace(UNHURRIED, undos=2)) as http:
        task = new_task(http, a=circle(), b=cross(), c=wave())
        assert [http.post(f"{task}/undo").status_code for _ in range(3)] == [200, 200, 409]
        assert [c["label"] for c in http.get(f"{task}/classes").json()] == ["a"]


def test_a_token_is_asked_for_where_somebody_has_something_to_lose(tmp_path):
    with client(tmp_path, token="s3cret") as http:
        for path in ("/", "/docs", "/page/main.js", "/health", "/openapi.json"):
            assert http.get(path).status_code == 200
        for path in ("/api/tasks", "/api/about", "/metrics", "/api/tasks/x/file"):
            refused = http.get(path)
            assert error(refused) == (401, "token_needed")
            assert refused.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret", "Bearer é".encode("latin-1")):
            assert error(http.get("/api/tasks", headers={"Authorization": wrong})) == (401, "token_needed")
        assert http.get("/api/tasks", headers={"Authorization": "Bearer s3cret"}).json() == []


@pytest.mark.parametrize("given", ["secret", "s", "secreT", "x" * 5000, "s\xe9cret"])
def test_how_long_a_wrong_token_takes_says_nothing_about_the_right_one(tmp_path, monkeypatch, given):
    """Every token is compared as a whole: the time does not tell how much of it was right."""
    compared, compare = [], secrets.compare_digest
    monkeypatch.setattr("csn.service.guard.secrets.compare_digest", lambda *two: compared.append(two) or compare(*two))
    with client(tmp_path, token="secret") as http:
        answer = http.get("/api/tasks", headers={"Authorization": f"Bearer {given}".encode("latin1")})
    assert answer.status_code == (200 if given == "secret" else 401)
    assert compared == [(given.encode(), b"secret")]


def test_only_hosts_of_this_server_are_answered(tmp_path):
    with client(tmp_path, hosts=["draw.example"]) as http:
        for host in ("localhost", "127.0.0.1:99", "[::1]:80", "192.168.1.7", "draw.example", "DRAW.example:80"):
            assert http.get("/health", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""):
            assert error(http.get("/api/tasks", headers={"Host": host})) == (421, "wrong_host")


def test_pages_of_other_sites_cannot_change_anything(tmp_path):
    with client(tmp_path) as http:
        own = str(http.base_url).rstrip("/")
        assert http.post("/api/tasks", json={}, headers={"Origin": own}).status_code == 201
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert error(http.post("/api/tasks", json={}, headers=headers)) == (403, "foreign_origin")
        assert len(http.get("/api/tasks").json()) == 1


def test_pictures_are_limited_before_they_are_decoded(tmp_path):
    with client(tmp_path, limits=replace(UNHURRIED, side=100, pixels=5000)) as http:
        task = new_task(http)

        def send(width, height):
            image = picture(circle()).resize((width, height))
            return http.post(f"{task}/examples", params={"label": "o"}, content=png(image), headers=PNG)

        assert send(70, 70).status_code == 201
        assert error(send(101, 20)) == (422, "image_too_large")
        assert error(send(80, 80)) == (422, "image_too_large")
        rows = {"label": "o", "pixels": [[0.0] * 101]}
        assert error(http.post(f"{task}/examples", json=rows)) == (422, "image_too_large")


def test_two_servers_do_not_share_a_folder(tmp_path):
    with client(tmp_path), pytest.raises(ValueError, match="in use by another server"):
        Store(tmp_path)


def test_a_folder_with_another_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "tasks.sqlite").write_bytes(b"something else altogether" * 100)
    with pytest.raises(ValueError, match="not a database of csn"):
        Store(tmp_path)


def test_models_that_take_no_drawings_or_have_no_attention_are_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a CSN that takes drawings"):
        create_app(FewShotClassifier(learner=NearestNeighbour(way=5)), tmp_path)
    Store(tmp_path).close()  # and the folder is free again


def test_tasks_that_are_not_in_memory_answer_as_before(tmp_path):
    with client(tmp_path, limits=replace(UNHURRIED, live=1)) as http:
        tasks = [new_task(http, o=circle(), x=cross()), new_task(http, x=circle(), o=cross())]
        for _ in range(2):
            assert [ask(http, task, circle(0.04))["label"] for task in tasks] == ["o", "x"]


def test_other_accounts_cannot_read_what_was_taught(tmp_path):
    before = os.umask(0o022)
    try:
        store = Store(tmp_path)
        store.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tasks.sqlite").stat().st_mode) == 0o600
