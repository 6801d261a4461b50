"""Photographs and sentences on the page, in a real browser: drop, paste, choose, camera, write; one memory for each."""

from __future__ import annotations

import base64
import io

import pytest
from browser import chromium, labels, launched, open_page, teach, until
from kit import circle, encoders, photo, serving
from PIL import Image

pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
if chromium() is None:
    pytest.skip("the browser test needs chromium: apt-get install chromium", allow_module_level=True)

SKY, LEAF, SAND = (40, 60, 220), (30, 200, 40), (220, 200, 40)
HAND_OVER = """async ([name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const held = new DataTransfer();
  held.items.add(new File([bytes], "photo.jpg", { type: "image/jpeg" }));
  const options = { bubbles: true, cancelable: true };
  const event = name === "paste" ? new ClipboardEvent(name, { ...options, clipboardData: held })
    : new DragEvent(name, { ...options, dataTransfer: held });
  document.getElementById("paper-box").dispatchEvent(event);
}"""


@pytest.fixture(scope="module")
def browser():
    with launched("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream") as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("page"), encoders=encoders()) as base:
        yield base


def hand_over(page, how, colour):
    page.evaluate(HAND_OVER, [how, base64.b64encode(photo(colour, (90, 60))).decode()])
    page.wait_for_selector("#photo-shown:not([hidden])")


def name(page, label):
    before = page.locator(".thumb").count()
    page.fill("#name", label)
    page.press("#name", "Enter")
    until(page, ".thumb", before + 1)


def verdict(page):
    page.wait_for_selector("#answer.known, #answer.unknown")
    return page.inner_text("#verdict-label")


def kind(page, value):
    page.locator(f'#kinds label:has([value="{value}"])').click()
    page.wait_for_selector(f'body[data-kind="{value}"]')


def test_photographs_are_dropped_pasted_chosen_and_forgotten(page):
    hand_over(page, "drop", SKY)  # the page turns to photographs by itself
    assert page.get_attribute("body", "data-kind") == "photos"
    assert page.inner_text("#verdict-label") == "Now give it a name."
    name(page, "sky")
    hand_over(page, "paste", LEAF)
    name(page, "leaf")
    assert page.inner_text("#count") == "2 classes, 2 photographs"
    assert page.locator(".thumb.photo img").first.get_attribute("src").startswith("data:image/jpeg")
    page.set_input_files("#photo-file", {"name": "a.png", "mimeType": "image/png", "buffer": photo((50, 70, 200))})
    assert verdict(page) == "sky"
    assert page.locator("#threads path").count() >= 1
    page.set_input_files("#photo-file", {"name": "a.png", "mimeType": "image/png", "buffer": photo((200, 0, 0))})
    page.wait_for_selector("#answer.unknown")
    page.keyboard.press("Escape")
    page.wait_for_selector("#answer.guide")
    page.locator('.class[data-label="sky"] .forget').click()
    until(page, ".class", 1)
    page.click("#undo")
    until(page, ".class", 2)
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert (page.get_attribute("body", "data-kind"), labels(page)) == ("photos", ["sky", "leaf"])
    page.set_input_files("#photo-file", {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.wait_for_selector(".toast:has-text('cannot read this file as a photograph')")


def png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("1", (width, height), 1).save(file, "PNG")
    return file.getvalue()


def test_a_photograph_too_large_for_the_browser_is_scaled_down_or_refused_in_words(page):
    kind(page, "photos")
    for size in ((4, 300_000), (300_000, 4)):  # a canvas of this length draws nothing
        page.set_input_files("#photo-file", {"name": "a.png", "mimeType": "image/png", "buffer": png(*size)})
        page.wait_for_selector("#photo-shown:not([hidden])")
        assert page.locator("#photo-shown").evaluate("(image) => image.decode().then(() => image.naturalWidth > 0)")
        name(page, "long")
        page.wait_for_selector("#photo-shown", state="hidden")
    too_large = "scale it down to less than 10,000 pixels on a side"
    page.set_input_files("#photo-file", {"name": "a.png", "mimeType": "image/png", "buffer": png(25_000, 25_000)})
    page.wait_for_selector(f".toast:has-text('{too_large}')")
    page.evaluate("for (const toast of document.querySelectorAll('.toast')) toast.remove()")
    page.evaluate(
        "() => { HTMLCanvasElement.prototype.toBlob = (done) => done(null); }"
    )  # as without memory for the canvas
    page.set_input_files("#photo-file", {"name": "a.jpg", "mimeType": "image/jpeg", "buffer": photo(SKY)})
    page.wait_for_selector(f".toast:has-text('{too_large}')")


def test_the_camera_takes_a_photograph_and_is_let_go(page):
    kind(page, "photos")
    page.click("#camera")
    page.wait_for_selector("#camera-view:not([hidden])")
    page.wait_for_function("() => document.getElementById('camera-view').videoWidth > 0")
    page.click("#camera")
    page.wait_for_selector("#photo-shown:not([hidden])")
    assert page.locator("#camera-view").is_hidden()
    name(page, "test picture")
    page.click("#camera")
    page.wait_for_selector("#camera-view:not([hidden])")
    kind(page, "text")
    assert page.evaluate("() => document.getElementById('camera-view').srcObject") is None


def test_sentences_are_recognised_as_they_are_written(page):
    kind(page, "text")
    assert page.inner_text("#verdict-label") == "Write a sentence."
    for sentence, label in (("fly by plane", "fly"), ("money in my account", "money")):
        page.fill("#sentence", sentence)
        page.press("#sentence", "Enter")
        page.keyboard.type(label)
        page.keyboard.press("Enter")
        page.wait_for_selector(f'.class[data-label="{label}"]')
    assert page.locator(".thumb.words p").all_inner_texts() == ["fly by plane", "money in my account"]
    page.fill("#sentence", "a plane ticket")
    assert verdict(page) == "fly"
    page.click("#right")
    until(page, ".thumb", 3)
    assert page.inner_text("#sentence") == ""
    page.fill("#sentence", "good morning")
    page.wait_for_selector("#answer.unknown")
    page.click("#undo")
    until(page, ".thumb", 2)
    assert page.input_value("#sentence") == "a plane ticket", "what was taught comes back with the undo"


PASTE = """(text) => {
  const held = new DataTransfer();
  held.setData("text/plain", text);
  const area = document.getElementById("sentence");
  area.focus();
  area.dispatchEvent(new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData: held }));
  document.execCommand("insertText", false, text);
}"""
COMPOSE = """(key) => document.getElementById("sentence").dispatchEvent(
  new KeyboardEvent("keydown", { key, isComposing: true, bubbles: true, cancelable: true }))"""


def test_a_sentence_that_is_too_long_is_cut_and_said(page):
    kind(page, "text")
    page.evaluate(PASTE, "a" * 9_000)
    assert page.locator(".toast").count() == 0
    page.evaluate(PASTE, "money " * 200_000)
    page.wait_for_selector(".toast:has-text('at most 10,000 characters. The rest was cut off.')")
    assert len(page.input_value("#sentence")) == 10_000


def test_keys_that_compose_a_word_do_nothing_else(page):
    kind(page, "text")
    page.fill("#sentence", "\u304b\u306d")
    for key in ("Enter", "Escape"):
        assert page.evaluate(COMPOSE, key), "left to the keyboard's language"
        assert page.evaluate("document.activeElement.id") == "sentence"
    assert page.input_value("#sentence") == "\u304b\u306d"


STRANGE = [
    "<img src=x onerror=alert(1)>",
    "a\0b \u202emoney\u202c",
    "\u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f467 money",
    "zero\u200bwidth \ufeff money",
]


def test_strange_sentences_and_names_are_shown_as_they_are_and_never_run(page):
    kind(page, "text")
    page.on("dialog", lambda dialog: page.complaints.append("a script ran"))
    for number, sentence in enumerate(STRANGE):
        page.fill("#sentence", sentence)
        name(page, f"<b>{number}</b>")
    shown = page.locator(".thumb.words p").evaluate_all("(all) => all.map((one) => one.textContent)")
    assert shown == STRANGE
    assert labels(page) == [f"<b>{number}</b>" for number in range(len(STRANGE))]
    page.fill("#sentence", "half")
    page.evaluate("() => { document.getElementById('sentence').value += String.fromCharCode(0xd800); }")
    page.fill("#name", "half ")
    page.evaluate("() => { document.getElementById('name').value += String.fromCharCode(0xd83d); }")
    page.press("#name", "Enter")
    until(page, ".thumb", len(STRANGE) + 1)
    assert labels(page)[-1] == "half \ufffd"
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator(".thumb.words p").last.text_content() == "half\ufffd"
    page.fill("#sentence", " \u200b\u2060 ")
    page.fill("#name", "\u200b")
    page.press("#name", "Enter")
    page.wait_for_selector(".toast:has-text('no character')")
    refused = [line for line in page.complaints if "422" in line]
    assert refused == page.complaints
    page.complaints.clear()


def test_every_kind_has_a_memory_of_its_own(page):
    teach(page, "moon", circle())
    kind(page, "text")
    until(page, ".class", 0)
    page.fill("#sentence", "fly")
    name(page, "fly")
    kind(page, "drawings")
    page.wait_for_selector('.class[data-label="moon"]')
    page.click("#open-tasks")
    page.locator(".open-task", has_text="1 sentence").first.click()
    page.wait_for_selector('body[data-kind="text"] .class[data-label="fly"]')
    assert labels(page) == ["fly"]


def test_a_server_of_drawings_alone_asks_for_nothing_else(browser, tmp_path):
    with serving(tmp_path) as base:
        page = open_page(browser, base)
        assert page.is_hidden("#kinds")
        page.evaluate(HAND_OVER, ["paste", base64.b64encode(photo(SAND)).decode()])
        page.wait_for_selector(".toast:has-text('does not take photographs')")
        assert page.get_attribute("body", "data-kind") == "drawings"
        assert page.complaints == []
        page.context.close()
