"""The page without a server, opened from a file: it learns what is drawn, and answers as torch does."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch
from browser import answer, chromium, labels, launched, open_page, teach
from kit import circle, cross

from csn import building
from csn.classifier.classifier import FewShotClassifier
from csn.classifier.neurons import neuron_shift
from csn.classifier.pretrained import open_shipped
from csn.cli.main import main
from csn.core.memory import join
from csn.core.model import CSN
from csn.data.images.strokes import load_strokes
from csn.data.source import EpisodeSource
from csn.episode import Examples
from csn.export.page import page_model
from csn.service.samples import alphabets

pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
if chromium() is None:
    pytest.skip("the browser test needs chromium: apt-get install chromium", allow_module_level=True)

LOGITS = """async ([support, queries, outputs]) => {
  const { Learner } = await import("csn/learner.js");
  window.learner ??= new Learner(JSON.parse(document.getElementById("model").textContent));
  const examples = support.map((ink) => ({ id: String(Math.random()), label: "", ink: Uint8Array.from(ink) }));
  return queries.map((ink) => Array.from(window.learner.logits(Uint8Array.from(ink), examples, outputs)));
}"""

SHIFTS = """async ([examples, ink]) => {
  const { Learner } = await import("csn/learner.js");
  window.learner ??= new Learner(JSON.parse(document.getElementById("model").textContent));
  const some = examples.map((example) => ({ ...example, ink: Uint8Array.from(example.ink) }));
  return window.learner.shifts(Uint8Array.from(ink), some);
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "characters.html"
    assert main(["export", "characters", "--to", "page", "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def page(browser, file):
    opened = open_page(browser, file.as_uri())
    yield opened
    assert opened.complaints == []
    opened.context.close()


def test_it_is_one_file_that_asks_for_nothing(file):
    text = file.read_text(encoding="utf-8")
    assert len(text) < 3_000_000
    for asked in ('src="/', 'href="/', "http://", "https://"):
        assert asked not in text.replace("http://www.w3.org/2000/svg", "")


def test_its_logits_and_answers_are_those_of_torch(page):
    learner, _ = open_shipped("characters")
    assert isinstance(learner, CSN)
    kinds = {weight["kind"] for weight in page_model(learner)["described"]}
    tolerance = 0.05 if "int8" in kinds else 0.01  # half precision, or weights of 8 bits
    tasks = EpisodeSource(load_strokes(alphabets=5, characters=8, drawings=3), "test", way=4, shot=2, queries=1, seed=0)
    same = 0
    for index in range(3):
        episode = tasks.batch(index, 1)
        with torch.no_grad():
            support = episode.support
            alone = [Examples(support.x[:, i : i + 1], support.y[:, i : i + 1]) for i in range(len(support))]
            rows = [learner.describe(one, learner.way) for one in alone]
            expected = learner.predict(episode.query.x, join(rows))[0]
        inks, queries = ((255 * part.x[0]).round().int().flatten(1) for part in (episode.support, episode.query))
        found = torch.tensor(page.evaluate(LOGITS, [inks.tolist(), queries.tolist(), episode.support.y[0].tolist()]))
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=0.0)
        same += int((found[:, :4].argmax(1) == expected[:, :4].argmax(1)).sum())
    assert same == 12


def test_its_neurons_shift_as_those_of_torch(page):
    learner, _ = open_shipped("characters")
    assert isinstance(learner, CSN)
    drawings = alphabets()["Shapes"]
    some, query = drawings[:8], drawings[0].x
    expected = neuron_shift(learner, torch.stack([each.x for each in some]), [each.label for each in some], query[None])
    examples = [{"id": str(i), "label": one.label, "ink": one.x.flatten().tolist()} for i, one in enumerate(some)]
    found = page.evaluate(SHIFTS, [examples, query.flatten().tolist()])
    shares = {one["label"]: (one["before"], one["after"]) for one in found["classes"]}
    assert shares.keys() == expected.classes.keys()
    for label, (before, after) in expected.classes.items():
        assert shares[label] == (pytest.approx(before, abs=0.02), pytest.approx(after, abs=0.02))
    for ours, theirs in zip(expected.layers, found["layers"], strict=True):
        for when in ("before", "after"):  # the page's weights have 8 bits
            exact = torch.tensor(getattr(ours, when))
            torch.testing.assert_close(torch.tensor(theirs[when]), exact, atol=0.2, rtol=0.05)


def test_draw_learn_recognise_undo_and_keep(browser, page):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    assert answer(page, circle(0.03)) == "moon"
    assert page.locator("#threads path").count() >= 1
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert labels(page) == ["moon", "kiss"]  # the browser keeps what was taught
    page.locator('.class[data-label="kiss"] .forget').click()
    page.wait_for_selector('.class[data-label="kiss"]', state="detached")
    page.click("#undo")
    page.wait_for_selector('.class[data-label="kiss"]')


def test_task_files_go_both_ways(page, tmp_path):
    teach(page, "Möwe 🕊", circle())
    teach(page, "kiss", cross())
    page.click("#open-tasks")
    with page.expect_download() as download:
        page.click("#download")
    path = tmp_path / "page.csn"
    download.value.save_as(path)
    opened = FewShotClassifier.load(path)
    assert list(opened.labels_) == ["Möwe 🕊", "kiss"]
    assert opened.predict([opened.inputs_[1][0]]).tolist() == ["kiss"]
    opened.save(tmp_path / "python.csn")
    page.set_input_files("#file", tmp_path / "python.csn")
    page.wait_for_selector("text=Loaded 2 symbols")
    assert labels(page) == ["Möwe 🕊", "kiss"]


def test_a_damaged_task_file_is_refused(page, tmp_path):
    drawings = load_strokes(alphabets=5, characters=8, drawings=3).splits["test"].x[:2]
    classifier = FewShotClassifier().fit(drawings, ["a", "b"])
    classifier.save(tmp_path / "task.csn")
    content = bytearray((tmp_path / "task.csn").read_bytes())
    content[-1] ^= 1
    (tmp_path / "task.csn").write_bytes(content)
    page.click("#open-tasks")
    page.set_input_files("#file", tmp_path / "task.csn")
    page.wait_for_selector("text=it was altered after it was written")


def test_as_an_app_it_is_installed_and_opens_offline(browser, tmp_path):
    assert main(["export", "characters", "--to", "page", "--out", str(tmp_path / "site")]) == 0
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        opened = open_page(browser, f"http://127.0.0.1:{server.server_port}/")
        found = opened.evaluate(
            "navigator.serviceWorker.ready.then(() => document.querySelector('[rel=manifest]').href)"
        )
        described = opened.evaluate("(address) => fetch(address).then((answer) => answer.json())", found)
        assert described["display"] == "standalone"
        assert described["icons"]
        devtools = opened.context.new_cdp_session(opened)
        assert devtools.send("Page.getAppManifest")["errors"] == []
        server.shutdown()
    opened.reload()  # nobody serves it any more
    opened.wait_for_selector("html[data-ready]", state="attached")
    teach(opened, "moon", circle())
    assert labels(opened) == ["moon"]
    opened.context.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_what_a_page_cannot_carry_is_refused():
    def of(**options: object) -> CSN:
        return building.build("csn", **{"reads": (1, 28, 28), "way": 3, "network": "cnn", **options})

    with pytest.raises(ValueError, match="a page has no backward pass"):
        page_model(of(conditioning="gradient"))
    with pytest.raises(ValueError, match=r"a page takes drawings of \(1, 28, 28\), this learner reads \(3, 32, 32\)"):
        page_model(of(reads=(3, 32, 32)))
    with pytest.raises(ValueError, match="PrototypicalNetwork cannot be exported"):
        page_model(building.build("prototypical", reads=(1, 28, 28), way=3))
