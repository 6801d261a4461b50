"""The memory of a classifier that answers from keys: one vector per example, and a head that reads them.

A memory is never changed in place. Learning and forgetting make a new one, so a reader in another thread keeps the one
it has. `m` queries, `n` remembered examples, `d` numbers in a key, `C` classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.classifier.heads import Head
from csn.core.repeated import CSNHead, class_sums

Embed = Callable[[Tensor], Tensor]
OTHERS, FEW_CLASSES = 0.75, 8  # the weight of the other classes in `similarity`: at most, and half of it at 9 classes
FOLDS, FEW = 5, 1000  # parts of a memory for `held_out_similarity`; a memory of more than FEW examples has two


class KeyMemory:
    """Keys and labels, and the prepared inputs if they are kept.

    Args:
        head: Answers from the keys.
        keys: One key per example. None for a key that is computed when it is first needed.
        labels: One label per example.
        names: One name per example, e.g. its file.
        inputs: One prepared input (*input) per example, or nothing.
        embed: Computes the keys of inputs.
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
        """(n, d) the keys of the examples."""
        for i, key in enumerate(self._keys):
            if key is None:
                assert self.embed is not None
                self._keys[i] = self.embed(self.inputs[i][None])[0]  # one at a time: a batch may differ in the last bit
        return torch.stack(self._keys) if self._keys else torch.empty(0, 0)  # type: ignore[arg-type]

    @cached_property
    def _unit(self) -> Tensor:
        return F.normalize(self.keys, dim=-1)

    def _like_keys(self, queries: Tensor) -> Tensor:
        """Queries in the precision of the keys. Raises ValueError if their size differs."""
        if queries.shape[1] != self.keys.shape[1]:
            raise ValueError(
                f"the encoder gives {queries.shape[1]} numbers, the remembered keys have {self.keys.shape[1]}: give "
                f"the encoder that they were made with"
            )
        return queries.to(self.keys.dtype)

    def _units(self, queries: Tensor) -> Tensor:
        """Queries scaled to length 1, in the precision of the keys."""
        return F.normalize(self._like_keys(queries), dim=-1)

    @cached_property
    def _sums(self) -> Tensor:
        """(C, d) the sum of the unit keys of each class."""
        return class_sums(self._unit, self.numbers, len(self.order))

    @cached_property
    def numbers(self) -> Tensor:
        """(n,) the class of each example, as its index in `order`."""
        number = {label: c for c, label in enumerate(self.order)}
        return torch.tensor([number[label] for label in self.labels])

    @cached_property
    def task(self) -> Any:
        """The head's description of the examples."""
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
        """(m,) how well each query fits its best class, less a share of how well it fits the other classes on average.

        A query fits a class by the cosine to its mean plus a share of the head's shift. Nothing is centred. Few
        examples of a class say little about shifts, and few other classes say little about what a query has in common
        with all of them, so both shares grow with these numbers. If the head has no shifts, the cosine alone counts.
        """
        fits = self._units(queries) @ F.normalize(self._sums, dim=-1).T
        n, way = len(self), len(self.order)
        if isinstance(self.head, CSNHead) and n > way > 1:
            fits = fits + (1 - way / n) * self.head.shifts(self._like_keys(queries), self.task)
        best = fits.amax(-1)
        return best - OTHERS / (way - 1 + FEW_CLASSES) * (fits.sum(-1) - best)

    def nearest(self, queries: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and indices of the most similar examples, most similar first: (m, count) each."""
        if not 1 <= count <= len(self):
            raise ValueError(f"n_neighbors must be from 1 to the {len(self)} remembered examples, got {count}")
        found = (self._units(queries) @ self._unit.T).topk(count, dim=-1)
        return found.values.numpy(), found.indices.numpy()

    def pushes(self, queries: Tensor) -> list[dict[int, float]]:
        """For each query: how far every example moved the answer's logit above the mean logit."""
        best = self.logits(queries).argmax(-1).tolist()
        if len(self.order) == 1:
            return [dict(enumerate((query @ self._unit.T).tolist())) for query in self._units(queries)]
        queries = self._like_keys(queries)
        found = [self.head.pushes(query, self.task, c) for query, c in zip(queries, best, strict=True)]
        return [{} if pushes is None else dict(enumerate(pushes.tolist())) for pushes in found]

    @cached_property
    def held_out_similarity(self) -> np.ndarray:
        """For every example of a class with two or more: its similarity to a memory without it.

        The examples of each class are dealt out to `FOLDS` parts. Each part is compared with a memory of the others.
        """
        folds = FOLDS if len(self) <= FEW else 2
        seen: Counter[int] = Counter()
        part = []
        for c in self.numbers.tolist():
            part.append(seen[c] % folds)
            seen[c] += 1
        found = []
        for fold in range(min(folds, max(seen.values(), default=0))):
            out = [i for i, c in enumerate(self.numbers.tolist()) if part[i] == fold and seen[c] > 1]
            rest = self.kept(set(range(len(self))) - set(out))
            found.append(rest.similarity(self.keys[out]).numpy())
        return np.concatenate(found) if found else np.empty(0)
