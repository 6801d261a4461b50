"""The recurrence of section 2.5: an LSTM layer with conditionally shifted neurons over sentences of unequal length.

Words are packed: step s of every sentence that is still running, longest sentence first, then step s + 1, and so on.
PAD steps are thereby not computed at all; state passes them unchanged, and no gradient arises at them. `words` is the
number of all words, `H` the units of a layer. Gates are kept in the order o, i, f, v.

The loop runs once, without a graph; three nodes then hang its gradients into autograd: the projection of the inputs
(torch's own), `_RecurrentWeight`, and `_Cell`. Autograd thus skips whichever of them nobody asks for: eq. 5 asks for no
weight's gradient.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from csn.core.neurons import SHIFT_RULES, ShiftRule


@dataclass(frozen=True)
class Packing:
    """Where the words of (examples, T) sentences are when packed.

    index: (words,) of each word in the flattened (examples * T); counts: sentences running at each step;
    carried: (examples * T,) the packed row last seen at each place, `words` before the first; last: (examples,) that of
    the last word.
    """

    index: Tensor
    counts: tuple[int, ...]
    carried: Tensor
    last: Tensor

    def steps(self) -> list[slice]:
        """The packed rows of every step."""
        ends = [sum(self.counts[: step + 1]) for step in range(len(self.counts))]
        return [slice(end - count, end) for end, count in zip(ends, self.counts, strict=True)]

    def previous(self, packed: Tensor) -> Tensor:
        """The same sentence's row one step before, for all rows but those of the first step."""
        steps = self.steps()
        return torch.cat([packed[:0], *(packed[a][: b.stop - b.start] for a, b in itertools.pairwise(steps))])


def pack(real: Tensor) -> Packing:
    """The packing of sentences whose words are where `real` (examples, T) bool is true; each has at least one."""
    examples = len(real)
    lengths = real.sum(1)
    seat = torch.empty_like(lengths)
    seat[lengths.argsort(descending=True, stable=True)] = torch.arange(examples, device=real.device)
    counts = (lengths[:, None] > torch.arange(int(lengths.max()), device=real.device)).sum(0)
    starts = counts.cumsum(0) - counts
    step = real.cumsum(1) - 1  # (examples, T): of the last word so far, -1 before the first
    carried = torch.where(step >= 0, starts[step.clamp_min(0)] + seat[:, None], int(lengths.sum()))
    places = real.flatten().nonzero().squeeze(-1)
    index = torch.empty_like(places)
    index[carried.flatten()[places]] = places
    return Packing(index, tuple(counts.tolist()), carried.flatten(), carried[:, -1])


def lstm_layer(
    x: Tensor,
    input_weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    packing: Packing,
    shifts: Tensor | None = None,
    rule: ShiftRule = "squashed",
) -> tuple[Tensor, Tensor]:
    """i, f, o, v from [x_t; h_{t-1}]; c_t = v_t * i_t + c_{t-1} * f_t; h_t = (tanh(c_t) + tanh(beta_t)) * o_t.

    x: (words, inputs), input_weight: (4 H, inputs), recurrent_weight: (4 H, H), bias: (4 H,), shifts: (examples, T, H)
    -> h (words, H) and c (examples, T, H). Without shifts, c is a leaf of the graph of h: its gradient is the total
    derivative with respect to c_t, through every later step. At PAD steps c is the state carried along and its gradient
    is 0. With shifts c is data.
    """
    if rule not in SHIFT_RULES:
        raise ValueError(f"unknown shift rule {rule!r}: choose one of {', '.join(SHIFT_RULES)}")
    beta = None if shifts is None else F.embedding(packing.index, shifts.flatten(0, 1))
    z = F.linear(x, input_weight, bias)
    with torch.no_grad():
        record = _run(z, recurrent_weight, packing, beta, rule)
        c = F.embedding(packing.carried, record.c).unflatten(0, (len(packing.last), -1))
    if not torch.is_grad_enabled():
        return record.h, c
    c.requires_grad_(shifts is None)
    recurrent = _RecurrentWeight.apply(recurrent_weight, record.h, packing)
    return _Cell.apply(z, recurrent, beta, c, recurrent_weight.detach(), record, packing, rule), c


class _Record(NamedTuple):
    """What the loop leaves behind, (words, ...) each: gates (4 H), c, the summands of h / o = active + shift, h (H).

    c has one row more, the state before the first word: 0.
    """

    gates: Tensor
    c: Tensor
    active: Tensor
    shift: Tensor | None
    h: Tensor


def _run(z: Tensor, recurrent_weight: Tensor, packing: Packing, beta: Tensor | None, rule: ShiftRule) -> _Record:
    """The loop over steps. z, the projected inputs, are overwritten by the gates."""
    H = recurrent_weight.shape[1]
    c, active, h = z.new_empty(len(z) + 1, H), z.new_empty(len(z), H), z.new_empty(len(z), H)
    c[-1] = 0
    shift = None if beta is None or rule == "inside" else _tanh_(beta.clone()) if rule == "squashed" else beta
    before: slice | None = None
    for step in packing.steps():
        gates, count = z[step], step.stop - step.start
        if before is not None:
            gates.addmm_(h[before][:count], recurrent_weight.T)
        gates[:, : 3 * H].sigmoid_()
        _tanh_(gates[:, 3 * H :])
        o, i, f, v = gates.chunk(4, dim=1)
        torch.mul(i, v, out=c[step])
        if before is not None:
            c[step].addcmul_(f, c[before][:count])
        inner = active[step].copy_(c[step])
        if rule == "inside" and beta is not None:
            inner.add_(beta[step])
        _tanh_(inner)
        if shift is None:
            torch.mul(active[step], o, out=h[step])
        else:
            torch.add(active[step], shift[step], out=h[step]).mul_(o)
        before = step
    return _Record(z, c, active, shift, h)


def _tanh_(x: Tensor) -> Tensor:
    """tanh(x) = 2 sigmoid(2 x) - 1, in place: on a CPU torch's sigmoid is four times as fast as its tanh."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if x.device.type == "cpu" else x.tanh_()


class _RecurrentWeight(torch.autograd.Function):
    """The part of the gates' preactivations that comes from W h_{t-1}: the loop has added it, so here it is 0."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, packing: Packing) -> Tensor:
        """(4 H, H) -> zeros (words, 4 H) that take no memory."""
        ctx.h, ctx.packing = h, packing
        return weight.new_zeros(1, 1).expand(len(h), len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """One product for all steps; in this order, transposed at the end, it is the faster one."""
        return (ctx.packing.previous(ctx.h).T @ outputs[0][ctx.packing.counts[0] :]).T, None, None


class _Cell(torch.autograd.Function):
    """From the gates' preactivations to h."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        recurrent: Tensor,
        beta: Tensor | None,
        c: Tensor,
        recurrent_weight: Tensor,
        record: _Record,
        packing: Packing,
        rule: ShiftRule,
    ) -> Tensor:
        """The loop has run: h (words, H)."""
        ctx.recurrent_weight, ctx.record, ctx.packing, ctx.rule = recurrent_weight, record, packing, rule
        ctx.cells = c.shape
        return record.h.view_as(record.h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Backpropagation through time; every step's dz = (dL/dz) overwrites its factor."""
        gates, c, active, shift, h = ctx.record
        H = h.shape[1]
        dh, dz = outputs[0].clone(), torch.empty_like(gates)
        cells = torch.empty_like(h) if ctx.needs_input_grad[3] else None
        dbeta = torch.empty_like(h) if ctx.needs_input_grad[2] else None
        dc = h.new_zeros(ctx.packing.counts[0], H)
        steps = ctx.packing.steps()
        for step, before in zip(reversed(steps), [*reversed(steps[:-1]), None], strict=True):
            count = step.stop - step.start
            gate, factor, running = gates[step], dz[step], dc[:count]
            o, i, f, v = gate.chunk(4, dim=1)
            # dh/dc = o (1 - active^2)
            slope = dh[step] * o
            inner = torch.addcmul(slope, slope * active[step], active[step], value=-1)
            running.add_(inner)
            if dbeta is not None:
                dbeta[step] = inner if ctx.rule == "inside" else slope
            if cells is not None:
                cells[step] = running
            # sigmoid' = s - s^2, tanh' = 1 - v^2
            torch.addcmul(gate[:, : 3 * H], gate[:, : 3 * H], gate[:, : 3 * H], value=-1, out=factor[:, : 3 * H])
            do, di, df, dv = factor.chunk(4, dim=1)
            summed = active[step] if shift is None else active[step] + shift[step]
            do.mul_(summed).mul_(dh[step])
            torch.addcmul(i, i * v, v, value=-1, out=dv).mul_(running)
            di.mul_(v).mul_(running)
            if before is None:
                df.zero_()
                break
            df.mul_(c[before][:count]).mul_(running)
            running.mul_(f)
            dh[before][:count].addmm_(factor, ctx.recurrent_weight)
        if dbeta is not None and shift is not None and ctx.rule == "squashed":
            dbeta.addcmul_(dbeta * shift, shift, value=-1)
        return dz, dz, dbeta, _spread(cells, ctx.packing.index, ctx.cells), None, None, None, None


def _spread(packed: Tensor | None, index: Tensor, shape: torch.Size) -> Tensor | None:
    """(words, H) -> (examples, T, H), 0 at PAD."""
    if packed is None:
        return None
    return packed.new_zeros(shape).view(-1, shape[-1]).index_copy_(0, index, packed).view(shape)
