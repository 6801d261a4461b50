"""The recurrence of section 2.5: an LSTM layer with conditionally shifted neurons over sentences of unequal length.

The words of all sentences are packed (csn.networks.packing). PAD steps are not computed: the state passes through them
unchanged, and their gradient is 0.

The loop over steps runs once, without an autograd graph. Three autograd nodes then provide its gradients: the
projection of the inputs, `_RecurrentWeight` and `_Cell`. Autograd skips each node whose gradient is not needed. Eq. 5,
for example, needs no gradient of a weight.

The gates are computed in one of two ways. With torch's products, one product projects the inputs of all steps before
the loop (`_Added`). With oneDNN (csn.core.shortcuts.products), each step multiplies [x_t; h_{t-1}] by one matrix
(`_Joined`), so no projection is written to memory and read back.

Shapes: `words` is the number of words in all sentences, `H` the units of a layer. Gates have the order o, i, f, v.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from csn.core.neurons import SHIFT_RULES, ShiftRule
from csn.core.precision import in_single, is_mixed
from csn.core.shortcuts.products import Prepared, is_onednn_for, matmul
from csn.networks.packing import Packing, spread


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

    Args:
        x: Packed inputs, (words, inputs).
        input_weight: (4 H, inputs).
        recurrent_weight: (4 H, H).
        bias: (4 H,).
        packing: The packing of the sentences.
        shifts: beta, (examples, T, H), or None in the description phase.
        rule: How the shifts are added (`csn.core.neurons`).

    Returns:
        h (words, H) and c (examples, T, H). Without shifts, c is a leaf of the autograd graph of h. Its gradient is the
        total derivative with respect to c_t, through every later step. At PAD steps, c is the state carried along, and
        its gradient is 0. With shifts, c carries no gradient.
    """
    if rule not in SHIFT_RULES:
        raise ValueError(f"unknown shift rule {rule!r}: choose one of {', '.join(SHIFT_RULES)}")
    if is_mixed(x):
        with in_single(x):
            return lstm_layer(x.float(), input_weight, recurrent_weight, bias, packing, shifts, rule)
    beta = None if shifts is None else packing.packed(shifts)
    has_graph, joined = torch.is_grad_enabled(), is_onednn_for(x, input_weight)
    if not joined:
        z = F.linear(x, input_weight, bias)
    elif has_graph:
        z = _Projection.apply(x, input_weight, bias)
    with torch.no_grad():
        products = _Joined(x, input_weight, recurrent_weight, bias, packing) if joined else _Added(z, recurrent_weight)
        record = _run(products, packing, beta, rule, keep_gates=has_graph)
        # Spread the packed states over (examples, T); record.c has one more row, the state 0 before the first word.
        c = F.embedding(packing.carried, record.c).unflatten(0, (len(packing.last), -1))
    if not has_graph:
        return record.h, c
    # From here on, autograd sees two sources of gate preactivations and one cell. The loop's results are fixed already.
    c.requires_grad_(shifts is None)
    recurrent = _RecurrentWeight.apply(recurrent_weight, record.h, packing)
    return _Cell.apply(z, recurrent, beta, c, recurrent_weight.detach(), record, packing, rule), c


class _Record(NamedTuple):
    """The results of the loop that the backward pass needs.

    Args:
        gates: The gates of each step, (words of the step, 4 H). Empty if they were not kept.
        c: (words + 1, H). The last row is the state before the first word, 0.
        active: (words, H). h = o (active + shift).
        shift: (words, H), or None without shifts.
        h: (words, H).
    """

    gates: list[Tensor]
    c: Tensor
    active: Tensor
    shift: Tensor | None
    h: Tensor


class _Added:
    """Computes the gates step by step: adds the recurrent product to the projected inputs z, in place."""

    def __init__(self, z: Tensor, recurrent_weight: Tensor) -> None:
        self.z, self.weight = z, recurrent_weight

    def __call__(self, step: slice, h: Tensor | None) -> Tensor:
        """o, i, f, v (words of the step, 4 H), from h of the step before."""
        gates = self.z[step] if h is None else self.z[step].addmm_(h, self.weight.T)
        inner = 3 * self.weight.shape[1]
        gates[:, :inner].sigmoid_()
        _tanh(gates[:, inner:], gates[:, inner:])
        return gates


class _Joined:
    """Computes the gates step by step with one product of [x_t; h_{t-1}].

    v = tanh(z) = 2 sigmoid(2 z) - 1. The weights of v are doubled, which doubles z without rounding. A single sigmoid
    then serves all four gates.
    """

    def __init__(
        self, x: Tensor, input_weight: Tensor, recurrent_weight: Tensor, bias: Tensor, packing: Packing
    ) -> None:
        self.x, self.weight, self.inner = x, recurrent_weight, 3 * recurrent_weight.shape[1]
        joined, self.bias = torch.cat([input_weight, recurrent_weight], dim=1), bias.clone()
        joined[self.inner :] *= 2
        self.bias[self.inner :] *= 2
        self.product = Prepared(joined, packing.counts[0])

    def __call__(self, step: slice, h: Tensor | None) -> Tensor:
        """o, i, f, v (words of the step, 4 H), from h of the step before."""
        x = self.x[step]
        before = x.new_zeros(len(x), self.weight.shape[1]) if h is None else h
        gates = self.product(torch.cat([x, before], dim=1), self.bias).sigmoid_()
        gates[:, self.inner :].mul_(2).sub_(1)
        return gates


def _run(
    products: _Added | _Joined, packing: Packing, beta: Tensor | None, rule: ShiftRule, *, keep_gates: bool
) -> _Record:
    """Run the loop over steps. Later backward passes need its record."""
    words, H, like = len(packing.index), products.weight.shape[1], products.weight
    c, active, h = like.new_empty(words + 1, H), like.new_empty(words, H), like.new_empty(words, H)
    kept: list[Tensor] = []
    c[-1] = 0
    shift = None if rule == "inside" else beta
    if shift is not None and rule == "squashed":
        shift = _tanh(shift, torch.empty_like(shift))
    before: slice | None = None
    for step in packing.steps():
        count = step.stop - step.start
        gates = products(step, None if before is None else h[before][:count])
        if keep_gates:
            kept.append(gates)
        o, i, f, v = gates.chunk(4, dim=1)
        torch.mul(i, v, out=c[step])
        if before is not None:
            c[step].addcmul_(f, c[before][:count])
        _tanh(c[step] + beta[step] if rule == "inside" and beta is not None else c[step], active[step])
        if shift is None:
            torch.mul(active[step], o, out=h[step])
        else:
            torch.add(active[step], shift[step], out=h[step]).mul_(o)
        before = step
    return _Record(kept, c, active, shift, h)


def _tanh(x: Tensor, out: Tensor) -> Tensor:
    """Write tanh(x) = 2 sigmoid(2 x) - 1 into `out`. On a CPU, torch's sigmoid is four times as fast as its tanh."""
    if x.device.type != "cpu":
        return torch.tanh(x, out=out)
    return torch.mul(x, 2, out=out).sigmoid_().mul_(2).sub_(1)


class _Projection(torch.autograd.Function):
    """The part of the gates' preactivations that comes from x.

    The loop has added it already, so the forward pass returns zeros. The node exists for its backward pass.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """(words, inputs) -> zeros (words, 4 H) that take no memory."""
        ctx.save_for_backward(x, weight)
        return x.new_zeros(1, 1).expand(len(x), len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """dx = dz W, dW = dz^T x, db = the sum of dz."""
        (dz,), (x, weight) = outputs, ctx.saved_tensors
        dx, dw, db = ctx.needs_input_grad
        return matmul(dz, weight) if dx else None, matmul(x.T, dz).T if dw else None, dz.sum(0) if db else None


class _RecurrentWeight(torch.autograd.Function):
    """The part of the gates' preactivations that comes from W h_{t-1}.

    The loop has added it already, so the forward pass returns zeros. The node exists for its backward pass.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, packing: Packing) -> Tensor:
        """(4 H, H) -> zeros (words, 4 H) that take no memory."""
        ctx.h, ctx.packing = h, packing
        return weight.new_zeros(1, 1).expand(len(h), len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """dW = dz^T h_{t-1}, in one product for all steps. It is computed as (h^T dz)^T, which is faster."""
        return matmul(ctx.packing.previous(ctx.h).T, outputs[0][ctx.packing.counts[0] :]).T, None, None


class _Cell(torch.autograd.Function):
    """The step from the gates' preactivations to h. The forward pass returns the h of the loop."""

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
        """Return the h (words, H) that the loop has computed."""
        ctx.recurrent_weight, ctx.record, ctx.packing, ctx.rule = recurrent_weight, record, packing, rule
        ctx.cells = c.shape
        return record.h.view_as(record.h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Backpropagate through time, from the last step to the first.

        dz[step] first holds factors of the gradient and is then overwritten in place by dL/dz. The loop adds the
        gradient that flows through h_{t-1} to dh, and dc carries the gradient that flows through c_{t-1}.
        """
        gates, c, active, shift, h = ctx.record
        H = h.shape[1]
        dh, dz = outputs[0].clone(), h.new_empty(len(h), 4 * h.shape[1])
        cells = torch.empty_like(h) if ctx.needs_input_grad[3] else None
        dbeta = torch.empty_like(h) if ctx.needs_input_grad[2] else None
        dc = h.new_zeros(ctx.packing.counts[0], H)
        steps, weight = ctx.packing.steps(), ctx.recurrent_weight
        prepared = Prepared(weight.T, ctx.packing.counts[0]) if is_onednn_for(dz, weight) else None
        for step, before, gate in zip(reversed(steps), [*reversed(steps[:-1]), None], reversed(gates), strict=True):
            count = step.stop - step.start
            factor, running = dz[step], dc[:count]
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
            if before is None:  # the first step has no state before it, so its forget gate has no effect
                df.zero_()
                break
            df.mul_(c[before][:count]).mul_(running)
            running.mul_(f)
            earlier = dh[before][:count]
            if prepared is None:
                earlier.addmm_(factor, weight)
            else:
                earlier.add_(prepared(factor))
        if dbeta is not None and shift is not None and ctx.rule == "squashed":
            dbeta.addcmul_(dbeta * shift, shift, value=-1)
        return dz, dz, dbeta, spread(cells, ctx.packing.index, ctx.cells), None, None, None, None
