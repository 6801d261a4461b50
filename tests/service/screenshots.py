"""Pictures of the page for the documentation: light, dark and at a phone's width.

python tests/service/screenshots.py [--run RUN] [--out docs/images]
"""

from __future__ import annotations

import argparse
import io
import math
import tempfile
from pathlib import Path

from browser import draw, launched, open_page, teach
from kit import Strokes, serving
from PIL import Image
from playwright.sync_api import Page

from csn.classifier.classifier import FewShotClassifier
from csn.engine.checkpoint import write_atomically
from csn.service.classroom import Access
from csn.service.unknowns import default_threshold


def curve(count: int, x: object, y: object) -> list[tuple[float, float]]:
    """Points of a curve, t from 0 to 1."""
    return [(x(t / count), y(t / count)) for t in range(count + 1)]  # type: ignore[operator]


def moon(s: float = 0.0) -> Strokes:
    """A crescent: two arcs between the same horns."""
    outer = curve(36, lambda t: 0.46 - 0.3 * math.cos(4.2 * (t - 0.5)), lambda t: 0.5 + 0.3 * math.sin(4.2 * (t - 0.5)))
    (x, top), (_, bottom) = outer[0], outer[-1]
    inner = curve(
        24,
        lambda t: x - (0.2 + s) * math.sin(math.pi * t) ** 0.8,
        lambda t: bottom + (top - bottom) * (1 - math.cos(math.pi * t)) / 2,
    )
    return [[*outer, *inner]]


def star(s: float = 0.0) -> Strokes:
    return [[(0.5 + s, 0.2), (0.66, 0.76), (0.2 + s, 0.42), (0.8, 0.4 + s), (0.33, 0.77), (0.5 + s, 0.2)]]


def wave(s: float = 0.0) -> Strokes:
    return [
        curve(40, lambda t: 0.16 + 0.68 * t, lambda t: 0.42 + (0.08 + s) * math.sin(12.6 * t)),
        curve(40, lambda t: 0.16 + 0.68 * t, lambda t: 0.6 + (0.08 + s) * math.sin(12.6 * t)),
    ]


def house(s: float = 0.0) -> Strokes:
    walls = [(0.27, 0.46), (0.28, 0.78), (0.73, 0.77 + s), (0.72, 0.46)]
    return [[(0.17, 0.5), (0.5 + s, 0.2), (0.83, 0.5)], walls, [(0.45, 0.77), (0.45, 0.6), (0.57, 0.6), (0.57, 0.77)]]


def leaf(s: float = 0.0) -> Strokes:
    side = curve(20, lambda t: 0.25 + 0.5 * t, lambda t: 0.75 - 0.5 * t - (0.2 + s) * math.sin(math.pi * t))
    other = curve(20, lambda t: 0.75 - 0.5 * t, lambda t: 0.25 + 0.5 * t + (0.16 + s) * math.sin(math.pi * t))
    return [[*side, *other], [(0.18, 0.82), (0.56, 0.44)]]


def key(s: float = 0.0) -> Strokes:
    ring = curve(24, lambda t: 0.33 + 0.13 * math.sin(6.3 * t), lambda t: 0.5 - (0.13 + s) * math.cos(6.3 * t))
    return [ring, [(0.46, 0.5), (0.82, 0.5), (0.82, 0.62 + s)], [(0.7, 0.5), (0.7, 0.6)]]


TAUGHT = [("moon", moon()), ("star", star()), ("wave", wave()), ("house", house()), ("leaf", leaf()), ("key", key())]
TAUGHT += [("leaf", leaf(0.04)), ("wave", wave(0.02)), ("star", star(0.03)), ("moon", moon(-0.03))]
SCREENS = {
    "page_light": {"viewport": {"width": 1120, "height": 790}, "color_scheme": "light", "device_scale_factor": 1.5},
    "page_dark": {"viewport": {"width": 1120, "height": 790}, "color_scheme": "dark", "device_scale_factor": 1.5},
    "page_phone": {"viewport": {"width": 390, "height": 800}, "color_scheme": "light", "device_scale_factor": 2},
}


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path, help="a trained run instead of the packaged weights")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    model = FewShotClassifier(run=options.run)
    model.unknown_threshold = default_threshold(model)
    take_class(model, options.out / "page_class.png")
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), model=model) as base, launched() as browser:
        for name, screen in SCREENS.items():
            page = open_page(browser, base, **screen)
            _save(page.screenshot(), options.out / f"{name}_empty.png") if name == "page_light" else None
            for label, strokes in TAUGHT:
                teach(page, label, strokes)
            draw(page, leaf(-0.05))
            page.wait_for_selector("#answer.known:not(.live)")
            _let_settle(page)
            _save(page.screenshot(), options.out / f"{name}.png")
            page.context.close()


def take_class(model: FewShotClassifier, path: Path) -> None:
    """The teacher's screen: two names wait, and a drawing is recognised."""
    access = Access("teacher", "h7kq2m9x", "http://192.168.1.23:8765")
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), model=model, access=access) as base,
        launched() as browser,
    ):
        page = open_page(browser, f"{base}/#token={access.teacher}", viewport={"width": 1280, "height": 800})
        phone = open_page(browser, f"{base}/#token={access.phones}", viewport={"width": 390, "height": 844})
        for label, strokes in TAUGHT[:5]:
            teach(page, label, strokes)
        for label, strokes in (("key", key()), ("key", key(0.01)), ("ripple", wave(0.03))):
            draw(phone, strokes)
            phone.fill("#name", label)
            phone.press("#name", "Enter")
            phone.wait_for_selector("#clear", state="hidden")
        page.wait_for_selector('#waiting [data-label="ripple"]')
        draw(page, leaf(-0.05))
        page.wait_for_selector("#answer.known:not(.live)")
        _let_settle(page)
        _save(page.screenshot(), path)


def _let_settle(page: Page) -> None:
    """Wait until nothing moves any more, then show the ink as dark as it was drawn."""
    page.wait_for_timeout(1500)
    page.evaluate("document.activeElement.blur(); document.getElementById('paper').classList.remove('settled')")
    page.wait_for_timeout(500)


def _save(content: bytes, path: Path) -> None:
    """As a PNG of 128 colours: small, and no eye sees the difference."""
    file = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").quantize(128).save(file, "PNG", optimize=True)
    write_atomically(path, file.getvalue())


if __name__ == "__main__":
    main()
