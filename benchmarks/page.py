"""The response of the exported page while one draws: from a movement to its answer, and between answers.

Chromium opens the page from a file, with a sample alphabet in its memory, and a mouse draws circles. A movement asks
for an answer if none is pending and the last request is old enough (100 ms, or twice the time of the last answer).
The response is measured by the clock, so it depends on the load of the machine. processor_ms does not: it is the
processor time of the page's main thread per answer, drawing included.

    python benchmarks/page.py [--model characters] [--seconds 10] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from csn.cli.main import main as csn
from csn.engine.checkpoint import write_atomically
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes

NAMES = ("chromium", "chromium-browser", "google-chrome")
STEP = 16  # ms between movements
MEASURE = """
  window.took = [];
  let moved = 0, asked = null;
  addEventListener("pointermove", ({ timeStamp }) => (moved = timeStamp), true);
  addEventListener("pointerdown", () => (asked = null), true);
  const { toBlob } = HTMLCanvasElement.prototype; // the drawing becomes a picture: the question begins
  HTMLCanvasElement.prototype.toBlob = function (...rest) { asked ??= moved; toBlob.apply(this, rest); };
  addEventListener("DOMContentLoaded", () => {
    const answer = document.getElementById("answer");
    new MutationObserver(() => {
      if (asked === null || !answer.classList.contains("live")) return;
      took.push([asked, performance.now()]);
      asked = null;
    }).observe(answer, { attributes: true, childList: true, subtree: true });
  });
"""


def draw(page: Page, seconds: float) -> tuple[np.ndarray, float]:
    """The times at which each answer was requested and shown, (answers, 2) in ms, and seconds of processor time."""
    page.locator("#empty-samples .sample").first.click()
    page.locator(".thumb").nth(15).wait_for()
    box = page.locator("#paper").bounding_box()
    assert box is not None
    until, turn = time.monotonic() + seconds, 0.0
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")

    def busy() -> float:
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime"))

    before = busy()
    while time.monotonic() < until:
        turn += 0.08
        x, y = 0.5 + 0.3 * math.cos(turn), 0.5 + 0.3 * math.sin(turn)
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        page.wait_for_timeout(STEP)
    spent = busy() - before
    page.mouse.up()
    return np.array(page.evaluate("took")), spent


def measured(model: str, seconds: float) -> tuple[np.ndarray, float]:
    """Measure a page that is exported for this purpose."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        csn(["export", model, "--to", "page", "--out", str(file)])
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = opened.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page.set_default_timeout(120_000)
        page.add_init_script(MEASURE)
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        found = draw(page, seconds)
        opened.close()
    return found


def main() -> None:
    """Measure and print; with --out also a JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="characters")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    times, spent = measured(options.model, options.seconds)
    waits, between = times[:, 1] - times[:, 0], np.diff(times[:, 1])
    row: dict[str, Any] = {"answers": len(times), "load": load, "least_ms": float(waits.min())}
    row["processor_ms"] = 1000 * spent / len(times)
    for share in (50, 95):
        row[f"p{share}_ms"] = float(np.percentile(waits, share))
        row[f"between_p{share}_ms"] = float(np.percentile(between, share))
    print(json.dumps(row, indent=1))
    if options.out:
        result = {"benchmark": "page", "seconds": options.seconds, "rows": [row], **origin("benchmarks/page.py")}
        write_atomically(options.out, json_bytes(result))


if __name__ == "__main__":
    main()
