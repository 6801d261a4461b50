"""How the memory function g starts, so that training leaves chance."""

from __future__ import annotations

import torch

from csn.core.conditioning import Conditioning, DirectFeedback
from csn.core.memory import MemoryFunction

GUARD_DRAWS = 32


@torch.no_grad()
def guard(g: MemoryFunction, conditioning: Conditioning, way: int) -> None:
    """Draw g several times, keep the draw with the largest |d|, and scale it so that d >= 1.

    d compares two values that g writes for a uniform prediction: the value at the output neuron of the example's own
    class, minus the mean value at the other output neurons. About half of all draws have d < 0; they are replaced by
    -g. Most of the others have a d so close to 0 that the signal drowns, because the attention of an untrained f is
    nearly uniform. Training then stays at chance or starts late.

    With direct feedback, this nearly uniform attention makes every hidden shift start as the mean of g(e) over the
    classes. A draw with a negative mean is rejected, because every hidden ReLU(beta) would start dead.

    Args:
        g: The memory function. It is changed in place.
        conditioning: The kind of conditioning information that g reads.
        way: C, the number of classes.
    """
    like = g.weights()[0][0]
    own = torch.eye(way, dtype=torch.bool, device=like.device)
    error = like.new_full((way, way), 1 / way) - own.to(like.dtype)  # y_hat - y of one example per class
    info = conditioning.output_info(error[None])
    # A one-layer g is linear, so its values of e sum to 0 over the classes, whatever its weights.
    needs_life = isinstance(conditioning, DirectFeedback) and len(g.layers) > 1
    best, start = 0.0, {}
    for _ in range(GUARD_DRAWS):
        values = info.values(g).dense()[0]
        d = float(values[own].mean() - values[~own].mean())
        if d < 0:
            g.scale(-1)
        if abs(d) > best and (not needs_life or bool(g(error).mean() > 0)):
            best, start = abs(d), {name: tensor.clone() for name, tensor in g.state_dict().items()}
        g.initialise()
    g.load_state_dict(start)
    g.scale(max(1, 1 / best))


@torch.no_grad()
def quieten(g: MemoryFunction, conditioning: Conditioning) -> None:
    """Add a constant to g so that a neuron without an error is not shifted at first. d does not change.

    The softmax layer starts at 0, so no gradient reaches the hidden layers, and g writes the same shift at each of
    their neurons. The gradient of g sums over all of them. With tens of thousands of neurons, the first steps of plain
    SGD overshoot, and g loses its helpful start for the softmax layer.

    Args:
        g: The memory function. It is changed in place.
        conditioning: The kind of conditioning information that g reads.
    """
    bias = g.weights()[-1][1]
    if bias is not None:  # without a bias, g maps a gradient of 0 to 0 already
        bias -= g(conditioning.rest(g.weights()[0][0]))
