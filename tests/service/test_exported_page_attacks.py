"""Hostile task files, damaged storage and a second tab, as the exported page meets them in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import answer, chromium, draw, labels, launched, open_page, teach, until
from kit import circle, cross

from csn.classifier.classifier import FewShotClassifier
from csn.cli.main import main
from csn.data.images.strokes import load_strokes
from csn.engine.checkpoint import digest, load_checkpoint

pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
if chromium() is None:
    pytest.skip("the browser test needs chromium: apt-get install chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("exported") / "characters.html"
    assert main(["export", "characters", "--to", "page", "--out", str(path)]) == 0
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def page(browser, address):
    opened = open_page(browser, address)
    yield opened
    assert opened.complaints == []
    opened.context.close()


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and the description of a right task of two drawings."""
    path = tmp_path_factory.mktemp("task") / "task.csn"
    drawings = load_strokes(alphabets=5, characters=8, drawings=3).splits["test"].x[:2]
    FewShotClassifier().fit(drawings, ["a", "b"]).save(path)
    tensors, about = load_checkpoint(path)
    return {"inputs": tensors["inputs"]}, about | {"task_version": 1}


def packed(tensors: dict[str, Any], about: dict[str, Any], header: Any = None) -> bytes:
    """A task file with a right checksum; `header` replaces the description of its drawings."""
    content = tensors["inputs"].numpy().tobytes()
    csn = {"format": 1, "sha256": digest(tensors, about), "metadata": about}
    described = {"dtype": "U8", "shape": list(tensors["inputs"].shape), "data_offsets": [0, len(content)]}
    described |= {} if header is None else header
    head = json.dumps({"__metadata__": {"csn": json.dumps(csn)}, "inputs": described}).encode()
    return len(head).to_bytes(8, "little") + head + content


def opened(page: Any, content: bytes, name: str = "task.csn") -> None:
    page.click("#open-tasks")
    page.set_input_files("#file", {"name": name, "mimeType": "application/octet-stream", "buffer": content})


def refused(page: Any, content: bytes, message: str) -> None:
    """Refuse a file, say why, and go on as if nothing had happened."""
    opened(page, content)
    page.wait_for_selector(f".toast:has-text({json.dumps(message)})", timeout=10_000)
    page.evaluate("for (const toast of document.querySelectorAll('.toast')) toast.remove()")
    page.keyboard.press("Escape")
    assert labels(page) == []
    assert page.evaluate("Object.keys(Object.prototype).length") == 0


def test_a_right_file_is_opened(page, task):
    opened(page, packed(*task))
    page.wait_for_selector("text=Loaded 2 symbols")
    assert labels(page) == ["a", "b"]


def test_labels_that_differ_in_what_nobody_sees_around_them_are_one(page, task):
    tensors, about = task
    opened(page, packed(tensors, about | {"labels": ["star", "\ufeffstar\u200b "]}))
    page.wait_for_selector("text=Loaded 1 symbol")
    assert labels(page) == ["star"]


def test_a_file_whose_parts_contradict_each_other_is_refused(page, task):
    for header in (
        {"data_offsets": [0, 10]},
        {"data_offsets": [0, 0]},
        {"data_offsets": [-784, 784]},
        {"data_offsets": [0, 2**60]},
        {"data_offsets": ["0", "1568"]},
        {"shape": "2,1,28,28"},
        {"shape": [2, 1, 28, 10**9]},
        {"shape": None},
        {"dtype": "constructor"},
        {"__proto__": {"dtype": "U8"}, "dtype": None},
    ):
        refused(page, packed(*task, header), "it is damaged")
    teach(page, "moon", circle())


def test_a_file_with_wrong_contents_is_refused(page, task):
    tensors, about = task
    for labels_there, message in (
        (["a"], "do not have this page's size"),
        ([{"toString": 1}, "b"], "its labels are damaged"),
        ([None, "b"], "its labels are damaged"),
        ("ab", "its labels are damaged"),
        (["a", " "], "a label has 1 to 60 characters"),
        (["a", "x" * 61], "a label has 1 to 60 characters"),
        (["a", "\u202eevil"], "a label has 1 to 60 characters"),
        (["a", "\ud800"], "a label has 1 to 60 characters"),
        (["a", "\u200b\u2060"], "a label has 1 to 60 characters"),
        (["a", "\u3164"], "a label has 1 to 60 characters"),
        (["a", "\ufe0f"], "a label has 1 to 60 characters"),
    ):
        refused(page, packed(tensors, about | {"labels": labels_there}), message)
    refused(page, packed(tensors, about | {"kind": "__proto__"}), "it is not a task file")
    refused(page, packed(tensors, about | {"task_version": {"toString": 1}}), "its task version is not 1 or 2")


def test_files_that_are_too_large_or_too_deep_are_refused(page, task):
    tensors, about = task
    many = {"inputs": tensors["inputs"][:1].repeat(1001, 1, 1, 1)}
    refused(page, packed(many, about | {"labels": ["a"] * 1001}), "it has 1001 drawings, this page opens up to 1000")
    deep = b'{"__metadata__": {"csn": "' + b"[" * 1_000_000 + b'"}}'
    refused(page, len(deep).to_bytes(8, "little") + deep, "it is damaged")
    refused(page, (2**63).to_bytes(8, "little") + b"{}", "it is damaged")


def test_labels_are_shown_and_never_run(page, task):
    tensors, about = task
    bad = ["<img src=x onerror='window.run=1'>", "__proto__"]
    opened(page, packed(tensors, about | {"labels": bad}), "<b onclick=run>.csn")
    page.wait_for_selector("text=Loaded 2 symbols")
    assert labels(page) == bad
    assert page.locator("#classes img[src=x]").count() == 0
    page.click("#open-tasks")
    assert page.inner_text("#tasks bdi") == "<b onclick=run>"
    assert page.evaluate("window.run") is None
    page.keyboard.press("Escape")
    page.click("#samples-dialog, #paper", force=True)


def test_a_photograph_is_refused_in_words_and_the_page_stays(page):
    for how in ("drop", "paste"):
        left = page.evaluate(
            """(name) => {
              const held = new DataTransfer();
              held.items.add(new File(["picture"], "photo.jpg", { type: "image/jpeg" }));
              const options = { bubbles: true, cancelable: true };
              const event = name === "paste" ? new ClipboardEvent(name, { ...options, clipboardData: held })
                : new DragEvent(name, { ...options, dataTransfer: held });
              return document.getElementById("paper-box").dispatchEvent(event);
            }""",
            how,
        )
        assert not left, "the browser does not leave the page to show the picture"
        page.wait_for_selector(".toast:has-text('does not take photographs')")
        page.evaluate("for (const toast of document.querySelectorAll('.toast')) toast.remove()")


def test_two_tabs_lose_nothing_of_each_other(browser, address):
    first = open_page(browser, address)
    second = first.context.new_page()
    second.goto(address)
    second.wait_for_selector("html[data-ready]", state="attached")
    teach(first, "moon", circle())  # a task that the second tab has not seen
    second.bring_to_front()
    teach(second, "kiss", cross())
    for tab in (first, second):
        tab.bring_to_front()
        tab.reload()
        tab.wait_for_selector("html[data-ready]", state="attached")
        tab.click("#open-tasks")
        tab.wait_for_selector(".open-task >> nth=1")
        tab.keyboard.press("Escape")
    second.bring_to_front()
    assert labels(second) == ["kiss"]
    first.bring_to_front()
    first.reload()  # it now opens the task that was used last, as the other tab does
    first.wait_for_selector("html[data-ready]", state="attached")
    teach(first, "wave", circle(0.1))
    second.bring_to_front()
    draw(second, cross(0.1))  # its page does not show the other's drawing yet
    second.fill("#name", "star")
    second.press("#name", "Enter")
    until(second, ".thumb", 3)
    second.reload()
    second.wait_for_selector("html[data-ready]", state="attached")
    assert labels(second) == ["kiss", "wave", "star"]
    first.context.close()


OLD = """() => {
  const ink = btoa(String.fromCharCode(...Array(784).fill(0).map((_, i) => (i % 28 < 9 ? 255 : 0))));
  const task = { id: "t1", name: "old", created: 1, changed: 2, examples: [{ id: "e1", label: "moon", ink }] };
  localStorage.clear();
  return [ink, task];
}"""


def test_tasks_of_an_earlier_version_are_kept(page):
    _, task = page.evaluate(OLD)
    page.evaluate("(tasks) => localStorage.setItem('csn-tasks', JSON.stringify(tasks))", [task])
    page.evaluate("localStorage.setItem('csn-task', 't1')")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert labels(page) == ["moon"]
    assert page.evaluate("localStorage.getItem('csn-memory-t1')") is not None
    assert page.evaluate("localStorage.getItem('csn-tasks')") is None
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert labels(page) == ["moon"]


DAMAGED = [
    "nonsense",
    "null",
    '{"examples": [{}]}',
    '{"name": "x", "changed": 1, "examples": [{"id": "e", "label": "a", "ink": "AAAA"}]}',
    '{"name": "x", "changed": 1, "examples": [{"id": "e", "label": {}, "ink": ""}]}',
    '{"__proto__": {"examples": []}}',
]


def test_damaged_storage_costs_no_other_task(page):
    _, task = page.evaluate(OLD)
    page.evaluate("(task) => localStorage.setItem('csn-memory-t1', JSON.stringify(task))", task)
    page.evaluate("(all) => all.forEach((text, i) => localStorage.setItem(`csn-memory-bad${i}`, text))", DAMAGED)
    page.evaluate("localStorage.setItem('csn-task', 't1')")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    teach(page, "kiss", cross())
    assert labels(page) == ["moon", "kiss"]
    kept = page.evaluate("(all) => all.map((_, i) => localStorage.getItem(`csn-memory-bad${i}`))", DAMAGED)
    assert kept == DAMAGED, "what cannot be read is not overwritten"


def test_a_full_storage_is_said_once_and_the_page_goes_on(page):
    page.evaluate("for (let n = 9e6; n > 1; n = n >> 1) try { localStorage.setItem('x' + n, 'x'.repeat(n)) } catch {}")
    teach(page, "moon", circle())
    page.wait_for_selector("text=This browser cannot store more")
    teach(page, "kiss", cross())
    assert page.locator("text=This browser cannot store more").count() <= 1
    assert answer(page, circle(0.03)) == "moon"


def test_a_page_saves_what_python_opens(page, tmp_path: Path):
    teach(page, "=1+1 \u2764", circle())
    page.click("#open-tasks")
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "page.csn")
    found = FewShotClassifier.load(tmp_path / "page.csn")
    assert list(found.labels_) == ["=1+1 \u2764"]
    assert np.asarray(found.inputs_).max() > 200
