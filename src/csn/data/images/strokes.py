"""The embedded data set: handwritten characters made by random stroke programs, so that nothing is downloaded.

An alphabet has a repertoire of strokes and a few habits. A character (a class) is a program of one to five strokes,
most of which are attached to an earlier one. A drawing (an example) is the program executed by a shaky hand.

The plane is complex, x + iy with y pointing down, and the box is one unit wide and centred at 0: a product turns and
scales, a z + b conj(z) is any linear map. Shape letters: `c` characters, `e` drawings of each, `n` drawings in all, `S`
strokes, `K` knots of a stroke, `P` points of a finished one.

The same seed gives the same bytes on every machine. Every class has its own stream of uniform numbers. Finished strokes
are rounded to 1/256 pixel and rendered with + - * / and sqrt, because the last bits of sine differ between machines.
"""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from csn.data.source import SPLITS, ClassExamples, Dataset, Split

Points = NDArray[np.complex128]
Pixels = NDArray[np.float32]
Ints = NDArray[np.int64]
Stroke = tuple[Points, bool]  # knots (K,) around 0, and whether its corners are sharp

SIZE = 28  # pixels of a side
MARGIN = 1.9  # pixels between the pen's path and the edge of the box: the outermost pixels stay empty
STROKES = 5  # the most a character has
REPERTOIRE = 8  # strokes that the characters of an alphabet share
KNOTS = 9  # points that define a stroke, joined by eight spans of equal length
START, MIDDLE, END = 0, KNOTS // 2, KNOTS - 1

# The split of an alphabet depends on its number alone, so it stays the same when alphabets are added. Of every twenty,
# one is val and three are test. The first five contain all three splits.
HELD_OUT: dict[int, Split] = {3: "test", 4: "val", 10: "test", 17: "test"}
FEWEST_ALPHABETS = 5


class _Kind(NamedTuple):
    """A kind of stroke: `turns` at its seven inner knots, times a bend from a range of degrees, to either side."""

    turns: tuple[int, ...]
    bend: tuple[float, float]
    share: float  # how common it is
    sharp: bool = False  # corners instead of a smooth curve
    size: tuple[float, float] = (0.25, 0.7)  # longer side, compared with the other strokes of a character


_KINDS = (
    _Kind((0, 0, 0, 0, 0, 0, 0), (0, 0), 4.0),  # line
    _Kind((1, 1, 1, 1, 1, 1, 1), (5, 20), 1.0),  # arc
    _Kind((1, 1, 1, 1, 1, 1, 1), (20, 38), 2.0),  # bowl
    _Kind((1, 1, 1, 1, 1, 1, 1), (42, 48), 1.0),  # ring
    _Kind((0, 1, 2, 2, 2, 1, 0), (30, 42), 0.7),  # loop that crosses its own path
    _Kind((1, 1, 1, 0, -1, -1, -1), (15, 45), 1.0),  # s-curve
    _Kind((0, 0, 0, 0, 1, 1, 1), (25, 60), 1.0),  # hook
    _Kind((0, 0, 0, 1, 0, 0, 0), (60, 130), 1.5, sharp=True),  # angle
    _Kind((0, 0, 1, 0, 0, 1, 0), (70, 120), 1.0, sharp=True),  # three sides, up to a triangle
    _Kind((0, 0, 1, 0, 0, -1, 0), (60, 130), 0.7, sharp=True),  # zigzag
    _Kind((0, 1, 0, 1, 0, 1, 0), (84, 92), 0.5, sharp=True),  # square
    _Kind((1, 1, 1, 1, 1, 1, 1), (30, 45), 0.5, size=(0.04, 0.06)),  # dot
)


def load_strokes(*, seed: int = 0, alphabets: int = 100, characters: int = 30, drawings: int = 20) -> Dataset:
    """`alphabets` x `characters` classes of `drawings` images each, (1, 28, 28) uint8, ink 255 on background 0.

    A class is a function of (seed, alphabet, character) alone: larger arguments only add classes and drawings. Whole
    alphabets are held out: of every twenty, sixteen are train, one is val and three are test.
    """
    sizes = {"seed": seed, "alphabets": alphabets, "characters": characters, "drawings": drawings}
    for (name, value), least in zip(sizes.items(), (0, FEWEST_ALPHABETS, 1, 1), strict=True):
        if value < least:
            raise ValueError(f"strokes needs {name} >= {least}, got {value}: pass a larger {name}")
    members: dict[Split, list[int]] = {split: [] for split in SPLITS}
    for alphabet in range(alphabets):
        members[HELD_OUT.get(alphabet % 20, "train")].append(alphabet)
    return Dataset(
        "strokes",
        {
            split: ClassExamples(
                torch.from_numpy(np.concatenate([_draw_alphabet(seed, a, characters, drawings) for a in numbers])),
                np.full(len(numbers) * characters, drawings),
                tuple(f"alphabet-{a:03d}/character-{c:02d}" for a in numbers for c in range(characters)),
            )
            for split, numbers in members.items()
        },
    )


class _Random:
    """A stream of random numbers, all made from uniform ones."""

    def __init__(self, *key: int) -> None:
        self._rng = np.random.default_rng(key)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * self._rng.random()

    def below(self, count: int) -> int:
        return int(self._rng.random() * count)

    def normal(self, *shape: int) -> Points:
        """Both parts of mean 0 and deviation 1, at most 3 away from 0: sums of three uniform numbers."""
        parts = 2 * self._rng.random((*shape, 2, 3)).sum(-1) - 3
        normal: Points = parts[..., 0] + 1j * parts[..., 1]
        return normal


class _Alphabet(NamedTuple):
    """What the characters of an alphabet share: habits and a repertoire of strokes."""

    shares: list[float]  # of the kinds of strokes, summed up
    upright: float  # the part of the strokes that set out along an axis, not a diagonal
    busy: float  # how widely the number of strokes varies
    repertoire: tuple[Stroke, ...] = ()


class _Program(NamedTuple):
    """A character; with a leading axis c, many of them."""

    knots: Points  # (S, K)
    sharp: NDArray[np.bool_]  # (S,)
    parent: Ints  # (S,) the earlier stroke that this one is attached to, or itself if it stands free
    contact: Ints  # (S,) the knot of the parent where it is attached
    pivot: Ints  # (S,) its own knot that lies there
    strokes: Ints  # () how many there are


def _box(points: Points) -> tuple[complex, float]:
    """The middle and the longer side of the bounding box of points (any,)."""
    x, y = points.real, points.imag
    left, right, top, bottom = x.min(), x.max(), y.min(), y.max()
    return complex(left + right, top + bottom) / 2, float(max(right - left, bottom - top))


def _alphabet(rng: _Random) -> _Alphabet:
    """Draw the habits first, because the repertoire depends on them."""
    shares = list(accumulate(kind.share * (0.1 + rng.uniform() ** 2) for kind in _KINDS))
    habits = _Alphabet(shares, upright=rng.uniform(0.5, 1.0), busy=rng.uniform(2.7, 5.2))
    return habits._replace(repertoire=tuple(_stroke(rng, habits) for _ in range(REPERTOIRE)))


def _stroke(rng: _Random, alphabet: _Alphabet) -> Stroke:
    """A stroke of a random kind that sets out near a multiple of 45 degrees."""
    kind = _KINDS[bisect(alphabet.shares[:-1], rng.uniform(0, alphabet.shares[-1]))]
    heading = 90 * rng.below(4) + (0 if rng.uniform() < alphabet.upright else 45) + rng.uniform(-10, 10)
    bend = rng.uniform(*kind.bend) * (-1, 1)[rng.below(2)]
    turned = np.array([0, *accumulate(kind.turns)])
    knots = np.cumsum([0, *np.exp(1j * np.radians(heading + bend * turned))])
    knots = rng.uniform(0.7, 1) * knots.real + 1j * rng.uniform(0.7, 1) * knots.imag
    middle, side = _box(knots)
    return (knots - middle) * rng.uniform(*kind.size) / side, kind.sharp


def _program(rng: _Random, alphabet: _Alphabet) -> _Program:
    """A character: stroke after stroke, each at the least crowded of three random places."""
    strokes = min(STROKES, 1 + int(rng.uniform(0.7, 0.7 + alphabet.busy)))
    knots, sharp = np.zeros((STROKES, KNOTS), complex), np.zeros(STROKES, bool)
    parent, contact, pivot = np.arange(STROKES), np.full(STROKES, MIDDLE), np.full(STROKES, MIDDLE)
    for s in range(strokes):
        known, attached = rng.uniform() < 0.4, rng.uniform() < 0.6 and s > 0
        shape, sharp[s] = alphabet.repertoire[rng.below(REPERTOIRE)] if known else _stroke(rng, alphabet)
        least = np.inf
        for _ in range(3):
            other, theirs, mine = rng.below(s), 2 * rng.below(MIDDLE + 1), (START, START, MIDDLE, END)[rng.below(4)]
            near = knots[other, MIDDLE] + rng.uniform(0.2, 0.5) * np.exp(0.25j * np.pi * rng.below(8))
            placed = shape + (knots[other, theirs] - shape[mine] if attached else near)
            crowd = int((np.abs(placed[:, None] - knots[:s].reshape(-1)) < 0.08).sum())
            if crowd < least:
                least, knots[s] = crowd, placed
                if attached:
                    parent[s], contact[s], pivot[s] = other, theirs, mine
    middle, side = _box(knots[:strokes].reshape(-1))
    size = rng.uniform(0.32, 0.56) + 0.04 * strokes  # of the box: rich characters are drawn larger
    return _Program((knots - middle) * size / side, sharp, parent, contact, pivot, np.array(strokes))


def _draw_alphabet(seed: int, number: int, characters: int, drawings: int) -> NDArray[np.uint8]:
    """All drawings of an alphabet, character by character: (c e, 1, 28, 28)."""
    alphabet = _alphabet(_Random(seed, number))
    programs, hands = [], []
    for character in range(characters):
        rng = _Random(seed, number, 1 + character)  # 1: NumPy takes a key that ends in 0 for the alphabet's own
        programs.append(_program(rng, alphabet))
        hands.append(rng.normal(drawings, 6 + 5 * STROKES))
    program = _Program(*(np.stack(part) for part in zip(*programs, strict=True)))
    whole, each = np.split(np.stack(hands), [6], axis=-1)
    points = _through(_draw(program, whole, each.reshape(characters, drawings, STROKES, 5)), program.sharp)
    strokes = np.repeat(program.strokes, drawings)
    pens = np.clip(1.5 + 0.15 * whole[..., 0].real, 1.0, 1.7).reshape(-1).astype(np.float32)
    return _render(_fit(points.reshape(-1, *points.shape[2:]), strokes), strokes, pens)[:, None]


def _draw(program: _Program, whole: Points, each: Points) -> Points:
    """Programs of c characters carried out by shaky hands: knots (c, e, S, K) as they were drawn.

    each (c, e, S, 5), for a stroke: three wobbles, size and turn, miss. whole (c, e, 6), for a drawing: pen and
    steadiness, size and turn, stretch and slant, two bends, shift. All are normal numbers.
    """
    row = np.arange(len(whole))
    shake = 0.035 * np.maximum(0.3, 1 + 0.3 * whole[..., 0].imag)[..., None]  # (c, e, 1): some hands are steadier
    t = np.linspace(0, 1, KNOTS)
    parabolas = np.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)])  # each 1 at start, middle or end
    drawn = np.repeat(program.knots[:, None], whole.shape[1], axis=1)
    for s in range(STROKES):
        plan, parent, numbers = program.knots[:, s], program.parent[:, s], each[:, :, s]
        pivot = plan[row, program.pivot[:, s]][:, None]  # (c, 1)
        size = np.minimum(1, np.abs(plan - plan.mean(1, keepdims=True)).max(1) / 0.2)  # small strokes wobble less
        wobble = size[:, None, None] * shake * (numbers[..., :3] @ parabolas)
        turned = ((plan - pivot)[:, None] + wobble) * np.exp(0.1 * numbers[..., 3:4])
        # An attached stroke aims at where its parent was really drawn, a free one at its plan. Both miss a little.
        place = drawn[row, :, parent, program.contact[:, s]][..., None]
        miss = np.where(parent == s, 0.7, 0.3)[:, None, None] * shake * numbers[..., 4:]
        drawn[:, :, s] = place + turned + miss
    # The whole character: a linear map and a little of a quadratic one.
    turn, slant, bend, curl, shift = whole[..., 1:, None, None].transpose(2, 0, 1, 3, 4)
    mirrored = drawn.conj()
    drawn = np.exp(0.07 * turn) * drawn + 0.08 * slant * mirrored + 0.15 * (bend * drawn**2 + curl * mirrored**2)
    shifted: Points = drawn + 0.04 * shift
    return shifted


def _through(knots: Points, sharp: NDArray[np.bool_]) -> Points:
    """Knots (c, e, S, K) and a point between every two, half way or on the cubic of four: (c, e, S, P = 2 K - 1)."""
    before, after = 2 * knots[..., :1] - knots[..., 1:2], 2 * knots[..., -1:] - knots[..., -2:-1]
    longer = np.concatenate([before, knots, after], axis=-1)
    half_way, outer = (knots[..., 1:] + knots[..., :-1]) / 2, (longer[..., 3:] + longer[..., :-3]) / 2
    points = np.empty((*knots.shape[:-1], 2 * KNOTS - 1), complex)
    points[..., ::2] = knots
    points[..., 1::2] = np.where(sharp[:, None, :, None], half_way, half_way + (half_way - outer) / 8)
    return points


def _fit(points: Points, strokes: Ints) -> Pixels:
    """Points (n, S, P) in pixels (2, S, P, n), shrunk where too large for the box, pushed back where over its edge."""
    pixels = SIZE / 2 + SIZE * np.stack([points.real, points.imag]).transpose(0, 2, 3, 1)
    used = np.arange(STROKES)[:, None, None] < strokes
    low = pixels.min((1, 2), where=used, initial=np.inf)
    high = pixels.max((1, 2), where=used, initial=-np.inf)
    scale = np.minimum(1, (SIZE - 2 * MARGIN) / (high - low).max(0))
    half = scale * (high - low) / 2
    middle = np.clip((low + high) / 2, MARGIN + half, SIZE - MARGIN - half)
    pixels = middle[:, None, None] + scale * (pixels - ((low + high) / 2)[:, None, None])
    rounded: NDArray[np.float64] = np.rint(256 * pixels) / 256
    return rounded.astype(np.float32)


def _render(points: Pixels, strokes: Ints, pens: Pixels) -> NDArray[np.uint8]:
    """Ink of the first `strokes` strokes: points (2, S, P, n), strokes (n,) and pens (n,) in pixels -> (n, 28, 28).

    Drawings come last to keep NumPy's inner loops long. A step of the loop is one segment of every drawing.
    """
    n = len(strokes)
    reach = float(pens.max()) / 2 + 0.5  # pixels further than this from the pen's path get no ink
    pad = int(np.abs(np.diff(points, axis=2)).max() / 2 + reach) + 2  # so that no window leaves the canvas
    side = SIZE + 2 * pad
    nearest = np.full(n * side * side, reach * reach, np.float32)  # squared distance of a pixel to the pen's path
    for s in range(STROKES):
        rows = np.flatnonzero(strokes > s)
        stroke = points[:, s][..., rows]
        for k in range(stroke.shape[1] - 1):
            start, step = stroke[:, k], stroke[:, k + 1] - stroke[:, k]  # (2, rows)
            width = int(np.ceil(np.abs(step).max(initial=0) + 2 * reach))  # of the window around the segment
            corner = np.rint(start + step / 2 - np.float32(width / 2))
            pixel = np.arange(width, dtype=np.float32)[:, None]
            x, y = corner[:, None] + pixel + np.float32(0.5) - start[:, None]  # (width, rows) seen from the start
            unit = step / np.maximum((step * step).sum(0), np.float32(1e-6))
            t = np.clip(x * unit[0] + (y * unit[1])[:, None], 0, 1)  # (width, width, rows) nearest point of the segment
            x, y = x - t * step[0], y[:, None] - t * step[1]
            column, line = corner.astype(np.int64)[:, None] + np.arange(pad, pad + width)[:, None]
            where = (rows * side * side + column) + (line * side)[:, None]
            nearest[where] = np.minimum(nearest[where], x * x + y * y)  # one window a canvas: no clash
    distance = np.sqrt(nearest.reshape(n, side, side)[:, pad:-pad, pad:-pad])
    ink: Pixels = 255 * np.clip(pens[:, None, None] / 2 + np.float32(0.5) - distance, 0, 1)
    return np.rint(ink).astype(np.uint8)
