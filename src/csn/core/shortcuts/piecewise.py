"""g along straight lines, exactly: between two breakpoints of its ReLUs it is slope * r + offset.

A neuron's information is one number on a line that many neurons share. Direct feedback with a smooth sigma (eq. 7) puts
it at sigma'(a) e_i, on the line through 0 and the example's error; the preprocessed gradient (eq. 6) is on a path of
three lines that all neurons share. So g is worked out once per piece of a line, and each of hundreds of thousands of
neurons looks its piece up: two numbers instead of a perceptron. Values and gradients are those of g itself, since
within a piece g and its derivatives with respect to its weights are affine in r.

`N` lines, `S` pieces of each, `k` inputs of g.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from csn.core.memory import MemoryFunction

LARGEST_LOG = 710.0  # of any finite float
CELLS = 4096  # of all lines; their tables stay in a core's own cache


def scaled(g: MemoryFunction, scale: Tensor, info: Tensor) -> Tensor:
    """g(s * e): scale (N, ...), info (N, k) -> (N, ...)."""
    where = scale.flatten(1)
    low, high = where.aminmax()
    bounds = torch.stack([low, high]).expand(len(info), 2)
    breaks, slope, offset = pieces(g, torch.zeros_like(info), info, bounds)
    return _look_up(breaks, slope, offset, where).view_as(scale)


def preprocessed(g: MemoryFunction, gradient: Tensor, p: float) -> Tensor:
    """g of eq. 6's preprocessed gradient: (...) -> (...).

    As x grows from -inf to inf, eq. 6 walks a path without a gap: (log|x| / p, -1) down to (-1, -1), (-1, e^p x) up to
    (-1, 1), then (log x / p, 1). The distance r along it is e^p x in the middle and sgn(x) (log|x| / p + 2) outside.
    """
    x = gradient.reshape(1, -1)
    floor = math.exp(-p)
    magnitude = x.abs()
    outside = magnitude.clamp_min(floor).log_().div_(p).add_(2).copysign_(x)
    r = torch.where(magnitude >= floor, outside, x / floor)
    far = 2 + LARGEST_LOG / p
    origin = x.new_tensor([[-2.0, -1.0], [-1.0, 0.0], [-2.0, 1.0]])
    direction = x.new_tensor([[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    breaks, slope, offset = pieces(g, origin, direction, x.new_tensor([[-far, -1.0], [-1.0, 1.0], [1.0, far]]))
    joints = x.new_tensor([[-1.0], [1.0], [far]])
    joined = torch.cat([breaks, joints], dim=1).flatten()[:-1]  # the last line ends in no joint
    wide = torch.ones(len(joined) + 1, dtype=torch.bool, device=x.device)
    wide[1:-1] = joined[1:] > joined[:-1]  # lines of fewer pieces have some without a width
    slope, offset = (table.flatten()[wide].unsqueeze(0) for table in (slope, offset))
    return _look_up(joined[wide[1:]].unsqueeze(0), slope, offset, r).view_as(gradient)


def pieces(g: MemoryFunction, origin: Tensor, direction: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """g(origin + r direction) = slope * r + offset, piece by piece, for r between the bounds.

    origin, direction: (N, k); bounds: (N, 2) -> breaks (N, S - 1) in order, slope and offset (N, S). Lines with fewer
    pieces than others repeat their upper bound.
    """
    low, high = bounds[:, :1], bounds[:, 1:]
    breaks = low[:, :0]
    with torch.no_grad():
        for layer in range(len(g.layers) - 1):
            edges = torch.cat([low, breaks, high], dim=1)
            a, b = _affine(g, origin, direction, edges, layer)
            roots = -b / a  # (N, S, units); 0 / 0 is inside no piece
            inside = (roots > edges[:, :-1, None]) & (roots < edges[:, 1:, None])
            found = torch.where(inside, roots, high[..., None]).flatten(1)
            breaks = torch.cat([breaks, found], dim=1).sort(dim=1).values
            breaks = breaks[:, : int((breaks < high).sum(1).max())]
    edges = torch.cat([low, breaks, high], dim=1)
    a, b = _affine(g, origin, direction, edges, len(g.layers) - 1)
    return breaks, a.squeeze(-1), b.squeeze(-1)


def _affine(g: MemoryFunction, origin: Tensor, direction: Tensor, edges: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """What enters the ReLU of a layer of g as a * r + b, in every piece: (N, S, units) each."""
    r = ((edges[:, 1:] + edges[:, :-1]) / 2).unsqueeze(-1)  # which units are on does not change within a piece
    a, b = direction.unsqueeze(1), origin.unsqueeze(1)
    for index, (weight, bias) in enumerate(g.weights()):
        a, b = F.linear(a, weight), F.linear(b, weight, bias)
        if index == layer:
            break
        on = (a * r + b).detach() > 0
        a, b = a * on, b * on
    return a.expand(-1, r.shape[1], -1), b.expand(-1, r.shape[1], -1)


def _look_up(breaks: Tensor, slope: Tensor, offset: Tensor, where: Tensor) -> Tensor:
    """slope * r + offset of the piece that r is in; where: (N, r)."""
    piece = _piece(breaks, where).flatten()
    found = (table.flatten().index_select(0, piece).view_as(where) for table in (offset, slope))
    return torch.addcmul(next(found), next(found), where)


@torch.no_grad()
def _piece(breaks: Tensor, where: Tensor) -> Tensor:
    """The number of the piece that r is in, counted through all lines: breaks (N, S - 1), where (N, r) -> (N, r).

    A bisection of each r would guess wrong at every second branch. So the lines are cut into equal cells, which know
    how many breaks lie before them; r then passes the breaks of its own cell, of which there are few. Rounding may put
    r into the cell beside its own only where a break is that close, and there both pieces have one value.
    """
    lines = len(breaks)
    low, high = where.aminmax()
    cells = max(CELLS // lines, 1)
    edges = low + (high - low) * torch.linspace(0, 1, cells + 1, dtype=where.dtype, device=where.device)
    before = torch.searchsorted(breaks.contiguous(), edges.expand(lines, -1).contiguous(), out_int32=True)
    most = int((before[:, 1:] - before[:, :-1]).max())
    per_unit = cells / (high - low).clamp_min(torch.finfo(where.dtype).tiny)
    cell = ((where - low) * per_unit).to(torch.int32).clamp_(0, cells - 1)
    limits = F.pad(breaks, (0, 1), value=math.inf).flatten()
    line = torch.arange(lines, dtype=torch.int32, device=where.device).unsqueeze(1)
    if lines > 1:
        cell += line * cells
    pieces_before = (before[:, :-1] + line * (breaks.shape[1] + 1)).flatten()
    piece = pieces_before.index_select(0, cell.flatten()).view_as(cell)
    for _ in range(most):
        piece += where > limits.index_select(0, piece.flatten()).view_as(where)
    return piece
