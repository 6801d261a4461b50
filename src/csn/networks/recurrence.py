"""The recurrence of section 2.5: an LSTM layer with conditionally shifted neurons over sentences of unequal length.

The words of all sentences are packed (csn.networks.packing). PAD steps are not computed: the state passes through them
unchanged, and their gradient is 0. Words that repeat share one row of the inputs. The gradients of their projections
are added up first, so the products that follow are small.

The loop over steps runs once, without an autograd graph. Three autograd nodes then provide its gradients: the
projection of the inputs, `_RecurrentWeight` and `_Cell`. Autograd skips each node whose gradient is not needed. Eq. 5,
for example, needs no gradient of a weight.

The gates are computed in one of two ways. With torch's products, one product projects the inputs before the loop, each
distinct input once (`_Added`). With oneDNN (csn.core.shortcuts.products), each step multiplies [x_t; h_{t-1}] by one
matrix (`_Joined`), so no projection is written to memory and read back.

Every tanh is a sigmoid, because tanh(x) = 1 - 2 sigmoid(-2 x), and on a CPU torch's sigmoid is four times as fast as
its tanh. The weights of v are multiplied by -2, which is exact. One sigmoid then serves all gates, o, i, f and s, where
v = 1 - 2 s.

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

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # g s (1 - s)
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # g (1 - v^2)


def lstm_layer(
    x: Tensor,
    input_weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    packing: Packing,
    shifts: Tensor | None = None,
    rule: ShiftRule = "squashed",
    rows: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """i, f, o, v from [x_t; h_{t-1}]; c_t = v_t * i_t + c_{t-1} * f_t; h_t = (tanh(c_t) + tanh(beta_t)) * o_t.

    Args:
        x: Packed inputs, (words, inputs), or distinct inputs, (distinct, inputs).
        input_weight: (4 H, inputs).
        recurrent_weight: (4 H, H).
        bias: (4 H,).
        packing: The packing of the sentences.
        shifts: beta, (examples, T, H), or None in the description phase.
        rule: How the shifts are added (`csn.core.neurons`).
        rows: The row of x that each packed word reads, (words,), or None if x has a row for each word.

    Returns:
        h (words, H) and c (examples, T, H). Without shifts, c is a leaf of the autograd graph of h. Its gradient is the
        total derivative with respect to c_t, through every later step. At PAD steps, c is the state carried along, and
        its gradient is 0. With shifts, c carries no gradient.
    """
    if rule not in SHIFT_RULES:
        raise ValueError(f"unknown shift rule {rule!r}: choose one of {', '.join(SHIFT_RULES)}")
    if is_mixed(x):
        with in_single(x):
            return lstm_layer(x.float(), input_weight, recurrent_weight, bias, packing, shifts, rule, rows)
    beta = None if shifts is None else packing.packed(shifts)
    has_graph = torch.is_grad_enabled()
    with torch.no_grad():
        weights = _of_sigmoid(input_weight), _of_sigmoid(recurrent_weight), _of_sigmoid(bias)
        products = (_Joined if is_onednn_for(x, input_weight) else _Added)(x, *weights, packing, rows)
        record = _run(products, packing, beta, rule, keep_gates=has_graph)
        c = packing.carried_along(record.c)
    if not has_graph:
        return record.h, c
    # From here on, autograd sees two sources of gate preactivations and one cell. The loop's results are fixed already.
    c.requires_grad_(shifts is None)
    projected = _Projection.apply(x, input_weight, bias, rows)
    recurrent = _RecurrentWeight.apply(recurrent_weight, record.h, packing)
    return _Cell.apply(projected, recurrent, beta, c, recurrent_weight.detach(), record, packing, rule), c


class _Record(NamedTuple):
    """The results of the loop that the backward pass needs.

    Args:
        gates: o, i, f, s of each step, (words of the step, 4 H). Empty if they were not kept.
        c: (words + 1, H). The last row is the state before the first word, 0.
        a: sigmoid(-2 c), (words, H), so tanh(c) = 1 - 2 a. Of c + beta if shifts are added inside.
        shift: sigmoid(2 beta), (words, H), so tanh(beta) = 2 shift - 1. None if shifts are not squashed.
        h: (words, H).
    """

    gates: list[Tensor]
    c: Tensor
    a: Tensor
    shift: Tensor | None
    h: Tensor


def _of_sigmoid(weight: Tensor) -> Tensor:
    """A copy in which the rows of v are multiplied by -2."""
    weight = weight.clone()
    weight[3 * len(weight) // 4 :] *= -2
    return weight


class _Added:
    """Computes the gates step by step: adds the recurrent product to the projected inputs."""

    def __init__(
        self,
        x: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        packing: Packing,
        rows: Tensor | None,
    ) -> None:
        z = F.linear(x, input_weight, bias)
        self.weight = recurrent_weight
        self.steps = (z if rows is None else z.index_select(0, rows)).split(packing.counts)

    def __call__(self, t: int, h: Tensor | None) -> Tensor:
        """o, i, f, s (words of the step, 4 H), from h of the step before."""
        return (self.steps[t] if h is None else self.steps[t].addmm_(h, self.weight.T)).sigmoid_()


class _Joined:
    """Computes the gates step by step with one product of [x_t; h_{t-1}]."""

    def __init__(
        self,
        x: Tensor,
        input_weight: Tensor,
        recurrent_weight: Tensor,
        bias: Tensor,
        packing: Packing,
        rows: Tensor | None,
    ) -> None:
        self.weight, self.input_weight, self.bias = recurrent_weight, input_weight, bias
        self.steps = (x if rows is None else x.index_select(0, rows)).split(packing.counts)
        self.product = Prepared(torch.cat([input_weight, recurrent_weight], dim=1), packing.counts[0])

    def __call__(self, t: int, h: Tensor | None) -> Tensor:
        """o, i, f, s (words of the step, 4 H), from h of the step before."""
        x = self.steps[t]
        if h is None:
            return matmul(x, self.input_weight.T).add_(self.bias).sigmoid_()
        return self.product(torch.cat([x, h], dim=1), self.bias).sigmoid_()


def _run(
    products: _Added | _Joined, packing: Packing, beta: Tensor | None, rule: ShiftRule, *, keep_gates: bool
) -> _Record:
    """Run the loop over steps. Later backward passes need its record."""
    words, H, counts = len(packing.index), products.weight.shape[1], packing.counts
    states = products.weight.new_empty(words + 1, H)
    states[-1] = 0
    a, h = torch.empty_like(states[:-1]), torch.empty_like(states[:-1])
    shift = torch.empty_like(h) if beta is not None and rule == "squashed" else None
    kept: list[Tensor] = []
    cells, actives, outputs = (x.split(counts) for x in (states[:-1], a, h))
    betas, shifts = (None if x is None else x.split(counts) for x in (beta, shift))
    zero = states.new_zeros(())
    for t, count in enumerate(counts):
        gates = products(t, outputs[t - 1][:count] if t else None)
        if keep_gates:
            kept.append(gates)
        o, i, f, s = gates.chunk(4, dim=1)
        c, active, out = cells[t], actives[t], outputs[t]
        torch.addcmul(i, i, s, value=-2, out=c)  # i v
        if t:
            c.addcmul_(f, cells[t - 1][:count])
        if betas is None or rule != "inside":
            torch.mul(c, -2, out=active).sigmoid_()
        else:
            torch.add(c, betas[t], out=active).mul_(-2).sigmoid_()
        if shifts is not None and betas is not None:  # h = 2 o (shift - a)
            torch.mul(betas[t], 2, out=shifts[t]).sigmoid_()
            torch.addcmul(zero, torch.sub(shifts[t], active, out=out), o, value=2, out=out)
        else:  # h = o (1 - 2 a), or o (1 - 2 a + beta)
            torch.addcmul(o, o, active, value=-2, out=out)
            if rule == "raw" and betas is not None:
                out.addcmul_(o, betas[t])
    return _Record(kept, states, a, shift, h)


class _Projection(torch.autograd.Function):
    """The part of the gates' preactivations that comes from x.

    The loop has added it already, so the forward pass returns zeros. The node exists for its backward pass.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None) -> Tensor:
        """(distinct, inputs) -> zeros (words, 4 H) that take no memory."""
        ctx.save_for_backward(x, weight, rows)
        return x.new_zeros(1, 1).expand(len(x) if rows is None else len(rows), len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """dx = dz W, dW = dz^T x, db = the sum of dz. The dz of words that read the same row of x are added first."""
        (dz,), (x, weight, rows) = outputs, ctx.saved_tensors
        if rows is not None:
            dz = torch.ops.aten.embedding_dense_backward(dz, rows, len(x), -1, False)
        dx, dw, db, _ = ctx.needs_input_grad
        found = matmul(dz, weight) if dx else None, matmul(x.T, dz).T if dw else None, dz.sum(0) if db else None
        return (*found, None)


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

        The loop adds the gradient that flows through h_{t-1} to dh, and `dc` carries the gradient that flows through
        c_{t-1}.
        """
        record, counts, rule = ctx.record, ctx.packing.counts, ctx.rule
        H = record.h.shape[1]
        dh, dz = outputs[0].clone(), record.h.new_empty(len(record.h), 4 * H)
        cells = torch.empty_like(dh) if ctx.needs_input_grad[3] else None
        dbeta = torch.empty_like(dh) if ctx.needs_input_grad[2] else None
        running, products = dh.new_zeros(counts[0], H), dh.new_empty(counts[0], H)
        weight = ctx.recurrent_weight
        prepared = Prepared(weight.T, counts[0]) if is_onednn_for(dz, weight) else None
        dzs, dhs, actives, hs, states = (x.split(counts) for x in (dz, dh, record.a, record.h, record.c[:-1]))
        shifts, dcs, dbetas = (None if x is None else x.split(counts) for x in (record.shift, cells, dbeta))
        zero = dh.new_zeros(())
        for t in reversed(range(len(counts))):
            count = counts[t]
            dc, product = running[:count], products[:count]
            (o, i, f, s), (do, di, df, dv) = record.gates[t].chunk(4, dim=1), dzs[t].chunk(4, dim=1)
            # dh/dc = o (1 - tanh(c)^2) = 4 o a (1 - a)
            slope = torch.addcmul(zero, dhs[t], o, value=4)
            inner = _sigmoid_backward(slope, actives[t], grad_input=product)
            dc.add_(inner)
            if dbetas is not None and rule == "inside":
                dbetas[t].copy_(inner)
            elif dbetas is not None and shifts is not None:
                _sigmoid_backward(slope, shifts[t], grad_input=dbetas[t])
            elif dbetas is not None:
                torch.mul(dhs[t], o, out=dbetas[t])
            if dcs is not None:
                dcs[t].copy_(dc)
            # o' = o (1 - o), and h / o is the factor of o in h
            torch.mul(dhs[t], hs[t], out=do)
            do.addcmul_(do, o, value=-1)
            v = torch.rsub(s, 1, alpha=2)
            _sigmoid_backward(torch.mul(dc, v, out=product), i, grad_input=di)
            _tanh_backward(torch.mul(dc, i, out=product), v, grad_input=dv)
            if t == 0:  # the first step has no state before it, so its forget gate has no effect
                df.zero_()
                break
            _sigmoid_backward(torch.mul(dc, states[t - 1][:count], out=product), f, grad_input=df)
            dc.mul_(f)
            earlier = dhs[t - 1][:count]
            if prepared is None:
                earlier.addmm_(dzs[t], weight)
            else:
                earlier.add_(prepared(dzs[t]))
        return dz, dz, dbeta, spread(cells, ctx.packing.index, ctx.cells), None, None, None, None
