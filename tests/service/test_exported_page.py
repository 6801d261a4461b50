"""The page without a server, opened from a file: it learns what is drawn, and answers as torch does."""

from __future__ import annotations

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import torch
from browser import ANSWERED, answer, chromium, labels, launched, open_page, teach
from kit import circle, cross

from csn import building
from csn.classifier.classifier import FewShotClassifier
from csn.classifier.neurons import neuron_shift
from csn.classifier.pretrained import open_shipped, shipped_threshold
from csn.cli.main import main
from csn.core.model import CSN
from csn.data.images.omniglot import load_omniglot
from csn.data.images.strokes import load_strokes
from csn.episode import Examples
from csn.export.page import export_page, page_model
from csn.networks.cnn import CNNOptions
from csn.networks.ffn import FFNOptions
from csn.networks.resnet import ResNetOptions
from csn.service.samples import alphabets

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright", reason="the browser test needs playwright: pip install playwright")
if chromium() is None:
    pytest.skip("the browser test needs chromium: apt-get install chromium", allow_module_level=True)

LOGITS = """async ([inks, tasks]) => {
  const { Learner } = await import("csn/learner.js");
  const learner = new Learner(JSON.parse(document.getElementById("model").textContent));
  const all = inks.map((ink, id) => ({ id, label: "", ink: Uint8Array.from(ink) }));
  return tasks.map(({ support, labels, queries }) =>
    queries.map((query) => Array.from(learner.logits(all[query], support.map((i) => all[i]), labels))));
}"""
WAY, TASKS = 5, 200
CLASSES, EACH = 20, 6  # that tasks are drawn from: a page remembers the key of a drawing


def drawings() -> tuple[torch.Tensor, int]:
    """Drawings of evaluation classes, (classes * each, 28 * 28) bytes, and how many of each class.

    Those of Omniglot's evaluation alphabets where they are, else made-up characters.
    """
    if (Path(os.environ.get("CSN_DATA", "nowhere")) / "omniglot").is_dir():
        data, there = load_omniglot(protocol="background"), 20
    else:
        data, there = load_strokes(alphabets=10, characters=10, drawings=EACH), EACH
    x = data.splits["test"].x.reshape(-1, there, 28 * 28)
    some = x[:: max(1, len(x) // CLASSES)][:CLASSES, :EACH]  # of all alphabets
    return some.flatten(0, 1), EACH


def tasks_of(count: int, each: int) -> list[dict[str, list[int]]]:
    """Tasks over drawings that are numbered class by class."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(TASKS):
        classes = torch.randperm(count // each, generator=generator)[:WAY].tolist()
        orders = [torch.randperm(each, generator=generator).tolist() for _ in classes]
        support = [c * each + order[0] for c, order in zip(classes, orders, strict=True)]
        queries = [c * each + order[1] for c, order in zip(classes, orders, strict=True)]
        found.append({"support": support, "labels": list(range(WAY)), "queries": queries})
    return found


def answers_of_torch(learner: CSN, inks: torch.Tensor, tasks: list[dict[str, list[int]]]) -> torch.Tensor:
    """Logits (tasks * queries, way) at the learner's full way, as the classifier asks for them."""
    x = inks.reshape(-1, 1, 28, 28).float() / 255
    found = []
    with torch.no_grad():
        for task in tasks:
            memory = learner.describe(Examples(x[task["support"]][None], torch.tensor([task["labels"]])), learner.way)
            found.append(learner.predict(x[task["queries"]][None], memory)[0])
    return torch.cat(found)


def logits_of(page: Page, inks: torch.Tensor, tasks: list[dict[str, list[int]]]) -> torch.Tensor:
    return torch.tensor(page.evaluate(LOGITS, [inks.tolist(), tasks])).flatten(0, 1)


SIMILARITIES = """async ([tasks]) => {
  const { Learner } = await import("csn/learner.js");
  window.learner ??= new Learner(JSON.parse(document.getElementById("model").textContent));
  return tasks.map(([examples, queries]) => {
    const some = examples.map((one) => ({ ...one, ink: Uint8Array.from(one.ink) }));
    const found = queries.map((ink) => window.learner.explain(Uint8Array.from(ink), some));
    return { threshold: window.learner.threshold(some), similarities: found.map(({ similarity }) => similarity) };
  });
}"""


def similarities(classifier: FewShotClassifier, page: Page, *, atol: float) -> list[tuple[float | None, float | None]]:
    """Ask a page and a classifier about tasks of 1, 2 and 5 examples of a class, and about one of unequal classes.

    The similarities must be equal. Returned are the thresholds of both.
    """
    inks, each = drawings()
    x = inks.reshape(-1, each, 28, 28)
    asked, expected, thresholds = x[:9, -1], [], []
    supports = [[(c, i) for c in range(6) for i in range(shots)] for shots in (1, 2, 5)]
    supports.append([(0, i) for i in range(5)] + [(c, 0) for c in range(1, 4)])
    supports.append([(0, i) for i in range(3)])  # one class alone
    tasks = []
    for support in supports:
        rows = [{"id": f"{c} {i}", "label": f"{c}", "ink": x[c, i].flatten().tolist()} for c, i in support]
        tasks.append([rows, asked.flatten(1).tolist()])
        classifier.fit(torch.stack([x[c, i] for c, i in support]).numpy(), [f"{c}" for c, _ in support])
        expected.append(classifier.similarity(asked.numpy()))
        thresholds.append(classifier.threshold())
    found = page.evaluate(SIMILARITIES, [tasks])
    for one, values in zip(found, expected, strict=True):
        torch.testing.assert_close(
            torch.tensor(one["similarities"], dtype=torch.float64), torch.from_numpy(values).double(), atol=atol, rtol=0
        )
    return list(zip((one["threshold"] for one in found), thresholds, strict=True))


SHIFTS = """async ([examples, ink]) => {
  const { Learner } = await import("csn/learner.js");
  window.learner ??= new Learner(JSON.parse(document.getElementById("model").textContent));
  const some = examples.map((example) => ({ ...example, ink: Uint8Array.from(example.ink) }));
  return window.learner.shifts(Uint8Array.from(ink), some);
}"""

NO_STORAGE = """Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("denied", "SecurityError"); },
})"""


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


def test_its_answers_on_200_tasks_are_those_of_torch(page):
    learner, _ = open_shipped("characters")
    assert isinstance(learner, CSN)
    inks, each = drawings()
    tasks = tasks_of(len(inks), each)
    expected, found = answers_of_torch(learner, inks, tasks), logits_of(page, inks, tasks)
    kinds = {weight["kind"] for weight in page_model(learner)["described"]}
    same = (found[:, :WAY].argmax(1) == expected[:, :WAY].argmax(1)).double().mean()
    if "int8" in kinds:
        assert same >= 0.995
    else:
        assert same == 1
        torch.testing.assert_close(found, expected, atol=0.01, rtol=0.0)


@pytest.mark.parametrize("network", ["cnn", "cnn as in plus", "resnet", "ffn"])
def test_a_page_of_a_run_of_ones_own_answers_as_torch(browser, tmp_path, network, monkeypatch):
    if network == "ffn":  # as with many examples: one or two passes
        monkeypatch.setattr("csn.export.page.WORK", 2000)
        monkeypatch.setattr("csn.core.repeated.WORK", 2000)
    torch.manual_seed(0)
    options = {
        "cnn": CNNOptions(filters=16),
        "cnn as in plus": CNNOptions(filters=16, norm="batch", shared_stem=True),
        "resnet": ResNetOptions(width=0.125),
        "ffn": FFNOptions(units=32),
    }
    learner = building.build("csn", reads=(1, 28, 28), way=WAY, network=options[network], temperature=10.0).eval()
    assert isinstance(learner, CSN)
    torch.nn.init.normal_(learner.base.output.weight, std=0.3)  # as after some training
    for parameter in learner.parameters():  # what a page carries: rounding a preactivation near 0 flips its gate
        parameter.data = parameter.data.half().float()
    export_page(learner, tmp_path / "own.html", name="own", thresholds={}, about={})
    inks, each = drawings()
    tasks = tasks_of(len(inks), each)[:20]
    opened = open_page(browser, (tmp_path / "own.html").as_uri())
    found, expected = logits_of(opened, inks, tasks), answers_of_torch(learner, inks, tasks)
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0.01)
    thresholds = similarities(FewShotClassifier(learner=learner), opened, atol=1e-3)
    assert {ours for ours, _ in thresholds} == {None}
    opened.context.close()


def test_it_knows_the_unknown_as_the_classifier_does(page):
    own = FewShotClassifier("characters", head="learner", unknown_threshold="calibrated")
    thresholds = similarities(own, page, atol=0.03)  # the page's weights have 8 bits
    assert len({ours for ours, _ in thresholds}) == 3, "they depend on the number of examples"
    for ours, pythons in thresholds:
        assert ours == pytest.approx(pythons, abs=1e-4)


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
            shown = torch.tensor(theirs[when], dtype=exact.dtype)  # JSON has no decimal point in a list of zeros
            torch.testing.assert_close(shown, exact, atol=0.05 * float(exact.abs().max()) + 0.2, rtol=0.05)


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
    assert opened.threshold() == pytest.approx(shipped_threshold("characters"), abs=1e-4)
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


def test_a_browser_without_storage_learns_while_the_page_is_open(browser, file):
    opened = open_page(browser, file.as_uri(), init=NO_STORAGE)
    teach(opened, "moon", circle())
    teach(opened, "kiss", cross())
    assert answer(opened, circle(0.03)) == "moon"
    assert opened.complaints == []
    opened.context.close()


def test_an_introduction_plays_once_and_a_key_ends_it(browser, file):
    opened = open_page(browser, file.as_uri(), reduced_motion="no-preference")
    assert opened.is_visible("#intro")
    opened.keyboard.press("d")
    assert opened.is_hidden("#intro")
    opened.reload()
    opened.wait_for_selector("html[data-ready]", state="attached")
    assert opened.is_hidden("#intro")
    opened.click("#open-help")
    opened.click("#replay")
    assert opened.is_visible("#intro")
    opened.wait_for_selector("#intro", state="hidden")  # by itself
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


RESIZE = """(side) => {
  const { style } = document.getElementById("paper");
  [style.width, style.height] = [side, side];
}"""


def test_a_canvas_of_no_size_draws_nothing_and_breaks_nothing(page):
    teach(page, "moon", circle())
    teach(page, "kiss", cross())
    box = page.locator("#paper").bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in circle(0.02)[0]]
    page.evaluate(RESIZE, "0")
    page.dispatch_event("#paper", "pointerdown", {"clientX": 200, "clientY": 200, "button": 0, "pointerType": "mouse"})
    assert page.is_hidden("#clear"), "nothing was drawn"
    page.evaluate(RESIZE, "")
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:-1]:
        page.mouse.move(*place, steps=2)
    page.evaluate(RESIZE, "0")  # under the pen
    page.mouse.move(*places[-1], steps=2)
    page.mouse.up()
    page.wait_for_selector(ANSWERED)
    assert page.inner_text("#verdict-label") == "moon"
    page.evaluate(RESIZE, "")
