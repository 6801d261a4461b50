"""Repeated description: the support is looked at again, under its own shifts, and what error is left is written on.

The paper describes each example once (eqs. 2 and 7). Here the output layer of a network without hidden layers is
described `passes` times over keys that any encoder made. With z the logits of the support,

    z = a cos(S, means) + K V,    K_ij = exp(c (cos(s_i, s_j) - 1)),    e = softmax(z) - y,

a pass writes V <- V - h (e + decay V). That is functional gradient descent, in the kernel's space of functions, on

    sum_i CE(z_i, y_i) + decay / 2 tr(V' K V),

a convex problem; it converges for h <= 1 / (R / 2 + decay), where R is the largest row sum of K. Nesterov's momentum
k / (k + 3) makes the passes count. docs/repeated-description.md has the derivation.

An example meets the mean of its own class without itself: with itself it would look better known than a query is.

`n` examples, `m` queries, `d` numbers in a key, `C` classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 4096  # rows of the kernel that are worked out at a time, once it is too large to be kept
KEPT = 16_384  # examples up to which the kernel is kept between the passes


@dataclass(frozen=True)
class HeadOptions:
    """The scalars of a head; none depends on the number of classes or examples.

    scale: a, of the cosines to the class means.
    sharpness: c, of the kernel of cosines.
    decay: of what is written.
    passes: over the support; 0 leaves the class means alone.
    temperature: the logits are divided by it.
    centre: with one example a class, subtract the mean of the support from every key.
    """

    scale: float = 10.0
    sharpness: float = 2.0
    decay: float = 0.1
    passes: int = 60
    temperature: float = 0.5
    centre: bool = False

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
    """What a head knows of a task. keys: (n, d) of length 1; means: (C, d), of length 1; values: (n, C).

    centre: (d,) what is subtracted from a query. share: (n,) an example's part in the mean of its class; the mean of a
    class is the sum of `share * keys` over its examples.
    """

    keys: Tensor
    means: Tensor
    values: Tensor
    labels: Tensor
    share: Tensor
    centre: Tensor


class CSNHead:
    """Any number of classes over any keys: cosines to class means, and shifts read through a kernel of cosines.

    There are no weights to train. All that it does is determined by the rows of the support, so leaving rows out
    forgets them exactly.
    """

    def __init__(self, options: HeadOptions | None = None) -> None:
        self.options = HeadOptions() if options is None else options

    @torch.no_grad()
    def describe(self, keys: Tensor, labels: Tensor, way: int) -> HeadMemory:
        """The passes over a support: keys (n, d), labels (n,) int64 in [0, way)."""
        check_support(keys, labels, way)
        options, count = self.options, labels.bincount(minlength=way)
        centre = keys.new_zeros(keys.shape[1])
        if options.centre and way > 1 and int(count.max()) == 1:
            centre = F.normalize(keys, dim=-1).mean(0)
        keys = self._centred(keys, centre)
        y = F.one_hot(labels, way).to(keys.dtype)
        sums = y.T @ keys
        length = sums.norm(dim=-1).clamp_min(1e-12)
        means = sums / length.unsqueeze(-1)
        base = keys @ means.T
        others = sums[labels] - keys  # of an example that is alone in its class, nothing is left
        alone = (count[labels] == 1).unsqueeze(-1)
        own = (keys * F.normalize(torch.where(alone, keys, others), dim=-1)).sum(-1)
        base[torch.arange(len(labels)), labels] = own
        values = self._written(keys, options.scale * base, y)
        return HeadMemory(keys, means, values, labels, 1 / length[labels], centre)

    @torch.no_grad()
    def predict(self, queries: Tensor, memory: HeadMemory) -> Tensor:
        """(m, d) -> logits (m, C)."""
        queries, options = self._centred(queries, memory.centre), self.options
        logits = options.scale * queries @ memory.means.T
        if options.passes:
            logits += self._kernel(queries, memory.keys) @ memory.values
        return logits / options.temperature

    @torch.no_grad()
    def pushes(self, query: Tensor, memory: HeadMemory, c: int) -> Tensor:
        """How far each example moved the logit of class c above the mean of all logits: (d,) -> (n,).

        They sum to the logit of c less that mean: nothing else makes an answer.
        """
        query, options = self._centred(query[None], memory.centre)[0], self.options
        cosine = memory.keys @ query
        to_mean = options.scale * cosine * memory.share * ((memory.labels == c).to(query.dtype) - 1 / len(memory.means))
        values = memory.values[:, c] - memory.values.mean(1)
        read = (options.sharpness * (cosine - 1)).exp() * values if options.passes else 0
        return (to_mean + read) / options.temperature

    def _written(self, keys: Tensor, base: Tensor, y: Tensor) -> Tensor:
        """V (n, C) after the passes, from the logits of the class means (n, C)."""
        n, options = len(keys), self.options
        values = torch.zeros_like(base)
        if not options.passes:
            return values
        kept = self._kernel(keys, keys) if n <= KEPT else None
        blocks = range(0, n, BLOCK)

        def through(v: Tensor) -> Tensor:
            if kept is not None:
                return kept @ v
            return torch.cat([self._kernel(keys[i : i + BLOCK], keys) @ v for i in blocks])

        largest = float(through(torch.ones_like(base[:, :1])).max())
        step = 1 / (largest / 2 + options.decay)
        ahead = values
        for k in range(options.passes):
            error = (base + through(ahead)).softmax(-1) - y
            new = ahead - step * (error + options.decay * ahead)
            ahead = new + k / (k + 3) * (new - values)
            values = new
        return values

    def _kernel(self, rows: Tensor, keys: Tensor) -> Tensor:
        """exp(c (cos - 1)) of unit vectors: (r, d), (n, d) -> (r, n)."""
        return (rows @ keys.T).sub_(1).mul_(self.options.sharpness).exp_()

    @staticmethod
    def _centred(keys: Tensor, centre: Tensor) -> Tensor:
        """Keys at length 1; around the centre of the task, if it has one."""
        keys = F.normalize(keys, dim=-1)
        return F.normalize(keys - centre, dim=-1) if bool(centre.any()) else keys


def check_support(keys: Tensor, labels: Tensor, way: int) -> None:
    """Raise ValueError unless these are keys (n, d) and labels (n,) of `way` classes."""
    if keys.ndim != 2 or labels.shape != keys.shape[:1] or not len(keys):
        raise ValueError(
            f"a support is keys (n, d) with labels (n,), at least one; got {tuple(keys.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if labels.dtype != torch.int64 or int(labels.min()) < 0 or int(labels.max()) >= way:
        raise ValueError(f"labels of {way} classes are int64 in [0, {way}), got {labels.dtype} {labels.tolist()[:8]}")
    if not bool(torch.isfinite(keys).all()):
        raise ValueError("the keys hold NaN or infinite values: clean them first")
