"""What a strong pretraining is made of: cosines, averaged weights, mirror images, warm-up, pens of all kinds."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from csn.config import Config, PretrainConfig, load_preset, merge
from csn.data.images.augment import any_pen, augmented, cropped, placed_anywhere, recoloured, share_of_step
from csn.data.images.strokes import load_strokes
from csn.data.source import ClassExamples, Dataset
from csn.engine.checkpoint import load_checkpoint
from csn.engine.pretrain import (
    CosineClassifier,
    PretrainingClassifier,
    PretrainTrainer,
    check_options,
    nesterov,
    pretrained_alike,
)
from csn.engine.run import new_trainer, open_run
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.residual import ResidualKey, ResidualKeyOptions, ResidualPair, larger, moved_by
from csn.networks.resnet import halve

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> Dataset:
    """The first eight classes of each split of a few generated alphabets."""
    strokes = load_strokes(alphabets=5, characters=8)
    return dataclasses.replace(strokes, splits={name: first_classes(c, 8) for name, c in strokes.splits.items()})


def first_classes(classes: ClassExamples, number: int) -> ClassExamples:
    rows = int(classes.counts[:number].sum())
    return type(classes)(classes.x[:rows], classes.counts[:number], classes.names[:number])


def strong(**pretrain) -> Config:
    small = {
        "data": {"name": "strokes", "way": 5, "queries": 1},
        "key": {"size": 16, "width": 0.25},
        "pretrain": {"epochs": 1, "batch": 32, "precision": "float32", "average": 0.9, **pretrain},
        "train": {"tasks": 2, "validate_every": 2, "validation_tasks": 4},
    }
    return merge(load_preset("prototypical", "best"), small)


def trainer(config, data, folder, **options) -> PretrainTrainer:
    first = new_trainer(config, data, folder, device=CPU, **options).first
    assert isinstance(first, PretrainTrainer)
    return first


def test_cosine_classifier_by_hand():
    layer = CosineClassifier(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 0.5], [-3.0, 3.0]]))
        layer.scale.fill_(4.0)
    logits = layer(torch.tensor([[6.0, 0.0], [1.0, 1.0]]))
    half = math.sqrt(0.5)
    assert_close(logits, torch.tensor([[4.0, 0.0, -4 * half], [4 * half, 4 * half, 0.0]]))


def test_a_residual_pair_is_two_convolutions_beside_one():
    pair = ResidualPair(2, 3, "none")
    x = torch.randn(4, 2, 5, 5)
    h = pair.first.convolution(x).relu()
    expected = (pair.second.convolution(h) + pair.shortcut.convolution(x)).relu()
    assert_close(pair(x), expected)


def test_the_residual_key_has_the_size_of_its_description():
    key = ResidualKey((1, 28, 28), size=256)
    convolutions = 9 * 32 + sum(9 * (i * o + o * o) + i * o for i, o in ((32, 64), (64, 128), (128, 256)))
    norms = 2 * (32 + 3 * (64 + 128 + 256))
    assert sum(p.numel() for p in key.parameters()) == convolutions + norms + (4 * 256 + 1) * 256
    assert key(torch.rand(3, 1, 28, 28)).shape == (3, 256)
    with pytest.raises(ValueError, match=r"halves its images 3 times, so images of \(1, 7, 9\) are too small"):
        ResidualKey((1, 7, 9))


def test_the_average_follows_the_weights():
    learner = PretrainingClassifier(nn.Linear(1, 1), 1, 2, 2, PretrainConfig(average=0.9))
    assert learner.average is not None
    with torch.no_grad():
        learner.average.weight.fill_(1.0)
        learner.embedding.weight.fill_(3.0)
    learner.update_average(0.75)
    assert learner.average.weight.item() == pytest.approx(0.75 * 1 + 0.25 * 3)
    assert not any(p.requires_grad for p in learner.average.parameters())


def test_averaged_weights_are_validated_and_kept(data, tmp_path):
    first = trainer(strong(mirror=False, epochs=2), data, tmp_path)
    first.run()
    best, _ = load_checkpoint(tmp_path / "pretraining" / "best.safetensors")
    last, _ = load_checkpoint(first.last)
    name = "first.convolution.weight"
    kept = [best[f"model.embedding.{name}"]]
    assert_close(first.learner.embedding.first.convolution.weight, kept[0])
    if first.best == first._validate().accuracy:
        assert not torch.equal(kept[0], last[f"model.embedding.{name}"])


def test_mirror_images_are_classes_of_their_own(data, tmp_path):
    first = trainer(strong(), data, tmp_path)
    classes = data.splits["train"]
    n = len(classes.x)
    assert len(first.labels) == 2 * n
    assert first.labels[n + 21] == len(classes) + 1  # 20 drawings a class
    x = first._examples(torch.tensor([21, n + 21]))
    assert_close(x[1], x[0].flip(-1))
    assert_close(x[0], classes.x[21] / 255)


def test_the_rate_rises_and_falls(data, tmp_path):
    first = trainer(strong(warm_up=0.25, learning_rate=0.2, mirror=False), data, tmp_path)
    total = first.config.tasks
    rates = []
    for first.tasks in range(0, total, 32):
        rates.append(first._rate())
    assert rates[0] == pytest.approx(0.2 * 32 / (0.25 * total))
    top = max(range(len(rates)), key=rates.__getitem__)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(0.1 * (1 + math.cos(math.pi * (total - 32) / total)))


def test_interrupted_it_goes_on_to_the_bit(data, tmp_path):
    config = strong(redraw="any")
    whole = trainer(config, data, tmp_path / "whole")
    whole.run()
    asked = iter([False, False, True])
    assert trainer(config, data, tmp_path / "halves").run(should_stop=lambda: next(asked)) == "interrupted"
    halves = trainer(config, data, tmp_path / "halves", resume=True)
    assert halves.tasks == 64
    halves.run()
    for name, tensor in whole.learner.state_dict().items():
        assert torch.equal(tensor, halves.learner.state_dict()[name]), name


def test_no_decay_of_the_scale():
    learner = PretrainingClassifier(nn.Linear(3, 2), 2, 4, 2, PretrainConfig(classifier="cosine"))
    groups = nesterov(learner, PretrainConfig(weight_decay=0.1)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert groups[1]["params"] == [learner.classifier.scale]
    assert all(group["nesterov"] for group in groups)


@pytest.mark.parametrize("name", ["warm_up", "label_smoothing", "average"])
def test_shares_are_shares(name):
    with pytest.raises(ValueError, match=rf"pretrain.{name} must be at least 0 and less than 1, got 1.5"):
        check_options(PretrainConfig(epochs=1, **{name: 1.5}))


def test_ink_is_placed_anywhere_in_the_frame_and_none_is_lost():
    images = torch.zeros(400, 1, 28, 28)
    images[:, :, 6:10, 18:26] = 1.0  # 8 wide, 4 high
    torch.manual_seed(0)
    moved = placed_anywhere(images)
    assert moved.shape == images.shape
    wide = (moved[:, 0].amax(1) > 0.5).sum(1).float()
    high = (moved[:, 0].amax(2) > 0.5).sum(1).float()
    stayed = torch.isclose(moved, images, atol=1e-3).flatten(1).all(1)
    assert 0.15 < stayed.float().mean() < 0.35
    grown = wide[~stayed]
    assert grown.min() >= 13
    assert grown.max() <= 28
    assert_close((wide / high)[~stayed].median(), torch.tensor(2.0), atol=0.2, rtol=0)
    assert (moved[~stayed].flatten(1).argmax(1).unique().numel()) > 50


def test_empty_paper_stays_empty():
    images = torch.zeros(5, 1, 28, 28)
    assert_close(augmented(images, 1.0, "any"), images)


def test_any_pen_draws_wider_and_keeps_to_the_scale():
    images = torch.zeros(300, 1, 28, 28)
    images[:, :, 5:23, 14] = 0.8
    torch.manual_seed(0)
    drawn = any_pen(images)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    same = (drawn == images).flatten(1).all(1).float().mean()
    assert 0.25 < same < 0.45
    assert drawn.sum() > 1.5 * images.sum()


def test_the_same_pen_is_moved_only():
    images = torch.rand(3, 1, 28, 28)
    torch.manual_seed(0)
    assert_close(augmented(images, 0.0, "same"), images, atol=1e-5, rtol=0)


def test_tasks_leave_a_kept_network_as_it_was_pretrained(data, tmp_path):
    config = merge(strong(mirror=False, keep=True), {"train": {"learning_rate": 0.1}})
    trained = new_trainer(config, data, tmp_path, device=CPU)
    trained.first.run()
    before = {name: tensor.clone() for name, tensor in trained.learner.embedding.state_dict().items()}
    scale = trained.learner.log_scale.item()
    trained.run()
    for name, tensor in trained.learner.embedding.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert trained.learner.log_scale.item() != scale
    with pytest.raises(ValueError, match=r"set pretrain\.epochs"):
        new_trainer(strong(epochs=0, keep=True), data, tmp_path / "none", device=CPU)


def test_learners_of_one_kept_key_share_their_pretraining():
    presets = [load_preset(name, "best") for name in ("prototypical", "matching", "adacnn-df")]
    assert all(pretrained_alike(presets[0], other) for other in presets[1:])
    assert pretrained_alike(presets[0], merge(presets[0], {"pretrain": {"keep": False}, "train": {"augment": 0.5}}))
    assert pretrained_alike(presets[0], merge(presets[0], {"key": {"views": 4}}))
    assert not pretrained_alike(presets[0], merge(presets[0], {"pretrain": {"mirror": False}}))


def test_moved_by_a_pixel():
    x = torch.arange(1.0, 10).view(1, 1, 3, 3)
    assert moved_by(x, 1, 0)[0, 0].tolist() == [[0, 1, 2], [0, 4, 5], [0, 7, 8]]
    assert moved_by(x, -1, 0)[0, 0].tolist() == [[2, 3, 0], [5, 6, 0], [8, 9, 0]]
    assert moved_by(x, 0, 1)[0, 0].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert moved_by(x, 0, -1)[0, 0].tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]


def test_views_are_averaged_in_evaluation_alone():
    plain, viewed = (ResidualKey((1, 28, 28), size=8, filters=(8, 8), views=views) for views in (0, 2))
    viewed.load_state_dict(plain.state_dict())
    x = torch.rand(3, 1, 28, 28)
    assert_close(viewed.train()(x), plain.train()(x))
    plain.eval()
    viewed.eval()
    unit = [nn.functional.normalize(plain(moved_by(x, *side)), dim=-1) for side in ((0, 0), (1, 0), (-1, 0))]
    assert_close(viewed(x), sum(unit) / 3)
    with pytest.raises(ValueError, match=r"key.views must be a number of sides from 0 to 4, got 5"):
        ResidualKey((1, 28, 28), views=5)


def test_bending_moves_neighbouring_pixels_alike_and_each_image_on_its_own():
    x = torch.linspace(0, 1, 28).expand(28, 28)
    images = torch.stack([x, x]).unsqueeze(1)  # brightness tells the column that a pixel came from
    torch.manual_seed(0)
    bent = augmented(images, 0.0, "same", bend=1.0)[:, 0, 4:-4, 4:-4]
    moved = 27 * (bent - images[:, 0, 4:-4, 4:-4])  # pixels to the right
    assert 0.3 < moved.std() < 1.5
    assert (moved[:, :, 1:] - moved[:, :, :-1]).abs().max() < 1.0
    assert (moved[0] - moved[1]).abs().max() > 1.0


def test_without_bending_the_same_numbers_are_drawn():
    images = torch.rand(3, 1, 28, 28)
    torch.manual_seed(0)
    plain = augmented(images, 1.0, "same")
    torch.manual_seed(0)
    assert torch.equal(augmented(images, 1.0, "same", bend=0.0), plain)


@pytest.mark.parametrize("bend", [-1.0, math.nan, math.inf])
def test_a_bend_is_a_strength(bend):
    with pytest.raises(ValueError, match=r"pretrain.bend must be 0 or more, got"):
        check_options(PretrainConfig(epochs=1, bend=bend))


def test_mirror_images_are_views_in_evaluation_alone():
    plain, viewed = (ResidualKey((3, 8, 8), size=4, filters=(8, 8), mirrored=mirrored) for mirrored in (False, True))
    viewed.load_state_dict(plain.state_dict())
    x = torch.rand(3, 3, 8, 8)
    assert_close(viewed.train()(x), plain.train()(x))
    plain.eval()
    viewed.eval()
    assert_close(viewed(x), sum(nn.functional.normalize(plain(view), dim=-1) for view in (x, x.flip(-1))) / 2)
    assert_close(viewed(x.flip(-1)), viewed(x))


def test_the_enlarged_image_is_a_view_in_evaluation_alone():
    plain, viewed = (ResidualKey((3, 8, 8), size=4, filters=(8, 8), enlarged=enlarged) for enlarged in (False, True))
    viewed.load_state_dict(plain.state_dict())
    x = torch.rand(3, 3, 8, 8)
    assert_close(viewed.train()(x), plain.train()(x))
    plain.eval()
    viewed.eval()
    ten = ResidualKey((3, 10, 10), size=4, filters=(8, 8)).eval()
    ten.load_state_dict(plain.state_dict())
    keys = plain(x), ten(larger(x))
    assert_close(viewed(x), sum(nn.functional.normalize(key, dim=-1) for key in keys) / 2)
    both = ResidualKey((3, 8, 8), size=4, filters=(8, 8), mirrored=True, enlarged=True).eval()
    both.load_state_dict(plain.state_dict())
    assert_close(both(x), (viewed(x) + viewed(x.flip(-1))) / 2)


def test_a_centred_key_has_the_mean_of_its_pretraining_subtracted(data, tmp_path):
    plain, centred = strong(), merge(strong(), {"key": {"centred": True}})
    for name, config in (("plain", plain), ("centred", centred)):
        loop = new_trainer(config, data, tmp_path / name, device=CPU)
        loop.first.run()
        loop.run()
    again = new_trainer(centred, data, tmp_path / "again", device=CPU, pretrained=tmp_path / "plain")
    again.first.run()
    again.run()
    keys = [open_run(tmp_path / name).learner.embedding_network.eval() for name in ("plain", "centred", "again")]
    images = torch.cat([data.splits["train"].at(torch.arange(8) + 20 * row) for row in range(8)])
    mean = nn.functional.normalize(keys[0](images), dim=-1).mean(0)
    assert mean.norm() > 0.1
    for key in keys[1:]:
        assert_close(key.centre, mean, atol=1e-5, rtol=0)
        assert_close(key(images), nn.functional.normalize(keys[0](images), dim=-1) - mean, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=r"key\.centred subtracts the mean key of the pretraining"):
        new_trainer(merge(centred, {"pretrain": {"epochs": 0, "keep": False}}), data, tmp_path / "none", device=CPU)


def test_without_a_linear_layer_the_averages_are_the_key():
    spec = InputSpec((3, 32, 32))
    options = ResidualKeyOptions(size=320, linear=False, pairs=4, cells=1)
    key = options.build(CNNOptions(), spec).eval()
    x = torch.rand(2, 3, 32, 32)
    h = key.first(x).relu()
    assert [pair.first.convolution.out_channels for pair in key.pairs] == [64, 128, 256, 320]
    for pair in key.pairs:
        h = pair(halve(h))
    assert_close(key(x), h.mean((2, 3)))
    assert key(x).shape == (2, 320)
    rooted = ResidualKey((3, 32, 32), size=None, filters=(32, 64, 128, 256, 320), cells=1, root=True).eval()
    rooted.load_state_dict(key.state_dict())
    assert_close(rooted(x), h.mean((2, 3)).sqrt())
    assert_close(rooted.train()(x), key.train()(x))
    with pytest.raises(ValueError, match=r"key.root takes roots of averages, so it needs key.linear=false"):
        ResidualKeyOptions(root=True).build(CNNOptions(), spec)
    with pytest.raises(ValueError, match=r"a key has 320 numbers, got 64: set key.size=320"):
        ResidualKeyOptions(size=64, linear=False, pairs=4, cells=1).build(CNNOptions(), spec)
    with pytest.raises(ValueError, match=r"key.pairs must be a number from 1 to 4, got 5"):
        ResidualKeyOptions(pairs=5).build(CNNOptions(), spec)


def test_a_crop_is_a_part_of_the_image():
    column = torch.linspace(0, 1, 64)
    images = torch.stack([column.expand(64, 64), column[:, None].expand(64, 64)]).unsqueeze(1).repeat(40, 1, 1, 1)
    torch.manual_seed(0)
    across, down = cropped(images, 1.0).unflatten(0, (40, 2)).unbind(1)
    widths = across.amax((1, 2, 3)) - across.amin((1, 2, 3))
    heights = down.amax((1, 2, 3)) - down.amin((1, 2, 3))
    assert widths.min() >= (0.6 * 3 / 4) ** 0.5 - 0.03
    assert widths.max() <= 1.0
    assert widths.std() > 0.05
    assert heights.min() >= (0.6 * 3 / 4) ** 0.5 - 0.03
    assert (across.diff(dim=-1) >= -1e-6).all()  # neither turned nor mirrored
    assert_close(cropped(images, 0.0), images, atol=1e-5, rtol=0)


def test_colours_change_and_grey_stays_grey():
    images = torch.rand(50, 3, 4, 4)
    assert_close(recoloured(images, 0.0), images)
    torch.manual_seed(0)
    changed = recoloured(images, 1.0)
    assert 0 <= changed.min() <= changed.max() <= 1
    brightness = changed.mean((1, 2, 3)) / images.mean((1, 2, 3))
    assert 0.55 < brightness.min() < 0.8 < 1.2 < brightness.max() < 1.45
    grey = recoloured(images[:, :1].expand(50, 3, 4, 4), 1.0)
    assert_close(grey.std(1), torch.zeros(50, 4, 4), atol=1e-6, rtol=0)


def test_a_share_of_a_step_is_cropped_as_in_the_whole_step():
    images = torch.rand(6, 3, 8, 8)
    torch.manual_seed(0)
    whole = augmented(images, 1.0, framing="cropped")
    assert not torch.equal(whole, images)
    torch.manual_seed(0)
    with share_of_step(1, 2, 3):
        assert_close(augmented(images[2:4], 1.0, framing="cropped"), whole[2:4])
