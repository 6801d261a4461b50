"""The page in a real browser: draw, learn, recognise, forget, reload, restart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import ANSWERED, answer, chromium, draw, labels, launched, on_paper, open_page, pen_down, teach, until
from kit import circle, classifier, cross, serving, wave

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.pretrained import shipped_names

pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
if chromium() is None:
    pytest.skip("the browser test needs chromium: apt-get install chromium", allow_module_level=True)


CROSSED = """() => {
  const cards = [...document.querySelectorAll(".class")].map((card) => card.getBoundingClientRect());
  const origin = document.body.getBoundingClientRect();
  return [...document.querySelectorAll("#threads path")].flatMap((path) => {
    const places = Array.from({ length: 400 }, (_, i) => path.getPointAtLength((i / 400) * path.getTotalLength()));
    const inside = ({ x, y }, { left, right, top, bottom }) =>
      x + origin.left > left && x + origin.left < right && y + origin.top > top && y + origin.top < bottom;
    const met = cards.filter((card) => places.some((place) => inside(place, card)));
    return met.length > 1 ? [met.length] : [];
  });
}"""  # how many cards a thread runs through, of those that run through others than their own


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("page")) as base:
        yield base


def test_draw_learn_recognise_forget_reload_and_restart(browser, tmp_path):
    model = FewShotClassifier(unknown_threshold=0.5) if "characters" in shipped_names() else classifier()
    with serving(tmp_path, model=model) as base:
        page = open_page(browser, base)
        assert page.inner_text("#verdict-label") == "Draw a symbol."
        assert page.is_visible("#empty")
        draw(page, circle())
        assert page.inner_text("#verdict-label") == "Now give it a name."
        page.keyboard.press("Escape")
        teach(page, "moon", circle())
        assert page.inner_text("#verdict-label") == "Now draw another symbol."
        assert page.is_hidden("#empty")
        teach(page, "kiss", cross())
        assert answer(page, circle(0.03)) == "moon"
        assert page.locator("#threads path").count() >= 1
        assert page.locator(".class.chosen .class-head").inner_text().startswith("moon")
        assert answer(page, cross(0.03)) == "kiss"
        page.click("#right")  # and this one too
        until(page, ".thumb", 3)
        assert page.inner_text("#count") == "2 symbols, 3 drawings"
        page.locator('.class[data-label="kiss"] .forget').click()
        until(page, ".class", 1)
        page.click("#undo")
        until(page, ".thumb", 3)
        page.locator('.class[data-label="kiss"] .thumb').first.hover()
        page.locator('.class[data-label="kiss"] .thumb button').first.click()
        until(page, ".thumb", 2)
        page.reload()
        page.wait_for_selector("html[data-ready]", state="attached")
        assert labels(page) == ["moon", "kiss"]
        port = int(base.rpartition(":")[2])
    draw(page, circle())
    page.wait_for_selector(".toast:has-text('does not answer')")
    with serving(tmp_path, port, model=model):
        assert answer(page, circle(0.03)) == "moon"
        page.reload()
        page.wait_for_selector("html[data-ready]", state="attached")
        assert labels(page) == ["moon", "kiss"]
        assert answer(page, cross(0.03)) == "kiss"
    page.context.close()


def test_a_drawing_like_none_is_unknown_and_can_be_named(page):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    assert answer(page, wave()) == "unknown"
    assert page.inner_text("#verdict-share") == ""
    assert page.locator("#chances li").count() == 0, "nothing says how sure it would be"
    page.fill("#name", "wave")
    page.click("#teach")
    page.wait_for_selector('.class[data-label="wave"]')
    assert answer(page, wave()) == "wave"


def test_ink_and_memory_have_one_history_newest_first(page):
    teach(page, "moon", circle())
    draw(page, cross())
    page.locator('.class[data-label="moon"] .forget').click()
    until(page, ".class", 0)
    page.keyboard.press("Control+z")  # the latest step comes back first: the class, not a stroke
    until(page, ".class", 1)
    assert page.is_visible("#clear")
    page.keyboard.press("Control+z")
    assert page.is_visible("#clear")
    page.keyboard.press("Control+z")
    assert page.is_hidden("#clear")
    page.keyboard.press("Control+z")  # teaching took the strokes off the paper: undone, they are back
    until(page, ".thumb", 0)
    assert page.is_visible("#clear")
    page.keyboard.press("Control+z")
    assert page.is_hidden("#clear")
    assert page.is_disabled("#undo")


def test_a_message_has_an_undo_of_its_own(page):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    page.locator('.class[data-label="moon"] .forget').click()
    until(page, ".class", 1)
    draw(page, wave())
    page.click(".toast:has-text('Forgot moon') .action")
    until(page, ".class", 2)
    assert page.is_visible("#clear"), "the strokes that came later stay"
    assert labels(page) == ["moon", "kiss"]
    page.locator('.class[data-label="kiss"] .forget').click()
    until(page, ".class", 1)
    page.locator('.class[data-label="moon"] .thumb').hover()
    page.locator('.class[data-label="moon"] .thumb button').click()
    until(page, ".class", 0)
    until(page, ".toast .action", 0)  # it would bring back something else now


def test_answers_come_while_drawing(page):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    page.keyboard.press("Escape")
    places = on_paper(page, circle(0.02)[0])
    pen_down(page, places, steps=4)
    page.mouse.move(*places[0], steps=30)
    page.wait_for_selector("#answer.live")
    assert page.get_attribute("#answer", "aria-busy") == "true"
    page.mouse.up()
    page.wait_for_selector(ANSWERED)
    assert page.get_attribute("#answer", "aria-busy") == "false"


def test_the_neurons_shift_on_demand(page):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    answer(page, circle(0.03))
    assert page.is_hidden("#neurons")
    page.click("#look")
    page.wait_for_selector("#neurons svg")
    assert page.locator("#neurons svg").count() == 2 * 3  # three hidden layers, before and after
    page.wait_for_selector("#neurons rect.more", state="attached")
    page.wait_for_selector("#neurons .recalled img")
    page.keyboard.press("Escape")
    assert page.is_hidden("#neurons")


def test_the_paper_does_not_move_under_the_pen(browser, address):
    page = open_page(browser, address, viewport={"width": 390, "height": 800})
    page.locator("#empty-samples .sample").first.click()
    until(page, ".thumb", 16)
    page.locator("#paper").scroll_into_view_if_needed()
    box = page.locator("#paper").bounding_box()
    pen_down(page, on_paper(page, circle(0.02)[0]), steps=4)
    page.wait_for_selector("#answer.live")
    assert page.locator("#paper").bounding_box() == box
    page.mouse.up()
    page.context.close()


def test_threads_go_round_the_cards(browser, address):
    for width in (390, 1280):
        page = open_page(browser, address, viewport={"width": width, "height": 800})
        page.locator("#empty-samples .sample").first.click()
        until(page, ".thumb", 16)
        page.locator("#paper").scroll_into_view_if_needed()
        draw(page, circle(0.02))
        page.wait_for_selector(ANSWERED)
        assert page.locator("#threads path").count() >= 1
        assert page.evaluate(CROSSED) == []
        page.context.close()


def test_everything_can_be_done_with_the_keyboard_alone(page):
    def sketch(*keys):
        page.keyboard.press("d")
        page.keyboard.press("Space")
        for key, times in keys:
            for _ in range(times):
                page.keyboard.press(key)
        page.keyboard.press("Space")

    sketch(("ArrowRight", 6))
    page.keyboard.press("Enter")
    page.keyboard.type("dash")
    page.keyboard.press("Enter")
    page.wait_for_selector('.class[data-label="dash"]')
    sketch(("ArrowDown", 6))
    page.keyboard.press("n")
    page.keyboard.type("bar")
    page.keyboard.press("Enter")
    page.wait_for_selector('.class[data-label="bar"]')
    sketch(("ArrowUp", 6))
    page.wait_for_selector(ANSWERED)
    assert page.inner_text("#verdict-label") == "bar"
    page.keyboard.press("1")  # no, it belongs to the first class
    until(page, ".class[data-label=dash] .thumb", 2)
    page.locator('.class[data-label="bar"] .forget').focus()
    page.keyboard.press("Delete")
    until(page, ".class", 1)


def test_what_people_type_is_text_and_nothing_else(page):
    nasty = "<img src=x onerror=alert(1)>"
    page.on("dialog", lambda dialog: page.complaints.append("a script ran"))
    teach(page, nasty, circle())
    teach(page, "مرحبا 🌙", cross())
    assert labels(page) == [nasty, "مرحبا 🌙"]
    assert answer(page, circle()) == nasty
    assert page.locator("#answer img, .class-head img").count() == 0


def test_a_task_is_downloaded_left_and_loaded_again(page, tmp_path):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    page.click("#open-tasks")
    with page.expect_download() as waiting:
        page.click("#download")
    file = tmp_path / "moon.csn"
    waiting.value.save_as(file)
    page.click("#new-task")
    page.wait_for_selector("#empty", state="visible")
    page.click("#open-tasks")
    page.set_input_files("#file", file)
    until(page, ".thumb", 2)
    assert labels(page) == ["moon", "kiss"]
    assert answer(page, cross(0.03)) == "kiss"
    Path(file).write_bytes(file.read_bytes()[:500])
    page.click("#open-tasks")
    page.set_input_files("#file", file)
    page.wait_for_selector(".toast:has-text('truncated')")
    page.keyboard.press("Escape")
    assert labels(page) == ["moon", "kiss"]
    page.complaints.clear()  # the refusal itself, which the browser counts as an error


def test_a_sample_alphabet_is_learned_with_one_click(page):
    page.locator("#empty-samples .sample").nth(1).click()
    until(page, ".thumb", 16)
    assert len(labels(page)) == 8


def test_on_a_phone_it_fits_and_a_finger_draws(browser, address):
    page = open_page(
        browser, address, viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True, color_scheme="dark"
    )
    touch = page.context.new_cdp_session(page)
    box = page.locator("#paper").bounding_box()

    def finger(kind, *places):
        points = [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]} for x, y in places]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    finger("touchStart", (0.3, 0.3))
    for step in range(1, 8):
        finger("touchMove", (0.3 + step / 20, 0.3 + step / 20))
    finger("touchEnd")
    page.fill("#name", "stroke")
    page.click("#teach")
    page.wait_for_selector('.class[data-label="stroke"]')
    widths = "[document.documentElement.scrollWidth, innerWidth]"
    assert page.evaluate(f"({widths})[0] <= ({widths})[1]"), "nothing sticks out to the right"
    for button in page.locator("nav button").all():
        size = button.bounding_box()
        assert size["height"] >= 36
        assert size["x"] + size["width"] <= 375
    assert page.complaints == []
    page.context.close()


def test_the_token_comes_with_the_address_or_is_asked_for(browser, tmp_path):
    with serving(tmp_path, token="s3cret") as base:
        page = open_page(browser, f"{base}/#token=s3cret")
        assert page.url == f"{base}/"
        assert page.locator(".sample").count() > 0
        page.context.close()
        context = browser.new_context()
        page = context.new_page()
        page.goto(base)
        page.fill("#token", "s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        assert page.locator(".sample").count() > 0
        context.close()


def test_the_api_is_documented_offline(browser, address):
    page = open_page(browser, f"{address}/docs")
    described = page.evaluate("fetch('/openapi.json').then((answer) => answer.json())")
    operations = sum(len(methods) for methods in described["paths"].values())
    assert page.locator("#operations details").count() == operations
    assert page.locator("#schemas details").count() == len(described["components"]["schemas"])
    page.locator("summary", has_text=re.compile("/explain")).click()
    assert "curl" in page.locator("details[open] pre").inner_text()
    assert page.complaints == []
    page.context.close()
