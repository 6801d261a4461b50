"""Tasks of many sizes, for training a learner that can answer any way and any shot."""

from __future__ import annotations

import numpy as np

from csn.data.source import SPLITS, Dataset, EpisodeSource, Split
from csn.episode import Episode


class VariedSource:
    """Batches of tasks. All tasks of a batch have the same size: 2 to `way` classes with 1 to `shot` examples each.

    All ways are equally likely. One shot is the most frequent, because few examples are the hardest case.
    """

    def __init__(self, data: Dataset, split: Split, *, way: int, shot: int, queries: int, seed: int) -> None:
        self.way, self.shot, self.seed, self.split = way, shot, seed, split
        self._of_size = {
            (ways, shots): EpisodeSource(data, split, way=ways, shot=shots, queries=queries, seed=seed)
            for ways in range(2, way + 1)
            for shots in range(1, shot + 1)
        }

    def batch(self, first: int, tasks: int, part: slice = slice(None)) -> Episode:
        """Return episodes first ... first + tasks - 1, or a part. Their size depends on (seed, split, first)."""
        rng = np.random.default_rng([self.seed, SPLITS.index(self.split), first, tasks])
        way = int(rng.integers(2, self.way + 1))
        shot = min(int((self.shot + 1) ** rng.random()), self.shot)  # equally likely in [n, 2 n) for every n
        return self._of_size[way, shot].batch(first, tasks, part)
