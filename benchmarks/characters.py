"""Ship the best model of a run as the weights of the package, and measure it as people will use it.

    csn train characters --out runs/characters
    python benchmarks/characters.py runs/characters
    python benchmarks/characters.py runs/characters --time --out results/benchmarks/characters-time.json

The thresholds for unknown inputs are found on the validation alphabets and written into the file. Everything is then
measured on the evaluation alphabets by the head of `FewShotClassifier`, with one view of each drawing. The last
command only measures the processor time of a prediction by the whole learner.
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
from rich.table import Table
from torch import Tensor

import unknown
from csn.classifier.heads import make_head
from csn.classifier.keyed import KeyMemory
from csn.classifier.pretrained import SUFFIX, open_shipped
from csn.core.repeated import HeadOptions
from csn.data.alphabets import WithinAlphabet
from csn.data.registry import load_data
from csn.data.source import Dataset, EpisodeSource, Split, as_input
from csn.engine.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from csn.engine.evaluate import EVALUATION_SEED, Accuracy, summarise
from csn.engine.origin import origin
from csn.engine.run import open_model
from csn.learner import FewShotLearner
from encoded_sets import Vectors

NAME, DATA = "characters", "omniglot-background"
WEIGHTS = Path(__file__).parents[1] / "src" / "csn" / "classifier" / "weights"
MOST_BYTES = 3_000_000
WAYS, SHOTS, QUERIES = (5, 20, 30, 50, 100), (1, 5), 5


def ship(run: Path, data: Dataset) -> dict[str, float]:
    """Write the weights with their thresholds. Return the thresholds."""
    tensors, metadata = load_checkpoint(run / f"best{SUFFIX}")
    tensors = {name: halved(tensor) for name, tensor in tensors.items()}
    with tempfile.TemporaryDirectory() as folder:  # calibrate exactly the weights that are shipped
        save_checkpoint(Path(folder) / "halved", tensors, metadata)
        learner, _, _ = open_model(Path(folder) / "halved")
    thresholds = found_on(keys_of(learner, data, "val"), data)
    metadata |= {"unknown_thresholds": thresholds}
    metadata |= {**json.loads((run / "origin.json").read_text())}
    path = WEIGHTS / f"{NAME}{SUFFIX}"
    save_checkpoint(path, tensors, metadata)
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}: use fewer filters")
    return thresholds


def found_on(keys: Tensor, data: Dataset) -> dict[str, float]:
    """By examples per class: the threshold that `unknown.py` finds on the keys of the validation alphabets."""
    split = data.splits["val"]
    found = unknown.thresholds(Vectors(keys, np.repeat(np.array(split.names), split.counts), HeadOptions()))
    return {str(shot): threshold for shot, threshold in found.items()}


def halved(tensor: Tensor) -> Tensor:
    """Matrices and filters in half precision. Statistics, scales and biases keep theirs."""
    return tensor.half() if tensor.is_floating_point() and tensor.ndim > 1 else tensor


@torch.inference_mode()
def keys_of(learner: FewShotLearner[Any], data: Dataset, split: Split) -> Tensor:
    """The keys of all drawings of the split, (drawings, d)."""
    parts = [learner.embed(as_input(x)) for x in data.splits[split].x.split(80)]
    return torch.cat([part for part in parts if part is not None])


def similarities(
    keys: Tensor, data: Dataset, split: Split, way: int, shot: int, tasks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Similarities of known and unknown drawings, (tasks, way * QUERIES) each, after learning `way` classes."""
    source = EpisodeSource(data, split, way=2 * way, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
    labels, found = np.arange(way).repeat(shot).tolist(), []
    for index in range(tasks):
        support, query = source.batch_rows(index, 1)
        memory = KeyMemory(make_head("csn"), list(keys[support[0, : way * shot]]), labels, [None] * len(labels))
        found.append(memory.similarity(keys[query[0]]).numpy())
    return np.stack(found)[:, : way * QUERIES], np.stack(found)[:, way * QUERIES :]


def unknowns(keys: Tensor, data: Dataset, threshold: float, way: int, shot: int, tasks: int) -> dict[str, Accuracy]:
    """Known drawings kept and unknown ones caught at a threshold, on the evaluation alphabets."""
    known, unknown = similarities(keys, data, "test", way, shot, tasks)
    return {
        "kept": summarise((known >= threshold).mean(1).tolist()),
        "caught": summarise((unknown < threshold).mean(1).tolist()),
    }


def accuracies(keys: Tensor, source: EpisodeSource, tasks: int) -> list[float]:
    """The accuracy of the classifier's head on each task."""
    head, labels, found = make_head("csn"), torch.arange(source.way), []
    for index in range(tasks):
        support, query = source.batch_rows(index, 1)
        task = head.describe(keys[support[0]], labels.repeat_interleave(source.shot), source.way)
        right = head.predict(keys[query[0]], task).argmax(-1) == labels.repeat_interleave(source.queries)
        found.append(float(right.double().mean()))
    return found


def measured(keys: Tensor, data: Dataset, tasks: int) -> list[dict[str, Any]]:
    """The accuracy for every size of tasks, over all alphabets, and for 20 ways also within one alphabet."""
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        for shot in SHOTS:
            for kind in (EpisodeSource, WithinAlphabet) if way <= 20 else (EpisodeSource,):
                source = kind(data, "test", way=way, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
                count = tasks if way <= 20 else tasks // 4
                sampling = "within-alphabet" if kind is WithinAlphabet else "random"
                accuracy = summarise(accuracies(keys, source, count))
                rows.append({"way": way, "shot": shot, "sampling": sampling, "tasks": count, "accuracy": accuracy})
    return rows


def milliseconds(data: Dataset) -> float:
    """Median processor time of learning five examples and answering one query, in one thread, by both networks."""
    learner, _ = open_shipped(NAME)
    episode = EpisodeSource(data, "test", way=5, shot=1, queries=1, seed=EVALUATION_SEED).batch(0, 1)
    times = []
    with torch.inference_mode():
        for _ in range(200):
            started = time.process_time()
            learner.predict(episode.query.x[:, :1], learner.describe(episode.support))
            times.append(time.process_time() - started)
    return 1000 * statistics.median(times)


def main() -> None:
    """Ship, measure, print and write results/benchmarks/characters.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the trained run")
    parser.add_argument("--tasks", type=int, default=400, help="tasks up to 20 ways; a quarter above (default: 400)")
    parser.add_argument("--time", action="store_true", help="only measure the time of the weights in place")
    parser.add_argument("--measure", action="store_true", help="only measure the weights in place")
    about = "only find the thresholds again, and write them into the weights in place"
    parser.add_argument("--calibrate", action="store_true", help=about)
    folder = Path("results/benchmarks")
    parser.add_argument("--out", type=Path, default=folder / "characters.json", help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data(DATA)
    if options.time:
        _write(options.out, {"rows": [{"tasks": "5w1s, one query", "milliseconds": round(milliseconds(data), 2)}]})
        return
    if options.calibrate:
        tensors, metadata = load_checkpoint(WEIGHTS / f"{NAME}{SUFFIX}")
        metadata["unknown_thresholds"] = found_on(keys_of(open_shipped(NAME)[0], data, "val"), data)
        save_checkpoint(WEIGHTS / f"{NAME}{SUFFIX}", tensors, metadata)
        return
    if not options.measure:
        ship(options.run, data)
    learner, _ = open_shipped(NAME)
    thresholds = load_checkpoint(WEIGHTS / f"{NAME}{SUFFIX}")[1]["unknown_thresholds"]
    keys = keys_of(learner, data, "test")
    rows = measured(keys, data, options.tasks)
    figures = {
        f"{way}w{shot}s": unknowns(keys, data, thresholds[str(shot)], way, shot, options.tasks)
        for way in (5, 20)
        for shot in SHOTS
    }
    table = Table("tasks", "accuracy, 95 % interval", title=f"FewShotClassifier({NAME!r}) on unseen alphabets")
    for row in rows:
        within = ", within alphabet" if row["sampling"] == "within-alphabet" else ""
        table.add_row(f"{row['way']}-way {row['shot']}-shot{within}", str(row["accuracy"]))
    for tasks, found in figures.items():
        table.add_row(f"{tasks}: known kept / unknown caught", f"{found['kept']} / {found['caught']}")
    Console().print(table)
    _write(options.out, {"rows": rows, "unknown": {"thresholds": thresholds, "tasks": figures}})


def _write(path: Path, content: dict[str, Any]) -> None:
    content |= origin("python benchmarks/characters.py")
    write_atomically(path, (json.dumps(content, indent=1, default=str) + "\n").encode())


if __name__ == "__main__":
    main()
