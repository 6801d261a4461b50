"""The page in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TIMEOUT = 60_000  # ms: a busy machine is slow, not wrong
ANSWERED = "#answer.known:not(.live), #answer.unknown:not(.live)"  # with the pen lifted
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The browser that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched(*more: str) -> Iterator[Browser]:
    """A headless browser; more: arguments of its command."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", *more])
        yield browser
        browser.close()


def open_page(browser: Browser, address: str, *, init: str = "", **options: Any) -> Page:
    """The page, ready; `init` is a script that runs before it. Whatever it complains about is in `page.complaints`."""
    context = browser.new_context(**{"reduced_motion": "reduce", "viewport": {"width": 1100, "height": 760}} | options)
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    page.add_init_script(init or "0")
    page.complaints = []  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: page.complaints.append(str(error)))  # type: ignore[attr-defined]
    page.on("console", lambda line: page.complaints.append(line.text) if line.type == "error" else None)  # type: ignore[attr-defined]
    page.goto(address)
    page.wait_for_selector("html[data-ready]", state="attached")
    return page


def on_paper(page: Page, stroke: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a stroke on the screen."""
    box = page.locator("#paper").bounding_box()
    assert box is not None
    return [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]


def pen_down(page: Page, places: Sequence[tuple[float, float]], steps: int) -> None:
    """Draw through these places with the mouse, and keep its button pressed."""
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=steps)


def draw(page: Page, strokes: Sequence[Sequence[tuple[float, float]]]) -> None:
    """With the mouse."""
    for stroke in strokes:
        pen_down(page, on_paper(page, stroke), steps=2 if len(stroke) > 8 else 8)
        page.mouse.up()


def until(page: Page, selector: str, count: int) -> None:
    """Wait until there are so many. (The page's security policy lets nobody wait by evaluating text.)"""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=TIMEOUT)


def teach(page: Page, label: str, strokes: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Draw, name, and wait until it is remembered."""
    before = page.locator(".thumb").count()
    draw(page, strokes)
    page.fill("#name", label)
    page.press("#name", "Enter")
    until(page, ".thumb", before + 1)


def answer(page: Page, strokes: Sequence[Sequence[tuple[float, float]]]) -> str:
    """Draw on clear paper; what the page says it is."""
    page.keyboard.press("Escape")
    page.wait_for_selector("#answer.guide")
    draw(page, strokes)
    page.wait_for_selector(ANSWERED)
    return page.inner_text("#verdict-label")


def labels(page: Page) -> list[str]:
    """The classes in memory."""
    return page.locator(".class-head bdi").all_inner_texts()
