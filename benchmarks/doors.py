"""The cost of csn's interfaces: the classifier, an answer of the service, and a user's own training loop.

All times are processor times of one thread. Contenders take turns within one process. Ratios:

- `explain` and a request of the service, against `predict_proba` and against a bare pass of the learner;
- `predict_proba` of 25 queries at 80 classes against 20, in a tournament of a learner of 20 ways;
- `fit` of a task after the first one, in milliseconds, for the shipped weights;
- a request to `/predict`, client and server together, against a bare pass of the shipped weights;
- a step of a user's own loop against a step of `csn train`.

    python benchmarks/doors.py [--repeats 9] [--out FILE]
"""

from __future__ import annotations

import argparse
import functools
import http.client
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import csn
import service
from csn.classifier.classifier import FewShotClassifier
from csn.config import load_preset, merge
from csn.data.registry import load_data
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import task_accuracies
from csn.engine.optimizing import build_optimizer
from csn.engine.origin import origin
from csn.engine.reports import StepReport, ValidationReport
from csn.engine.run import new_trainer
from csn.episode import Examples
from csn.experiments.records.files import json_bytes
from csn.learner import FewShotLearner, InputSpec
from csn.service.app import create_app
from csn.service.limits import Limits
from csn.service.server import bind, server
from overhead import interleaved

WAY, QUERIES = 5, 25
SPEC = InputSpec((1, 28, 28))


def learner_of(way: int) -> FewShotLearner[Any]:
    """An untrained adaCNN of recipe plus. The time does not depend on its weights."""
    torch.manual_seed(0)
    config = merge(load_preset("adacnn-df", "plus"), {"data": {"way": way}})
    return csn.build(config.learner, reads=SPEC, way=way, network=config.network, key=config.key).eval()


def drawings(count: int) -> np.ndarray:
    """Drawings as bytes: one bar of ink each, on paper that is almost blank."""
    x = np.random.default_rng(0).integers(0, 3, (count, 28, 28), dtype=np.uint8)
    for index, image in enumerate(x):
        image[6:22, 3 + index % 20 : 6 + index % 20] = 250
    return 255 - x


def classifier_steps() -> dict[str, Callable[[], object]]:
    """A bare pass of one query, and the classifier's answers to one query."""
    learner = learner_of(WAY)
    classifier = FewShotClassifier(learner=learner, unknown_threshold=0.5)
    classifier.fit(drawings(WAY), np.arange(WAY))
    x, one = torch.rand(1, 1, *SPEC.shape), drawings(1)
    with torch.no_grad():
        support = Examples(torch.rand(1, WAY, *SPEC.shape), torch.arange(WAY)[None])
        task = learner.describe(support, WAY)

    def bare() -> object:
        with torch.no_grad():
            return learner.predict(x, task)

    return {
        "bare": bare,
        "predict_proba": lambda: classifier.predict_proba(one),
        "explain": lambda: classifier.explain(one),
    }


def tournament_steps() -> dict[str, Callable[[], object]]:
    """The same queries at 20 and at 80 classes."""
    x, steps, learner = drawings(QUERIES), {}, learner_of(20)
    for classes in (20, 80):
        classifier = FewShotClassifier(learner=learner).fit(drawings(classes), np.arange(classes))
        steps[f"{classes} classes"] = lambda classifier=classifier: classifier.predict_proba(x)
    return steps


def fit_steps() -> dict[str, Callable[[], object]]:
    """A task of five drawings with the shipped weights, and only the keys of five drawings."""
    x, y = drawings(WAY), np.arange(WAY)
    classifier = FewShotClassifier().fit(x, y)
    return {"fit": lambda: FewShotClassifier().fit(x, y), "transform": lambda: classifier.transform(x)}


@contextmanager
def request_steps() -> Iterator[dict[str, Callable[[], object]]]:
    """A request with one picture to a server in a thread, and a bare pass of the same learner."""
    classifier, limits = FewShotClassifier(unknown_threshold=0.5), Limits(requests_per_second=0)
    files, x = service.drawings()
    learner = classifier.blank().learner_
    with torch.no_grad():
        memory = learner.describe(Examples(x[None, ::2], torch.arange(WAY)[None]))

    def bare() -> object:
        with torch.no_grad():
            return learner.predict(x[None, :1], memory)

    with tempfile.TemporaryDirectory() as folder, bind("127.0.0.1", 0) as listener:
        running = server(create_app(classifier, Path(folder), limits=limits), limits)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1])
        task = service.call(connection, "POST", "/api/tasks", b"{}", "application/json")["id"]
        for number, file in enumerate(files[::2]):
            service.call(connection, "POST", f"/api/tasks/{task}/examples?label={number}", file, "image/png")
        path = f"/api/tasks/{task}/predict"
        try:
            yield {
                "shipped bare": bare,
                "request": lambda: service.call(connection, "POST", path, files[1], "image/png"),
            }
        finally:
            connection.close()
            running.should_exit = True
            thread.join()


def _note(clock: list[float], report: StepReport | ValidationReport) -> None:
    if isinstance(report, StepReport):
        clock.append(time.process_time())


def training_times(repeats: int) -> dict[str, list[float]]:
    """Seconds of a step of 5-way 1-shot training (recipe paper): `csn train`'s loop and a user's loop, in turns."""
    data, steps = load_data("strokes"), 20
    times: dict[str, list[float]] = {"command line": [], "library": []}
    config = merge(load_preset("adacnn-df"), {"train": {"tasks": steps * 2, "validate_every": 10**6}})
    for _ in range(repeats):
        clock: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            trainer = new_trainer(config, data, Path(folder) / "run", device=torch.device("cpu"))
            trainer.run(functools.partial(_note, clock))
        times["command line"].append((clock[2 * steps - 1] - clock[steps - 1]) / steps)
        torch.manual_seed(0)
        learner = csn.build(config.learner, reads=SPEC, way=WAY, network=config.network, key=config.key).train()
        source = csn.EpisodeSource(data, "train", way=WAY, shot=1, queries=config.data.queries, seed=0)
        optimizer = build_optimizer(learner, config.train)
        for index in range(2 * steps):
            if index == steps:
                started = time.process_time()
            optimizer.zero_grad()
            episode = source.batch(index, 1)
            output = learner(episode)
            output.loss.backward()
            torch.nn.utils.clip_grad_value_(learner.parameters(), 10.0)
            optimizer.step()
            float(output.loss.detach()), task_accuracies(output.logits, episode.query.y)
        times["library"].append((time.process_time() - started) / steps)
    return times


RATIOS = (
    ("explain", "predict_proba"),
    ("predict_proba", "bare"),
    ("explain", "bare"),
    ("80 classes", "20 classes"),
    ("fit", "transform"),
    ("request", "shipped bare"),
    ("library", "command line"),
)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/doors.json"), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {}
    for steps in (classifier_steps(), tournament_steps(), fit_steps()):
        times |= interleaved(steps, options.repeats, time.process_time, 0.05)  # type: ignore[arg-type]
    with request_steps() as steps:
        times |= interleaved(steps, options.repeats, time.process_time, 0.05)  # type: ignore[arg-type]
    times |= training_times(max(3, options.repeats // 2))
    rows = []
    table = Table("what", "ms", "ratio to", "median (quartiles)")
    for what, to in RATIOS:
        ratios = [one / other for one, other in zip(times[what], times[to], strict=True)]
        low, middle, high = (round(quartile, 3) for quartile in statistics.quantiles(ratios, n=4))
        milliseconds = round(1000 * statistics.median(times[what]), 2)
        rows.append({"what": what, "ms": milliseconds, "to": to, "ratio": [low, middle, high]})
        table.add_row(what, f"{milliseconds:.2f}", to, f"{middle:.2f} ({low:.2f} - {high:.2f})")
    Console().print(table)
    made = {"rows": rows, "repeats": options.repeats, "clock": "cpu", **origin("python benchmarks/doors.py")}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, json_bytes(made))


if __name__ == "__main__":
    main()
