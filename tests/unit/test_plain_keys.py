"""Embeddings as the authors of baselines have them."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from csn.building import build_learner
from csn.config import load_preset, merge
from csn.engine.optimizing import learning_rate
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.plain_keys import FourBlocksOptions, Pixels, PixelsOptions

OMNIGLOT = InputSpec((1, 28, 28))


def test_four_blocks_leave_a_pixel_of_each_filter():
    key = FourBlocksOptions().build(CNNOptions(), OMNIGLOT)
    assert key(torch.rand(3, 1, 28, 28)).shape == (3, 64)
    assert [name for name, _ in key.named_parameters() if "output" in name] == []  # no linear layer
    photographs = FourBlocksOptions().build(CNNOptions(filters=32), InputSpec((3, 84, 84)))
    assert photographs(torch.rand(2, 3, 84, 84)).shape == (2, 800)


def test_an_impossible_size_is_refused_with_the_right_one():
    with pytest.raises(ValueError, match=r"leave 1600 numbers .* got key.size=64: set key.size=1600"):
        FourBlocksOptions(size=64).build(CNNOptions(), InputSpec((3, 84, 84)))
    with pytest.raises(ValueError, match=r"images need 16 pixels"):
        FourBlocksOptions().build(CNNOptions(), InputSpec((1, 12, 12)))
    with pytest.raises(ValueError, match=r"key.size must be 3 x side x side pixels, got 400: try 1200"):
        PixelsOptions().build(CNNOptions(), InputSpec((3, 84, 84)))


def test_pixels_are_averages_over_areas():
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert_close(Pixels((1, 4, 4), 2)(x), torch.tensor([[2.5, 4.5, 10.5, 12.5]]))


def test_mann_s_controller_reads_20_x_20_pixels_by_paper():
    learner = build_learner(load_preset("mann", "paper"), OMNIGLOT)
    assert learner.controller.weight_ih.shape[1] == 400 + 5 + 4 * 40
    assert list(learner.embedding.parameters()) == []


def test_prototypical_networks_halve_their_rate_every_2000_tasks():
    train = merge(load_preset("prototypical", "paper"), {"train": {"learning_rate": 0.001}}).train
    assert [learning_rate(train, tasks) for tasks in (0, 1999, 2000, 6000)] == [0.001, 0.001, 0.0005, 0.000125]
