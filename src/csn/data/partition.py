"""All-inclusive test tasks (section 4.2): every class of a split is in exactly one task."""

from __future__ import annotations

import numpy as np

from csn.data.source import SPLITS, EpisodeSource


class PartitionSource(EpisodeSource):
    """The classes of a split in random groups of `way`. Episode i is group i; there are no other episodes.

    The groups and their examples are a function of the seed. `left_out` names the classes that are in no group: those
    with fewer than shot + queries examples, and the last ones if fewer than `way` remain.
    """

    left_out: tuple[str, ...]

    def _form(self) -> None:
        # A key of four numbers, so that no episode has the same stream: their keys have three. The last number is not
        # 0, because NumPy ignores zeros at the end of a key.
        order = np.random.default_rng([self.seed, SPLITS.index(self.split), 0, 1]).permutation(self._eligible)
        self._groups = order[: len(order) // self.way * self.way].reshape(-1, self.way)
        grouped = set(self._groups.flat)
        self.left_out = tuple(name for c, name in enumerate(self.classes.names) if c not in grouped)

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def _draw_classes(self, rng: np.random.Generator, index: int) -> np.ndarray:
        """The classes of group `index`, (way,)."""
        if not 0 <= index < len(self):
            raise ValueError(
                f"split {self.split!r} of {self.data.name} makes {len(self)} groups of {self.way}, episodes 0 to "
                f"{len(self) - 1}; got {index}"
            )
        group: np.ndarray = self._groups[index]
        return group
