"""Matrix products computed by the faster of two libraries.

On a CPU, torch multiplies float32 matrices with MKL. On some processors oneDNN needs only half the time for the same
matrices. torch ships oneDNN for convolutions, but offers its products only through a private operation. A probe of a
few milliseconds therefore runs once per process. It tests whether the operation exists, whether its results are
correct, and whether it is clearly faster. The two libraries sum in different orders, so results differ in their last
digits. A resumed run keeps the library that it started with (`choose`).
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
    """Return the library that multiplies large matrices in this process."""
    return _choice or _probe()


def choose(products: Products | None) -> None:
    """Use this library from now on, if it is available. None selects the library that is faster on this machine."""
    global _choice
    if products is not None and products not in get_args(Products):
        raise ValueError(f"products must be one of {', '.join(get_args(Products))}, got {products!r}")
    _choice = "torch" if products == "onednn" and not _is_right() else products


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Compute the product a b. No gradient flows through it."""
    return _onednn(a, b) if is_onednn_for(a, b) else a @ b


class Prepared:
    """A matrix by which oneDNN multiplies many times, converted once to the layout that oneDNN prefers.

    Args:
        weight: W, (outputs, inputs).
        rows: The usual number of rows of x. The layout is tuned to it; other numbers work too.
    """

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows)

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute x W^T + bias. No gradient flows through it."""
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, bias, "none", [], "")


def is_onednn_for(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN should multiply these matrices."""
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
    """Whether torch has the operation and it gives correct products, in each of the forms above."""
    a, b, c = (torch.linspace(-1, 1, rows * columns).sin().view(rows, columns) for rows, columns in _SIZES)
    try:
        found = (_onednn(a, b), _onednn(b.T, a.T), Prepared(b.T, len(a))(a, c[0]), Prepared(b.T, len(a))(a[:5]))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    expected = (a @ b, (a @ b).T, torch.addmm(c[0], a, b), a[:5] @ b)
    return all(torch.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in zip(found, expected, strict=True))


_SIZES = ((64, 300), (300, 600), (64, 600))  # typical of one step of an LSTM


@torch.no_grad()
def _probe() -> Products:
    """Time both libraries in turn. The shortest of several times is the least disturbed by other processes."""
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
