"""Every address of the HTTP API, against what the classifier itself answers."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from kit import PNG, ask, circle, classifier, client, cross, drawing, error, new_task, picture, wave

from csn.classifier.classifier import FewShotClassifier


def test_a_task_is_created_listed_read_and_deleted(http):
    made = http.post("/api/tasks", json={"name": "  runes "})
    assert made.status_code == 201
    task = made.json()
    assert (task["name"], task["examples"], task["classes"], task["labels"]) == ("runes", 0, 0, [])
    assert len(task["id"]) >= 16
    assert [(t["name"], t["classes"]) for t in http.get("/api/tasks").json() if t["id"] == task["id"]] == [("runes", 0)]
    assert http.get(f"/api/tasks/{task['id']}").json() == task
    assert http.delete(f"/api/tasks/{task['id']}").status_code == 204
    assert error(http.get(f"/api/tasks/{task['id']}")) == (404, "no_such_task")
    assert error(http.delete(f"/api/tasks/{task['id']}")) == (404, "no_such_task")
    assert task["id"] not in {t["id"] for t in http.get("/api/tasks").json()}


def test_answers_are_the_classifiers_own(http):
    task = new_task(http, o=circle(), x=cross())
    alone = classifier().fit([picture(circle()), picture(cross())], ["o", "x"])
    for strokes in (circle(0.04), cross(0.05), wave()):
        expected = alone.explain([picture(strokes)])[0]
        found = ask(http, task, strokes)
        assert found["label"] == expected.label
        assert found["similarity"] == expected.similarity
        assert {p["label"]: p["probability"] for p in found["probabilities"]} == expected.probabilities
        assert [(e["label"], e["weight"]) for e in found["examples"]] == [(s.label, s.weight) for s in expected.sources]
        assert ask(http, task, strokes, "predict") == {k: v for k, v in found.items() if k != "examples"}


def test_drawings_are_recognised_and_what_is_like_none_is_unknown(http):
    task = new_task(http, o=circle(), x=cross())
    assert [ask(http, task, s)["label"] for s in (circle(0.04), cross(0.05), wave())] == ["o", "x", None]
    new_task_of_one = new_task(http, o=circle())
    assert ask(http, new_task_of_one, circle(0.04))["probabilities"] == [{"label": "o", "probability": 1.0}]
    assert ask(http, new_task_of_one, cross())["label"] is None


def test_a_drawing_may_come_as_a_file_as_base64_as_a_data_url_or_as_pixels(http):
    content = drawing(circle())
    text = base64.b64encode(content).decode()
    pixels = np.asarray(picture(circle())).tolist()
    tasks = [new_task(http) for _ in range(4)]
    sent = [
        http.post(f"{tasks[0]}/examples", params={"label": "o"}, content=content, headers=PNG),
        http.post(f"{tasks[1]}/examples", json={"label": "o", "image": text}),
        http.post(f"{tasks[2]}/examples", json={"label": "o", "image": f"data:image/png;base64,{text}"}),
        http.post(f"{tasks[3]}/examples", json={"label": "o", "pixels": pixels}),
    ]
    assert [answer.status_code for answer in sent] == [201] * 4
    assert len({answer.json()["example"]["picture"] for answer in sent}) == 1
    assert len({json.dumps(ask(http, task, circle(0.04), "predict")) for task in tasks}) == 1


def test_examples_and_classes_are_listed_and_removed(http):
    task = new_task(http, o=circle(), x=cross())
    http.post(f"{task}/examples", params={"label": "o"}, content=drawing(circle(0.05)), headers=PNG)
    examples = http.get(f"{task}/examples").json()
    assert [e["label"] for e in examples] == ["o", "x", "o"]
    assert base64.b64decode(examples[0]["picture"].removeprefix("data:image/png;base64,"))[:4] == b"\x89PNG"
    ids = [e["id"] for e in examples]
    assert http.get(f"{task}/classes").json() == [
        {"label": "o", "examples": [ids[0], ids[2]]},
        {"label": "x", "examples": [ids[1]]},
    ]
    after = http.delete(f"{task}/examples/{ids[0]}").json()
    assert (after["examples"], after["classes"], after["can_undo"]) == (2, 2, True)
    assert http.delete(f"{task}/classes", params={"label": "x"}).json()["classes"] == 1
    assert [e["id"] for e in http.get(f"{task}/examples").json()] == [ids[2]]
    assert error(http.delete(f"{task}/examples/{ids[0]}")) == (404, "no_such_example")
    assert error(http.delete(f"{task}/classes", params={"label": "x"})) == (404, "no_such_class")


def test_forgetting_is_exact(http):
    with_third, without = new_task(http, o=circle(), w=wave(), x=cross()), new_task(http, o=circle(), x=cross())
    http.delete(f"{with_third}/classes", params={"label": "w"})
    for strokes in (circle(0.04), cross(0.05), wave()):
        assert ask(http, with_third, strokes, "predict") == ask(http, without, strokes, "predict")


def test_every_change_can_be_undone_back_to_the_beginning(http):
    task = new_task(http, o=circle(), x=cross())
    before = ask(http, task, circle(0.04))
    ids = [e["id"] for e in http.get(f"{task}/examples").json()]
    http.delete(f"{task}/classes", params={"label": "o"})
    http.post(f"{task}/alphabets/Shapes")
    assert http.post(f"{task}/undo").json()["classes"] == 1
    assert http.post(f"{task}/undo").json()["classes"] == 2
    assert [e["id"] for e in http.get(f"{task}/examples").json()] == ids
    assert ask(http, task, circle(0.04)) == before
    assert [http.post(f"{task}/undo").json()["examples"] for _ in range(2)] == [1, 0]
    assert error(http.post(f"{task}/undo")) == (409, "nothing_to_undo")
    assert error(http.post(f"{task}/predict", content=drawing(circle()), headers=PNG)) == (409, "nothing_learned")


def test_a_task_file_goes_out_and_comes_back(http, tmp_path):
    task = new_task(http, **{"o": circle(), "🌙 قمر": cross()})
    file = http.get(f"{task}/file")
    assert file.headers["content-disposition"] == 'attachment; filename="task.csn"'
    made = http.post("/api/tasks/file", params={"name": "mine.csn"}, content=file.content)
    assert made.status_code == 201
    assert (made.json()["name"], [c["label"] for c in made.json()["labels"]]) == ("mine", ["o", "🌙 قمر"])
    again = f"/api/tasks/{made.json()['id']}"
    assert ask(http, again, cross(0.05), "predict") == ask(http, task, cross(0.05), "predict")
    assert http.get(f"{again}/file").content == file.content
    (tmp_path / "task.csn").write_bytes(file.content)
    loaded = FewShotClassifier.load(tmp_path / "task.csn", learner=classifier().learner)
    assert loaded.predict([picture(cross(0.05))]).tolist() == ["🌙 قمر"]
    assert error(http.get(f"{new_task(http)}/file")) == (409, "nothing_learned")


def test_labels_that_are_numbers_in_a_task_file_become_text(http, tmp_path):
    classifier().fit([picture(circle()), picture(cross())], [1, 2]).save(tmp_path / "task.csn")
    made = http.post("/api/tasks/file", content=(tmp_path / "task.csn").read_bytes()).json()
    assert [c["label"] for c in made["labels"]] == ["1", "2"]


def test_sample_alphabets_are_listed_and_learned(http):
    alphabets = http.get("/api/alphabets").json()
    assert len(alphabets) == 3
    for alphabet in alphabets:
        assert len(alphabet["labels"]) == len(alphabet["pictures"]) == 8
        assert len(set(alphabet["pictures"])) == 8
    task = new_task(http)
    learned = http.post(f"{task}/alphabets/{alphabets[0]['name']}").json()
    assert [c["label"] for c in learned["labels"]] == alphabets[0]["labels"]
    assert learned["examples"] == 16
    first = http.get(f"{task}/examples").json()[0]["picture"]
    assert first == alphabets[0]["pictures"][0]
    assert error(http.post(f"{task}/alphabets/Klingon")) == (404, "no_such_alphabet")


def test_the_server_describes_itself(http):
    about = http.get("/api/about").json()
    assert (about["way"], about["unknown_threshold"], about["limits"]["classes"]) == (5, 0.7, 100)
    assert http.get("/health").json()["status"] == "ok"
    document = http.get("/openapi.json").json()
    assert "/api/tasks/{task}/explain" in document["paths"]
    bodies = document["paths"]["/api/tasks/{task}/examples"]["post"]["requestBody"]["content"]
    assert bodies.keys() == {"application/json", "image/png", "image/jpeg", "image/webp", "text/plain"}

    def references(node):
        if isinstance(node, dict):
            yield from (value for key, value in node.items() if key == "$ref")
            node = list(node.values())
        for child in node if isinstance(node, list) else ():
            yield from references(child)

    names = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert names <= document["components"]["schemas"].keys()
    assert "HTTPValidationError" not in document["components"]["schemas"], "errors have a form of our own"


def test_metrics_count_what_was_done(tmp_path):
    with client(tmp_path) as http:
        task = new_task(http, o=circle(), x=cross())
        ask(http, task, circle(0.04))
        ask(http, task, wave())
        http.get("/made/up")
        lines = http.get("/metrics").text.splitlines()
    assert "csn_tasks 1" in lines
    assert "csn_examples 2" in lines
    assert 'csn_inputs_total{kind="drawings",outcome="learned"} 2' in lines
    assert 'csn_inputs_total{kind="drawings",outcome="unknown"} 1' in lines
    assert 'csn_requests_total{method="POST",route="/api/tasks/{task}/explain",status="200"} 2' in lines
    assert 'csn_requests_total{method="GET",route="other",status="404"} 1' in lines
    assert 'csn_request_seconds_count{route="/api/tasks/{task}/explain"} 2' in lines


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/page/main.js", "/page/style.css", "/favicon.ico", "/health", "/api/tasks"]
)
def test_every_answer_has_the_headers_that_keep_a_browser_safe(http, path):
    answer = http.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == ("no-store" if path.startswith("/api") else "no-cache")
    assert "server" not in answer.headers


def test_the_pages_need_nothing_from_elsewhere(http):
    for path in (
        "/",
        "/docs",
        "/page/main.js",
        "/page/docs.js",
        "/page/style.css",
        "/page/docs.css",
        "/page/dialogs.js",
    ):
        text = http.get(path).text
        assert "https://" not in text
        assert "//cdn" not in text
        assert "innerHTML" not in text


def test_the_neurons_of_a_drawing_before_and_after_their_shifts(http):
    task = new_task(http, moon=circle(), kiss=cross())
    found = ask(http, task, circle(0.02), "shifts")
    assert [len(layer["before"]) for layer in found["layers"]] == [4, 4, 4]
    assert any(layer["before"] != layer["after"] for layer in found["layers"])
    assert found["classes"][0]["label"] == "moon"
    for when in ("before", "after"):
        assert sum(one[when] for one in found["classes"]) == pytest.approx(1, abs=1e-5)
    assert found["classes"][0]["before"] == pytest.approx(0.5, abs=1e-5)  # the output layer alone says nothing
    assert found["classes"][0]["after"] > 0.5
    empty = new_task(http)
    assert error(http.post(f"{empty}/shifts", content=drawing(wave()), headers=PNG)) == (409, "nothing_learned")
