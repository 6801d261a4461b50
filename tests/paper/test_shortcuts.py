"""The cheap forms of the information and of g are equal to the dense ones the paper prints: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import csn.core.shortcuts.rowwise
from csn.core.conditioning import (
    Conditioning,
    DenseInfo,
    DirectFeedback,
    ErrorGradient,
    GatedInfo,
    LayerInfo,
    ScaledInfo,
    SparseInfo,
    write,
)
from csn.core.memory import GatedValues, LayerValues, MemoryFunction
from csn.core.model import CSN
from csn.core.neurons import TANH
from csn.core.shortcuts.rowwise import apply_rowwise
from csn.episode import Episode, Examples
from csn.networks.cnn import CNN, CNNKey
from csn.networks.ffn import FFN, MLPKey

NEURONS = [(6,), (3, 3, 4)]
EXACT = {"rtol": 0, "atol": 1e-12}


def infos(kind: str, neurons: tuple[int, ...]) -> LayerInfo:
    b, n, C = 2, 3, 4
    error = torch.randn(b, n, C)
    gradient = torch.randn(b, n, *neurons) * (torch.rand(b, n, *neurons) > 0.6)
    return {
        "gated": GatedInfo(torch.rand(b, n, *neurons) > 0.5, error),
        "scaled": ScaledInfo(torch.rand(b, n, *neurons), error),
        "sparse": SparseInfo(gradient, 7.0),
        "sparse-raw": SparseInfo(gradient, None),
        "sparse-none": SparseInfo(torch.zeros_like(gradient), 7.0),
    }[kind]


def g_for(info: LayerInfo, layers: int = 3, bias: bool = True) -> MemoryFunction:
    g = MemoryFunction(info.dense().shape[-1], units=5, layers=layers, bias=bias)
    for parameter in g.parameters():
        torch.nn.init.normal_(parameter)  # biases too, so that g(0) != 0
    return g


def beta_and_gradients(values: LayerValues, cosines: Tensor, weight: Tensor, g: MemoryFunction) -> list[Tensor]:
    """Shifts, and the gradients of a function of them with respect to g and to the inputs of attention."""
    beta = values.read(cosines.softmax(-1))
    return [beta, *torch.autograd.grad((beta * weight).sum(), [*g.parameters(), cosines])]


@pytest.mark.parametrize(("layers", "bias"), [(3, True), (1, True), (1, False)])
@pytest.mark.parametrize("neurons", NEURONS)
@pytest.mark.parametrize("kind", ["gated", "scaled", "sparse", "sparse-raw", "sparse-none"])
def test_values_shifts_and_gradients_equal_the_dense_form(float64, kind, neurons, layers, bias):
    torch.manual_seed(0)
    info = infos(kind, neurons)
    g = g_for(info, layers, bias)
    naive = DenseInfo(info.dense()).values(g)
    short = info.values(g)
    by_hand = torch.stack([g(row) for row in info.dense().reshape(-1, g.size)]).view_as(naive.dense())
    assert_close(naive.dense(), by_hand, **EXACT)
    assert_close(short.dense(), by_hand, **EXACT)

    cosines = torch.rand(2, 5, 3, requires_grad=True)
    weight = torch.randn(2, 5, *neurons)
    expected = beta_and_gradients(naive, cosines, weight, g)
    for a, b in zip(beta_and_gradients(short, cosines, weight, g), expected, strict=True):
        assert_close(a, b, **EXACT)


def test_layers_that_share_their_errors_share_what_g_makes_of_them(float64, monkeypatch):
    torch.manual_seed(0)
    first = infos("gated", (6,))
    assert isinstance(first, GatedInfo)
    layers = [first, GatedInfo(torch.rand(2, 3, 3, 3, 4) > 0.5, first.error), DenseInfo(torch.randn(2, 3, 4, 4))]
    g = g_for(first)
    expected = [layer.values(g).dense() for layer in layers]
    calls, forward = [], MemoryFunction.forward
    monkeypatch.setattr(MemoryFunction, "forward", lambda g, info: calls.append(info.shape) or forward(g, info))
    for values, alone in zip(write(layers, g), expected, strict=True):
        assert_close(values.dense(), alone, **EXACT)
    assert calls == [(2 * 3 + 1, 4), (2, 3, 4, 4)]


@pytest.mark.parametrize("neurons", NEURONS)
def test_relu_feedback_keeps_a_bit_mask_and_n_plus_one_numbers(float64, neurons):
    info = infos("gated", neurons)
    values = info.values(g_for(info))
    assert isinstance(values, GatedValues)
    assert values.gate.dtype == torch.bool
    assert (values.gain.numel(), values.base.numel()) == (2 * 3, 1)


@pytest.mark.parametrize(("layers", "bias"), [(3, True), (2, True), (1, True), (3, False), (1, False)])
@pytest.mark.parametrize("rows", [20, 21, 1])  # whole chunks, a remainder, fewer than a chunk
def test_chunks_change_neither_values_nor_gradients(float64, monkeypatch, layers, bias, rows):
    torch.manual_seed(0)
    info = torch.randn(rows, 2, requires_grad=True)
    g = g_for(DenseInfo(info), layers, bias)
    weight = torch.randn(rows)
    expected = g(info)
    monkeypatch.setattr(csn.core.shortcuts.rowwise, "CHUNK", 5)
    found = apply_rowwise(g, info)
    assert_close(found, expected, **EXACT)
    parameters = [info, *g.parameters()]
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), parameters),
        torch.autograd.grad((expected * weight).sum(), parameters),
        strict=True,
    ):
        assert_close(a, b, **EXACT)


def test_chunks_keep_the_shape_of_the_neurons(float64, monkeypatch):
    monkeypatch.setattr(csn.core.shortcuts.rowwise, "CHUNK", 5)
    info = torch.randn(2, 3, 4, 2)
    g = g_for(DenseInfo(info))
    assert_close(apply_rowwise(g, info), g(info), **EXACT)
    permuted = info.transpose(1, 2)  # not contiguous
    assert_close(apply_rowwise(g, permuted), g(info).transpose(1, 2), **EXACT)


def test_chunked_gradient_against_numerical_differences(float64, monkeypatch):
    monkeypatch.setattr(csn.core.shortcuts.rowwise, "CHUNK", 5)
    torch.manual_seed(3)
    info = torch.randn(12, 2)
    g = g_for(DenseInfo(info))

    def of_parameters(*values: Tensor) -> Tensor:
        weights, biases = values[:3], values[3:]
        return csn.core.shortcuts.rowwise._ChunkedMLP.apply(info, 3, *weights, *biases)

    parameters = [layer.weight for layer in g.layers] + [layer.bias for layer in g.layers]
    assert torch.autograd.gradcheck(of_parameters, [p.detach().clone().requires_grad_() for p in parameters])


class Naive:
    """A conditioning as the paper prints it: everything written out."""

    def __init__(self, inner: Conditioning) -> None:
        self.inner, self.size = inner, inner.size
        self.needs_graph, self.end_to_end = inner.needs_graph, inner.end_to_end

    def __call__(self, *args: object) -> tuple[LayerInfo, ...]:
        return tuple(DenseInfo(info.dense()) for info in self.inner(*args))


@pytest.mark.parametrize("name", ["ffn-relu", "ffn-tanh", "cnn"])
@pytest.mark.parametrize(
    "conditioning",
    [ErrorGradient(), DirectFeedback(), DirectFeedback(end_to_end=True)],
    ids=["gradient", "df", "df-end-to-end"],
)
def test_a_whole_training_step_equals_the_naive_one(float64, monkeypatch, name, conditioning):
    torch.manual_seed(0)
    if name == "cnn":
        base, key, shape = CNN((1, 12, 12), 3, filters=4), CNNKey((1, 12, 12), size=8, filters=4), (1, 12, 12)
    else:
        options = {"activation": TANH} if name == "ffn-tanh" else {}
        base, key, shape = FFN(6, 3, units=7, dropout=0.0, **options), MLPKey(6, size=8, units=7), (6,)
    torch.nn.init.normal_(base.output.weight)  # as after some training
    model = CSN(base, key, MemoryFunction(conditioning.size(3)), conditioning, temperature=5.0)
    y = torch.arange(3).repeat(2, 2)
    episode = Episode(Examples(torch.randn(2, 6, *shape), y), Examples(torch.randn(2, 6, *shape), y), 3)

    def step() -> list[Tensor]:
        output = model(episode)
        return [output.logits, *torch.autograd.grad(output.loss, list(model.parameters()))]

    model.conditioning = Naive(conditioning)
    naive = step()
    model.conditioning = conditioning
    monkeypatch.setattr(csn.core.shortcuts.rowwise, "CHUNK", 10)
    for a, b in zip(step(), naive, strict=True):
        assert_close(a, b, **EXACT)
