"""Families of small tasks on vectors. In some, the nearest example is right; in others, it cannot be right.

Each family needs another kind of information from the support. Examples are vectors of `SIZE` numbers. Tasks are
generated when they are needed: a batch is a function of (seed, first) alone.

`b` tasks, `n` support examples, `m` queries, `C` ways. Every support holds at least one example of each class. If its
labels are true, it holds the same number of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.episode import Episode, Examples

SIZE = 16  # numbers of an example
HALF = SIZE // 2
CATEGORIES = 8  # categories of `inverted`, the same in all tasks
ATTRIBUTES = 8  # attributes of `rule`, one of which decides
PAIRED = 4  # attributes of `xor`, two of which decide

Draw = Callable[[torch.Generator, int, "Sizes"], Episode]


@dataclass(frozen=True)
class Sizes:
    """The size of a task.

    way: classes.
    shot: support examples per class.
    queries: queries per class.
    """

    way: int
    shot: int
    queries: int


@dataclass(frozen=True)
class Family:
    """Tasks of one kind.

    about: what decides a label, in one line.
    sizes: the size of its tasks.
    draw: generates a batch.
    key_sees: how many of an example's first numbers the key function reads.
    """

    about: str
    sizes: Sizes
    draw: Draw
    key_sees: int = SIZE

    def batch(self, seed: int, first: int, tasks: int) -> Episode:
        """Return the tasks first ... first + tasks - 1 of a seed."""
        return self.draw(seeded(seed, first), tasks, self.sizes)


def seeded(seed: int, first: int) -> torch.Generator:
    """A separate random stream per pair. NumPy mixes the pair, because torch uses only the last 32 bits of a seed."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, first]).generate_state(1)[0]))


def nearest(generator: torch.Generator, b: int, sizes: Sizes, *, noise: float = 0.6, wrong: float = 0.0) -> Episode:
    """A class is a random point in the first half of the numbers; the second half is noise.

    Args:
        generator: The random numbers.
        b: Tasks.
        sizes: The size of a task.
        noise: Standard deviation of the noise around a class's point.
        wrong: The part of the support's labels that is drawn at random. One example of each class keeps its label.
    """
    points = torch.randn(b, sizes.way, HALF, generator=generator)

    def around(each: int) -> Tensor:
        x = points.repeat_interleave(each, dim=1)
        x = x + noise * torch.randn(x.shape, generator=generator)
        return torch.cat([x, torch.randn(x.shape, generator=generator)], dim=-1)

    support, query = (_labels(b, sizes.way, each) for each in (sizes.shot, sizes.queries))
    if wrong:
        mistaken = torch.rand(support.shape, generator=generator) < wrong
        mistaken[:, :: sizes.shot] = False
        support = torch.where(mistaken, torch.randint(sizes.way, support.shape, generator=generator), support)
    return Episode(Examples(around(sizes.shot), support), Examples(around(sizes.queries), query), sizes.way)


def noisy(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """`nearest`, but half of the support's labels are drawn at random."""
    return nearest(generator, b, sizes, wrong=0.5)


def blurred(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """`nearest` with so much noise that a learner must combine many examples of a class."""
    return nearest(generator, b, sizes, noise=1.5)


def unseen_property(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """`nearest` with the halves exchanged: the key function does not read the numbers that decide."""
    episode = nearest(generator, b, sizes)
    support, query = (Examples(part.x.roll(HALF, dims=-1), part.y) for part in (episode.support, episode.query))
    return Episode(support, query, sizes.way)


def far(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """A plane through 0 divides two classes. The support is on one side of the origin, and queries are on the other."""
    normal = F.normalize(torch.randn(b, 1, HALF, generator=generator), dim=-1)
    centre = torch.randn(b, 1, HALF, generator=generator)
    centre = centre - (centre * normal).sum(-1, keepdim=True) * normal  # on the plane

    def beside(at: Tensor, y: Tensor) -> Tensor:
        x = at + 0.7 * torch.randn(*y.shape, HALF, generator=generator)
        height = (x * normal).sum(-1, keepdim=True)
        side = (2.0 * y - 1).unsqueeze(-1)
        return F.pad(x + (side * (height.abs() + 0.3) - height) * normal, (0, SIZE - HALF))

    support, query = (_labels(b, 2, each) for each in (sizes.shot, sizes.queries))
    return Episode(Examples(beside(2 * centre, support), support), Examples(beside(-2 * centre, query), query), 2)


def rule(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """One of eight attributes, each -1 or 1, decides between two classes; the support shows which one, and how."""
    which = torch.randint(ATTRIBUTES, (b,), generator=generator)
    sign = _signs(generator, b, 1, 1)

    def described(y: Tensor) -> Tensor:
        x = _signs(generator, *y.shape, ATTRIBUTES)
        decides = F.one_hot(which, ATTRIBUTES).bool().unsqueeze(1)
        x = torch.where(decides, sign * (2.0 * y - 1).unsqueeze(-1), x)
        return _with_noise(generator, x)

    return _two_classes(b, sizes, described)


def xor(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """The label says whether two of four attributes, each -1 or 1, are equal. The support shows which two."""
    order = torch.rand(b, PAIRED, generator=generator).argsort(-1)[:, None]  # the first two are the task's pair

    def described(y: Tensor) -> Tensor:
        x = _signs(generator, *y.shape, PAIRED)
        chosen = order.expand(*y.shape, PAIRED)
        partner = x.gather(-1, chosen[..., :1]) * (2.0 * y - 1).unsqueeze(-1)
        return _with_noise(generator, x.scatter(-1, chosen[..., 1:2], partner))

    return _two_classes(b, sizes, described)


def inverted(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """Eight categories, the same in all tasks, are of two kinds. A task may swap the labels of the kinds.

    The support shows one category of each kind. Queries come from all eight.
    """
    world = torch.randn(CATEGORIES, SIZE, generator=torch.Generator().manual_seed(0))
    swapped = torch.randint(2, (b, 1), generator=generator)
    pair = torch.randint(CATEGORIES // 2, (b, 2), generator=generator)

    def examples(categories: Tensor) -> Examples:
        x = world[categories] + 0.4 * torch.randn(*categories.shape, SIZE, generator=generator)
        return Examples(x, (categories % 2) ^ swapped)

    shown = (2 * pair + torch.tensor([0, 1])).repeat_interleave(sizes.shot, dim=1)
    queries = torch.randint(CATEGORIES, (b, 2 * sizes.queries), generator=generator)
    return Episode(examples(shown), examples(queries), 2)


def reversed_by_cue(generator: torch.Generator, b: int, sizes: Sizes) -> Episode:
    """Two classes as in `nearest`. One support example carries a cue, +1 or -1. At -1, all labels of queries swap.

    No query carries a cue, so the support as a whole decides what the nearest example means.
    """
    episode = nearest(generator, b, sizes, noise=0.3)
    support, query = (part.x.clone() for part in (episode.support, episode.query))
    cue = _signs(generator, b)
    carrier = torch.randint(support.shape[1], (b,), generator=generator)
    for x in (support, query):
        x[..., HALF:] = 0
    support[torch.arange(b), carrier, HALF:] = 2 * cue[:, None]
    answers = torch.where(cue[:, None] > 0, episode.query.y, 1 - episode.query.y)
    return Episode(Examples(support, episode.support.y), Examples(query, answers), 2)


FAMILIES: Mapping[str, Family] = {
    "nearest": Family("the nearest example is right", Sizes(5, 1, 4), nearest),
    "rule": Family("one of eight attributes decides", Sizes(2, 5, 8), rule),
    "cue": Family("a cue in one support example inverts all answers", Sizes(2, 2, 8), reversed_by_cue),
    "unseen property": Family("the key does not show what decides", Sizes(2, 5, 8), unseen_property, key_sees=HALF),
    "xor": Family("the exclusive or of two of four attributes decides", Sizes(2, 5, 8), xor),
    "far": Family("queries on the other side of the origin", Sizes(2, 8, 8), far),
    "noisy labels": Family("half of the labels of the support are random", Sizes(5, 5, 4), noisy),
    "many shots": Family("20 blurred examples of a class", Sizes(5, 20, 4), blurred),
    "inverted": Family("known categories, but a task may swap their two labels", Sizes(2, 1, 8), inverted),
}


def _labels(b: int, way: int, each: int) -> Tensor:
    """(b, way * each), class by class."""
    return torch.arange(way).repeat_interleave(each).expand(b, -1)


def _signs(generator: torch.Generator, *shape: int) -> Tensor:
    """-1 or 1."""
    return 2.0 * torch.randint(2, shape, generator=generator) - 1


def _with_noise(generator: torch.Generator, attributes: Tensor) -> Tensor:
    """Attributes with noise, padded with zeros to the size of an example."""
    x = attributes + 0.2 * torch.randn(attributes.shape, generator=generator)
    return F.pad(x, (0, SIZE - x.shape[-1]))


def _two_classes(b: int, sizes: Sizes, described: Callable[[Tensor], Tensor]) -> Episode:
    """Labels of both parts, and their examples."""
    support, query = (_labels(b, 2, each) for each in (sizes.shot, sizes.queries))
    return Episode(Examples(described(support), support), Examples(described(query), query), 2)
