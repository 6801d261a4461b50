"""Whatever a client sends: a clear 4xx answer, no crash, nothing lost."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
import zlib

import pytest
import torch
from kit import PNG, UNHURRIED, ask, circle, classifier, cross, drawing, error, learner, new_task, picture, png
from PIL import Image

from csn.classifier.classifier import FewShotClassifier
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.service.store import Store

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def task(http):
    return new_task(http, o=circle(), x=cross())


@pytest.fixture(autouse=True)
def _nothing_is_lost(http, task):
    """After every test of this file the task is what it was and answers as it did."""
    before = http.get(task).json()
    yield
    assert http.get(task).json() == before
    assert ask(http, task, circle(0.04))["label"] == "o"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def giant(side: int) -> bytes:
    """A PNG of side x side black pixels, a few kilobytes long."""
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + side // 8)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


BLANK = png(Image.new("L", (50, 50), 255))
WHOLE = drawing(circle())
PICTURES = {
    "an empty drawing": (BLANK, "unusable_image"),
    "nothing visible at all": (png(Image.new("RGBA", (50, 50), (0, 0, 0, 0))), "unusable_image"),
    "a picture of 20,000 x 20,000": (giant(20_000), "image_too_large"),
    "a header of nothing": (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes(13)), "unusable_image"),
    "half a file": (WHOLE[: len(WHOLE) // 2], "unusable_image"),
    "a flipped bit in the pixels": (WHOLE[:60] + bytes([WHOLE[60] ^ 1]) + WHOLE[61:], "unusable_image"),
    "a file of another kind": (b"GIF89a" + bytes(100), "unusable_image"),
    "no bytes": (b"", "unusable_image"),
}


@pytest.mark.parametrize("what", PICTURES)
def test_pictures_that_cannot_be_used(http, task, what):
    content, code = PICTURES[what]
    for answer in (
        http.post(f"{task}/examples", params={"label": "o"}, content=content, headers=PNG),
        http.post(f"{task}/predict", content=content, headers=PNG),
        http.post(f"{task}/explain", json={"image": base64.b64encode(content).decode()}),
    ):
        assert error(answer) == (422, code)


def test_the_giant_is_small_on_the_wire():
    """So that it is the pixels that are refused, not the bytes."""
    assert len(giant(20_000)) < 100_000 < UNHURRIED.body_bytes


BODIES = {
    "no JSON at all": (b"{", 400, "malformed_json"),
    "an empty body": (b"", 400, "malformed_json"),
    "bytes that are no text": (b'{"label": "\xff"}', 400, "malformed_json"),
    "half a character": (b'{"label": "\\ud800", "pixels": [[0, 1]]}', 400, "malformed_json"),
    "very deep lists": (b"[" * 100_000, 400, "malformed_json"),
    "a list": (b"[]", 422, "invalid_request"),
    "null": (b"null", 422, "invalid_request"),
    "no label": (b'{"pixels": [[0, 1]]}', 422, "invalid_request"),
    "a label that is no text": (b'{"label": 5, "pixels": [[0, 1]]}', 422, "invalid_request"),
    "a field nobody knows": (b'{"label": "o", "path": "/etc/passwd"}', 422, "invalid_request"),
    "NaN among the pixels": (b'{"label": "o", "pixels": [[0, NaN]]}', 422, "invalid_request"),
    "an infinite pixel": (b'{"label": "o", "pixels": [[0, 1e999]]}', 422, "invalid_request"),
    "a pixel of 1e300": (b'{"label": "o", "pixels": [[0, 1e300]]}', 422, "unusable_image"),
    "pixels that are no numbers": (b'{"label": "o", "pixels": [["a"]]}', 422, "invalid_request"),
    "no pixels": (b'{"label": "o", "pixels": []}', 422, "unusable_image"),
    "rows of different lengths": (b'{"label": "o", "pixels": [[0, 1], [0]]}', 422, "unusable_image"),
    "neither image nor pixels": (b'{"label": "o"}', 422, "unusable_image"),
    "both image and pixels": (b'{"label": "o", "image": "", "pixels": [[0, 1]]}', 422, "unusable_image"),
    "an image that is no base64": (b'{"label": "o", "image": "???"}', 422, "unusable_image"),
}


@pytest.mark.parametrize("what", BODIES)
def test_bodies_that_make_no_sense(http, task, what):
    content, status, code = BODIES[what]
    assert error(http.post(f"{task}/examples", content=content, headers=JSON)) == (status, code)


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"name": NaN}', b'{"name": null}', b"[" * 100_000, b'{"name": "\\ud800"}', b'{"x": 1}', b"9" * 5000],
)
def test_tasks_that_make_no_sense(http, content):
    status, code = error(http.post("/api/tasks", content=content, headers=JSON))
    assert status in (400, 422)
    assert code in ("malformed_json", "invalid_request", "bad_label", "refused")


def test_kinds_methods_and_addresses_that_there_are_not(http, task):
    assert error(http.post(f"{task}/predict", content=b"x", headers={"Content-Type": "text/plain"})) == (
        415,
        "wrong_type",
    )
    assert error(http.post(f"{task}/examples", content=WHOLE, headers=PNG)) == (422, "bad_label")
    assert error(http.put("/api/tasks")) == (405, "method_not_allowed")
    assert error(http.get("/nowhere")) == (404, "not_found")
    assert error(http.get("/page/../store.py")) == (404, "not_found")
    assert error(http.get("/page/%2e%2e/store.py")) == (404, "not_found")
    for name in ("..%2f..%2fetc%2fpasswd", "x" * 3000, "%00", "☃"):
        assert error(http.get(f"/api/tasks/{name}"))[0] == 404


@pytest.mark.parametrize(
    "label",
    [
        "🦊",
        "👩‍👩‍👧",
        "قمر",
        "עברית abc",
        "漢字",
        "e\u0301",
        "<script>alert(1)</script>",
        "'; DROP TABLE tasks",
        "a/b?c#d%",
    ],
)
def test_labels_of_any_script_come_back_as_they_were_sent(http, label):
    own = new_task(http, **{label: circle()})
    expected = {"e\u0301": "é"}.get(label, label)  # one letter, however it was put together
    assert http.get(f"{own}/classes").json()[0]["label"] == expected
    assert ask(http, own, circle(0.04))["label"] == expected
    assert http.delete(f"{own}/classes", params={"label": expected}).json()["classes"] == 0


@pytest.mark.parametrize("label", ["", " ", "a\0b", "a\nb", "\u202eabc", "\u2028", "x" * 61])
def test_labels_with_trickery_in_them(http, task, label):
    answer = http.post(f"{task}/examples", json={"label": label, "image": base64.b64encode(WHOLE).decode()})
    assert error(answer) == (422, "bad_label")


def test_ten_thousand_classes(http):
    own, refused = new_task(http), None
    image = base64.b64encode(WHOLE).decode()
    for number in range(10_000):
        answer = http.post(f"{own}/examples", json={"label": f"class {number}", "image": image})
        if answer.status_code != 201:
            refused = number, error(answer)
            break
    assert refused == (100, (409, "too_many_classes"))


def test_a_task_file_with_a_thousand_classes(http, tmp_path):
    classifier().fit([picture(circle())], ["first"]).save(tmp_path / "one.csn")
    tensors, about = load_checkpoint(tmp_path / "one.csn")
    about |= {"labels": [f"class {number}" for number in range(1000)]}
    grown = {name: t if name.endswith(".base") else t.repeat_interleave(1000, 0) for name, t in tensors.items()}
    save_checkpoint(tmp_path / "many.csn", grown | {"slots": torch.arange(1000) % 5}, about)
    before = http.get("/api/tasks").json()
    answer = http.post("/api/tasks/file", content=(tmp_path / "many.csn").read_bytes())
    assert error(answer) == (409, "too_many_examples")
    assert http.get("/api/tasks").json() == before


def zip_bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(20_000_000))
    return file.getvalue()


@pytest.fixture(scope="module")
def files(http, task, tmp_path_factory):
    """Task files that must be refused."""
    folder = tmp_path_factory.mktemp("files")
    whole = http.get(f"{task}/file").content
    foreign = FewShotClassifier(learner=learner(way=4)).fit([picture(circle())], ["o"])
    foreign.save(folder / "foreign.csn")
    save_checkpoint(folder / "checkpoint", {"inputs": torch.zeros(1)}, {"kind": "something else"})
    claims = json.dumps({"inputs": {"dtype": "U8", "shape": [10**12], "data_offsets": [0, 10**12]}}).encode()
    return {
        "nothing": b"",
        "half a file": whole[: len(whole) // 2],
        "a flipped bit": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
        "another model's": (folder / "foreign.csn").read_bytes(),
        "another kind of checkpoint": (folder / "checkpoint").read_bytes(),
        "a zip bomb": zip_bomb(),
        "a pickle": b"\x80\x04cposix\nsystem\n(S'true'\ntR.",
        "a header that claims a terabyte": struct.pack("<Q", len(claims)) + claims,
        "a header longer than the file": struct.pack("<Q", 2**62) + b"{}",
        "a picture": WHOLE,
    }


@pytest.mark.parametrize(
    "what",
    [
        "nothing",
        "half a file",
        "a flipped bit",
        "another model's",
        "another kind of checkpoint",
        "a zip bomb",
        "a pickle",
        "a header that claims a terabyte",
        "a header longer than the file",
        "a picture",
    ],
)
def test_task_files_that_cannot_be_trusted(http, files, what):
    before = len(http.get("/api/tasks").json())
    answer = http.post("/api/tasks/file", content=files[what])
    assert error(answer) == (422, "bad_task_file")
    assert "/" not in answer.json()["error"]["message"], "no path of the server's is told"
    assert len(http.get("/api/tasks").json()) == before


def test_an_error_that_nobody_expected_has_the_same_form_and_tells_no_secrets(http, monkeypatch, caplog):
    def fail(self):
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(Store, "rows", fail)
    answer = http.get("/api/tasks")
    assert error(answer) == (500, "internal_error")
    assert "swordfish" not in answer.text
    assert "swordfish" in caplog.text, "but it is logged"
    monkeypatch.undo()
    assert http.get("/api/tasks").status_code == 200


def test_a_change_that_cannot_be_written_did_not_happen(http, task, monkeypatch):
    def fail(self, record, added):
        raise OSError("disk full")

    monkeypatch.setattr(Store, "save", fail)
    answer = http.post(f"{task}/examples", params={"label": "new"}, content=drawing(circle()), headers=PNG)
    assert error(answer) == (500, "internal_error")
    assert error(http.delete(f"{task}/classes", params={"label": "o"})) == (500, "internal_error")
    assert error(http.post(f"{task}/undo")) == (500, "internal_error")
    monkeypatch.undo()
    assert [c["label"] for c in http.get(f"{task}/classes").json()] == ["o", "x"]
