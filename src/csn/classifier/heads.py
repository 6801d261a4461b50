"""Heads: they turn the keys of a few examples into answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.core.repeated import CSNHead, HeadOptions, check_support

HEADS: tuple[str, ...] = ("csn", "centroid", "logistic")


class Head(Protocol):
    """Describes keys (n, d) with labels (n,) as a task, and predicts logits (m, C) for queries (m, d)."""

    def describe(self, keys: Tensor, labels: Tensor, way: int) -> Any:
        """Learn."""

    def predict(self, queries: Tensor, memory: Any) -> Tensor:
        """Answer."""

    def pushes(self, query: Tensor, memory: Any, c: int) -> Tensor | None:
        """(n,) how far each example moved the logit of class c above the mean logit, or None if that is unknown."""


@dataclass(frozen=True)
class LogisticMemory:
    """A fitted logistic regression.

    weight: (C, d).
    bias: (C,).
    keys: (n, d) the unit keys that it was fitted on.
    """

    weight: Tensor
    bias: Tensor
    keys: Tensor


class LogisticHead:
    """Logistic regression on keys of length 1. C is chosen by cross-validation if each class has two examples."""

    strengths = (0.1, 1.0, 10.0, 100.0)

    def describe(self, keys: Tensor, labels: Tensor, way: int) -> LogisticMemory:
        """Choose C, then fit on all examples."""
        from sklearn.linear_model import LogisticRegression

        check_support(keys, labels, way)
        keys = F.normalize(keys, dim=-1)
        x, y = keys.numpy().astype(np.float64), labels.numpy()
        strength = _best_strength(x, y, self.strengths) if int(labels.bincount().min()) > 1 else 10.0
        fitted = LogisticRegression(C=strength, max_iter=1000).fit(x, y)
        weight, bias = (torch.from_numpy(np.asarray(a)).to(keys.dtype) for a in (fitted.coef_, fitted.intercept_))
        if way == 2:  # scikit-learn stores only the difference of the two classes
            weight, bias = torch.cat([-weight / 2, weight / 2]), torch.cat([-bias / 2, bias / 2])
        return LogisticMemory(weight, bias, keys)

    def predict(self, queries: Tensor, memory: LogisticMemory) -> Tensor:
        """(m, d) -> (m, C)."""
        return F.normalize(queries, dim=-1) @ memory.weight.T + memory.bias

    def pushes(self, query: Tensor, memory: LogisticMemory, c: int) -> None:
        """None: the weights of a regression do not tell which examples they come from."""


def _best_strength(x: np.ndarray, y: np.ndarray, strengths: tuple[float, ...]) -> float:
    """The C with the best accuracy in a cross-validation of at most five folds. The smallest C wins ties."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    folds = list(StratifiedKFold(min(5, int(np.bincount(y).min()))).split(x, y))
    right = [
        np.mean([LogisticRegression(C=c, max_iter=1000).fit(x[a], y[a]).score(x[b], y[b]) for a, b in folds])
        for c in strengths
    ]
    return strengths[int(np.argmax(right))]


def make_head(name: str, options: HeadOptions | None = None) -> Head:
    """A head by its name.

    Args:
        name: "csn", "centroid" or "logistic".
        options: The options of the head "csn", or None. The head "centroid" takes its scale from them.
    """
    if name not in HEADS:
        raise ValueError(f"unknown head {name!r}: choose one of {', '.join(HEADS)}")
    if name == "logistic":
        return LogisticHead()
    if name == "centroid":
        return CSNHead(replace(options or HeadOptions(), passes=0, centre=False))
    return CSNHead(options)
