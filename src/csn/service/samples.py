"""Sample alphabets: characters of the embedded generator (docs/strokes.md), from alphabets that no model trains on."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from torch import Tensor

from csn.data.images.strokes import load_strokes

NAMES = ("Ombra", "Tavi", "Kelun")
SYLLABLES = ("ka", "mi", "to", "su", "re", "lo", "ni", "vu", "he", "pa")
CHARACTERS, DRAWINGS = 8, 2
ALPHABETS = 20  # of these the generator holds three out for testing


class Sample(NamedTuple):
    """A drawing of a sample alphabet: x is (1, 28, 28) uint8, ink is 255."""

    label: str
    x: Tensor


@cache
def alphabets() -> dict[str, tuple[Sample, ...]]:
    """`DRAWINGS` drawings of each of `CHARACTERS` characters, by the name of the alphabet."""
    test = load_strokes(alphabets=ALPHABETS, characters=CHARACTERS, drawings=DRAWINGS).splits["test"]
    size = CHARACTERS * DRAWINGS
    return {
        name: tuple(
            Sample(SYLLABLES[i // DRAWINGS], drawing) for i, drawing in enumerate(test.x[a * size : (a + 1) * size])
        )
        for a, name in enumerate(NAMES)
    }
