"""Matrix products with either library agree up to rounding, and there is a fallback if one library is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from csn.baselines.coordinates import CoordinateLSTM
from csn.core.neurons import SHIFT_RULES
from csn.core.shortcuts import products
from csn.networks.packing import pack
from csn.networks.recurrence import lstm_layer

needs_onednn = pytest.mark.skipif(not products._is_right(), reason="this torch has no oneDNN product to call")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    products.choose(None)


def layer(rule: str, shifted: bool, dtype: torch.dtype, rows: Tensor | None = None) -> list[Tensor]:
    """h, c and all gradients of a layer over sentences of 1 to 6 words, or of words that read these rows."""
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    real = torch.arange(6) < torch.tensor([6, 1, 4, 3, 6]).unsqueeze(1)
    leaves = [leaf(int(real.sum()) if rows is None else 7, 3), leaf(16, 3), leaf(16, 4), leaf(16)]
    beta = leaf(5, 6, 4) if shifted else None
    h, c = lstm_layer(*leaves, pack(real), beta, rule, rows)  # type: ignore[arg-type]
    weights = torch.randn(h.shape, generator=generator, dtype=torch.float64).to(dtype)
    asked = leaves + ([c] if beta is None else [beta])
    return [h.detach(), c.detach(), *torch.autograd.grad((h * weights).sum(), asked)]


@needs_onednn
@pytest.mark.parametrize("rows", [None, torch.arange(20) * 3 % 7], ids=["a row a word", "shared rows"])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_a_recurrence_has_the_same_values_and_gradients(rule, shifted, rows):
    """torch itself always multiplies float64."""
    found = {}
    for name in ("torch", "onednn"):
        products.choose(name)  # type: ignore[arg-type]
        found[name] = layer(rule, shifted, torch.float32, rows)
    for one, other in zip(found["onednn"], layer(rule, shifted, torch.float64, rows), strict=True):
        assert_close(one.double(), other, rtol=2e-5, atol=2e-5)
    for one, other in zip(found["torch"], layer(rule, shifted, torch.float64, rows), strict=True):
        assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


@needs_onednn
def test_inference_has_the_values_of_training():
    products.choose("onednn")
    with torch.no_grad():
        real = torch.ones(3, 4, dtype=torch.bool)
        arguments = torch.randn(12, 2), torch.randn(20, 2), torch.randn(20, 5), torch.randn(20), pack(real)
        plain = lstm_layer(*arguments)
    with torch.enable_grad():
        kept = lstm_layer(*arguments)
    assert all(torch.equal(one, other) for one, other in zip(plain, kept, strict=True))


@needs_onednn
def test_an_lstm_over_weights_has_the_same_values_and_gradients():
    torch.manual_seed(0)
    rule, sequence = CoordinateLSTM(2, units=5), torch.randn(3, 2, 70)
    found = []
    for name in ("torch", "onednn"):
        products.choose(name)  # type: ignore[arg-type]
        rule.zero_grad()
        output = rule(sequence)
        output.square().sum().backward()
        found.append([output.detach(), *(parameter.grad.clone() for parameter in rule.parameters())])  # type: ignore[union-attr]
    for one, other in zip(*found, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_torch_multiplies_where_the_operation_is_missing(monkeypatch):
    def missing(*arguments: object) -> None:
        raise AttributeError("no such operation")

    monkeypatch.setattr(products, "_onednn", missing)
    monkeypatch.setattr(products, "_probed", None)
    assert products.chosen() == "torch"
    products.choose("onednn")
    assert products.chosen() == "torch"
    a, b = torch.randn(5, 6), torch.randn(6, 7)
    assert torch.equal(products.matmul(a, b), a @ b)


def test_torch_multiplies_where_the_operation_is_wrong(monkeypatch):
    monkeypatch.setattr(products, "_onednn", lambda a, b: a @ b + 1)
    monkeypatch.setattr(products, "_probed", None)
    assert products.chosen() == "torch"


@pytest.mark.parametrize(("usual", "fast", "expected"), [(0.002, 0.001, "onednn"), (0.001, 0.0009, "torch")])
def test_the_probe_takes_what_is_clearly_faster(monkeypatch, usual, fast, expected):
    times = iter([usual, fast] * products._REPEATS)
    monkeypatch.setattr(products, "_is_right", lambda: True)
    monkeypatch.setattr(products, "_seconds", lambda work: next(times))
    monkeypatch.setattr(products, "_probed", None)
    assert products.chosen() == expected
    assert products.chosen() == expected  # and asks no second time


def test_other_libraries_are_refused():
    with pytest.raises(ValueError, match="products must be one of torch, onednn, got 'mkl'"):
        products.choose("mkl")  # type: ignore[arg-type]
