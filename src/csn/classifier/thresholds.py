"""Calibrate the line between known and unknown: a similarity threshold, found on classes held out of training."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csn.classifier.keyed import KeyMemory
from csn.classifier.labels import as_labels
from csn.classifier.parameters import Compares
from csn.core.repeated import CSNHead
from csn.data.source import Dataset, EpisodeSource, Split
from csn.engine.evaluate import EVALUATION_SEED, Accuracy, summarise
from csn.learner import FewShotLearner


class UnknownCalibration(NamedTuple):
    """A threshold and its quality. The shares come with 95 % intervals.

    threshold: the similarity below which an input is unknown.
    kept: share of known queries at or above the threshold.
    caught: share of unknown queries below the threshold.
    """

    threshold: float
    kept: Accuracy
    caught: Accuracy


def calibrate_on_tasks(
    learner: FewShotLearner[Any],
    data: Dataset,
    *,
    way: int = 5,
    shot: int = 1,
    keep: float = 0.95,
    tasks: int = 200,
    queries: int = 5,
    find_on: Split = "val",
    report_on: Split = "test",
    threshold: float | None = None,
    device: torch.device | str = "cpu",
) -> UnknownCalibration:
    """The `unknown_threshold` that keeps a given share of the known queries of `way`-way `shot`-shot tasks.

    Each task draws 2 * way classes. The first half is learned, the second half is unknown.

    Args:
        learner: A learner with keys and attention.
        data: The images.
        way: Learned classes per task.
        shot: Examples per class.
        keep: Share of known queries to keep.
        tasks: Number of tasks, for each split.
        queries: Queries per class.
        find_on: Split on which the threshold is found.
        report_on: Split on which `kept` and `caught` are measured, with intervals over tasks.
        threshold: A threshold to measure. None to find one.
        device: Device of the learner.
    """
    if not 0 < keep < 1:
        raise ValueError(f"keep is a share between 0 and 1, got {keep}")
    if learner.embedding_network is None or not learner.attends:
        raise ValueError(f"{type(learner).__name__} keeps no keys to compare with: unknown inputs need a CSN")
    if threshold is None:
        known, _ = _similarities(learner, data, find_on, way, shot, queries, tasks, device)
        threshold = float(np.quantile(known, 1 - keep))
    known, unknown = _similarities(learner, data, report_on, way, shot, queries, tasks, device)
    kept, caught = (known >= threshold).mean(1), (unknown < threshold).mean(1)
    return UnknownCalibration(threshold, summarise(kept.tolist()), summarise(caught.tolist()))


def calibrate_unknown(classifier: Compares, X: Any, y: Any, *, keep: float = 0.95) -> UnknownCalibration:
    """The `unknown_threshold` that keeps a given share of new examples of the learned classes.

    `kept` and `caught` are measured on the same examples, with intervals over them. `caught` is NaN if none is unknown.

    Args:
        classifier: A fitted classifier.
        X: Examples that it did not learn.
        y: Their labels. An example is unknown if the classifier did not learn its label.
        keep: Share of known examples to keep.
    """
    if not 0 < keep < 1:
        raise ValueError(f"keep is a share between 0 and 1, got {keep}")
    found = classifier.similarity(X)
    classes = set(classifier.labels_.tolist())
    known = np.array([label in classes for label in as_labels(y, len(found))])
    if not known.any():
        raise ValueError("none of these labels was learned: give new examples of the classes that the classifier knows")
    threshold = float(np.quantile(found[known], 1 - keep))
    caught = (found[~known] < threshold).astype(float).tolist()
    kept = (found[known] >= threshold).astype(float).tolist()
    return UnknownCalibration(threshold, _share(kept), _share(caught))


def _share(found: list[float]) -> Accuracy:
    """The mean with its interval. The interval is NaN for fewer than two values."""
    return summarise(found) if len(found) > 1 else Accuracy(found[0] if found else float("nan"), float("nan"))


@torch.no_grad()
def _similarities(
    learner: FewShotLearner[Any],
    data: Dataset,
    split: Split,
    way: int,
    shot: int,
    queries: int,
    tasks: int,
    device: torch.device | str,
) -> tuple[np.ndarray, np.ndarray]:
    """Similarities of the known queries and of the unknown queries, (tasks, way * queries) each."""
    source = EpisodeSource(data, split, way=2 * way, shot=shot, queries=queries, seed=EVALUATION_SEED)
    training = learner.training
    learner.eval()
    known, unknown = [], []
    try:
        for index in range(tasks):
            episode = source.batch(index, 1).to(device)
            labels = episode.support.y[0, : way * shot]
            best = _best(learner, episode.support.x[0, : way * shot], labels, episode.query.x[0])
            known.append(best[: way * queries])
            unknown.append(best[way * queries :])
    finally:
        learner.train(training)
    return np.stack(known), np.stack(unknown)


def _best(learner: FewShotLearner[Any], support: Tensor, labels: Tensor, queries: Tensor) -> np.ndarray:
    """(queries,) how well the key of each query fits its best class."""
    keys = learner.embed(torch.cat([support, queries]))
    assert keys is not None
    keys = keys.cpu()
    memory = KeyMemory(CSNHead(), list(keys[: len(support)]), labels.tolist(), [None] * len(labels))
    return memory.similarity(keys[len(support) :]).numpy()
