"""Tasks within one alphabet: the classes of a task are related, which is harder than classes drawn over all of them."""

from __future__ import annotations

import numpy as np

from csn.data.source import Dataset, EpisodeSource, Split
from csn.episode import SupportOf


class WithinAlphabet(EpisodeSource):
    """Every task is of one alphabet, drawn at random from those of `way` classes or more.

    A class belongs to the alphabet before the "/" of its name.
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
        super().__init__(data, split, way=way, shot=shot, queries=queries, seed=seed, support=support)
        members: dict[str, list[int]] = {}
        for c in self._eligible.tolist():
            alphabet, slash, _ = self.classes.names[c].partition("/")
            if not slash:
                raise ValueError(f"the classes of {data.name} belong to no alphabets: draw tasks over all of them")
            members.setdefault(alphabet, []).append(c)
        self.alphabets = {name: np.array(found) for name, found in members.items() if len(found) >= way}
        if not self.alphabets:
            largest = max(len(found) for found in members.values())
            raise ValueError(
                f"{way}-way tasks within an alphabet need one of {way} classes; the largest of split {split!r} of "
                f"{data.name} has {largest}"
            )

    def _draw_classes(self, rng: np.random.Generator, index: int) -> np.ndarray:
        """(way,) classes of one alphabet."""
        alphabets = list(self.alphabets.values())
        return rng.choice(alphabets[rng.integers(len(alphabets))], self.way, replace=False)
