"""g on very many rows, computed in chunks that fit into the cache and recomputed in the backward pass.

A task has tens of thousands of neurons, and the hidden layers of g are ten to twenty times wider than its input.
Writing them to memory and keeping them for the backward pass would cost more than the arithmetic. The results are the
same as those of g.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from csn.core.memory import MemoryFunction

CHUNK = 4096  # rows; with 20 units, a hidden layer of one chunk takes 320 kB and stays in the cache of a core


def is_large(neurons: Tensor) -> bool:
    """Whether there are so many neurons that a special way of computing g pays off."""
    return neurons.numel() > CHUNK


def apply_rowwise(g: MemoryFunction, info: Tensor) -> Tensor:
    """Compute g(info) with little memory: (..., k) -> (...)."""
    rows = info.reshape(-1, g.size)
    if torch.compiler.is_compiling() or len(rows) <= CHUNK:  # torch.compile optimises memory itself
        return g(info)
    weights, biases = zip(*g.weights(), strict=True)
    return _ChunkedMLP.apply(rows, len(weights), *weights, *biases).view(info.shape[:-1])


class _ChunkedMLP(torch.autograd.Function):
    """A ReLU perceptron applied to rows: (r, k) -> (r,)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, depth: int, *parameters: Tensor | None) -> Tensor:
        """Compute chunk by chunk. Only the input is kept for the backward pass."""
        ctx.depth = depth
        ctx.save_for_backward(rows, *parameters)
        weights, biases = parameters[:depth], parameters[depth:]
        return torch.cat([_hidden(chunk, weights, biases)[-1] for chunk in rows.split(CHUNK)]).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Recompute each chunk's hidden layers, then backpropagate through them."""
        rows, *parameters = ctx.saved_tensors
        weights, biases = parameters[: ctx.depth], parameters[ctx.depth :]
        weight_gradients = [torch.zeros_like(weight) for weight in weights]
        bias_gradients = [None if bias is None else torch.zeros_like(bias) for bias in biases]
        row_gradients = []
        for chunk, output in zip(rows.split(CHUNK), outputs[0].unsqueeze(-1).split(CHUNK), strict=True):
            hidden = [chunk, *_hidden(chunk, weights, biases)]
            delta = output
            for layer in reversed(range(ctx.depth)):
                weight_gradients[layer].addmm_(delta.T, hidden[layer])
                if (bias_gradient := bias_gradients[layer]) is not None:
                    bias_gradient.add_(delta.sum(0))
                if layer:
                    delta = (delta @ weights[layer]).mul_(hidden[layer] > 0)
            if ctx.needs_input_grad[0]:
                row_gradients.append(delta @ weights[0])
        return torch.cat(row_gradients) if row_gradients else None, None, *weight_gradients, *bias_gradients


def _hidden(rows: Tensor, weights: Any, biases: Any) -> list[Tensor]:
    """Return the outputs of every layer: after the ReLU for hidden layers, without ReLU for the last."""
    outputs = []
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        rows = F.linear(rows, weight, bias)
        if index < len(weights) - 1:
            rows = rows.relu_()
        outputs.append(rows)
    return outputs
