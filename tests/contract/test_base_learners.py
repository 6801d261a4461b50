"""What every base learner promises: a plain network whose adapted layers report a_t and accept beta_t."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

WAY = 4  # of every base learner in conftest.py
RULES = ["squashed", "raw", "inside"]
EXACT = {"rtol": 0, "atol": 1e-12}


def prepared(base_case, rule="squashed"):
    torch.manual_seed(0)
    base = base_case.build(rule).eval()
    torch.nn.init.normal_(base.output.weight)  # as after some training
    return base, torch.randn(5, *base_case.shape)


@pytest.mark.parametrize("rule", RULES)
def test_zero_shifts_change_nothing(base_case, rule):
    """sigma(0) = 0 for ReLU and tanh, so every rule of section 4.3 leaves the network alone."""
    base, x = prepared(base_case, rule)
    plain = base(x)
    shifted = base(x, tuple(torch.zeros_like(a) for a in plain.preactivations))
    assert_close(shifted.logits, plain.logits, **EXACT)


@pytest.mark.parametrize("rule", RULES)
def test_a_shift_of_any_layer_changes_the_logits(base_case, rule):
    base, x = prepared(base_case, rule)
    plain = base(x)
    for t in range(len(plain.preactivations)):
        shifts = tuple(
            torch.ones_like(a) if s == t else torch.zeros_like(a) for s, a in enumerate(plain.preactivations)
        )
        assert not torch.allclose(base(x, shifts).logits, plain.logits)


def test_one_preactivation_per_activation_and_one_for_the_output(base_case):
    base, x = prepared(base_case)
    output = base(x)
    assert len(output.preactivations) == len(base.activations) + 1
    assert output.logits.shape == output.preactivations[-1].shape == (5, base.way)
    assert base.way == WAY
    assert all(len(a) == 5 for a in output.preactivations)
    assert torch.equal(output.logits, output.preactivations[-1])  # unshifted


def test_a_shift_of_the_output_is_added_to_its_logits(base_case):
    base, x = prepared(base_case)
    plain = base(x)
    beta = torch.randn(5, WAY)
    shifts = (*(torch.zeros_like(a) for a in plain.preactivations[:-1]), beta)
    assert_close(base(x, shifts).logits, plain.logits + beta, **EXACT)


def test_examples_are_independent_of_each_other_in_evaluation(base_case):
    base, x = prepared(base_case)
    shifts = tuple(torch.randn_like(a) for a in base(x).preactivations)
    together = base(x, shifts)
    for i in range(5):
        alone = base(x[i : i + 1], tuple(beta[i : i + 1] for beta in shifts))
        assert_close(alone.logits[0], together.logits[i], **EXACT)
        for a, b in zip(alone.preactivations, together.preactivations, strict=True):
            assert_close(a[0], b[i], **EXACT)


def test_forward_is_head_after_stem(base_case):
    base, x = prepared(base_case)
    assert torch.equal(base(x).logits, base.head(base.stem(x)).logits)


def test_preactivations_carry_the_graph(base_case):
    base, x = prepared(base_case)
    output = base(x)
    gradients = torch.autograd.grad(output.logits.square().sum(), output.preactivations)
    assert all((gradient != 0).any() for gradient in gradients)


def test_a_wrong_number_of_features_is_named():
    from csn.networks.ffn import FFN

    with pytest.raises(ValueError, match="takes 6 numbers per example, got 7"):
        FFN(6, WAY)(torch.zeros(2, 7))
