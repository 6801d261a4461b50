"""Tasks within one alphabet. Their classes are related, so they are harder than classes drawn from all alphabets."""

from __future__ import annotations

import numpy as np

from csn.data.source import EpisodeSource


class WithinAlphabet(EpisodeSource):
    """Every task has classes of one alphabet, drawn at random from the alphabets with at least `way` classes.

    A class belongs to the alphabet before the "/" of its name.
    """

    alphabets: dict[str, np.ndarray]

    def _form(self) -> None:
        members: dict[str, list[int]] = {}
        for c in self._eligible.tolist():
            alphabet, slash, _ = self.classes.names[c].partition("/")
            if not slash:
                raise ValueError(f"the classes of {self.data.name} belong to no alphabet: draw tasks from all classes")
            members.setdefault(alphabet, []).append(c)
        self.alphabets = {name: np.array(found) for name, found in members.items() if len(found) >= self.way}
        if not self.alphabets:
            largest = max(len(found) for found in members.values())
            raise ValueError(
                f"{self.way}-way tasks within an alphabet need an alphabet of {self.way} classes; the largest in split "
                f"{self.split!r} of {self.data.name} has {largest}: choose a smaller way"
            )

    def _draw_classes(self, rng: np.random.Generator, index: int) -> np.ndarray:
        """Draw (way,) classes of one alphabet."""
        alphabets = list(self.alphabets.values())
        return rng.choice(alphabets[rng.integers(len(alphabets))], self.way, replace=False)
