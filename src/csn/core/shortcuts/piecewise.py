"""Eq. 2 for layers with very many neurons: g evaluated exactly along straight lines, as slope * r + offset.

The information vectors of many neurons lie on one line, so each is given by its position r on that line:

- Direct feedback with a smooth sigma (eq. 7) gives sigma'(a) e_i. All neurons share the line through 0 and the error
  e_i of the example, and r = sigma'(a).
- The preprocessed gradient (eq. 6) lies on a path of three line segments, which all neurons and examples share.

g is a ReLU perceptron, so it is piecewise linear along a line. It bends only at breakpoints, where a hidden unit
switches on or off. The algorithm has two steps:

1. `pieces` finds the breakpoints of every line, and the slope and offset of g between them.
2. `_look_up` finds the piece of each neuron and returns slope * r + offset. This replaces a whole perceptron per neuron
   by two numbers from a table.

Values and gradients are those of g itself. Within a piece, g and its derivatives with respect to its weights are affine
in r, so autograd through the tables gives the exact gradients of the weights.

Shapes: `N` lines, `S` pieces of each, `k` inputs of g.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from csn.core.memory import MemoryFunction

LARGEST_LOG = 710.0  # no finite float has a larger natural logarithm
CELLS = 4096  # cells of all lines together, few enough for their tables to stay in the cache of a core


def scaled(g: MemoryFunction, scale: Tensor, info: Tensor) -> Tensor:
    """Compute g(s * e) for direct feedback (eq. 7).

    Args:
        g: The memory function.
        scale: s, (N, ...). Line i is s -> s * e_i, so s is the position r.
        info: e, (N, k).

    Returns:
        (N, ...).
    """
    where = scale.flatten(1)
    low, high = where.aminmax()  # breakpoints outside this range are not needed
    bounds = torch.stack([low, high]).expand(len(info), 2)
    breaks, slope, offset = pieces(g, torch.zeros_like(info), info, bounds)
    return _look_up(breaks, slope, offset, where).view_as(scale)


def preprocessed(g: MemoryFunction, gradient: Tensor, p: float) -> Tensor:
    """Compute g of the gradient preprocessed by eq. 6: (...) -> (...).

    As x grows from -inf to inf, its image under eq. 6 moves along a continuous path of three line segments:

    - x <= -e^-p: (log|x| / p, -1), which ends in (-1, -1);
    - |x| < e^-p: (-1, e^p x), from (-1, -1) to (-1, 1);
    - x >= e^-p: (log x / p, 1), which starts in (-1, 1).

    The position r along the path is e^p x in the middle and sgn(x) (log|x| / p + 2) outside. It is continuous, runs
    from -1 to 1 on the middle segment, and has unit speed everywhere.
    """
    x = gradient.reshape(1, -1)
    floor = math.exp(-p)
    magnitude = x.abs()
    outside = magnitude.clamp_min(floor).log_().div_(p).add_(2).copysign_(x)
    r = torch.where(magnitude >= floor, outside, x / floor)
    far = 2 + LARGEST_LOG / p
    # The points origin + r direction of the three segments. At r = -1 and r = 1 two segments meet.
    origin = x.new_tensor([[-2.0, -1.0], [-1.0, 0.0], [-2.0, 1.0]])
    direction = x.new_tensor([[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    breaks, slope, offset = pieces(g, origin, direction, x.new_tensor([[-far, -1.0], [-1.0, 1.0], [1.0, far]]))
    # Make one line of the three: their breakpoints in order, with the joints between the segments as breakpoints too.
    joints = x.new_tensor([[-1.0], [1.0], [far]])
    joined = torch.cat([breaks, joints], dim=1).flatten()[:-1]  # nothing follows the last segment
    # `pieces` pads segments that have fewer pieces than the others. Padded pieces have no width: drop them.
    wide = torch.ones(len(joined) + 1, dtype=torch.bool, device=x.device)
    wide[1:-1] = joined[1:] > joined[:-1]
    slope, offset = (table.flatten()[wide].unsqueeze(0) for table in (slope, offset))
    return _look_up(joined[wide[1:]].unsqueeze(0), slope, offset, r).view_as(gradient)


def pieces(g: MemoryFunction, origin: Tensor, direction: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write g(origin + r direction) as slope * r + offset, piece by piece, for r between the bounds.

    Args:
        g: The memory function.
        origin: (N, k).
        direction: (N, k).
        bounds: The range of r on each line, (N, 2).

    Returns:
        The breakpoints (N, S - 1) in ascending order, and slope and offset (N, S). A line with fewer pieces than others
        repeats its upper bound as a breakpoint, so that all lines have S pieces.
    """
    # Layer by layer: if no unit below switches within a piece, a layer's preactivation is a r + b there. The unit
    # switches at the root r = -b / a. Roots inside a piece split it for the next layer.
    low, high = bounds[:, :1], bounds[:, 1:]
    breaks = low[:, :0]
    with torch.no_grad():
        for layer in range(len(g.layers) - 1):
            edges = torch.cat([low, breaks, high], dim=1)
            a, b = _affine(g, origin, direction, edges, layer)
            roots = -b / a  # (N, S, units); a = 0 gives inf or nan, which is inside no piece
            inside = (roots > edges[:, :-1, None]) & (roots < edges[:, 1:, None])
            found = torch.where(inside, roots, high[..., None]).flatten(1)
            breaks = torch.cat([breaks, found], dim=1).sort(dim=1).values
            breaks = breaks[:, : int((breaks < high).sum(1).max())]  # as many as the line with the most has
    # The breakpoints are constants: g is continuous, so moving one changes no value. Gradients flow through a and b.
    edges = torch.cat([low, breaks, high], dim=1)
    a, b = _affine(g, origin, direction, edges, len(g.layers) - 1)
    return breaks, a.squeeze(-1), b.squeeze(-1)


def _affine(g: MemoryFunction, origin: Tensor, direction: Tensor, edges: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Write the preactivations of a layer of g as a * r + b in every piece: (N, S, units) each.

    Args:
        g: The memory function.
        origin: (N, k).
        direction: (N, k).
        edges: The ends of the pieces, (N, S + 1). No unit below the layer switches within a piece.
        layer: The index of the layer.
    """
    # A unit is on or off throughout a piece, so its state in the middle of the piece decides.
    r = ((edges[:, 1:] + edges[:, :-1]) / 2).unsqueeze(-1)
    a, b = direction.unsqueeze(1), origin.unsqueeze(1)
    for index, (weight, bias) in enumerate(g.weights()):
        a, b = F.linear(a, weight), F.linear(b, weight, bias)
        if index == layer:
            break
        on = (a * r + b).detach() > 0
        a, b = a * on, b * on  # the ReLU passes a unit that is on, and sets a unit that is off to 0
    return a.expand(-1, r.shape[1], -1), b.expand(-1, r.shape[1], -1)


def _look_up(breaks: Tensor, slope: Tensor, offset: Tensor, where: Tensor) -> Tensor:
    """Compute slope * r + offset of the piece that contains r. `where` (N, r) holds the positions r."""
    piece = _piece(breaks, where).flatten()
    found = (table.flatten().index_select(0, piece).view_as(where) for table in (offset, slope))
    return torch.addcmul(next(found), next(found), where)


@torch.no_grad()
def _piece(breaks: Tensor, where: Tensor) -> Tensor:
    """Find the piece that contains each r, numbered across all lines: breaks (N, S - 1), where (N, r) -> (N, r).

    A binary search per r would be slow, because the processor mispredicts every second branch. Instead, each line is
    cut into equal cells. A table holds the number of breakpoints before each cell. The piece of r is that number plus
    the breakpoints of its cell that lie below r. A cell has few of them, so `most` comparisons for all r at once
    suffice. Rounding can put r into a neighbouring cell only if r is that close to their border. If a breakpoint lies
    between, r is just as close to the breakpoint, where both pieces have the same value.
    """
    lines = len(breaks)
    low, high = where.aminmax()
    cells = max(CELLS // lines, 1)
    edges = low + (high - low) * torch.linspace(0, 1, cells + 1, dtype=where.dtype, device=where.device)
    before = torch.searchsorted(breaks.contiguous(), edges.expand(lines, -1).contiguous(), out_int32=True)
    most = int((before[:, 1:] - before[:, :-1]).max())  # breakpoints in the fullest cell
    per_unit = cells / (high - low).clamp_min(torch.finfo(where.dtype).tiny)
    cell = ((where - low) * per_unit).to(torch.int32).clamp_(0, cells - 1)
    limits = F.pad(breaks, (0, 1), value=math.inf).flatten()  # upper end of every piece; none ends the last one
    line = torch.arange(lines, dtype=torch.int32, device=where.device).unsqueeze(1)
    if lines > 1:
        cell += line * cells  # numbered across all lines
    pieces_before = (before[:, :-1] + line * (breaks.shape[1] + 1)).flatten()  # each line has S pieces
    piece = pieces_before.index_select(0, cell.flatten()).view_as(cell)
    for _ in range(most):  # step over a breakpoint wherever r lies beyond the present piece
        piece += where > limits.index_select(0, piece.flatten()).view_as(where)
    return piece
