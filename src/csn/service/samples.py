"""Sample alphabets: things that everybody can name, drawn with few lines, so they are easy to copy by hand.

A stroke is text on a square of 100: `10,20 30,40` are corners of straight lines, `~` before them makes a smooth curve
through them, and `o 50,50 20` is a circle of radius 20.
"""

from __future__ import annotations

import math
import random
from functools import cache
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from csn.classifier.inputs import prepare
from csn.learner import InputSpec

ALPHABETS = {
    "Shapes": {
        "circle": ("o 50,50 34",),
        "square": ("18,18 82,18 82,82 18,82 18,18",),
        "triangle": ("50,14 88,82 12,82 50,14",),
        "cross": ("18,18 82,82", "82,18 18,82"),
        "heart": ("~50,84 20,52 16,30 32,18 50,34", "~50,34 68,18 84,30 80,52 50,84"),
        "spiral": ("~50,50 56,46 58,54 50,60 40,54 42,40 56,34 70,46 66,66 46,74 26,60 28,34 50,20 76,26",),
        "arrow": ("12,50 88,50", "62,26 88,50 62,74"),
        "zigzag": ("10,66 26,34 42,66 58,34 74,66 90,34",),
    },
    "Sky and sea": {
        "sun": ("o 50,50 18", "50,22 50,8", "50,78 50,92", "22,50 8,50", "78,50 92,50", "30,30 20,20", "70,70 80,80"),
        "moon": ("~60,12 34,18 20,42 26,70 50,88 70,84 52,70 46,48 50,26 60,12",),
        "star": ("50,10 72,82 10,38 90,38 28,82 50,10",),
        "cloud": ("~20,70 10,56 22,46 30,30 50,26 64,40 80,40 90,56 78,70", "78,70 20,70"),
        "lightning": ("60,8 28,54 50,54 38,92 74,42 50,42 60,8",),
        "wave": ("~8,42 22,30 36,42 50,54 64,42 78,30 92,42", "~8,66 22,54 36,66 50,78 64,66 78,54 92,66"),
        "fish": ("~84,50 62,32 38,36 14,66", "~84,50 62,68 38,64 14,34", "14,34 14,66", "68,46 70,46"),
        "boat": ("12,64 88,64 74,84 26,84 12,64", "50,64 50,12 80,54 50,54"),
    },
    "At home": {
        "house": ("12,48 50,14 88,48", "22,42 22,86 78,86 78,42", "42,86 42,62 58,62 58,86"),
        "key": ("o 26,50 16", "42,50 88,50 88,66", "72,50 72,62"),
        "cup": ("20,28 26,82 62,82 68,28 20,28", "~67,38 84,38 84,62 64,62"),
        "tree": ("~50,62 24,60 18,38 34,16 62,14 80,34 76,58 50,62", "50,44 50,90"),
        "leaf": ("~22,78 24,40 48,20 80,20 78,54 58,76 22,78", "12,88 64,36"),
        "umbrella": ("~12,52 24,26 50,16 76,26 88,52", "12,52 88,52", "~50,52 50,76 46,88 36,86 34,76"),
        "ladder": ("32,10 32,90", "68,10 68,90", "32,28 68,28", "32,48 68,48", "32,68 68,68"),
        "glasses": ("o 28,54 17", "o 72,54 17", "~45,52 50,46 55,52", "11,50 6,36", "89,50 94,36"),
    },
}
DRAWINGS = 2  # drawings of each thing
SIDE, PEN, FILL = 448, 16, 0.72  # size of the picture and pen in pixels; share of the side that a drawing fills

Point = tuple[float, float]


class Sample(NamedTuple):
    """A drawing of a sample alphabet.

    label: what it shows.
    x: (1, 28, 28) uint8, where 255 is ink.
    """

    label: str
    x: Tensor


@cache
def alphabets() -> dict[str, tuple[Sample, ...]]:
    """`DRAWINGS` drawings of each thing, by the name of the alphabet. The first is exact, the others vary."""
    return {
        name: tuple(
            Sample(label, _picture(strokes, take)) for label, strokes in things.items() for take in range(DRAWINGS)
        )
        for name, things in ALPHABETS.items()
    }


def _picture(strokes: tuple[str, ...], take: int) -> Tensor:
    """The strokes as a picture (1, 28, 28) uint8. Take 0 is exact, others vary."""
    lines = _moved([_line(stroke) for stroke in strokes], random.Random(f"{take} {strokes}") if take else None)
    image = Image.new("L", (SIDE, SIDE), 255)
    pen = ImageDraw.Draw(image)
    for line in lines:
        points = [(SIDE * x, SIDE * y) for x, y in line]
        pen.line(points, fill=0, width=PEN, joint="curve")
        for x, y in (points[0], points[-1]):  # round ends
            pen.ellipse((x - PEN / 2, y - PEN / 2, x + PEN / 2, y + PEN / 2), fill=0)
    return prepare([image], InputSpec((1, 28, 28)))[0]


def _line(stroke: str) -> list[Point]:
    """The points of a stroke on the square of 100."""
    if stroke.startswith("o"):
        _, middle, radius = stroke.split()
        (x, y), r = _point(middle), float(radius)
        return [(x + r * math.sin(t / 20 * math.pi), y - r * math.cos(t / 20 * math.pi)) for t in range(41)]
    points = [_point(part) for part in stroke.removeprefix("~").split()]
    return _smooth(points) if stroke.startswith("~") else points


def _point(text: str) -> Point:
    x, y = text.split(",")
    return float(x), float(y)


def _smooth(points: list[Point], parts: int = 8) -> list[Point]:
    """A Catmull-Rom curve through points."""
    closed = points[0] == points[-1]
    ends = (points[-2], points[1]) if closed else (points[0], points[-1])
    p = torch.tensor([ends[0], *points, ends[1]])
    t = torch.arange(parts)[:, None] / parts
    curve = []
    for a, b, c, d in zip(p, p[1:], p[2:], p[3:], strict=False):
        cubic = 2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3
        curve += [(float(x), float(y)) for x, y in cubic / 2]
    return [*curve, points[-1]]


def _moved(lines: list[list[Point]], hand: random.Random | None) -> list[list[Point]]:
    """Move lines from the unit square to the middle of the picture, slightly rotated and distorted as if by hand."""
    turn, slant, stretch, bend = (0.0, 0.0, 1.0, 0.0)
    if hand is not None:
        turn, slant, stretch = hand.uniform(-0.13, 0.13), hand.uniform(-0.1, 0.1), hand.uniform(0.86, 1.0)
        bend = hand.uniform(-3, 3)
    moved = []
    for line in lines:
        found = []
        for x, y in line:
            x, y = x - 50, (y - 50) * stretch
            x, y = x + slant * y + bend * math.sin(y / 16), y + bend * math.sin(x / 16)
            x, y = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
            found.append((0.5 + FILL * x / 100, 0.5 + FILL * y / 100))
        moved.append(found)
    return moved
