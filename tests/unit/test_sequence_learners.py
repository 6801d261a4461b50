"""SNAIL and MANN against their definitions, and the heads of fine-tuning and the Meta-Learner LSTM's update."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, tensor
from torch.testing import assert_close

from csn.baselines.finetune import FineTuned
from csn.baselines.mann import MANN, State, least_used
from csn.baselines.meta_lstm import MetaLSTM
from csn.baselines.snail import SNAIL, AttentionBlock, DenseBlock
from csn.building import build, build_learner
from csn.config import load_preset, merge
from csn.core.conditioning import preprocess_gradient
from csn.episode import Episode, Examples
from csn.learner import InputSpec

pytestmark = pytest.mark.usefixtures("float64")


# SNAIL


def test_a_dense_block_by_hand():
    """One feature: f = x_t + 2 x_{t-2}, g = 0, so tanh(f) / 2 is appended; before the start there is 0."""
    block = DenseBlock(1, dilation=2, filters=1)
    with torch.no_grad():
        block.now.weight.copy_(tensor([[1.0], [0.0]]))
        block.now.bias.zero_()
        block.before.weight.copy_(tensor([[2.0], [0.0]]))
    y, past = block.read(tensor([[[0.1], [0.2], [0.3]]]))
    assert_close(y[0, :, 1], tensor([math.tanh(f) / 2 for f in (0.1, 0.2, 0.3 + 2 * 0.1)]))
    assert_close(block.read_next(tensor([[[0.4]]]), past)[0, 0, 1], tensor(math.tanh(0.4 + 2 * 0.2) / 2))


def test_attention_sees_itself_and_what_came_before_only():
    torch.manual_seed(0)
    block, x = AttentionBlock(3, keys=4, values=2), torch.randn(1, 4, 3)
    y, _ = block.read(x)
    q, k, v = block.query(x[0]), block.key(x[0]), block.value(x[0])
    for t in range(4):
        weights = torch.stack([q[t] @ k[s] / math.sqrt(4) for s in range(t + 1)]).softmax(0)
        assert_close(y[0, t, 3:], sum(weights[s] * v[s] for s in range(t + 1)))


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_query_equals_the_last_element_of_the_whole_sequence(n):
    """The support computed once, and queries that follow it, against each query's own sequence of n + 1."""
    torch.manual_seed(0)
    learner = SNAIL(nn.Identity(), 3, size=4, filters=5, attention=((4, 3), (6, 5), (4, 4))).eval()
    x, y, queries = torch.randn(2, n, 4), torch.randint(3, (2, n)), torch.randn(2, 5, 4)
    found = learner.predict(queries, learner.describe(Examples(x, y), 3))
    labelled = torch.cat([x, F.one_hot(y, 3).double()], dim=-1)
    for j in range(5):
        sequence = torch.cat([labelled, F.pad(queries[:, j : j + 1], (0, 3))], dim=1)
        for layer in learner.layers:
            sequence, _ = layer.read(sequence)
        assert_close(found[:, j], learner.output(sequence[:, -1]), rtol=0, atol=1e-12)


def test_snail_is_laid_out_for_one_shot_unless_told_otherwise():
    def dilations(learner: SNAIL) -> list[int]:
        return [layer.dilation for layer in learner.layers if isinstance(layer, DenseBlock)]

    assert dilations(SNAIL(nn.Identity(), 5, size=4)) == [1, 2, 4, 1, 2, 4]  # 6 elements
    assert dilations(SNAIL(nn.Identity(), 5, size=4, length=26)) == [1, 2, 4, 8, 16] * 2
    with pytest.raises(ValueError, match=r"at least a support example and a query, got length 1"):
        SNAIL(nn.Identity(), 5, length=1)


def test_in_training_the_support_comes_in_any_order():
    torch.manual_seed(0)
    learner = SNAIL(nn.Identity(), 3, size=4, filters=5, attention=((4, 3), (6, 5), (4, 4))).train()
    support, query = Examples(torch.randn(1, 6, 4), torch.randint(3, (1, 6))), torch.randn(1, 1, 4)
    answers = [learner.predict(query, learner.describe(support, 3)) for _ in range(2)]
    assert not torch.allclose(*answers)


# MANN


def test_least_used_rows_by_hand():
    usage = tensor([[0.3, 0.1, 0.5, 0.2]])
    assert least_used(usage, 1).tolist() == [[0, 1, 0, 0]]
    assert least_used(usage, 2).tolist() == [[0, 1, 0, 1]]


def test_a_step_of_the_memory_by_the_equations_of_section_3_2():
    torch.manual_seed(0)
    learner = MANN(nn.Identity(), 2, size=3, units=5, rows=4, row_size=3, heads=2, decay=0.9)
    state = State(
        *(torch.randn(1, 5) for _ in range(2)),
        torch.randn(1, 4, 3),
        torch.rand(1, 2, 4).softmax(-1),
        tensor([[0.3, 0.1, 0.5, 0.2]]),
        torch.randn(1, 2, 3),
    )
    x = torch.randn(1, 5)
    found = learner.step(x, state)
    h, c = learner.controller(torch.cat([x, state.content.flatten(1)], 1), (state.hidden, state.cell))
    k, gate = learner.key(h)[0].tanh().view(2, 3), learner.gate(h)[0].sigmoid()
    read = [  # before anything is written: a key that was just written would resemble itself most
        torch.stack([F.cosine_similarity(k[head], state.memory[0, row], dim=0) for row in range(4)]).softmax(0)
        for head in range(2)
    ]
    memory = state.memory[0].clone()
    memory[[1, 3]] = 0  # as many least used rows as there are heads
    lu, write = tensor([0.0, 1.0, 0.0, 1.0]), []
    for head in range(2):
        write.append(gate[head] * state.read[0, head] + (1 - gate[head]) * lu)
    for row in range(4):
        for head in range(2):
            memory[row] = memory[row] + write[head][row] * k[head]
    assert_close(found.hidden, h)
    assert_close(found.memory[0], memory)
    assert_close(found.read[0], torch.stack(read))
    assert_close(found.usage[0], 0.9 * state.usage[0] + sum(read) + sum(write))
    assert_close(found.content[0], torch.stack([read[head] @ state.memory[0] for head in range(2)]))
    assert_close(found.cell, c)


def test_more_heads_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"3 rows needs 1 to 3 heads, got 4"):
        MANN(nn.Identity(), 2, rows=3, heads=4)


# Fine-tuning


def descended(x: Tensor, y: Tensor, steps: int, rate: float) -> tuple[Tensor, Tensor]:
    """A linear head by autograd, one task."""
    weight, bias = torch.zeros(3, x.shape[1], requires_grad=True), torch.zeros(3, requires_grad=True)
    for _ in range(steps):
        loss = F.cross_entropy(x @ weight.T + bias, y)
        slopes = torch.autograd.grad(loss, [weight, bias])
        weight, bias = ((p - rate * g).detach().requires_grad_() for p, g in zip((weight, bias), slopes, strict=True))
    return weight, bias


def test_a_linear_head_equals_gradient_descent_by_autograd():
    torch.manual_seed(0)
    learner = FineTuned(nn.Identity(), 3, head="linear", steps=4, rate=0.7)
    x, y = torch.randn(2, 5, 4), tensor([[0, 1, 2, 2, 0], [1, 1, 0, 2, 1]])
    task = learner.describe(Examples(x, y), 3)
    for i in range(2):
        weight, bias = descended(x[i], y[i], 4, 0.7 / (x[i].square().sum(1) + 1).mean())
        assert_close(task.weight[i], weight.detach(), rtol=0, atol=1e-12)
        assert_close(task.bias[i], bias.detach(), rtol=0, atol=1e-12)


def test_a_cosine_head_equals_gradient_descent_by_autograd():
    torch.manual_seed(0)
    learner = FineTuned(nn.Identity(), 2, head="cosine", steps=3, rate=0.5, temperature=4.0)
    x, y = torch.randn(1, 4, 3), tensor([[0, 1, 1, 0]])
    task = learner.describe(Examples(x, y), 2)
    unit = F.normalize(x[0], dim=-1)
    weight = F.normalize(torch.stack([unit[[0, 3]].sum(0), unit[[1, 2]].sum(0)]), dim=-1)
    for _ in range(3):
        weight.requires_grad_()
        loss = F.cross_entropy(4.0 * F.cosine_similarity(unit[:, None], weight[None], dim=-1), y[0])
        (slope,) = torch.autograd.grad(loss, weight)
        weight = F.normalize((weight - 0.5 / 4.0 * slope).detach(), dim=-1)
    assert_close(task.weight[0], weight, rtol=0, atol=1e-12)
    query = tensor([[[1.0, 2.0, 3.0]]])
    wanted = 4.0 * F.cosine_similarity(query[0], weight, dim=-1)
    assert_close(learner.predict(query, task)[0, 0].detach(), wanted, rtol=0, atol=1e-12)


def test_only_the_queries_train_the_network_of_a_fitted_head():
    torch.manual_seed(0)
    network = nn.Linear(3, 4)
    learner = FineTuned(network, 2, steps=5)
    task = learner.describe(Examples(torch.randn(1, 4, 3), tensor([[0, 1, 0, 1]])), 2)
    assert not task.weight.requires_grad
    learner.predict(torch.randn(1, 2, 3), task).sum().backward()
    assert network.weight.grad is not None


def test_unknown_heads_and_no_steps_are_refused():
    with pytest.raises(ValueError, match=r"'quadratic'.*linear, cosine"):
        FineTuned(nn.Identity(), 2, head="quadratic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"at least one step and a positive rate, got 0"):
        FineTuned(nn.Identity(), 2, steps=0)


# Meta-Learner LSTM


def test_an_update_by_eqs_2_to_4_with_torchs_lstm():
    torch.manual_seed(0)
    learner = MetaLSTM(nn.Linear(2, 2), 2, units=3, inner_rate=0.2)
    theta, gradients, losses = torch.randn(8), torch.randn(2, 8), torch.rand(2, 2)
    found, gates = theta, None
    for gradient, loss in zip(gradients, losses, strict=True):  # two steps of two tasks with four parameters each
        found, gates = learner.update(found, gradient, loss.repeat_interleave(4), gates)
    (w_f, w_i), (b_f, b_i) = learner.gates, learner.biases
    for p in range(8):
        own, f, i = theta[p], tensor(0.0), tensor(0.0)
        seen = [
            torch.cat([preprocess_gradient(g[p]), preprocess_gradient(loss[p // 4])])
            for g, loss in zip(gradients, losses, strict=True)
        ]
        states = learner.lower(torch.stack(seen))[0]
        for t in range(2):
            f = w_f @ torch.cat([states[t], own[None], f[None]]) + b_f
            i = w_i @ torch.cat([states[t], own[None], i[None]]) + b_i
            own = f.sigmoid() * own - i.sigmoid() * gradients[t, p]
        assert_close(found[p], own, rtol=0, atol=1e-12)


def test_the_input_gate_starts_at_the_inner_rate_and_parameters_are_kept():
    learner = MetaLSTM(nn.Linear(2, 2), 2, inner_rate=0.2)
    assert_close(learner.biases.sigmoid().detach(), tensor([1 / (1 + math.exp(-5)), 0.2]))
    with pytest.raises(ValueError, match=r"inner_rate.* must lie between 0 and 1, got 1"):
        MetaLSTM(nn.Linear(2, 2), 2, inner_rate=1.0)


# By name


def test_matching_networks_read_sentences_by_their_preset():
    config = load_preset("matching-sentences")
    assert (config.data.name, config.learner.name, config.network.name) == ("penn-treebank", "matching", "lstm")
    model = build_learner(merge(config, {"data": {"way": 3}}), InputSpec((7,), 20))
    x = torch.randint(3, 20, (2, 3, 7))
    x[..., 3] = 1  # the blank
    examples = Examples(x, tensor([[0, 1, 2]] * 2))
    assert model(Episode(examples, examples, 3)).logits.shape == (2, 3, 3)


@pytest.mark.parametrize("learner", ["maml", "meta-lstm", "metanet"])
def test_learners_of_images_refuse_sentences(learner):
    with pytest.raises(ValueError, match=r"(?s)images.*hoose another preset"):
        build(learner, reads=InputSpec((7,), 20), way=3, network=None if learner == "metanet" else "lstm")
