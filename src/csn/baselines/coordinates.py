"""An LSTM that reads, for each of very many coordinates on its own, a sequence of a few numbers and says one number.

Rules that turn the gradients of a network's weights into other weights are such functions: one row per weight, one set
of LSTM weights for all. Rows go through the cache in chunks, laid out (features, rows), so that every operation runs
along memory; all four gates take one sigmoid, tanh being 2 sigmoid(2 a) - 1. Nothing here changes a number.

`R` rows, `T` steps, `k` numbers a step, `H` units. Gates are in torch's order: i, f, v, o.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from csn.base.sentences import initialise_lstm

CHUNK = 4096  # rows


class CoordinateLSTM(nn.Module):
    """One LSTM layer and a linear output of its last state, shared by all rows."""

    def __init__(self, inputs: int, *, units: int = 20) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units)  # holds and names the weights
        initialise_lstm(self.lstm)
        self.output = nn.Linear(units, 1)

    def forward(self, sequence: Tensor) -> Tensor:
        """(T, k, R) -> (R,). The sequence is data: no gradient flows into it."""
        W, U, *biases = self.lstm.parameters()
        chunks = [_LastState.apply(chunk, W, U, sum(biases)) for chunk in sequence.detach().split(CHUNK, dim=2)]
        weight, bias = self.output.weight, self.output.bias
        return torch.cat([weight @ h for h in chunks], dim=1).squeeze(0) + bias


class _Step(NamedTuple):
    """What a step leaves for the backward pass: sigmoids of all gates (4 H, R), tanh(c) and c (H, R)."""

    gates: Tensor
    squashed: Tensor
    c: Tensor


class _LastState(torch.autograd.Function):
    """h_T of an LSTM over (T, k, R), from h_0 = c_0 = 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, input_weight: Tensor, recurrent_weight: Tensor, bias: Tensor) -> Tensor:
        """Step by step; x_t, 1 and h_{t-1} stand in one matrix, so that a step takes one product."""
        (T, k, R), H = x.shape, recurrent_weight.shape[1]
        below = torch.cat([x, x.new_ones(T, 1, R), x.new_zeros(T, H, R)], dim=1)
        weight = torch.cat([input_weight, bias[:, None], recurrent_weight], dim=1)
        doubled = weight.clone()
        doubled[2 * H : 3 * H] *= 2
        steps: list[_Step] = []
        for t in range(T):
            gates = (doubled @ below[t]).sigmoid_()
            i, f, v, o = gates.chunk(4)
            c = (v * 2).sub_(1).mul_(i)
            if steps:
                c.addcmul_(f, steps[-1].c)
            squashed = (c * 2).sigmoid_().mul_(2).sub_(1)
            steps.append(_Step(gates, squashed, c))
            h = torch.mul(squashed, o, out=below[t + 1, k + 1 :]) if t + 1 < T else squashed * o
        ctx.steps, ctx.inputs = steps, k
        ctx.save_for_backward(below, weight)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Back through the steps; d sigmoid = s (1 - s), and v = 2 s - 1 of twice its argument."""
        (below, weight), steps, k, (dh,) = ctx.saved_tensors, ctx.steps, ctx.inputs, outputs
        U, dweight, dc = weight[:, k + 1 :], torch.zeros_like(weight), torch.zeros_like(dh)
        delta = torch.empty_like(steps[0].gates)
        for t in reversed(range(len(steps))):
            gates, squashed, _ = steps[t]
            i, f, v, o = gates.chunk(4)
            di, df, dv, do = delta.chunk(4)
            dc.addcmul_(dh.mul(o), (squashed * squashed).neg_().add_(1))
            torch.mul(dh, squashed, out=do)
            torch.mul(dc, (v * 2).sub_(1), out=di)
            torch.mul(dc, i, out=dv).mul_(4)  # 2 of v = 2 s - 1, 2 of its doubled argument
            if t:
                torch.mul(dc, steps[t - 1].c, out=df)
            else:
                df.zero_()
            delta.mul_(gates).addcmul_(delta, gates, value=-1)
            dweight.addmm_(delta, below[t].T)
            if t:
                dc.mul_(f)
                dh = U.T @ delta
        return None, dweight[:, :k], dweight[:, k + 1 :], dweight[:, k]
