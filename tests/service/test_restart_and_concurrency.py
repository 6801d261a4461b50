"""Tasks outlive the server; clients side by side get the answers they would get alone."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
from kit import PNG, UNHURRIED, ask, circle, client, cross, drawing, new_task, serving, wave

from csn.service.store import Example, Record, Store

CLIENTS = 16


def test_tasks_survive_a_restart_with_order_undo_and_answers(tmp_path):
    with client(tmp_path) as http:
        task = new_task(http, o=circle(), w=wave(), x=cross())
        http.delete(f"{task}/classes", params={"label": "w"})
        before = http.get(task).json(), ask(http, task, circle(0.04)), http.get(f"{task}/examples").json()
    with client(tmp_path) as http:
        assert (http.get(task).json(), ask(http, task, circle(0.04)), http.get(f"{task}/examples").json()) == before
        assert [c["label"] for c in http.post(f"{task}/undo").json()["labels"]] == ["o", "w", "x"]
        assert ask(http, task, wave())["label"] == "w"
        http.delete(task)
    with client(tmp_path) as http:
        assert http.get("/api/tasks").json() == []
    with sqlite3.connect(tmp_path / "tasks.sqlite") as db:
        assert db.execute("SELECT COUNT(*) FROM examples").fetchone() == (0,)
    db.close()


def test_a_change_is_written_whole_or_not_at_all(tmp_path):
    store = Store(tmp_path)
    one, two = Example("1", "o", b"x", b"y"), Example("1", "x", b"x", b"y")  # the same id: the second cannot be written
    record = Record("t", "name", 0.0, 0.0, [one], [{"added": ["1"]}])
    assert store.insert(record, most=1)
    changed = Record("t", "name", 0.0, 0.0, [one, two], [])
    with pytest.raises(sqlite3.IntegrityError):
        store.save(changed, [two])
    found = store.load("t")
    store.close()
    assert found is not None
    assert (found.examples, found.history) == ([one], [{"added": ["1"]}])


def session(base: str, number: int) -> list[object]:
    """What one client does and sees. Every client teaches something else under the same names."""
    shift = number / 200
    shapes = [circle(shift), cross(shift), wave(shift)]
    first, second, third = shapes[number % 3], shapes[(number + 1) % 3], shapes[(number + 2) % 3]
    with httpx.Client(base_url=base, timeout=120) as http:
        task = new_task(http, a=first, b=second)
        seen: list[object] = [ask(http, task, strokes, "predict") for strokes in (first, second, third)]
        http.post(f"{task}/examples", params={"label": "c"}, content=drawing(third), headers=PNG)
        seen.append(ask(http, task, third, "predict"))
        http.delete(f"{task}/classes", params={"label": "a"})
        seen += [ask(http, task, strokes, "predict") for strokes in (first, second)]
        seen.append(http.get(f"{task}/file").content)
    return seen


def test_sixteen_clients_at_once_see_what_each_would_see_alone(tmp_path):
    limits = replace(UNHURRIED, workers=4)
    with serving(tmp_path / "alone", limits=limits) as base:
        alone = [session(base, number) for number in range(CLIENTS)]
    with serving(tmp_path / "together", limits=limits) as base, ThreadPoolExecutor(CLIENTS) as pool:
        together = list(pool.map(lambda number: session(base, number), range(CLIENTS)))
    assert together == alone
    assert len({str(seen) for seen in alone}) == CLIENTS, "all of them saw something different"


def test_many_changes_of_one_task_at_once_all_count(tmp_path):
    with client(tmp_path, limits=replace(UNHURRIED, workers=4)) as http, ThreadPoolExecutor(8) as pool:
        task = new_task(http)

        def add(number: int) -> int:
            label, content = {"label": f"class {number % 3}"}, drawing(circle(number / 99))
            return http.post(f"{task}/examples", params=label, content=content, headers=PNG).status_code

        assert list(pool.map(add, range(24))) == [201] * 24
        after = http.get(task).json()
    assert (after["examples"], after["classes"]) == (24, 3)
