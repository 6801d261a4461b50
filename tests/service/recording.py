"""The page learning a symbol, as a moving picture for README: frames of the real page in a browser.

python tests/service/recording.py [--out docs/images/learning.webp]
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from browser import launched, on_paper, open_page, until
from kit import Strokes, serving
from PIL import Image
from screenshots import house, leaf, moon, star

from csn.classifier.classifier import FewShotClassifier
from csn.engine.checkpoint import write_atomically
from csn.service.unknowns import default_threshold

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCREEN = {"viewport": {"width": 1120, "height": 700}, "color_scheme": "light", "device_scale_factor": 1}
MOST = 1_000_000  # bytes
Frame = tuple[Image.Image, int]  # and how long it stays, in ms


def drawn(page: Page, strokes: Strokes) -> Iterator[Frame]:
    """Draw with the mouse; a frame every few points."""
    for stroke in strokes:
        places = on_paper(page, stroke)
        page.mouse.move(*places[0])
        page.mouse.down()
        for number, place in enumerate(places[1:]):
            page.mouse.move(*place, steps=6)
            if number % max(1, len(places) // 4) == 0:
                yield seen(page), 90
        page.mouse.up()


def seen(page: Page) -> Image.Image:
    """The page as it is now."""
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return whole.resize((800, 500), Image.Resampling.LANCZOS)


def scene(page: Page) -> Iterator[Frame]:
    """Three symbols are taught, one example each; then two are drawn once more, and one that it does not know."""
    yield seen(page), 900
    for number, (label, strokes) in enumerate((("leaf", leaf()), ("moon", moon()), ("star", star())), start=1):
        yield from drawn(page, strokes)
        page.fill("#name", label)
        yield seen(page), 600
        page.press("#name", "Enter")
        until(page, ".thumb", number)
        yield seen(page), 700
    for strokes in (leaf(-0.05), star(0.03), house()):
        page.keyboard.press("Escape")
        page.wait_for_selector("#answer.guide")
        yield from drawn(page, strokes)
        page.wait_for_selector("#answer.known, #answer.unknown")
        page.wait_for_timeout(700)
        yield seen(page), 1800


def main() -> None:
    """Record it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/learning.webp"))
    options = parser.parse_args()
    model = FewShotClassifier()
    model.unknown_threshold = default_threshold(model)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), model=model) as base, launched() as browser:
        frames = list(scene(open_page(browser, base, **SCREEN)))
    file = io.BytesIO()
    (first, _), *rest = frames
    first.save(
        file, "WEBP", save_all=True, append_images=[picture for picture, _ in rest],
        duration=[stays for _, stays in frames], loop=0, quality=70, method=4,
    )  # fmt: skip
    if file.tell() > MOST:
        raise SystemExit(f"the picture has {file.tell():,} bytes, more than {MOST:,}: take fewer frames")
    write_atomically(options.out, file.getvalue())


if __name__ == "__main__":
    main()
