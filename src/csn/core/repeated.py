"""Repeated description: the support is described again under its own shifts, and the remaining error is written.

The paper describes each example once (eqs. 2 and 7). Here a network without hidden layers reads keys from any encoder,
and its output layer is described `passes` times. Let z be the logits of the support:

    z = a cos(S, means) + K V,    K_ij = exp(c (cos(s_i, s_j) - 1)),    e = softmax(z) - y.

A pass writes V <- V - h (e + decay V). This is functional gradient descent, in the function space of the kernel, on

    sum_i CE(z_i, y_i) + decay / 2 tr(V' K V).

The problem is convex. The descent converges for h <= 1 / (R / 2 + decay), where R is the largest row sum of K.
Nesterov's momentum k / (k + 3) speeds it up. docs/repeated-description.md has the derivation.

The class mean that an example is compared with leaves the example itself out. Otherwise the example would look more
familiar than a query does. With one example of each of C classes there is nothing to leave out, and (1 - 1 / C) of the
mean of all keys is subtracted from every key.

Shapes: `n` examples, `m` queries, `d` numbers in a key, `C` classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 4096  # rows of the kernel computed at a time, if the kernel is too large to keep
WORK = 1e12  # most multiplications of all passes over a support, about a minute of one core
KEPT = 16_384  # largest number of examples for which the kernel is kept between the passes


@dataclass(frozen=True)
class HeadOptions:
    """The scalars of a head. None depends on the number of classes or examples.

    scale: a, the factor on the cosines to the class means.
    sharpness: c, the sharpness of the kernel.
    decay: the weight decay of the written values.
    passes: passes over the support; with 0, only the class means are used.
    temperature: the divisor of the logits.
    centre: with one example per class, subtract most of the mean of the support from every key.
    """

    scale: float = 10.0
    sharpness: float = 2.0
    decay: float = 0.03
    passes: int = 60
    temperature: float = 0.5
    centre: bool = True

    def __post_init__(self) -> None:
        if self.passes < 0 or self.passes != int(self.passes):
            raise ValueError(f"passes must be a whole number, 0 or more; got {self.passes}")
        for name in ("scale", "sharpness", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)}")
        if not 0 <= self.decay < float("inf"):
            raise ValueError(f"decay must be 0 or more, got {self.decay}")


@dataclass(frozen=True)
class HeadMemory:
    """The memory of one task.

    Args:
        keys: (n, d), of length 1.
        means: The class means (C, d), of length 1.
        values: V, (n, C).
        labels: (n,).
        share: The weight of each example in the mean of its class, (n,). The mean of a class is the sum of
            `share * keys` over its examples.
        centre: The vector that is subtracted from every key, (d,).
    """

    keys: Tensor
    means: Tensor
    values: Tensor
    labels: Tensor
    share: Tensor
    centre: Tensor


class CSNHead:
    """A classifier for any number of classes over any keys: cosines to class means, plus shifts read through a kernel.

    The head has no weights to train. It is determined by the rows of the support, so leaving rows out forgets them
    exactly.
    """

    def __init__(self, options: HeadOptions | None = None) -> None:
        self.options = HeadOptions() if options is None else options

    @torch.no_grad()
    def describe(self, keys: Tensor, labels: Tensor, way: int) -> HeadMemory:
        """Make all passes over a support: keys (n, d), labels (n,) int64 in [0, way)."""
        check_support(keys, labels, way)
        options, count = self.options, labels.bincount(minlength=way)
        centre = keys.new_zeros(keys.shape[1])
        if options.centre and way > 1 and int(count.max()) == 1:
            centre = (1 - 1 / way) * F.normalize(keys, dim=-1).mean(0)
        keys = self._centred(keys, centre)
        sums = class_sums(keys, labels, way)
        length = sums.norm(dim=-1).clamp_min(1e-12)
        means = sums / length.unsqueeze(-1)
        base = keys @ means.T
        others = sums[labels] - keys  # 0 if the example is alone in its class
        alone = (count[labels] == 1).unsqueeze(-1)
        own = (keys * F.normalize(torch.where(alone, keys, others), dim=-1)).sum(-1)
        base[torch.arange(len(labels)), labels] = own
        values = self._written(keys, base.mul_(options.scale), labels)
        return HeadMemory(keys, means, values, labels, 1 / length[labels], centre)

    @torch.no_grad()
    def predict(self, queries: Tensor, memory: HeadMemory) -> Tensor:
        """(m, d) -> logits (m, C)."""
        queries, options = self._centred(queries, memory.centre), self.options
        logits = options.scale * queries @ memory.means.T
        if options.passes:
            logits += self._kernel(queries, memory.keys) @ memory.values
        return logits / options.temperature

    def shifts(self, queries: Tensor, memory: HeadMemory) -> Tensor:
        """What the passes add to the cosines to the class means: (m, d) -> (m, C)."""
        return self._kernel(self._centred(queries, memory.centre), memory.keys) @ memory.values / self.options.scale

    @torch.no_grad()
    def pushes(self, query: Tensor, memory: HeadMemory, c: int) -> Tensor:
        """How far each example moves the logit of class c above the mean of all logits: (d,) -> (n,).

        The contributions sum to the logit of c minus the mean logit. Nothing else enters the answer.
        """
        query, options = self._centred(query[None], memory.centre)[0], self.options
        cosine = memory.keys @ query
        to_mean = options.scale * cosine * memory.share * ((memory.labels == c).to(query.dtype) - 1 / len(memory.means))
        values = memory.values[:, c] - memory.values.mean(1)
        read = (options.sharpness * (cosine - 1)).exp() * values if options.passes else 0
        return (to_mean + read) / options.temperature

    def _written(self, keys: Tensor, base: Tensor, labels: Tensor) -> Tensor:
        """Compute V (n, C) after all passes, starting from the logits of the class means (n, C).

        Thousands of examples of thousands of classes get fewer passes. Every pass brings V closer to the same optimum.
        Matrices (n, C) are large then, so they are changed in place, and the first pass does not multiply by V = 0.
        """
        n, options = len(keys), self.options
        if not options.passes:
            return torch.zeros_like(base)
        passes = min(options.passes, max(1, int(WORK / (n * n * base.shape[1]))))
        kept = self._kernel(keys, keys) if n <= KEPT and passes > 1 else None
        blocks = range(0, n, BLOCK)

        def through(v: Tensor) -> Tensor:
            if kept is not None:
                return kept @ v
            return torch.cat([self._kernel(keys[i : i + BLOCK], keys) @ v for i in blocks])

        largest = float(through(torch.ones_like(base[:, :1])).max())
        step = 1 / (largest / 2 + options.decay)
        values = ahead = _error(base, labels).mul_(-step)
        for k in range(1, passes):
            error = _error(through(ahead).add_(base), labels)
            new = ahead - error.add_(options.decay * ahead).mul_(step)
            ahead = (new - values).mul_(k / (k + 3)).add_(new)
            values = new
        return values

    def _kernel(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Compute exp(c (cos - 1)) for unit vectors: (r, d), (n, d) -> (r, n)."""
        return (rows @ keys.T).sub_(1).mul_(self.options.sharpness).exp_()

    @staticmethod
    def _centred(keys: Tensor, centre: Tensor) -> Tensor:
        """Scale keys to length 1, after subtracting the centre of the task if it has one."""
        keys = F.normalize(keys, dim=-1)
        return F.normalize(keys - centre, dim=-1) if bool(centre.any()) else keys


def class_sums(keys: Tensor, labels: Tensor, way: int) -> Tensor:
    """The sum of the keys of each class: (n, d), (n,) -> (C, d)."""
    member = keys.new_zeros(way, len(keys))
    member[labels, torch.arange(len(keys))] = 1
    return member @ keys


def _error(logits: Tensor, labels: Tensor) -> Tensor:
    """e = softmax(z) - y: (n, C), (n,) -> (n, C)."""
    error = logits.softmax(-1)
    error[torch.arange(len(labels)), labels] -= 1
    return error


def check_support(keys: Tensor, labels: Tensor, way: int) -> None:
    """Raise ValueError unless these are keys (n, d) and labels (n,) of `way` classes."""
    if keys.ndim != 2 or labels.shape != keys.shape[:1] or not len(keys):
        raise ValueError(
            f"a support needs keys (n, d) with labels (n,), at least one; got {tuple(keys.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if labels.dtype != torch.int64 or int(labels.min()) < 0 or int(labels.max()) >= way:
        raise ValueError(
            f"labels of {way} classes must be int64 in [0, {way}), got {labels.dtype} {labels.tolist()[:8]}"
        )
    if not bool(torch.isfinite(keys).all()):
        raise ValueError("the keys hold NaN or infinite values: clean them first")
