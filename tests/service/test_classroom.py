"""A class: what phones may do, names that wait for the teacher, and the two screens in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import kit
import pytest
from browser import ANSWERED, chromium, draw, labels, launched, open_page, teach, until

from csn.service.classroom import LETTERS, Access

TEACHER, KEY = "the-teachers", "abcdefgh"


class Room(NamedTuple):
    """Two clients of the server of a class, and the address of its task."""

    teacher: httpx.Client
    phone: httpx.Client
    task: str
    base: str

    def offer(self, label: str, strokes: kit.Strokes, **headers: str) -> httpx.Response:
        """A phone draws something."""
        where = f"{self.task}/examples"
        return self.phone.post(where, params={"label": label}, content=kit.drawing(strokes), headers=kit.PNG | headers)

    def waiting(self) -> dict[str, int]:
        """How many drawings wait under each name."""
        names = self.teacher.get("/api/classroom").json()["waiting"]
        return {name["label"]: len(name["pictures"]) for name in names}

    def remembered(self) -> list[str]:
        return [one["label"] for one in self.teacher.get(f"{self.task}/examples").json()]


def room_of(folder: Path, **options: object) -> Iterator[Room]:
    access = Access(TEACHER, KEY, "http://192.168.1.5:8765")
    with kit.serving(folder, access=access, **options) as base:
        clients = [
            httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=60)
            for token in (TEACHER, KEY)
        ]
        teacher, phone = clients
        yield Room(teacher, phone, f"/api/tasks/{phone.get('/api/classroom').json()['task']}", base)
        for client in clients:
            client.close()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    yield from room_of(tmp_path)


def test_a_new_name_waits_until_it_is_let_in(room):
    answer = room.offer("moon", kit.circle())
    assert (answer.status_code, answer.json()) == (202, {"waits": True})
    assert room.offer(" Moon ", kit.circle(0.02)).status_code == 202
    assert room.waiting() == {"moon": 2}, "the same name in other letters waits with it"
    assert room.remembered() == []
    assert room.teacher.post("/api/classroom/pass", params={"label": "moon"}).json()["examples"] == 2
    assert (room.waiting(), room.remembered()) == ({}, ["moon", "moon"])
    answer = room.offer("MOON", kit.circle(0.01))
    assert (answer.status_code, answer.json()["example"]["label"]) == (201, "moon"), "a name that is known needs nobody"
    assert kit.ask(room.phone, room.task, kit.circle(0.03))["label"] == "moon"
    assert kit.error(room.teacher.post("/api/classroom/pass", params={"label": "moon"})) == (404, "no_such_name")


def test_what_is_let_in_answers_as_if_the_teacher_had_drawn_it(room):
    for label, strokes in (("moon", kit.circle()), ("kiss", kit.cross())):
        room.offer(label, strokes)
        room.teacher.post("/api/classroom/pass", params={"label": label})
    own = kit.new_task(room.teacher, moon=kit.circle(), kiss=kit.cross())
    here, there = (kit.ask(room.teacher, task, kit.wave())["probabilities"] for task in (room.task, own))
    assert here == there


def test_a_refused_name_does_not_come_back(room):
    room.offer("poo", kit.circle())
    assert room.teacher.post("/api/classroom/refuse", params={"label": "poo"}).status_code == 204
    assert (room.waiting(), room.remembered()) == ({}, [])
    assert kit.error(room.offer("Poo", kit.circle())) == (403, "name_refused")
    where = f"{room.task}/examples"
    room.teacher.post(where, params={"label": "poo"}, content=kit.drawing(kit.circle()), headers=kit.PNG)
    assert room.offer("poo", kit.circle()).status_code == 201, "the teacher used it: it is no longer refused"


def test_a_forgotten_name_waits_again(room):
    room.offer("moon", kit.circle())
    room.teacher.post("/api/classroom/pass", params={"label": "moon"})
    room.teacher.delete(f"{room.task}/classes", params={"label": "moon"})
    assert room.offer("moon", kit.circle()).status_code == 202


@pytest.mark.parametrize("known", [False, True])
def test_a_drawing_that_is_sent_again_is_learned_once(room, known):
    """Whenever it comes again: while it waits, after it was let in, after its name was known anyway."""
    if known:
        room.teacher.post(
            f"{room.task}/examples", params={"label": "moon"}, content=kit.drawing(kit.circle()), headers=kit.PNG
        )
    before = len(room.remembered())
    once = {"Idempotency-Key": "once"}
    first = room.offer("moon", kit.circle(0.05), **once)
    assert first.status_code == (201 if known else 202)
    if not known:
        assert room.offer("star", kit.cross(), **once).status_code == 202, "the same request again, whatever it says"
        assert room.waiting() == {"moon": 1}
        assert room.offer("moon", kit.circle(0.02), **{"Idempotency-Key": "other"}).status_code == 202
        room.teacher.post("/api/classroom/pass", params={"label": "moon"})
        before = 1
    for label in ("moon", "Moon", "star"):
        again = room.offer(label, kit.circle(0.05), **once)
        assert (again.status_code, again.json()["example"]["label"]) == (201, "moon")
    assert room.remembered() == ["moon"] * (before + 1)
    assert room.waiting() == {}
    room.teacher.delete(f"{room.task}/classes", params={"label": "moon"})
    assert kit.error(room.offer("moon", kit.circle(0.05), **once)) == (409, "already_done")


@pytest.mark.parametrize(
    "alike",
    [
        "Moon",
        "mo\u200bon",
        "m\u00adoon",
        "moon\ufe0f",
        "\uff4d\uff4fon",
        "\u2060moon",
        "moo\u034fn",
        "\uff2d\uff2fON\u200d",
    ],
)
def test_a_name_that_looks_like_another_is_that_name(room, alike):
    room.offer("moon", kit.circle())
    assert room.offer(alike, kit.circle(0.02)).status_code == 202
    assert room.waiting() == {"moon": 2}
    room.teacher.post("/api/classroom/pass", params={"label": "moon"})
    assert room.offer(alike, kit.circle(0.03)).json()["example"]["label"] == "moon"
    room.offer("bad  word", kit.cross())
    room.teacher.post("/api/classroom/refuse", params={"label": "bad  word"})
    for letters in ("Bad word", "bad\u00a0word", "b\u200dad \u200b word"):
        assert kit.error(room.offer(letters, kit.cross())) == (403, "name_refused")
    assert room.offer("badword", kit.cross()).status_code == 202


def test_names_of_many_scripts_stay_apart(room):
    names = ["日", "目", "é", "e", "👨‍👩‍👧", "👩", "क्षि", "कषि", "1", "l"]
    for name in names:
        assert room.offer(name, kit.circle()).status_code == 202
    assert room.waiting() == dict.fromkeys(names, 1)


def test_one_phone_cannot_fill_the_list_of_those_that_wait(tmp_path):
    for room in room_of(tmp_path, limits=replace(kit.UNHURRIED, moderated=5, moderated_per_address=3)):
        for name in ("a", "b", "c"):
            assert room.offer(name, kit.circle()).status_code == 202
        answer = room.offer("d", kit.circle())
        assert kit.error(answer) == (409, "too_many_waiting")
        assert "3 drawings of this phone" in answer.json()["error"]["message"]
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=room.base, transport=elsewhere, headers=room.phone.headers, timeout=60) as other:
            given = {"content": kit.drawing(kit.circle()), "headers": kit.PNG}
            assert [other.post(f"{room.task}/examples?label={name}", **given).status_code for name in "de"] == [202] * 2
            answer = other.post(f"{room.task}/examples?label=f", **given)
            assert "5 drawings wait" in answer.json()["error"]["message"]


def test_the_task_of_a_class_is_not_deleted(room):
    assert kit.error(room.teacher.delete(room.task)) == (409, "task_in_use")
    assert room.phone.get(room.task).status_code == 200
    other = kit.new_task(room.teacher, kiss=kit.cross())
    assert room.teacher.delete(other).status_code == 204


def test_phones_add_recognise_and_read_and_nothing_else(room):
    room.offer("moon", kit.circle())
    room.teacher.post("/api/classroom/pass", params={"label": "moon"})
    [example] = room.phone.get(f"{room.task}/examples").json()
    other = kit.new_task(room.teacher, kiss=kit.cross())
    for method, path in (
        ("DELETE", f"{room.task}/examples/{example['id']}"),
        ("DELETE", f"{room.task}/classes?label=moon"),
        ("DELETE", room.task),
        ("POST", f"{room.task}/undo"),
        ("POST", f"{room.task}/alphabets/Shapes"),
        ("POST", f"{room.task}/shifts"),
        ("GET", f"{room.task}/file"),
        ("POST", "/api/tasks"),
        ("POST", "/api/tasks/file"),
        ("GET", "/api/tasks"),
        ("GET", other),
        ("POST", f"{other}/examples?label=moon"),
        ("POST", f"{room.task}/../{other.rpartition('/')[2]}/explain"),
        ("POST", "/api/classroom/pass?label=moon"),
        ("POST", "/api/classroom/refuse?label=moon"),
        ("GET", "/metrics"),
    ):
        assert kit.error(room.phone.request(method, path)) == (403, "teacher_only"), (method, path)
    assert room.remembered() == ["moon"]
    assert room.phone.get("/api/about").json()["role"] == "phone"
    assert room.teacher.get("/api/about").json()["role"] == "teacher"
    assert room.phone.get("/api/classroom").json() == {
        "task": room.task.rpartition("/")[2],
        "changed": room.teacher.get("/api/classroom").json()["changed"],
        "waiting": None,
        "door": None,
    }


@pytest.mark.parametrize("token", ["none", KEY[:-1], KEY + "x", TEACHER.upper()])
def test_nobody_else_comes_in(room, token):
    for path in ("/api/about", "/api/classroom", room.task):
        answer = httpx.get(room.base + path, headers={"Authorization": f"Bearer {token}"})
        assert kit.error(answer) == (401, "token_needed")


def test_the_limits_hold_for_phones_too(tmp_path):
    limits = replace(kit.UNHURRIED, moderated=2, label=5, classes=2, examples=3, json_bytes=2000)
    for room in room_of(tmp_path, limits=limits):
        assert kit.error(room.offer("too long a name", kit.circle())) == (422, "bad_label")
        assert kit.error(room.offer("empty", [])) == (422, "unusable_image")
        pixels = json.dumps({"pixels": [[0] * 40] * 40, "label": "big"})
        answer = room.phone.post(f"{room.task}/examples", content=pixels, headers={"Content-Type": "application/json"})
        assert kit.error(answer) == (413, "body_too_large")
        assert room.waiting() == {}
        assert room.offer("a", kit.circle(), **{"Idempotency-Key": "once"}).status_code == 202
        assert room.offer("a", kit.circle(), **{"Idempotency-Key": "once"}).status_code == 202
        assert room.waiting() == {"a": 1}, "the same request again waits once"
        assert room.offer("b", kit.cross()).status_code == 202
        assert kit.error(room.offer("c", kit.wave())) == (409, "too_many_waiting")
        for label in "ab":
            room.teacher.post("/api/classroom/pass", params={"label": label})
        assert room.offer("c", kit.wave()).status_code == 202
        answer = room.teacher.post("/api/classroom/pass", params={"label": "c"})
        assert kit.error(answer) == (409, "too_many_classes")
        assert room.waiting() == {"c": 1}, "it still waits: the teacher can make room"
        assert room.offer("a", kit.circle(0.1)).status_code == 201
        assert kit.error(room.offer("a", kit.circle(0.2))) == (409, "too_many_examples")


def test_a_phone_that_asks_too_often_is_held_back(tmp_path):
    for room in room_of(tmp_path, limits=replace(kit.UNHURRIED, requests_per_second=1, burst=5)):
        answers = [room.phone.get("/api/classroom").status_code for _ in range(8)]
        assert 429 in answers


def test_a_server_without_a_class_knows_none(http):
    assert kit.error(http.get("/api/classroom")) == (404, "not_found")
    assert http.get("/api/about").json()["role"] is None


def test_a_class_needs_room_for_its_task(tmp_path):
    with pytest.raises(ValueError, match="already has 0 tasks"):
        next(room_of(tmp_path, limits=replace(kit.UNHURRIED, tasks=0)))


def test_keys_are_random_and_easy_to_type():
    one, other = (Access.new("http://10.0.0.7:8765") for _ in range(2))
    assert one.phones != other.phones
    assert one.teacher != other.teacher
    assert len(one.phones) == 8
    assert set(one.phones) <= set(LETTERS)
    assert not set(LETTERS) & set("il1o0")
    assert one.link == f"http://10.0.0.7:8765/#token={one.phones}"
    assert one.qr().startswith("data:image/svg+xml")
    assert Access.new("http://10.0.0.7:8765", "chosen").teacher == "chosen"


@pytest.mark.skipif(chromium() is None, reason="the browser test needs chromium: apt-get install chromium")
def test_a_phone_teaches_and_the_big_screen_grows(room):
    pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
    phone_screen = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    with launched() as browser:
        screen = open_page(browser, f"{room.base}/#token={TEACHER}", viewport={"width": 1280, "height": 800})
        assert screen.inner_text("#class-address") == "192.168.1.5:8765"
        assert screen.inner_text("#class-key") == KEY
        assert screen.evaluate("document.getElementById('class-code').naturalWidth") > 0, "the code is a picture"
        phone = open_page(browser, f"{room.base}/#token={KEY}", **phone_screen)
        for hidden in ("#class-door", "#class", "#open-tasks", "#open-samples", "#empty-samples"):
            assert phone.is_hidden(hidden)
        draw(phone, kit.circle())
        phone.fill("#name", "<b>moon</b>")
        phone.tap("#teach")
        phone.wait_for_selector(".toast:has-text('Your teacher is asked about “<b>moon</b>”')")
        assert phone.is_hidden("#clear"), "the paper is free for the next drawing"
        screen.wait_for_selector("#waiting li img")
        assert screen.inner_text("#waiting bdi") == "<b>moon</b>"
        screen.click("#waiting .pass")
        until(screen, ".thumb", 1)
        until(screen, "#waiting li", 0)
        until(phone, ".thumb", 1)
        assert phone.is_hidden(".forget")
        teach(screen, "kiss", kit.cross())
        until(phone, ".class", 2)
        draw(screen, kit.circle(0.03))
        screen.wait_for_selector(ANSWERED)
        assert screen.inner_text("#verdict-label") == "<b>moon</b>"
        draw(phone, kit.circle(0.02))
        phone.wait_for_selector(ANSWERED)
        phone.tap("#right")  # a name that is known: the memory grows while an answer stands on the screen
        until(screen, ".thumb", 3)
        screen.wait_for_selector(ANSWERED)
        assert screen.is_visible("#clear"), "what is on the paper stays"
        screen.on("dialog", lambda dialog: dialog.accept())
        screen.locator('.class[data-label="kiss"] .forget').click()
        until(phone, ".class", 1)
        assert labels(phone) == labels(screen) == ["<b>moon</b>"]
        widths = phone.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], "nothing sticks out"
        assert (screen.complaints, phone.complaints) == ([], [])
