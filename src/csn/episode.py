"""Examples and Episode: a batch of tasks.

Shape letters, here and everywhere: `b` tasks in the batch, `n` support examples of a task, `m` queries of a task,
`C` ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from typing import Literal

import torch
from torch import Tensor

SupportOf = Literal["examples", "words"]


@dataclass(frozen=True)
class Examples:
    """Labelled examples of a batch of tasks: D_tau, or the queries (x_j, y_j).

    A support may be unbalanced: each class may have any number of examples.

    Args:
        x: (b, n, *input).
        y: (b, n) int64.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.y.ndim != 2 or self.x.shape[:2] != self.y.shape:
            raise ValueError(
                f"examples need x of shape (tasks, examples, *input) and y of shape (tasks, examples); got x "
                f"{tuple(self.x.shape)} and y {tuple(self.y.shape)}. For a single task, add a leading axis: x[None]"
            )
        if self.y.dtype != torch.int64:
            raise ValueError(f"labels must be int64, got {self.y.dtype}: convert them with y.long()")

    def __len__(self) -> int:
        """Examples of each task."""
        return self.y.shape[1]

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on another device."""
        return Examples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Episode:
    """A batch of tasks tau.

    Values are checked once, when an episode is made. Later steps then never wait for a device to check them.

    Args:
        support: The examples that describe the tasks.
        query: The unseen examples.
        way: The number of classes C.
        check: Whether to check the values. False skips the check for values that were checked before.
    """

    support: Examples
    query: Examples
    way: int
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if self.support.x.shape[0] != self.query.x.shape[0]:
            raise ValueError(
                f"support and query must hold the same tasks; got {self.support.x.shape[0]} and {self.query.x.shape[0]}"
            )
        if self.way < 2:
            raise ValueError(f"a task needs 2 or more ways, one for each class; got {self.way}")
        if check:
            for part, what in ((self.support, "labels"), (self.query, "query labels")):
                check_labels(part.y, self.way, what)
                check_finite(part.x)

    @property
    def tasks(self) -> int:
        """The number of tasks b."""
        return self.support.x.shape[0]

    def split(self, tasks: int) -> Iterator[Episode]:
        """Split the batch into episodes of at most this many tasks."""
        if tasks >= self.tasks:
            yield self
            return
        parts = zip(*(t.split(tasks) for e in (self.support, self.query) for t in (e.x, e.y)), strict=True)
        for x, y, query_x, query_y in parts:
            yield Episode(Examples(x, y), Examples(query_x, query_y), self.way, check=False)

    def to(self, device: torch.device | str) -> Episode:
        """The same tasks on another device."""
        return Episode(self.support.to(device), self.query.to(device), self.way, check=False)


def check_examples(examples: Examples, way: int, max_way: int) -> None:
    """Raise ValueError unless `examples` describe `way` classes that a learner of `max_way` outputs can tell apart."""
    check_support(examples, way, max_way)
    check_labels(examples.y, way)
    check_finite(examples.x)


def check_support(support: Examples, way: int, max_way: int) -> None:
    """Check the shapes. The values in the support of an `Episode` have been checked already."""
    check_way(way, max_way)
    if len(support) == 0 or support.x.shape[0] == 0:
        raise ValueError("the support is empty: a task needs at least one labelled example")


def check_labels(y: Tensor, way: int, what: str = "labels") -> None:
    """Raise ValueError unless all labels are among `way` classes. Nothing is checked while torch traces a graph."""
    if y.numel() == 0 or torch.compiler.is_compiling():
        return
    low, high = (int(bound) for bound in y.aminmax())
    if low < 0 or high >= way:
        raise ValueError(f"{what} of a {way}-way task must lie in [0, {way}), got {low} to {high}")


def check_way(way: int, max_way: int) -> None:
    """Raise ValueError unless a learner of `max_way` outputs can tell `way` classes apart."""
    if not 2 <= way <= max_way:
        raise ValueError(
            f"this learner was built for 2 to {max_way} ways, got {way}: use fewer classes or train with a larger way"
        )


def support_way(support: Examples, way: int | None) -> int:
    """`way`, or by default the largest label + 1 (at least 2)."""
    if way is not None:
        return way
    return max(2, int(support.y.max()) + 1) if support.y.numel() else 2


def check_same_tasks(x: Tensor, labels: Tensor) -> None:
    """Raise ValueError unless queries (b, m, *input) belong to the b tasks that were described, labels (b, n)."""
    if x.ndim < 3 or x.shape[0] != labels.shape[0]:
        raise ValueError(
            f"{labels.shape[0]} tasks were described, so queries must be ({labels.shape[0]}, queries, *input); got "
            f"{tuple(x.shape)}"
        )


def check_finite(x: Tensor) -> None:
    """Raise ValueError if x holds NaN or infinity. Nothing is checked while torch traces a graph."""
    if x.is_floating_point() and not torch.compiler.is_compiling() and not bool(torch.isfinite(x).all()):
        raise ValueError("the input holds NaN or infinite values: clean it before describing or predicting")
