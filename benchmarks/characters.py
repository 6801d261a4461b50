"""The weights that come with the package: ship the best model of a run, and measure it as people will use it.

    csn train characters --out runs/characters
    python benchmarks/characters.py runs/characters
    python benchmarks/characters.py runs/characters --time --out results/characters-time.json

The last one only measures the time of a prediction, on a machine with nothing else running.

The threshold for unknown inputs is found on the validation alphabets and written into the file. Everything is then
measured on the evaluation alphabets through `FewShotClassifier`, whose tasks are described for all outputs of the model
at once and which lets more classes than outputs hold a tournament.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.pretrained import SUFFIX
from csn.classifier.thresholds import calibrate_on_tasks
from csn.data.registry import load_data
from csn.data.source import Dataset, EpisodeSource
from csn.engine.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from csn.engine.evaluate import EVALUATION_SEED, Accuracy, summarise
from csn.engine.origin import origin
from csn.engine.run import open_model

NAME, DATA = "characters", "omniglot-background"
WEIGHTS = Path(__file__).parents[1] / "src" / "csn" / "classifier" / "weights"
MOST_BYTES = 3_000_000
WAYS, SHOTS, QUERIES = (5, 20, 30, 50, 100), (1, 5), 2


def ship(run: Path, data: Dataset) -> dict[str, Any]:
    """Write the weights with their threshold; what the threshold does on unseen alphabets."""
    tensors, metadata = load_checkpoint(run / f"best{SUFFIX}")
    tensors = {name: halved(tensor) for name, tensor in tensors.items()}
    with tempfile.TemporaryDirectory() as folder:  # what is shipped is what is calibrated
        save_checkpoint(Path(folder) / "halved", tensors, metadata)
        learner, _, _ = open_model(Path(folder) / "halved")
    found = calibrate_on_tasks(learner, data, way=5, shot=1, tasks=400)
    metadata |= {"unknown_threshold": found.threshold, **json.loads((run / "origin.json").read_text())}
    path = WEIGHTS / f"{NAME}{SUFFIX}"
    save_checkpoint(path, tensors, metadata)
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}: use fewer filters")
    figures = {
        f"{way}w{shot}s": _unknowns(learner, data, found.threshold, way, shot) for way in (5, 20) for shot in SHOTS
    }
    return {"threshold": found.threshold, "tasks": figures}


def halved(tensor: torch.Tensor) -> torch.Tensor:
    """Matrices and filters in half precision; statistics, scales and biases as they are."""
    return tensor.half() if tensor.is_floating_point() and tensor.ndim > 1 else tensor


def _unknowns(learner: Any, data: Dataset, threshold: float, way: int, shot: int) -> dict[str, Accuracy]:
    """Known drawings kept and unknown ones caught at a fixed threshold."""
    found = calibrate_on_tasks(learner, data, way=way, shot=shot, tasks=200, threshold=threshold)
    return {"kept": found.kept, "caught": found.caught}


def classified(data: Dataset, way: int, shot: int, tasks: int) -> list[float]:
    """Accuracy of the classifier on each of some tasks of unseen alphabets."""
    source = EpisodeSource(data, "test", way=way, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
    classifier = FewShotClassifier(NAME)
    accuracies = []
    for index in track(range(tasks), description=f"{way}-way {shot}-shot", transient=True):
        episode = source.batch(index, 1)
        classifier.fit(episode.support.x[0], episode.support.y[0].tolist())
        accuracies.append(float(classifier.score(episode.query.x[0], episode.query.y[0].tolist())))
    return accuracies


def milliseconds(data: Dataset) -> float:
    """Median time of learning five examples and answering one query, in one thread: both phases, one forward pass."""
    learner, _, _ = open_model(WEIGHTS / f"{NAME}{SUFFIX}")
    episode = EpisodeSource(data, "test", way=5, shot=1, queries=1, seed=EVALUATION_SEED).batch(0, 1)
    times = []
    with torch.inference_mode():
        for _ in range(200):
            started = time.perf_counter()
            learner.predict(episode.query.x[:, :1], learner.describe(episode.support))
            times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times)


def main() -> None:
    """Ship, measure, print and write results/characters.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the trained run")
    parser.add_argument("--tasks", type=int, default=400, help="tasks up to 20 ways; a quarter above (default: 400)")
    parser.add_argument("--time", action="store_true", help="only measure the time of the weights in place")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/characters.json"), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = load_data(DATA)
    if options.time:
        _write(options.out, {"rows": [{"tasks": "5w1s, one query", "milliseconds": round(milliseconds(data), 2)}]})
        return
    unknown = ship(options.run, data)
    rows = []
    for way in WAYS:
        for shot in SHOTS:
            accuracies = classified(data, way, shot, options.tasks if way <= 20 else options.tasks // 4)
            rows.append({"way": way, "shot": shot, "tasks": len(accuracies), "accuracy": summarise(accuracies)})
    cost = milliseconds(data)
    table = Table("tasks", "accuracy, 95 % interval", title=f"FewShotClassifier({NAME!r}) on unseen alphabets")
    for row in rows:
        table.add_row(f"{row['way']}-way {row['shot']}-shot", str(row["accuracy"]))
    for tasks, figures in unknown["tasks"].items():
        table.add_row(f"{tasks}: known kept / unknown caught", f"{figures['kept']} / {figures['caught']}")
    table.add_row("5-way 1-shot, one query", f"{cost:.1f} ms")
    Console().print(table)
    _write(options.out, {"rows": rows, "unknown": unknown, "milliseconds": round(cost, 2)})


def _write(path: Path, content: dict[str, Any]) -> None:
    content |= origin("python benchmarks/characters.py")
    write_atomically(path, (json.dumps(content, indent=1, default=_plain) + "\n").encode())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


if __name__ == "__main__":
    main()
