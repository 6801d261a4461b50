"""axe-core finds nothing to object to, in light and dark, on a phone and on a screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import ANSWERED, chromium, draw, launched, open_page, teach, until
from kit import circle, cross, serving, wave

import npm
from csn.cli.main import main
from csn.service.classroom import Access

pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
if chromium() is None:
    pytest.skip("the browser test needs chromium: apt-get install chromium", allow_module_level=True)

RUN = "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]))"

FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    modules = npm.install("axe-core", tmp_path_factory.mktemp("axe"))
    return (modules / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "characters.html"
    assert main(["export", "characters", "--to", "page", "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(axe, file, theme, width):
    with launched() as browser:
        page = open_page(browser, file.as_uri(), color_scheme=theme, viewport={"width": width, "height": 800})
        page.evaluate(axe)
        assert page.evaluate(RUN) == [], "nothing is remembered"
        page.locator("#empty-samples .sample").first.click()
        until(page, ".thumb", 16)
        page.locator("#paper").scroll_into_view_if_needed()
        draw(page, circle(0.02))
        page.wait_for_selector(ANSWERED)
        page.click("#look")
        page.wait_for_selector("#neurons svg")
        assert page.evaluate(RUN) == [], "an answer with its neurons"
        assert page.evaluate(FITS), "nothing sticks out"
        for name in ("samples", "tasks", "help"):
            page.click(f"#open-{name}")
            page.wait_for_selector(f"#{name}-dialog[open]")
            assert page.evaluate(RUN) == [], name
            page.keyboard.press("Escape")
        page.context.close()


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation_in_a_class(axe, tmp_path, theme, width):
    access = Access("teacher", "abcdefgh", "http://192.168.1.5:8765")
    screen = {"color_scheme": theme, "viewport": {"width": width, "height": 800}}
    hand = {"color_scheme": theme, "viewport": {"width": min(width, 390), "height": 800}, "has_touch": True}
    with serving(tmp_path, access=access) as base, launched() as browser:
        teacher = open_page(browser, f"{base}/#token={access.teacher}", **screen)
        phone = open_page(browser, f"{base}/#token={access.phones}", **hand)
        for page in (teacher, phone):
            page.evaluate(axe)
            assert page.evaluate(RUN) == [], "nothing is remembered"
        teach(teacher, "moon", circle())
        for label, strokes in (
            ("kiss", cross()),
            ("kiss", cross(0.02)),
            ("a wave with a name as long as a line", wave()),
        ):
            draw(phone, strokes)
            phone.fill("#name", label)
            phone.press("#name", "Enter")
            phone.wait_for_selector("#clear", state="hidden")
        assert phone.evaluate(RUN) == [], "the phone says that the teacher is asked"
        until(teacher, "#waiting li", 2)
        until(teacher, "#waiting img", 3)
        assert teacher.evaluate(RUN) == [], "names wait"
        until(phone, ".thumb", 1)
        for page in (teacher, phone):
            draw(page, circle(0.02))
            page.wait_for_selector(ANSWERED)
            assert page.evaluate(RUN) == [], "an answer"
            assert page.evaluate(FITS), "nothing sticks out"
            page.context.close()
