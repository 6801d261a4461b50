"""Repeated description at the output: the written values, their convergence, and the parts of an answer."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from csn.core.repeated import CSNHead, HeadOptions


def task(
    n: int = 12, way: int = 3, d: int = 5, seed: int = 0, spread: float = 0.8
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(way, d, generator=generator, dtype=torch.float64)
    labels = torch.arange(n) % way
    keys = centres[labels] + spread * torch.randn(n, d, generator=generator, dtype=torch.float64)
    queries = centres[torch.arange(6) % way] + spread * torch.randn(6, d, generator=generator, dtype=torch.float64)
    return keys, labels, queries


def objective(head: CSNHead, keys: torch.Tensor, labels: torch.Tensor, values: torch.Tensor) -> float:
    """The objective that the passes minimise, written out example by example."""
    a, c, decay = head.options.scale, head.options.sharpness, head.options.decay
    unit, way, total = F.normalize(keys, dim=-1), values.shape[1], 0.0
    kernel = torch.exp(c * (unit @ unit.T - 1))
    for i in range(len(keys)):
        logits = torch.zeros(way, dtype=keys.dtype)
        for k in range(way):
            members = [j for j in range(len(keys)) if labels[j] == k and j != i]
            mean = unit[members].sum(0) if members else unit[i]
            logits[k] = a * (unit[i] @ mean) / mean.norm() + kernel[i] @ values[:, k]
        total += float(F.cross_entropy(logits[None], labels[i : i + 1]))
    return total + decay / 2 * float((values * (kernel @ values)).sum())


def test_one_pass_by_hand():
    """Two examples at a right angle: z = a on the own class, the kernel is 1 and exp(-c), and V = -h e."""
    a, c = 2.0, 1.0
    head = CSNHead(HeadOptions(scale=a, sharpness=c, decay=0.0, passes=1, temperature=1.0, centre=False))
    memory = head.describe(torch.eye(2, dtype=torch.float64), torch.tensor([0, 1]), 2)
    wrong = 1 / (1 + math.exp(a))  # softmax((a, 0)) of the other class
    step = 1 / ((1 + math.exp(-c)) / 2)
    expected = step * wrong * torch.tensor([[1, -1], [-1, 1]], dtype=torch.float64)
    torch.testing.assert_close(memory.values, expected)
    logits = head.predict(torch.tensor([[1.0, 0.0]], dtype=torch.float64), memory)
    own = a + step * wrong * (1 - math.exp(-c))
    torch.testing.assert_close(logits, torch.tensor([[own, -own + a]], dtype=torch.float64))


def test_no_passes_are_the_cosines_to_the_class_means():
    keys, labels, queries = task()
    head = CSNHead(HeadOptions(scale=3.0, passes=0, temperature=2.0))
    found = head.predict(queries, head.describe(keys, labels, 3))
    for j, query in enumerate(queries):
        for k in range(3):
            mean = sum(key / key.norm() for key in keys[labels == k])
            assert found[j, k] == pytest.approx(float(3 / 2 * F.cosine_similarity(query, mean, dim=0)))


def test_every_pass_count_goes_down_and_arrives_where_gradient_descent_does():
    keys, labels, _ = task()
    losses = []
    for passes in (0, 1, 5, 20, 60, 2000):
        head = CSNHead(HeadOptions(passes=passes))
        losses.append(objective(head, keys, labels, head.describe(keys, labels, 3).values))
    assert losses == sorted(losses, reverse=True)
    assert losses[0] - losses[-1] > 0.01

    values = torch.zeros(12, 3, dtype=torch.float64, requires_grad=True)  # the same problem, by torch's own optimizer
    unit = F.normalize(keys, dim=-1)
    kernel = torch.exp(2.0 * (unit @ unit.T - 1))
    base = torch.stack(
        [
            torch.stack(
                [
                    10
                    * F.cosine_similarity(unit[i], sum(unit[j] for j in range(12) if labels[j] == k and j != i), dim=0)
                    for k in range(3)
                ]
            )
            for i in range(12)
        ]
    )
    optimizer = torch.optim.LBFGS([values], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(base + kernel @ values, labels, reduction="sum")
        loss = loss + 0.03 / 2 * (values * (kernel @ values)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    best = objective(CSNHead(HeadOptions()), keys, labels, values.detach())
    assert losses[-1] == pytest.approx(best, abs=1e-4)
    assert losses[-2] == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("copies", [1, 40])
def test_the_step_is_safe_at_any_number_of_examples(copies):
    """A step size that ignores the kernel's row sums diverges with many examples."""
    keys, labels, _ = task()
    keys, labels = keys.repeat(copies, 1), labels.repeat(copies)
    for decay in (0.0, 0.1):
        head = CSNHead(HeadOptions(passes=200, decay=decay))
        values = head.describe(keys, labels, 3).values
        assert torch.isfinite(values).all()
        assert F.cross_entropy(head.predict(keys, head.describe(keys, labels, 3)), labels) < 0.1


def test_a_kernel_that_is_not_kept_gives_the_same(monkeypatch):
    keys, labels, queries = task()
    head = CSNHead()
    kept = head.predict(queries, head.describe(keys, labels, 3))
    monkeypatch.setattr("csn.core.repeated.KEPT", 5)
    monkeypatch.setattr("csn.core.repeated.BLOCK", 5)
    torch.testing.assert_close(head.predict(queries, head.describe(keys, labels, 3)), kept)


def test_thousands_of_classes_get_fewer_passes(monkeypatch):
    keys, labels, _ = task(n=20, way=5)
    whole = CSNHead(HeadOptions(passes=3)).describe(keys, labels, 5).values
    monkeypatch.setattr("csn.core.repeated.WORK", 3.5 * 20 * 20 * 5)
    assert torch.equal(CSNHead(HeadOptions(passes=60)).describe(keys, labels, 5).values, whole)
    monkeypatch.setattr("csn.core.repeated.WORK", 1)
    one = CSNHead(HeadOptions(passes=1)).describe(keys, labels, 5).values
    assert torch.equal(CSNHead(HeadOptions(passes=60)).describe(keys, labels, 5).values, one), "never fewer than one"


def test_what_the_examples_push_is_all_that_an_answer_is_made_of():
    keys, labels, queries = task()
    for options in (HeadOptions(), HeadOptions(passes=0), HeadOptions(temperature=3.0, decay=0.5)):
        head = CSNHead(options)
        memory = head.describe(keys, labels, 3)
        logits = head.predict(queries, memory)
        for query, row in zip(queries, logits, strict=True):
            for c in range(3):
                pushes = head.pushes(query, memory, c)
                torch.testing.assert_close(pushes.sum(), row[c] - row.mean())


def test_a_task_of_one_example_a_class_is_centred_and_no_other_is():
    keys, _, queries = task(n=3)
    labels = torch.arange(3)
    unit = F.normalize(keys, dim=-1)
    middle = unit.mean(0) * 2 / 3  # of three classes
    head = CSNHead(HeadOptions(passes=0, scale=1.0, temperature=1.0))
    found = head.predict(queries, head.describe(keys, labels, 3))
    for j, query in enumerate(F.normalize(queries, dim=-1)):
        for k in range(3):
            assert found[j, k] == pytest.approx(float(F.cosine_similarity(query - middle, unit[k] - middle, dim=0)))
    plain = CSNHead(HeadOptions(centre=False))
    assert not plain.describe(keys, labels, 3).centre.any()
    assert not head.describe(keys[:1], labels[:1], 1).centre.any(), "one class has nothing to differ from"
    keys, labels, _ = task()
    assert not head.describe(keys, labels, 3).centre.any()


def test_unbalanced_supports_and_any_number_of_ways():
    keys, labels, queries = task(n=40, way=7, d=6, spread=0.2)
    keep = torch.tensor([i for i in range(40) if labels[i] != 3 or i == 3])
    head = CSNHead()
    assert head.predict(queries, head.describe(keys[keep], labels[keep], 7)).argmax(-1).tolist()[:3] == [0, 1, 2]


@pytest.mark.parametrize(
    ("keys", "labels", "way", "message"),
    [
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), 2, "at least one"),
        (torch.ones(2, 3), torch.tensor([0, 2]), 2, r"\[0, 2\)"),
        (torch.ones(2, 3), torch.tensor([0.0, 1.0]), 2, "int64"),
        (torch.tensor([[1.0, float("nan")]]), torch.tensor([0]), 1, "NaN"),
        (torch.ones(3), torch.tensor([0, 1, 1]), 2, "keys"),
    ],
)
def test_bad_supports_are_refused(keys, labels, way, message):
    with pytest.raises(ValueError, match=message):
        CSNHead().describe(keys, labels, way)


@pytest.mark.parametrize("option", [{"scale": 0}, {"sharpness": -1}, {"decay": -0.1}, {"passes": 1.5}, {"passes": -1}])
def test_bad_options_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        HeadOptions(**option)
