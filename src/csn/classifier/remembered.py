"""The examples that a classifier remembers, and the tournament between their classes.

Classes are numbered in the order in which they first appear among the remembered examples. A learner with `way` outputs
separates at most `way` classes in one match. More classes play a tournament: in round r, class i takes the output
(slot) (i // way^r) mod way, and the winners of up to `way` groups meet in round r + 1. Slots depend only on that order,
so a new class does not change the slots of old ones.

`m` queries, `n` remembered examples, `C` classes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from csn.classifier.keyed import KeyMemory
from csn.core.memory import TaskMemory, join, side_by_side
from csn.core.model import CSN
from csn.core.repeated import CSNHead
from csn.data.source import as_input
from csn.episode import Examples
from csn.learner import FewShotLearner

QUERIES_PER_CALL = 128
ROWS_PER_CALL = 2048  # memory rows in one call, summed over queries that have different memories


class _Answer(NamedTuple):
    """The answers to some queries.

    x: the queries (m, *input).
    encoded: their encodings, or None.
    scores: (m, C).
    level: the last round of the tournament.
    finalists: (m, k) the classes in that round.
    """

    x: Tensor
    encoded: list[Tensor] | None
    scores: Tensor
    level: int
    finalists: Tensor


class Remembered:
    """Prepared inputs and labels, and one memory row per example if the learner has a memory. Never changed in place.

    Each example is described alone at the learner's full way, so its row depends only on the example and its slot.
    Learning adds rows, and forgetting drops rows. The rest equals, bit for bit, a memory that never held the forgotten
    examples. Learners without a memory describe the whole support again.
    """

    def __init__(
        self,
        learner: FewShotLearner[Any],
        inputs: Sequence[Tensor] = (),
        labels: Sequence[Hashable] = (),
        names: Sequence[str | None] = (),
        rows: Sequence[dict[int, TaskMemory]] = (),
    ) -> None:
        self.learner = learner
        self.inputs, self.labels, self.names = tuple(inputs), tuple(labels), tuple(names)
        self.order = list(dict.fromkeys(self.labels))
        number = {label: c for c, label in enumerate(self.order)}
        self._rows = list(rows)
        self._numbers = [number[label] for label in self.labels]  # the class of each example
        self._plain: bool | None = None
        self._tasks: dict[tuple[int, tuple[int, ...]], Any] = {}  # cached tasks of the first round
        self._asked: Any = WeakTensorKeyDictionary()  # cached answers, as long as the caller holds the queries
        like = next(iter(learner.parameters()), torch.empty(0))
        self.dtype, self.device = like.dtype, like.device

    def __len__(self) -> int:
        return len(self.labels)

    def added(self, inputs: Tensor, labels: Sequence[Hashable], names: Sequence[str | None]) -> Remembered:
        """This memory with more prepared examples (n, *input)."""
        order = list(dict.fromkeys([*self.labels, *labels]))
        number = {label: c for c, label in enumerate(order)}
        slots = [number[label] % self.learner.way for label in labels]
        plain = self.is_plain(inputs[0]) if len(inputs) else True
        rows = [{} if plain else self._described(x, s) for x, s in zip(inputs, slots, strict=True)]
        return self.restored(inputs, labels, names, rows)

    def restored(
        self,
        inputs: Tensor,
        labels: Sequence[Hashable],
        names: Sequence[str | None],
        rows: Sequence[dict[int, TaskMemory]],
    ) -> Remembered:
        """This memory with examples whose rows are given. Missing rows are made when they are first needed."""
        return Remembered(
            self.learner,
            [*self.inputs, *inputs],
            [*self.labels, *labels],
            [*self.names, *names],
            [*self._rows, *rows],
        )

    def kept(self, indices: Iterable[int]) -> Remembered:
        """Only some of the examples. Those whose slot changes are described again when they are next needed."""
        kept = sorted(set(indices))
        inputs, labels = [self.inputs[i] for i in kept], [self.labels[i] for i in kept]
        left = Remembered(self.learner, inputs, labels, [self.names[i] for i in kept])
        left._rows = [
            {slot: row for slot, row in dict(self._rows[i]).items() if slot in left._slots(c)}
            for c, i in zip(left._numbers, kept, strict=True)
        ]
        return left

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log p of each class, in `order`: prepared queries (m, *input) -> (m, C)."""
        return torch.cat([asked.scores for asked in self._answers(x)]).double().log_softmax(-1)

    def pushes(self, x: Tensor) -> list[dict[int, float]]:
        """For each prepared query: the attention to every example (eq. 3) in the match that decided."""
        if not self.learner.attends:
            raise ValueError(f"{type(self.learner).__name__} has no attention over its examples: explain needs a CSN")
        found = []
        for part, encoded, _, level, finalists in self._answers(x):
            weights = torch.empty(len(part), len(self))
            for chosen in finalists.unique(dim=0):
                who, entrants = (finalists == chosen).all(-1), chosen.tolist()
                weights[who[:, None] & self._is_member(entrants)] = self._attention(part, encoded, who, level, entrants)
            for row, entrants in zip(weights, finalists.tolist(), strict=True):
                members = self._members(entrants)
                found.append(dict(zip(members, row[members].tolist(), strict=True)))
        return found

    def _answers(self, x: Tensor) -> list[_Answer]:
        """The answers to prepared queries. They are computed once and shared by all methods."""
        found: list[_Answer] | None = self._asked.get(x)
        if found is None:
            parts = [(part, self._encoded(part)) for part in as_input(x, self.dtype).split(QUERIES_PER_CALL)]
            found = [_Answer(part, encoded, *self._tournament(part, encoded)) for part, encoded in parts]
            self._asked[x] = found
        return found

    @torch.no_grad()
    def _attention(
        self, x: Tensor, encoded: list[Tensor] | None, who: Tensor, level: int, entrants: Sequence[int]
    ) -> Tensor:
        """The attention to the examples of some classes, for the chosen queries one after the other."""
        task = self._task(level, entrants)
        if encoded is not None and isinstance(self.learner, CSN):
            return self.learner.attend_keys(encoded[0][who], task).cpu().flatten()
        weights = self.learner.attend(x[who][None].to(self.device), task)
        assert weights is not None
        return weights[0].cpu().flatten()

    def _is_member(self, entrants: Sequence[int]) -> Tensor:
        """(n,) whether each example belongs to one of some classes."""
        return torch.isin(torch.tensor(self._numbers), torch.tensor(entrants))

    @torch.no_grad()
    def _encoded(self, x: Tensor) -> list[Tensor] | None:
        """Encodings of the queries that are valid in every match, or None if this learner has none."""
        if not isinstance(self.learner, CSN):
            return None
        return list(self.learner.encode(x.to(self.device)))

    @torch.no_grad()
    def similarity(self, x: Tensor) -> Tensor:
        """How well each prepared query's key fits its best class (csn.classifier.keyed): (m, *input) -> (m,)."""
        compared, network = self._compared, self.learner.embedding_network
        assert network is not None
        if isinstance(self.learner, CSN) and x in self._asked:
            asked = [answer.encoded[0] for answer in self._answers(x) if answer.encoded is not None]
        else:
            asked = [network(part.to(self.device)) for part in as_input(x, self.dtype).split(QUERIES_PER_CALL)]
        return compared.similarity(torch.cat(asked).cpu())

    @property
    def held_out_similarity(self) -> np.ndarray:
        """For every example of a class with two or more: its similarity to a memory without it."""
        return self._compared.held_out_similarity

    @cached_property
    def _compared(self) -> KeyMemory:
        """The keys of the examples under csn's head, which tells known queries from unknown ones."""
        return KeyMemory(CSNHead(), list(self._keys().cpu()), self.labels, self.names)

    @torch.no_grad()
    def _keys(self) -> Tensor:
        """(n, d) the keys of the examples."""
        network = self.learner.embedding_network
        if network is None or not self.learner.attends:
            raise ValueError(f"{type(self.learner).__name__} keeps no keys to compare with: unknown inputs need a CSN")
        if self.is_plain():
            return network(as_input(torch.stack(self.inputs), self.dtype).to(self.device))
        return torch.cat([self.row(i, c % self.learner.way).keys[0] for i, c in enumerate(self._numbers)])

    def row(self, index: int, slot: int) -> TaskMemory:
        """The memory row of an example at an output."""
        rows = self._rows[index]
        if slot not in rows:
            rows.update(self._described(self.inputs[index], slot))  # atomic: other threads see all of it or nothing
        return rows[slot]

    def first_rows(self) -> list[TaskMemory]:
        """Every example's row for the first round. Empty if the learner has no memory."""
        return [] if self.is_plain() else [self.row(i, c % self.learner.way) for i, c in enumerate(self._numbers)]

    def is_plain(self, x: Tensor | None = None) -> bool:
        """Whether the learner describes examples such as `x` by something other than a TaskMemory."""
        if self._plain is None:
            example = self.inputs[0] if x is None else x
            self._plain = self.learner.passes > 1 or not isinstance(self._described(example, 0)[0], TaskMemory)
        return self._plain

    def _slots(self, c: int) -> set[int]:
        """The slots of class c in all rounds."""
        way, slots, left = self.learner.way, {c % self.learner.way}, len(self.order)
        while left > way:
            c, left = c // way, -(-left // way)
            slots.add(c % way)
        return slots

    @torch.no_grad()
    def _described(self, x: Tensor, slot: int) -> dict[int, TaskMemory]:
        """An example, described alone because batches of different sizes may differ in the last bit."""
        support = Examples(as_input(x, self.dtype)[None, None], torch.tensor([[slot]])).to(self.device)
        return {slot: self.learner.describe(support, way=self.learner.way)}

    def _members(self, entrants: Sequence[int]) -> list[int]:
        """The examples of some classes."""
        chosen = set(entrants)
        return [i for i, c in enumerate(self._numbers) if c in chosen]

    @torch.no_grad()
    def _task(self, level: int, entrants: Sequence[int]) -> Any:
        """The task that separates some classes in one round."""
        key = (level, tuple(entrants))
        if key in self._tasks:
            return self._tasks[key]
        members, size = self._members(entrants), self.learner.way**level
        task: Any
        if self.is_plain():
            slots = torch.tensor([[entrants.index(self._numbers[i]) for i in members]])
            x = as_input(torch.stack([self.inputs[i] for i in members]), self.dtype)
            task = self.learner.describe(Examples(x[None], slots).to(self.device), way=max(2, len(entrants)))
        else:
            task = join([self.row(i, self._numbers[i] // size % self.learner.way) for i in members])
        if level == 0:
            self._tasks[key] = task
        return task

    @torch.no_grad()
    def _matches(self, x: Tensor, encoded: list[Tensor] | None, level: int, group: Tensor) -> Tensor:
        """log p of each query's own entrants (m, k). Matches with the same number of examples share a batch."""
        if group.shape[1] == 1:
            return torch.zeros(group.shape, dtype=self.dtype)
        sets, which = group.unique(dim=0, return_inverse=True)
        if encoded is not None and isinstance(self.learner, CSN) and len(sets) > 1 and not self.is_plain():
            tasks = [self._task(level, chosen) for chosen in sets.tolist()]
            if len({len(task) for task in tasks}) == 1 and len(x) * len(tasks[0]) <= ROWS_PER_CALL:
                task = side_by_side([tasks[index] for index in which.tolist()])
                logits = self.learner.predict_encoded(encoded, task).cpu()
                return logits.gather(1, group // self.learner.way**level % self.learner.way).log_softmax(-1)
        logs = torch.empty(group.shape, dtype=self.dtype)
        for index, chosen in enumerate(sets.tolist()):
            who = which == index
            some = None if encoded is None else [part[who] for part in encoded]
            logs[who] = self._match(x[who], some, level, chosen)
        return logs

    @torch.no_grad()
    def _match(self, x: Tensor, encoded: list[Tensor] | None, level: int, entrants: Sequence[int]) -> Tensor:
        """log p of each entrant, (m, *input) -> (m, entrants)."""
        task = self._task(level, entrants)
        if encoded is not None and isinstance(self.learner, CSN):
            logits = self.learner.predict_encoded(encoded, task).cpu()
        else:
            logits = self.learner.predict(x[None].to(self.device), task)[0].cpu()
        if self.is_plain():
            return logits[:, : len(entrants)].log_softmax(-1)
        return logits[:, [c // self.learner.way**level % self.learner.way for c in entrants]].log_softmax(-1)

    def _tournament(self, x: Tensor, encoded: list[Tensor] | None) -> tuple[Tensor, int, Tensor]:
        """Scores (m, C), the last round, and the classes in it (m, k).

        The score of a class is its log odds against the winner. A class that loses in a group keeps its odds against
        that group's champion, plus the champion's own odds in later rounds. With one match, scores are log
        probabilities up to a constant.
        """
        way, count = self.learner.way, len(self.order)
        scores = torch.zeros(len(x), count, dtype=self.dtype)
        entrants = torch.arange(count).expand(len(x), count)
        for level in range(count):  # an upper bound: the loop returns much earlier
            champions = []
            for start in range(0, entrants.shape[1], way):
                group = entrants[:, start : start + way]
                logs = self._matches(x, encoded, level, group).to(self.dtype)
                best = logs.argmax(-1, keepdim=True)
                champions.append(group.gather(1, best))
                odds = logs - logs.gather(1, best)
                below = way**level  # number of classes that each entrant stands for
                span = scores[:, start * below : (start + group.shape[1]) * below]
                span += odds.repeat_interleave(below, dim=1)[:, : span.shape[1]]
            if len(champions) == 1:
                return scores, level, group
            entrants = torch.cat(champions, dim=1)
        raise AssertionError("a tournament ends")
