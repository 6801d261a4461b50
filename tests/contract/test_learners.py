"""What every few-shot learner promises."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from csn.baselines.nearest import NearestNeighbour
from csn.episode import Episode, Examples
from csn.learner import FewShotLearner

WAY = 4  # of every learner in conftest.py
EXACT = {"rtol": 0, "atol": 1e-10}


def permuted(examples: Examples, order: Tensor) -> Examples:
    return Examples(examples.x[:, order], examples.y[:, order])


def state(learner: FewShotLearner) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in learner.state_dict().items()}


def tensors_of(task: object) -> list[Tensor]:
    """All tensors that a task holds, however it holds them."""
    if isinstance(task, Tensor):
        return [task]
    parts = getattr(task, "__dict__", task)
    parts = parts.values() if isinstance(parts, Mapping) else parts if isinstance(parts, tuple | list) else ()
    return [found for part in parts for found in tensors_of(part)]


def test_one_query_at_a_time_equals_all_at_once(case):
    learner, episode = case.learner(), case.episode(queries=8)  # 32 queries
    task = learner.describe(episode.support, WAY)
    together = learner.predict(episode.query.x, task)
    alone = torch.cat([learner.predict(x, task) for x in episode.query.x.split(1, dim=1)], dim=1)
    assert_close(together, alone, **EXACT)


def test_the_order_of_the_support_changes_nothing(case):
    learner, episode = case.learner(), case.episode(shot=2)
    order = torch.randperm(len(episode.support), generator=torch.Generator().manual_seed(0))
    assert order.tolist() != sorted(order.tolist())
    logits = [
        learner.predict(episode.query.x, learner.describe(support, WAY))
        for support in (episode.support, permuted(episode.support, order))
    ]
    if case.ordered:
        assert not torch.allclose(*logits, atol=1e-6)
    else:
        assert_close(*logits, **EXACT)


def test_permuting_the_labels_permutes_the_predictions(case):
    """Of a learner without an output for each class; those with outputs of their own learn to treat them alike."""
    learner, episode = case.learner(), case.episode(shot=2)
    new = tensor([2, 0, 3, 1])
    relabelled = Examples(episode.support.x, new[episode.support.y])
    before = learner.predict(episode.query.x, learner.describe(episode.support, WAY))
    after = learner.predict(episode.query.x, learner.describe(relabelled, WAY))
    assert torch.allclose(after[..., new], before, rtol=0, atol=1e-10) == case.symmetric


def test_gradients_reach_every_parameter(case):
    learner = case.learner().train()
    if isinstance(learner, NearestNeighbour):
        assert not list(learner.parameters())
        return
    learner(case.episode(tasks=4, shot=2, queries=4)).loss.backward()
    for name, parameter in learner.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("shot", [1, 3])
@pytest.mark.parametrize("way", [2, 3, WAY])
def test_any_way_up_to_its_own_and_any_shot(case, way, shot):
    output = case.learner()(case.episode(way=way, shot=shot))
    assert output.logits.shape == (2, 2 * way, way)
    assert torch.isfinite(output.logits).all()
    assert torch.isfinite(output.loss)


def test_unbalanced_supports_and_absent_classes(case):
    learner, queries = case.learner(), case.episode().query.x
    for labels in ([0, 0, 0, 1, 2, 2, 3], [3, 1, 1], [2]):
        logits = learner.predict(queries, learner.describe(case.examples(2, labels), WAY))
        assert logits.shape == (2, queries.shape[1], WAY)
        assert not logits.isnan().any()
        assert torch.isfinite(logits[..., labels]).all()


def test_way_defaults_to_the_largest_label_plus_one(case):
    learner = case.learner()
    logits = learner.predict(case.episode().query.x, learner.describe(case.examples(2, [0, 2])))
    assert logits.shape[-1] == 3


def test_one_class_so_far_is_a_two_way_task(case):
    """The first class that a user shows must be learnable before there is a second."""
    learner = case.learner()
    logits = learner.predict(case.episode().query.x, learner.describe(case.examples(2, [0, 0])))
    assert logits.shape[-1] == 2


def test_a_batch_of_tasks_equals_the_tasks_one_at_a_time(case):
    learner, episode = case.learner(), case.episode(tasks=3)
    together = learner(episode).logits
    for i in range(3):
        part = slice(i, i + 1)
        single = Episode(
            Examples(episode.support.x[part], episode.support.y[part]),
            Examples(episode.query.x[part], episode.query.y[part]),
            WAY,
        )
        assert_close(learner(single).logits, together[part], **EXACT)


@pytest.mark.parametrize("way", [3, WAY])
def test_describe_then_predict_equals_forward(case, way):
    learner, episode = case.learner(), case.episode(way=way, shot=2)
    logits = learner.predict(episode.query.x, learner.describe(episode.support, way))
    assert_close(logits, learner(episode).logits, **EXACT)


def test_the_support_decides_the_answer(case):
    """Relabelling the support moves the predictions: the learner uses its description."""
    learner, episode = case.learner(), case.episode()
    relabelled = Examples(episode.support.x, (episode.support.y + 1) % WAY)
    before = learner.predict(episode.query.x, learner.describe(episode.support, WAY))
    after = learner.predict(episode.query.x, learner.describe(relabelled, WAY))
    assert not torch.allclose(before, after, atol=1e-6)


def test_learner_is_unchanged_by_describing_and_predicting_and_tasks_do_not_mix(case):
    learner, first, second = case.learner(), case.episode(), case.episode(shot=3)
    before, rng = state(learner), torch.get_rng_state()
    expected = [learner.predict(e.query.x, learner.describe(e.support, WAY)) for e in (first, second)]
    tasks = [learner.describe(e.support, WAY) for e in (first, second)]
    found = [learner.predict(e.query.x, task) for e, task in ((first, tasks[0]), (second, tasks[1]))]
    again = learner.predict(first.query.x, tasks[0])
    for a, b in zip((*found, again), (*expected, expected[0]), strict=True):
        assert torch.equal(a, b)
    after = learner.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(rng, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in learner.parameters())


def test_inputs_are_left_as_they_were(case):
    learner, episode = case.learner(), case.episode()
    x, y = episode.support.x.clone(), episode.query.x.clone()
    learner(episode)
    assert torch.equal(x, episode.support.x)
    assert torch.equal(y, episode.query.x)
    assert not episode.support.x.requires_grad


def test_state_dict_carries_everything(case):
    learner, other, episode = case.learner(0), case.learner(1), case.episode()
    expected = learner(episode).logits
    if not isinstance(learner, NearestNeighbour):
        assert not torch.allclose(other(episode).logits, expected, atol=1e-6)
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other(episode).logits, expected)


def test_a_trivial_task_is_learned_in_a_few_steps(case):
    """Each class is a pattern of its own, the same in all tasks but for its label and a little noise."""
    torch.manual_seed(5)
    learner = case.learner().train()
    patterns = 2 * torch.randn(WAY, *case.shape)

    def draw(tasks: int) -> Episode:
        classes = torch.stack([torch.randperm(WAY) for _ in range(tasks)])
        y = torch.arange(WAY).expand(tasks, WAY)
        x = [patterns[classes] + 0.1 * torch.randn(tasks, WAY, *case.shape) for _ in range(2)]
        return Episode(Examples(x[0], y), Examples(x[1], y), WAY)

    if any(True for _ in learner.parameters()):
        optimizer = torch.optim.Adam(learner.parameters(), lr=5e-3)
        for _ in range(case.steps):
            optimizer.zero_grad()
            learner(draw(8)).loss.backward()
            optimizer.step()
    learner.eval()
    with torch.no_grad():
        episode = draw(50)
        accuracy = (learner(episode).logits.argmax(-1) == episode.query.y).double().mean()
    assert accuracy > 0.6  # chance is 0.25


def test_labels_out_of_range_are_named(case):
    learner = case.learner()
    with pytest.raises(ValueError, match=r"3-way.*\[0, 3\), got 0 to 3"):
        learner.describe(case.examples(1, [0, 1, 2, 3]), 3)
    with pytest.raises(ValueError, match=r"\[0, 4\), got -1 to 2"):
        learner.describe(case.examples(1, [-1, 2]), WAY)


@pytest.mark.parametrize("way", [1, WAY + 1, 0])
def test_a_way_it_was_not_built_for_is_named(case, way):
    with pytest.raises(ValueError, match=rf"2 to {WAY} ways, got {way}"):
        case.learner().describe(case.examples(1, [0, 0]), way)
    with pytest.raises(ValueError, match=rf"2 (to {WAY}|or more) ways.* got {way}"):
        case.learner()(Episode(case.examples(1, [0]), case.examples(1, [0]), way))


def test_a_label_above_its_way_is_named_when_no_way_is_given(case):
    with pytest.raises(ValueError, match=rf"2 to {WAY} ways, got {WAY + 2}"):
        case.learner().describe(case.examples(1, [0, WAY + 1]))


@pytest.mark.parametrize("way", [WAY, None])
def test_an_empty_support_is_refused(case, way):
    with pytest.raises(ValueError, match=r"empty.*at least one"):
        case.learner().describe(case.examples(1, []), way)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinity_are_refused_in_support_and_query(case, bad):
    learner, episode = case.learner(), case.episode()
    task = learner.describe(episode.support, WAY)
    x = episode.query.x.clone()
    x.view(-1)[7] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        learner.predict(x, task)
    with pytest.raises(ValueError, match="NaN or infinite"):
        learner.describe(Examples(x, episode.query.y), WAY)


def test_nan_in_the_queries_of_an_episode_is_refused(case):
    """Where the episode is made: a learner takes an Episode's numbers as checked."""
    episode = case.episode()
    x = episode.query.x.clone()
    x.view(-1)[7] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        Episode(episode.support, Examples(x, episode.query.y), episode.way)


def test_query_labels_out_of_range_are_named(case):
    with pytest.raises(ValueError, match=r"query labels of a 3-way task must lie in \[0, 3\), got 0 to 3"):
        Episode(case.examples(1, [0, 1, 2]), case.examples(1, [0, 3]), 3)


def test_queries_of_another_number_of_tasks_are_refused(case):
    """Two tasks in memory, queries for one: answers would come from the wrong task."""
    learner, episode = case.learner(), case.episode(tasks=2)
    task = learner.describe(episode.support, WAY)
    with pytest.raises(ValueError, match=r"2.*1|1.*2"):
        learner.predict(episode.query.x[:1], task)
    with pytest.raises(ValueError, match=r"2.*3|3.*2"):
        learner.predict(torch.randn(3, 2, *case.shape), task)


def test_inputs_of_another_shape_are_refused(case):
    learner, episode = case.learner(), case.episode()
    task = learner.describe(episode.support, WAY)
    wider = (*case.shape[:-1], case.shape[-1] + 9)
    with pytest.raises(ValueError, match="got"):
        learner.predict(torch.randn(2, 3, *wider), task)
    if not isinstance(learner, NearestNeighbour):  # which takes any input
        with pytest.raises(ValueError, match="got"):
            learner.describe(Examples(torch.randn(2, WAY, *wider), episode.support.y), WAY)


def test_a_query_without_its_task_axis_is_refused(case):
    learner, episode = case.learner(), case.episode(tasks=1)
    task = learner.describe(episode.support, WAY)
    with pytest.raises(ValueError, match="got"):
        learner.predict(torch.randn(3, *case.shape), task)


def test_no_queries_give_no_answers(case):
    learner, episode = case.learner(), case.episode()
    logits = learner.predict(episode.query.x[:, :0], learner.describe(episode.support, WAY))
    assert logits.shape == (2, 0, WAY)


def test_predictions_work_in_inference_mode(case):
    learner, episode = case.learner(), case.episode()
    expected = learner(episode).logits.detach()
    with torch.inference_mode():
        logits = learner(episode).logits
    assert_close(logits.clone(), expected, **EXACT)


@pytest.mark.parametrize("without_graph", [torch.no_grad, torch.inference_mode])
def test_a_task_described_without_a_graph_keeps_none(case, without_graph):
    learner, episode = case.learner(), case.episode()
    with without_graph():
        task = learner.describe(episode.support, WAY)
    found = tensors_of(task)
    assert found
    assert not any(each.requires_grad for each in found)


def test_nearest_neighbour_by_hand():
    learner = NearestNeighbour(3)
    support = Examples(tensor([[[0.0, 0.0], [3.0, 4.0], [0.0, 2.0]]]), tensor([[0, 2, 0]]))
    logits = learner.predict(tensor([[[0.0, 0.0], [0.0, 4.0]]]), learner.describe(support, 3))
    assert logits.tolist() == [[[-0.0, -torch.inf, -5.0], [-2.0, -torch.inf, -3.0]]]


def test_nearest_neighbour_distances_are_exact_for_many_queries():
    """torch.cdist changes to a matrix product, with cancellation, above 25 rows."""
    torch.manual_seed(0)
    x = 100 + torch.rand(1, 30, 784, dtype=torch.float32)
    learner = NearestNeighbour(2)
    task = learner.describe(Examples(x, torch.arange(30)[None] % 2), 2)
    logits = learner.predict(x, task)
    own = logits[0, torch.arange(30), torch.arange(30) % 2]
    assert own.abs().max() < 1e-3


def test_answers_from_encoded_examples_are_those_of_the_episode(case):
    learner, episode = case.learner(), case.episode(shot=2)
    examples = [learner.encode(part.x.flatten(0, 1)) for part in (episode.support, episode.query)]
    if examples[0] is None:
        with pytest.raises(NotImplementedError, match="encodes no examples"):
            learner.answer([], episode.support.y, [], WAY)
        return
    support, queries = (
        [part.unflatten(0, labels.shape) for part in encoded]
        for encoded, labels in zip(examples, (episode.support.y, episode.query.y), strict=True)
    )
    assert_close(learner.answer(support, episode.support.y, queries, WAY), learner(episode).logits, **EXACT)
    with pytest.raises(ValueError, match=f"built for 2 to {WAY} ways, got {WAY + 1}"):
        learner.answer(support, episode.support.y, queries, WAY + 1)
