"""Compare csn's head with the usual ones on sentences, photographs and drawings: same vectors, same tasks.

    python benchmarks/encoders.py --out results/encoders/encoders.json
    python benchmarks/encoders.py --sets photographs --folder my_photos/ --tasks 20
    python benchmarks/encoders.py --sets intents --models csn --out results/encoders/intents.json   # measure csn again
    python benchmarks/encoders.py --table results/encoders/*.json      # the table of docs/encoders.md

Sets:

- intents: sentences of CLINC150's domains travel, utility and work. Nothing here was chosen on these domains. The
  data set's out-of-scope sentences are the unknown queries.
- photographs: the 20 test classes of tiny_imagenet_fewshot, or the folders of --folder. The 20 classes belong to
  ImageNet, on which the encoder was trained.
- digits, glyphs and doodles: see drawings.py. Their vectors are the keys of the package's weights.

In all sets but intents, the unknown queries come from classes that the task leaves out.

Models:

- nearest: the nearest example by cosine.
- centroid: the nearest class mean by cosine.
- ridge: scikit-learn's ridge classifier, its strength chosen by leave-one-out.
- logistic: logistic regression, its strength chosen by cross-validation within the support.
- network (drawings only): the package's weights answer by their own layers, without csn's head.
- hog (drawings only): logistic regression on histograms of oriented gradients.

`unknown` is the area under the ROC curve of a model's confidence in its best class. csn uses its similarity, nearest
and centroid use cosines, the others probabilities or scores. `seconds` is the processor time to learn and answer one
task, without encoding. With `--models`, the other models of the file at --out are kept: tasks are the same for the same
numbers of ways, shots and tasks. Each model names the commit that it was measured at.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

import drawings
from csn.classifier.classifier import FewShotClassifier
from csn.classifier.heads import LogisticHead, make_head
from csn.classifier.keyed import KeyMemory
from csn.core.repeated import HeadOptions
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import summarise
from csn.engine.origin import commit, origin
from csn.experiments.records.files import json_bytes
from encoded_sets import Vectors, sets

QUERIES, SEED = 10, 20261119
UNKNOWN = 60  # unknown queries per task
SETTINGS = ((5, 1), (5, 5), (10, 5), (20, 5), (0, 5))  # ways and shots; 0 stands for all classes
TASKS = {5: 60, 10: 40, 20: 20, 0: 8}


class Centroid:
    """Cosines to the class means, and logits from them."""

    def __init__(self, x: Tensor, y: Tensor, way: int) -> None:
        self.means = F.normalize(F.one_hot(y, way).to(x.dtype).T @ F.normalize(x, dim=-1), dim=-1)

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (m, way) and confidences (m,)."""
        cosines = F.normalize(q, dim=-1) @ self.means.T
        return cosines, cosines.amax(-1)


class Nearest:
    """Answers with the class of the most similar example."""

    def __init__(self, x: Tensor, y: Tensor, way: int) -> None:
        self.x, self.of = F.normalize(x, dim=-1), F.one_hot(y, way).bool()

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (m, way) and confidences (m,)."""
        cosines = F.normalize(q, dim=-1) @ self.x.T
        best = torch.stack([cosines[:, own].amax(-1) for own in self.of.T], dim=1)
        return best, best.amax(-1)


class Ridge:
    """scikit-learn's ridge classifier on vectors of length 1."""

    def __init__(self, x: Tensor, y: Tensor, way: int) -> None:
        from sklearn.linear_model import RidgeClassifierCV

        self.way = way
        self.fitted = RidgeClassifierCV(alphas=(0.03, 0.1, 0.3, 1.0, 3.0)).fit(
            F.normalize(x, dim=-1).numpy(), y.numpy()
        )

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (m, way) and confidences (m,)."""
        scores = torch.from_numpy(self.fitted.decision_function(F.normalize(q, dim=-1).numpy()))
        return scores, scores.amax(-1)


class Logistic:
    """Logistic regression. Cross-validation chooses its strength."""

    def __init__(self, x: Tensor, y: Tensor, way: int) -> None:
        self.head = LogisticHead()
        self.task = self.head.describe(x, y, way)

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (m, way) and confidences (m,)."""
        proba = self.head.predict(q, self.task).softmax(-1)
        return proba, proba.amax(-1)


def csn_head(options: HeadOptions) -> Callable[[Tensor, Tensor, int], Any]:
    """csn's head with the settings of the classifier."""

    def learn(x: Tensor, y: Tensor, way: int) -> Any:
        memory = KeyMemory(make_head("csn", options), list(x), y.tolist(), [None] * len(y))
        order = torch.tensor(memory.order).argsort()
        return lambda q: (memory.logits(q)[:, order], memory.similarity(q))

    return learn


class Network:
    """The package's weights, which answer through their own layers."""

    def __init__(self, x: Tensor, y: Tensor, way: int) -> None:
        self.classifier = FewShotClassifier(head="learner").blank().recall(x, y.tolist())

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (m, way) and confidences (m,)."""
        memory = self.classifier.memory_
        order = torch.tensor(memory.order).argsort()
        return memory.log_probabilities(q)[:, order], memory.similarity(q)


def measured(
    name: str, data: Vectors, way: int, shot: int, tasks: int, models: list[str] | None = None
) -> dict[str, Any]:
    """Accuracy, AUROC and seconds of every model on the same tasks."""
    classes, rng = np.unique(data.y), np.random.default_rng([SEED, way, shot])
    way = way or len(classes)
    learners: dict[str, Any] = {"csn": csn_head(data.head), "nearest": Nearest, "centroid": Centroid, "ridge": Ridge}
    learners["logistic"] = Logistic
    if data.inputs is not None:
        learners |= {"network": Network, "hog": Logistic}
        if "hog" in (models or learners):
            hog = torch.from_numpy(drawings.hog(data.inputs[:, 0].numpy() / 255)).float()
    found: dict[str, list[list[float]]] = {model: [] for model in models or learners}
    for _ in range(tasks):
        chosen = rng.permutation(classes)[:way]
        places = [rng.permutation(np.flatnonzero(data.y == label))[: shot + QUERIES] for label in chosen]
        support, query = (np.concatenate([p[part] for p in places]) for part in (slice(shot), slice(shot, None)))
        y = torch.arange(way).repeat_interleave(shot)
        truth = torch.tensor([c for c, p in enumerate(places) for _ in p[shot:]])
        others = np.flatnonzero(~np.isin(data.y, chosen))
        unknown = rng.permutation(others if data.unknown is None else len(data.unknown))[:UNKNOWN]
        for model in found:
            x = {"network": data.inputs, "hog": hog if model == "hog" else None}.get(model, data.x)
            assert x is not None
            foreign = x[unknown] if data.unknown is None else data.unknown[unknown]
            started = time.process_time()
            answer = learners[model](x[support], y, way)
            scores, sure = answer(x[query])
            seconds = time.process_time() - started
            right = float((scores.argmax(-1) == truth).double().mean())
            found[model].append([right, auroc(sure, answer(foreign)[1]) if len(unknown) else float("nan"), seconds])
    about = {"set": name, "way": way, "shot": shot, "tasks": tasks}
    return compared(about | {"models": {model: _summary(rows) for model, rows in found.items()}})


def compared(row: dict[str, Any], earlier: dict[str, Any] | None = None) -> dict[str, Any]:
    """A row with each model's mean difference from logistic regression, task by task.

    Args:
        row: What was measured.
        earlier: The content of an earlier file. Models that were not measured again are taken from it.
    """
    for old in earlier["rows"] if earlier is not None else ():
        if all(old[key] == row[key] for key in ("set", "way", "shot", "tasks")):
            kept = {model: {"commit": earlier["commit"]} | found for model, found in old["models"].items()}
            row = row | {"models": kept | row["models"]}
    if "logistic" in row["models"]:
        other = np.array(row["models"]["logistic"]["accuracies"])
        for found in row["models"].values():
            found["over_logistic"] = summarise((np.array(found["accuracies"]) - other).tolist())
    return row


def _summary(rows: list[list[float]]) -> dict[str, Any]:
    accuracy, unknown, seconds = zip(*rows, strict=True)
    summary: dict[str, Any] = {
        "commit": commit(),
        "accuracy": summarise(list(accuracy)),
        "seconds": float(np.median(seconds)),
        "accuracies": [round(a, 6) for a in accuracy],
    }
    if not np.isnan(unknown).any():
        summary["unknown"] = summarise(list(unknown))
    return summary


def auroc(known: Tensor, unknown: Tensor) -> float:
    """The share of pairs of a known and an unknown query in the right order. A tie counts half."""
    k, u = known.double()[:, None], unknown.double()[None, :]
    return float(((k > u).double() + (k == u).double() / 2).mean())


def main() -> None:
    """Measure and print. Write a file if the command asks for one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ("intents", "photographs", *drawings.SETS)
    parser.add_argument("--sets", nargs="+", choices=known, default=list(known), help="default: all")
    parser.add_argument("--folder", type=Path, help="your own photographs, one folder per class")
    every = ("csn", "nearest", "centroid", "ridge", "logistic", "network", "hog")
    parser.add_argument("--models", nargs="+", choices=every, help="only measure these models (default: all)")
    parser.add_argument("--tasks", type=int, help="tasks of each setting (default: 60 of 5 ways, fewer of more ways)")
    parser.add_argument("--time", action="store_true", help="only time the head, on vectors like those of sentences")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="only print result files as a table")
    options = parser.parse_args()
    if options.table:
        print(page(options.table))
        return
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    again = options.models and options.out and options.out.exists()
    earlier = json.loads(options.out.read_text(encoding="utf-8")) if again else None
    if options.time:
        rows = [timed(n, m) for n, m in ((20, 100), (10_000, 1))]
        Console().print(*rows, sep="\n")
    for name, data in sets(options.sets, options.folder).items() if not options.time else ():
        classes = len(np.unique(data.y))
        for way, shot in SETTINGS:
            if way > classes or (way == 0 and (data.inputs is not None or classes in TASKS)):
                continue
            row = measured(name, data, way, shot, options.tasks or TASKS[way], options.models)
            rows.append(compared(row, earlier))
            Console(width=150).print(shown(rows[-1]))
    if options.out:
        about = {"queries": QUERIES, "rows": rows} | origin("python benchmarks/encoders.py")
        write_atomically(options.out, json_bytes(about))


def page(files: list[Path]) -> str:
    """Result files as a table in Markdown: the accuracy, and below it the area under the ROC curve."""
    models = ("csn", "nearest", "centroid", "ridge", "logistic", "network", "hog")
    lines = [f"| tasks | {' | '.join(models)} | csn over logistic |", "|---" * (len(models) + 2) + "|"]
    for file in files:
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            if "models" not in row:
                continue
            cells = [_cell(row["models"].get(model)) for model in models]
            mean, interval = row["models"]["csn"]["over_logistic"]
            name = f"{row['set']}, {row['way']}-way {row['shot']}-shot"
            cells.append(f"{100 * (mean - interval):+.1f} to {100 * (mean + interval):+.1f}")
            lines.append(f"| [{name}](../results/encoders/{file.name}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    accuracy = f"{100 * found['accuracy'][0]:.1f}"
    return f"{accuracy}<br>{100 * found['unknown'][0]:.1f}" if "unknown" in found else accuracy


def timed(count: int, queries: int, size: int = 384, way: int = 20) -> dict[str, Any]:
    """Seconds of one core to learn many vectors and to answer queries. The first answer computes V."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(count + queries, size)).astype(np.float32)
    y = np.arange(count) % min(way, count)
    first, later = [], []
    for _ in range(11 if count < 1000 else 1):
        started = time.process_time()
        classifier = FewShotClassifier(encoder=None).fit(x[:count], y)
        classifier.predict(x[count:])
        first.append(time.process_time() - started)
    for _ in range(11):
        started = time.process_time()
        classifier.predict(x[count:])
        later.append(time.process_time() - started)
    medians = {"learn_and_answer": float(np.median(first)), "answer": float(np.median(later)), "fastest": min(later)}
    return {"examples": count, "queries": queries, "numbers": size, "way": way, "seconds": medians}


def shown(row: dict[str, Any]) -> Table:
    """One setting as a table."""
    title = f"{row['set']}, {row['way']}-way {row['shot']}-shot, {row['tasks']} tasks"
    table = Table("model", "accuracy", "over logistic", "unknown (AUROC)", "seconds", title=title)
    for model, found in row["models"].items():
        shares = (found["accuracy"], found.get("over_logistic", (float("nan"), float("nan"))))
        cells = [f"{100 * mean:.2f} ± {100 * interval:.2f}" for mean, interval in shares]
        table.add_row(
            model, *cells, f"{100 * found['unknown'][0]:.1f}" if "unknown" in found else "", f"{found['seconds']:.4f}"
        )
    return table


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
