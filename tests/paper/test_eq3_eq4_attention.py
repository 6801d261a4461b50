"""Eqs. 3-4: alpha = softmax_i(cos(k_j, k'_i)), beta_t = alpha^T V_t."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from csn.core.conditioning import DirectFeedback
from csn.core.memory import DenseValues, GatedValues, MemoryFunction, TaskMemory
from csn.core.model import CSN
from csn.episode import Examples
from csn.networks.ffn import FFN, MLPKey


def memory_of(keys: Tensor) -> TaskMemory:
    """One task whose keys are given and whose values do not matter."""
    return TaskMemory(keys[None], (), torch.zeros(1, len(keys), dtype=torch.int64), 2)


def test_attention_by_hand():
    memory = memory_of(tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    alpha = memory.attend(tensor([[[5.0, 0.0], [1.0, 1.0]]]))
    e, half = math.e, math.sqrt(0.5)
    first = [e / (e + 1 + 1 / e), 1 / (e + 1 + 1 / e), 1 / e / (e + 1 + 1 / e)]  # cosines 1, 0, -1
    total = 2 * math.exp(half) + math.exp(-half)  # cosines 0.7071, 0.7071, -0.7071
    second = [math.exp(half) / total, math.exp(half) / total, math.exp(-half) / total]
    assert_close(alpha, tensor([[first, second]]))


def test_the_length_of_keys_and_queries_does_not_matter():
    torch.manual_seed(0)
    keys, queries = torch.randn(4, 3), torch.randn(1, 5, 3)
    assert_close(memory_of(keys).attend(queries), memory_of(7 * keys).attend(queries / 9))


def test_scale_multiplies_the_cosines():
    memory = memory_of(tensor([[1.0, 0.0], [0.0, 1.0]]))
    alpha = memory.attend(tensor([[[2.0, 0.0]]]), scale=tensor(3.0))
    assert_close(alpha, tensor([[[math.exp(3) / (math.exp(3) + 1), 1 / (math.exp(3) + 1)]]]))


def test_hard_attention_takes_the_most_similar_key_alone():
    memory = memory_of(tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    alpha = memory.attend(tensor([[[5.0, 1.0], [1.0, 5.0], [2.0, 2.1]]]), kind="hard")
    assert alpha.tolist() == [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]


def test_unknown_attention_is_refused():
    with pytest.raises(ValueError, match=r"'softish'.*soft or hard"):
        memory_of(torch.ones(2, 2)).attend(torch.ones(1, 1, 2), kind="softish")


def test_a_zero_key_attends_evenly_and_has_finite_gradients():
    keys = torch.zeros(2, 2, requires_grad=True)
    alpha = memory_of(keys).attend(tensor([[[1.0, 2.0]]]))
    assert_close(alpha, tensor([[[0.5, 0.5]]]))
    alpha[0, 0, 0].backward()
    assert torch.isfinite(keys.grad).all()


@pytest.mark.parametrize("neurons", [(3,), (2, 3), (2, 1, 3), (2, 2, 2, 2)])
def test_beta_is_the_attention_weighted_sum_of_values_by_nested_loops(neurons):
    torch.manual_seed(0)
    b, n, m = 2, 3, 4
    alpha = torch.rand(b, m, n).softmax(-1)
    dense = DenseValues(torch.randn(b, n, *neurons))
    gated = GatedValues(torch.rand(b, n, *neurons) > 0.5, torch.randn(b, n), torch.randn(()))
    for values in (dense, gated):
        beta, V = values.read(alpha), values.dense()
        assert beta.shape == (b, m, *neurons)
        for task in range(b):
            for j in range(m):
                expected = sum(alpha[task, j, i] * V[task, i] for i in range(n))
                assert_close(beta[task, j], expected)


def test_gated_values_are_base_or_base_plus_gain():
    values = GatedValues(tensor([[[True, False]], [[False, True]]]), tensor([[2.0], [5.0]]), tensor(-1.0))
    assert values.dense().tolist() == [[[1.0, -1.0]], [[-1.0, 4.0]]]


def model(temperature: float | None, attention: str = "soft") -> CSN:
    torch.manual_seed(0)
    base, key = FFN(4, 3, units=6, dropout=0.0), MLPKey(4, size=5, units=6)
    return CSN(base, key, MemoryFunction(3), DirectFeedback(), temperature=temperature, attention=attention)


@pytest.mark.parametrize("temperature", [None, 10.0])
def test_model_attends_with_softmax_of_scaled_cosines_by_nested_loops(float64, temperature):
    csn = model(temperature)
    support, x = Examples(torch.randn(2, 3, 4), tensor([[0, 1, 2], [2, 1, 0]])), torch.randn(2, 5, 4)
    alpha = csn.attend(x, csn.describe(support))
    for task in range(2):
        keys = [csn.key_function(row[None])[0].tolist() for row in support.x[task]]
        for j in range(5):
            k = csn.key_function(x[task, j][None])[0].tolist()
            cosines = [
                sum(p * q for p, q in zip(k, key, strict=True)) / (math.hypot(*k) * math.hypot(*key)) for key in keys
            ]
            weights = [math.exp((temperature or 1.0) * cosine) for cosine in cosines]
            assert_close(alpha[task, j], tensor([weight / sum(weights) for weight in weights]))


def test_without_a_temperature_there_is_nothing_to_learn_about_the_scale():
    assert "log_scale" not in dict(model(None).named_parameters())
    assert model(10.0).log_scale.exp().item() == pytest.approx(10.0)


def test_model_with_hard_attention_predicts_from_one_row():
    csn = model(None, "hard").eval()
    support, x = Examples(torch.randn(1, 3, 4), tensor([[0, 1, 2]])), torch.randn(1, 6, 4)
    memory = csn.describe(support)
    rows = csn.attend(x, memory).argmax(-1)[0].tolist()
    assert len(set(rows)) > 1
    for j, row in enumerate(rows):
        assert_close(csn.predict(x[:, j : j + 1], memory), csn.predict(x[:, j : j + 1], memory.rows([row])))
