"""Class-indexed examples, and episodes drawn from them. Episode i depends only on (seed, split, i)."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from csn.episode import Episode, Examples, SupportOf
from csn.learner import InputSpec
from csn.networks.sentences import known

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class ClassExamples:
    """Examples grouped by class.

    x: (examples, *input), uint8 images (0 is background) or any tensor, used unchanged. The rows of class c are
        consecutive and follow those of class c - 1.
    counts: (classes,) the number of rows of each class.
    names: a unique name for each class.
    device: the device on which examples are needed; None for the device of x.
    """

    x: Tensor
    counts: np.ndarray
    names: tuple[str, ...]
    device: torch.device | None = None

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.names) or int(self.counts.sum()) != len(self.x):
            raise ValueError(
                f"every row must belong to one named class, got {len(self.names)} names, {len(self.counts)} counts "
                f"that sum to {int(self.counts.sum())}, and {len(self.x)} rows"
            )
        if len(set(self.names)) != len(self.names):
            raise ValueError("class names must be unique within a split")

    def __len__(self) -> int:
        """The number of classes."""
        return len(self.names)

    def at(self, rows: Tensor | np.ndarray) -> Tensor:
        """The examples of these rows on the device, in the form that networks read: rows (...) -> (..., *input)."""
        picked = self.x[torch.as_tensor(rows).to(self.x.device)]
        if self.device is not None and self.device != picked.device:
            picked = picked.pin_memory() if self.device.type == "cuda" else picked
            picked = picked.to(self.device, non_blocking=True)  # bytes are a quarter of the size of float32
        return as_input(picked)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of names, counts and examples. Two splits with the same fingerprint have the same contents.

        All words out of vocabulary count as one word, because networks read them as one.
        """
        digest = hashlib.sha256(json.dumps([self.names, self.counts.tolist(), list(self.x.shape)]).encode())
        for rows in self.x.split(1000):
            digest.update((known(rows) if rows.dtype == torch.int64 else rows).contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Dataset:
    """Named train, val and test classes. No class is in two splits.

    vocabulary: the word of each word number; None if examples are not sentences.
    """

    name: str
    splits: Mapping[Split, ClassExamples]
    vocabulary: tuple[str, ...] | None = None

    @property
    def input_spec(self) -> InputSpec:
        """The input of a learner for these data."""
        vocabulary = None if self.vocabulary is None else len(self.vocabulary)
        return InputSpec(tuple(self.splits["train"].x.shape[1:]), vocabulary)

    def __post_init__(self) -> None:
        seen: dict[str, Split] = {}
        for split, classes in self.splits.items():
            for name in classes.names:
                if name in seen:
                    raise ValueError(f"class {name!r} of {self.name} is in both {seen[name]!r} and {split!r}")
                seen[name] = split


class EpisodeSource:
    """Draws `way`-way, `shot`-shot tasks with `queries` unseen examples per class from one split of a data set.

    Args:
        data: The data set.
        split: The split whose classes are used.
        way: Classes per task.
        shot: Support examples per class.
        queries: Queries per class.
        seed: Seed of the draws.
        support: "words" gives the names of the classes instead of examples, as (tasks, examples, 1) word numbers.
    """

    def __init__(
        self,
        data: Dataset,
        split: Split,
        *,
        way: int,
        shot: int,
        queries: int,
        seed: int,
        support: SupportOf = "examples",
    ) -> None:
        if split not in data.splits:
            raise ValueError(f"{data.name} has the splits {sorted(data.splits)}, got {split!r}")
        if way < 2 or shot < 1 or queries < 1:
            raise ValueError(f"a task needs way >= 2, shot >= 1 and queries >= 1, got {way}, {shot} and {queries}")
        classes = data.splits[split]
        needed = shot + queries
        eligible = np.flatnonzero(classes.counts >= needed)
        if len(eligible) < way:
            raise ValueError(
                f"{way}-way {shot}-shot tasks with {queries} queries a class need {way} classes of {needed} examples; "
                f"split {split!r} of {data.name} has {len(classes)} classes, {len(eligible)} of them large enough"
            )
        self.data, self.split, self.classes = data, split, classes
        self.way, self.shot, self.queries, self.seed = way, shot, queries, seed
        self._eligible = eligible
        self._starts = np.concatenate([[0], np.cumsum(classes.counts)[:-1]])
        self._words = _class_words(data, classes) if support == "words" else None
        self._form()

    @property
    def tells_words(self) -> bool:
        """Whether a support holds the names of its classes instead of examples."""
        return self._words is not None

    def _form(self) -> None:
        """Prepare how tasks choose their classes. Subclasses override it together with `_draw_classes`."""

    def rows(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the rows of the support (way, shot) and of the queries (way, queries) of episode `index`."""
        rng = np.random.default_rng([self.seed, SPLITS.index(self.split), index])
        chosen = self._draw_classes(rng, index)
        counts = self.classes.counts[chosen]
        # Sorting a random key per example draws without replacement from every class at once.
        keys = rng.random((self.way, int(counts.max())))
        keys[np.arange(keys.shape[1]) >= counts[:, None]] = np.inf
        picked = keys.argsort(axis=1)[:, : self.shot + self.queries] + self._starts[chosen][:, None]
        return picked[:, : self.shot], picked[:, self.shot :]

    def _draw_classes(self, rng: np.random.Generator, index: int) -> np.ndarray:
        """Draw the classes of episode `index`, (way,)."""
        return rng.choice(self._eligible, self.way, replace=False)

    def class_names(self, index: int) -> list[str]:
        """Names of the classes of episode `index`, in the order of their labels."""
        if index < 0:
            raise ValueError(f"episodes are counted from 0, got {index}")
        places = np.searchsorted(self._starts, self.rows(index)[0][:, 0], side="right") - 1
        return [self.classes.names[place] for place in places]

    def batch(self, first: int, tasks: int, part: slice = slice(None)) -> Episode:
        """Return episodes first ... first + tasks - 1, or a part, as a batch. Label j is the j-th drawn class."""
        indices = range(first, first + tasks)[part]
        first, tasks = indices.start, len(indices)
        support, query = self.batch_rows(first, tasks)
        return Episode(
            Examples(self._shown(support), self.labels(tasks, self.shot)),
            Examples(self.examples(query), self.labels(tasks, self.queries)),
            self.way,
            check=self.classes.x.dtype != torch.uint8,  # bytes are always finite, so no device has to check
        )

    def batch_rows(self, first: int, tasks: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the supports (tasks, examples) and the queries of the same episodes, class by class."""
        drawn = [self.rows(index) for index in range(first, first + tasks)]
        support, query = (np.stack(rows).reshape(tasks, -1) for rows in zip(*drawn, strict=True))
        return support, query

    def labels(self, tasks: int, each: int) -> Tensor:
        """The labels (tasks, examples) of tasks with `each` examples per class."""
        return torch.arange(self.way).expand(tasks, self.way).repeat_interleave(each, dim=1)

    def _shown(self, rows: np.ndarray) -> Tensor:
        """The support: examples, or (tasks, examples, 1) words."""
        return self.examples(rows) if self._words is None else self._words[torch.from_numpy(rows)].unsqueeze(-1)

    def examples(self, rows: np.ndarray) -> Tensor:
        """Rows of any shape -> (..., *input)."""
        return self.classes.at(rows)


def as_input(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Convert examples for networks: bytes become numbers in [0, 1], other tensors stay unchanged."""
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x


def _class_words(data: Dataset, classes: ClassExamples) -> Tensor:
    """The number of each example's class name in the vocabulary, (examples,)."""
    ids = {word: number for number, word in enumerate(data.vocabulary or ())}
    unknown = [name for name in classes.names if name not in ids]
    if unknown:
        raise ValueError(
            f"a support cannot be told in words: {len(unknown)} of {len(classes)} classes of {data.name} are not in "
            f"its vocabulary ({', '.join(unknown[:3])}, ...); load the text with vocabulary='all'"
        )
    return torch.tensor([ids[name] for name in classes.names]).repeat_interleave(torch.from_numpy(classes.counts))
