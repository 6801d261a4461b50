"""Families of synthetic tasks: labels are what each family says, and batches are a function of their numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from csn.baselines.embedding import by_class
from csn.data.synthetic import FAMILIES, HALF, SIZE, Sizes, blurred, inverted, nearest, noisy
from csn.episode import Episode, Examples, check_examples, check_labels


@pytest.mark.parametrize("name", FAMILIES)
def test_tasks_are_of_their_sizes_and_show_every_class(name):
    family = FAMILIES[name]
    episode = family.batch(0, 64, 5)
    sizes = family.sizes
    check_examples(episode.support, episode.way, sizes.way)
    check_labels(episode.query.y, episode.way)
    assert episode.support.x.shape == (5, sizes.way * sizes.shot, SIZE)
    assert episode.query.x.shape == (5, sizes.way * sizes.queries, SIZE)
    assert by_class(episode.support.y, sizes.way).any(1).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_is_a_function_of_its_seed_and_number(name):
    family = FAMILIES[name]
    one, same, other, next_one = (family.batch(*numbers, 3) for numbers in ((1, 32), (1, 32), (2, 32), (1, 64)))
    assert torch.equal(one.support.x, same.support.x)
    assert torch.equal(one.query.y, same.query.y)
    assert not torch.equal(one.support.x, other.support.x)
    assert not torch.equal(one.support.x, next_one.support.x)


def nearest_mean(support: Examples, query: Examples) -> float:
    """Accuracy of the nearest class mean in the first half of the numbers."""
    members = F.one_hot(support.y).float()
    means = members.mT @ support.x[..., :HALF] / members.sum(1).unsqueeze(-1)
    found = torch.cdist(query.x[..., :HALF], means).argmin(-1)
    return float((found == query.y).float().mean())


def test_the_nearest_example_is_right_and_more_examples_help():
    draw = [nearest(torch.Generator().manual_seed(0), 200, Sizes(5, 1, 4), noise=noise) for noise in (0.1, 0.6)]
    assert nearest_mean(draw[0].support, draw[0].query) > 0.99
    assert 0.8 < nearest_mean(draw[1].support, draw[1].query) < 0.99
    few, many = (blurred(torch.Generator().manual_seed(0), 200, Sizes(5, shot, 4)) for shot in (1, 20))
    assert nearest_mean(many.support, many.query) > nearest_mean(few.support, few.query) + 0.2


def test_noisy_labels_are_wrong_two_times_in_five_and_never_for_a_first_example():
    """Half are redrawn among five classes, of which one is right: 0.5 * 4 / 5 of the others are wrong."""
    episode = noisy(torch.Generator().manual_seed(0), 400, Sizes(5, 5, 4))
    true = torch.arange(5).repeat_interleave(5)
    wrong = (episode.support.y != true).float()
    assert (wrong[:, ::5] == 0).all()
    others = wrong.view(400, 5, 5)[..., 1:].mean()
    assert others == pytest.approx(0.4, abs=0.02)


def signs(x: Tensor, count: int) -> Tensor:
    return x[..., :count].sign()


@pytest.mark.parametrize(("name", "features"), [("rule", lambda s: s), ("xor", None)])
def test_one_feature_decides_in_every_example_of_a_task(name, features):
    """Attributes of `rule`, products of two of `xor`: one of them agrees, or never agrees, with all labels."""
    episode = FAMILIES[name].batch(0, 0, 100)
    both = Examples(*(torch.cat([getattr(episode.support, k), getattr(episode.query, k)], dim=1) for k in ("x", "y")))
    count = 8 if name == "rule" else 4
    s = signs(both.x, count)
    if features is None:
        pairs = torch.combinations(torch.arange(count))
        s = s[..., pairs[:, 0]] * s[..., pairs[:, 1]]
    agreement = (s * (2 * both.y - 1).unsqueeze(-1)).mean(1)  # (tasks, features)
    decides = agreement.abs() > 0.999 if name == "rule" else agreement > 0.999
    assert decides.any(1).float().mean() > 0.99  # noise may turn a sign over, very seldom
    assert decides.float().sum(1).mean() < 1.2


def test_inverted_tasks_swap_the_labels_of_known_categories():
    """The first two numbers of support and query of one category agree in kind, whatever the task calls it."""
    episode = inverted(torch.Generator().manual_seed(0), 50, Sizes(2, 1, 8))
    world = torch.randn(8, SIZE, generator=torch.Generator().manual_seed(0))
    kinds = [torch.cdist(part.x, world).argmin(-1) % 2 for part in (episode.support, episode.query)]
    swapped = kinds[0] ^ episode.support.y
    assert (swapped == swapped[:, :1]).all()
    assert (kinds[1] ^ episode.query.y == swapped[:, :1]).all()
    assert 0 < float(swapped.float().mean()) < 1


def test_the_other_side_and_the_plane_of_far_tasks():
    episode = FAMILIES["far"].batch(0, 0, 50)
    means = [part.x[..., :HALF].mean(1) for part in (episode.support, episode.query)]
    assert (F.cosine_similarity(*means) < 0).float().mean() > 0.95


def test_the_key_of_the_unseen_property_sees_nothing_of_the_classes():
    family = FAMILIES["unseen property"]
    episode = family.batch(0, 0, 300)
    assert nearest_mean(episode.support, episode.query) == pytest.approx(0.5, abs=0.05)
    turned = Episode(
        *(Examples(part.x.roll(-HALF, dims=-1), part.y) for part in (episode.support, episode.query)), episode.way
    )
    assert nearest_mean(turned.support, turned.query) > 0.9
    assert family.key_sees == HALF


def test_a_cue_inverts_all_answers_of_a_task():
    episode = FAMILIES["cue"].batch(0, 0, 200)
    cue = episode.support.x[..., HALF:].sum((1, 2)).sign()
    assert ((episode.support.x[..., HALF:] != 0).any(-1).sum(1) == 1).all()
    assert (episode.query.x[..., HALF:] == 0).all()
    for sign, right in ((1, True), (-1, False)):
        part = cue == sign
        accuracy = nearest_mean(
            Examples(episode.support.x[part], episode.support.y[part]),
            Examples(episode.query.x[part], episode.query.y[part]),
        )
        assert (accuracy > 0.9) == right
        assert (accuracy < 0.1) != right
