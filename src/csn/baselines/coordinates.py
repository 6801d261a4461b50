"""A coordinatewise LSTM: for each row of a large matrix, it reads a short sequence and outputs one number.

Meta learners use it to turn the gradients of a network's weights into other weights. There is one row per weight, and
all rows share the weights of the LSTM. Rows are processed in chunks that fit into the cache. Their layout
is (features, rows), so every operation runs along memory. One sigmoid serves all four gates, since
tanh(a) = 2 sigmoid(2 a) - 1.

`R` rows, `T` steps, `k` numbers a step, `H` units. Gates are in torch's order: i, f, v, o.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from csn.core.shortcuts.products import matmul
from csn.networks.sentences import initialise_lstm

CHUNK = 4096  # rows


class State(NamedTuple):
    """h and c (H, R)."""

    h: Tensor
    c: Tensor


class CoordinateLSTM(nn.Module):
    """An LSTM layer that all rows share, and a linear layer from its state to one number."""

    def __init__(self, inputs: int, *, units: int = 20) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units)  # holds and names the weights
        initialise_lstm(self.lstm)
        self.output = nn.Linear(units, 1)

    def forward(self, sequence: Tensor) -> Tensor:
        """(T, k, R) -> (R,), after the last step. No gradient flows into the sequence."""
        states = []
        for chunk in sequence.split(CHUNK, dim=2):
            state = None
            for x in chunk:
                state = lstm_step(self.lstm, x, state)
            assert state is not None
            states.append(self.output.weight @ state.h)
        return torch.cat(states, dim=1).squeeze(0) + self.output.bias


def lstm_step(lstm: nn.LSTM, x: Tensor, state: State | None) -> State:
    """Run one step of a one-layer torch LSTM. Each column of x (k, R) is a row. A state of None means 0."""
    W, U, *biases = lstm.parameters()
    weight = torch.cat([W, sum(biases).unsqueeze(1), U], dim=1)  # type: ignore[union-attr]
    if state is None:
        zero = x.new_zeros(U.shape[1], x.shape[1])
        state = State(zero, zero)
    return State(*_Cell.apply(x.detach(), state.h, state.c, weight))


class _Cell(torch.autograd.Function):
    """One step of the LSTM. x, 1 and h are stacked into one matrix, so one product computes all gates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """x (k, R), h and c (H, R), weight (4 H, k + 1 + H) -> the next h and c."""
        H = len(h)
        below = torch.cat([x, torch.ones_like(x[:1]), h])
        doubled = weight.clone()
        doubled[2 * H : 3 * H] *= 2
        gates = matmul(doubled, below).sigmoid_()
        i, f, v, o = gates.chunk(4)
        after = (v * 2).sub_(1).mul_(i).addcmul_(f, c)
        squashed = (after * 2).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(below, weight, gates, squashed, c)
        return squashed * o, after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """d sigmoid = s (1 - s), and v = 2 s - 1 of twice its argument."""
        below, weight, gates, squashed, c = ctx.saved_tensors
        dh, dc = outputs
        i, f, v, o = gates.chunk(4)
        delta = torch.empty_like(gates)
        di, df, dv, do = delta.chunk(4)
        dc = torch.addcmul(dc, dh * o, (squashed * squashed).neg_().add_(1))
        torch.mul(dh, squashed, out=do)
        torch.mul(dc, (v * 2).sub_(1), out=di)
        torch.mul(dc, i, out=dv).mul_(4)  # 2 of v = 2 s - 1, 2 of its doubled argument
        torch.mul(dc, c, out=df)
        delta.mul_(gates).addcmul_(delta, gates, value=-1)
        dh_before = matmul(weight[:, -len(c) :].T, delta) if ctx.needs_input_grad[1] else None
        return None, dh_before, dc.mul_(f), matmul(delta, below.T)
