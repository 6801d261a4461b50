"""What a classifier remembers when it answers from keys: one vector per example, and a head that reads them.

Nothing here is ever changed: learning and forgetting make a new memory, so that a reader in another thread goes on with
the one it has. `m` queries, `n` remembered examples, `d` numbers in a key, `C` classes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.classifier.heads import Head

Embed = Callable[[Tensor], Tensor]


class KeyMemory:
    """Keys, labels and, where the learner's own form of them is kept, inputs.

    inputs: (*input) of every example, or none. embed: makes the key of such an input when it is first needed. names:
    what to call the examples, e.g. their files.
    """

    def __init__(
        self,
        head: Head,
        keys: Sequence[Tensor | None] = (),
        labels: Sequence[Hashable] = (),
        names: Sequence[str | None] = (),
        inputs: Sequence[Tensor] = (),
        embed: Embed | None = None,
    ) -> None:
        self.head, self.labels, self.names = head, tuple(labels), tuple(names)
        self.inputs, self.embed = tuple(inputs), embed
        self._keys = list(keys)
        self.order = list(dict.fromkeys(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    def added(
        self,
        keys: Sequence[Tensor | None],
        labels: Sequence[Hashable],
        names: Sequence[str | None],
        inputs: Sequence[Tensor] = (),
    ) -> KeyMemory:
        """This memory with more examples."""
        return KeyMemory(
            self.head,
            [*self._keys, *keys],
            [*self.labels, *labels],
            [*self.names, *names],
            [*self.inputs, *inputs],
            self.embed,
        )

    def kept(self, indices: Iterable[int]) -> KeyMemory:
        """Only some of the examples."""
        kept = sorted(set(indices))
        inputs = [self.inputs[i] for i in kept] if self.inputs else ()
        return KeyMemory(
            self.head,
            [self._keys[i] for i in kept],
            [self.labels[i] for i in kept],
            [self.names[i] for i in kept],
            inputs,
            self.embed,
        )

    @cached_property
    def keys(self) -> Tensor:
        """(n, d)."""
        for i, key in enumerate(self._keys):
            if key is None:
                assert self.embed is not None
                self._keys[i] = self.embed(self.inputs[i][None])[0]  # alone: a batch may differ in the last bit
        return torch.stack(self._keys) if self._keys else torch.empty(0, 0)  # type: ignore[arg-type]

    @cached_property
    def _unit(self) -> Tensor:
        return F.normalize(self.keys, dim=-1)

    def _like_keys(self, queries: Tensor) -> Tensor:
        """Queries in the precision of the keys; ValueError if they are of another size."""
        if queries.shape[1] != self.keys.shape[1]:
            raise ValueError(
                f"the encoder gives {queries.shape[1]} numbers, what is remembered has {self.keys.shape[1]}: give the "
                f"encoder that it was made with"
            )
        return queries.to(self.keys.dtype)

    def _units(self, queries: Tensor) -> Tensor:
        """Queries at length 1, in the precision of the keys."""
        return F.normalize(self._like_keys(queries), dim=-1)

    @cached_property
    def _sums(self) -> Tensor:
        """(C, d) the sums of the unit keys of every class."""
        return F.one_hot(self.numbers, len(self.order)).to(self._unit.dtype).T @ self._unit

    @cached_property
    def numbers(self) -> Tensor:
        """(n,) the class of each example, its place in `order`."""
        number = {label: c for c, label in enumerate(self.order)}
        return torch.tensor([number[label] for label in self.labels])

    @cached_property
    def task(self) -> Any:
        """What the head makes of the examples."""
        return self.head.describe(self.keys, self.numbers, len(self.order))

    def logits(self, queries: Tensor) -> Tensor:
        """(m, d) -> (m, C), classes in `order`."""
        if len(self.order) == 1:
            return queries.new_zeros(len(queries), 1)
        return self.head.predict(self._like_keys(queries), self.task)

    def log_probabilities(self, queries: Tensor) -> Tensor:
        """(m, d) -> (m, C), classes in `order`."""
        return self.logits(queries).double().log_softmax(-1)

    def similarity(self, queries: Tensor) -> Tensor:
        """(m,) the best cosine between a query and the mean of a class, neither of them centred."""
        return (self._units(queries) @ F.normalize(self._sums, dim=-1).T).amax(-1)

    def nearest(self, queries: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and indices of the most similar examples, best first: (m, count) each."""
        if not 1 <= count <= len(self):
            raise ValueError(f"n_neighbors must be from 1 to the {len(self)} remembered examples, got {count}")
        found = (self._units(queries) @ self._unit.T).topk(count, dim=-1)
        return found.values.numpy(), found.indices.numpy()

    def pushes(self, queries: Tensor) -> list[dict[int, float]]:
        """Of each query: how far every example moved the answer's logit above the mean."""
        best = self.logits(queries).argmax(-1).tolist()
        if len(self.order) == 1:
            return [dict(enumerate((query @ self._unit.T).tolist())) for query in self._units(queries)]
        queries = self._like_keys(queries)
        found = [self.head.pushes(query, self.task, c) for query, c in zip(queries, best, strict=True)]
        return [{} if pushes is None else dict(enumerate(pushes.tolist())) for pushes in found]

    def same_class_similarity(self) -> np.ndarray:
        """Of every example of a class with two or more: the cosine to the mean of the others of its class."""
        others = self._sums[self.numbers] - self._unit
        shared = (self.numbers.bincount() > 1)[self.numbers]
        return (F.normalize(others, dim=-1) * self._unit).sum(-1)[shared].numpy()
