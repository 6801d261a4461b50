"""All-inclusive test tasks (section 4.2): every class of a split in exactly one task."""

from __future__ import annotations

import numpy as np

from csn.data.source import SPLITS, EpisodeSource


class PartitionSource(EpisodeSource):
    """The classes of a split partitioned at random into groups of `way`; episode i is group i, and there are no more.

    The partition and the examples of every group are a function of the seed. Classes of fewer than shot + queries
    examples are in no group, nor are the fewer than `way` that remain at the end: `left_out` names them all.
    """

    left_out: tuple[str, ...]

    def _form(self) -> None:
        # Four numbers: no stream of an episode, which has three (NumPy takes no notice of zeros at the end of a key).
        order = np.random.default_rng([self.seed, SPLITS.index(self.split), 0, 1]).permutation(self._eligible)
        self._groups = order[: len(order) // self.way * self.way].reshape(-1, self.way)
        grouped = set(self._groups.flat)
        self.left_out = tuple(name for c, name in enumerate(self.classes.names) if c not in grouped)

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def _draw_classes(self, rng: np.random.Generator, index: int) -> np.ndarray:
        """(way,) the classes of group `index`."""
        if not 0 <= index < len(self):
            raise ValueError(
                f"split {self.split!r} of {self.data.name} makes {len(self)} groups of {self.way}, episodes 0 to "
                f"{len(self) - 1}; got {index}"
            )
        group: np.ndarray = self._groups[index]
        return group
