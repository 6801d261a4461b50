"""Matrix products by the faster of two libraries.

On a processor torch multiplies float32 matrices by MKL. On some makes of it oneDNN, which torch brings along for
convolutions, takes half of MKL's time for the same matrices; it is reached by an operation that torch keeps to itself.
So a probe of a few milliseconds decides, once for a process: whether the operation is there, whether it is right, and
whether it is worth while. Sums are added up in another order, so numbers differ in their last digits; a run that is
resumed goes on as it began (`choose`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

Products = Literal["torch", "onednn"]

LEAST_GAIN = 1.25
_REPEATS = 7
_choice: Products | None = None  # None until the first product
_probed: Products | None = None


def chosen() -> Products:
    """What multiplies large matrices in this process."""
    return _choice or _probe()


def choose(products: Products | None) -> None:
    """Multiply by this library from now on, where it is there; None: by the one that is faster here."""
    global _choice
    if products is not None and products not in get_args(Products):
        raise ValueError(f"products must be one of {', '.join(get_args(Products))}, got {products!r}")
    _choice = "torch" if products == "onednn" and not _is_right() else products


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b, as data: no gradient flows."""
    return _onednn(a, b) if is_onednn_for(a, b) else a @ b


class Prepared:
    """A matrix that oneDNN multiplies by many times: laid out once as it likes it, for about `rows` rows a time."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x W^T + bias, as data."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, bias, "none", [], "")


def is_onednn_for(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN is to multiply these."""
    return (
        a.device.type == "cpu"
        and a.dtype == b.dtype == torch.float32
        and a.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and chosen() == "onednn"
    )


def _onednn(a: Tensor, b: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")


def _is_right() -> bool:
    """Whether torch has the operation and it multiplies, in each of the forms above."""
    a, b, c = (torch.linspace(-1, 1, rows * columns).sin().view(rows, columns) for rows, columns in _SIZES)
    try:
        found = (_onednn(a, b), _onednn(b.T, a.T), Prepared(b.T, len(a))(a, c[0]), Prepared(b.T, len(a))(a[:5]))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    expected = (a @ b, (a @ b).T, torch.addmm(c[0], a, b), a[:5] @ b)
    return all(torch.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in zip(found, expected, strict=True))


_SIZES = ((64, 300), (300, 600), (64, 600))  # about those of a step of an LSTM


@torch.no_grad()
def _probe() -> Products:
    """Time both libraries in turn; of several times the least one is the machine's own."""
    global _probed
    if _probed is None:
        _probed = "torch"
        if _is_right():
            a, b = (torch.ones(size) for size in _SIZES[:2])
            times = [(_seconds(lambda: a @ b), _seconds(lambda: _onednn(a, b))) for _ in range(_REPEATS)]
            usual, onednn = (min(column) for column in zip(*times, strict=True))
            _probed = "onednn" if usual > LEAST_GAIN * onednn else "torch"
    return _probed


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
