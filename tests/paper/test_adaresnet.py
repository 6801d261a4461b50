"""adaResNet (sections 2.4 and 4.1, appendix A): residual blocks, two of them adapted, and two adapted FC layers."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from csn.building import build
from csn.config import load_preset
from csn.core.conditioning import DirectFeedback, ErrorGradient, GatedInfo
from csn.networks.resnet import ResBlock, ResNet, ResNetKey, ResNetOptions, scaled

MINI_IMAGENET, SMALL = (3, 84, 84), (3, 16, 16)
FILTERS = (3, 64, 96, 128, 256)


def small(way: int = 5, **options: object) -> ResNet:
    """A narrow network as after some training: no weight, bias or statistic at its start."""
    torch.manual_seed(0)
    base = ResNet(SMALL, way, width=0.1, **options)  # type: ignore[arg-type]
    for parameter in base.parameters():
        nn.init.normal_(parameter, std=0.2)
    for name, buffer in base.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    return base


def test_sides_go_84_42_21_10_5_and_the_last_two_blocks_and_both_fc_layers_are_adapted():
    base = ResNet(MINI_IMAGENET, 5).eval()
    sides: list[int] = []
    for block in (*base.lower.blocks, base.block, base.features):
        block.register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))
    output = base(torch.randn(1, *MINI_IMAGENET))
    assert sides == [84, 42, 21, 10, 5]
    assert [tuple(a.shape[1:]) for a in output.preactivations] == [(21, 21, 128), (10, 10, 256), (512,), (5,)]
    assert [sigma.name for sigma in base.activations] == ["relu"] * 3


def test_parameters_of_both_networks_by_hand():
    blocks = sum((9 * i * o + o) + 2 * (9 * o * o + o) + (i * o + o) for i, o in itertools.pairwise(FILTERS))
    hidden = (256 * 1024 + 1024) + (1024 * 512 + 512)
    base, key = ResNet(MINI_IMAGENET, 5), ResNetKey(MINI_IMAGENET)
    assert sum(p.numel() for p in base.parameters()) == blocks + hidden + 512 * 5 + 5
    assert sum(p.numel() for p in key.parameters()) == blocks + hidden + 512 * 64 + 64


def test_a_block_is_the_printed_sum():
    torch.manual_seed(0)
    block, x = ResBlock(3, 8, "none"), torch.randn(2, 3, 6, 6)

    def conv(layer: nn.Module, z: Tensor) -> Tensor:
        return F.conv2d(z, layer.convolution.weight, layer.convolution.bias, padding=layer.convolution.padding)

    h1 = conv(block.first, x).relu()
    h2 = conv(block.second, h1).relu()
    h3, h4 = conv(block.third, h2), conv(block.shortcut, x)
    assert_close(block(x), h3 + h4)


def test_shifts_enter_after_relu_of_the_block_and_before_pooling(float64):
    base = small().eval()
    x = torch.randn(2, *SMALL)
    a3 = base.stem(x)
    shifts = tuple(torch.randn_like(a) for a in base.head(a3).preactivations)
    b3, b4, b5, b6 = shifts
    h3 = F.max_pool2d(a3.relu() + b3.permute(0, 3, 1, 2).relu(), 2)
    h4 = F.max_pool2d(base.block(h3).relu() + b4.permute(0, 3, 1, 2).relu(), 2)
    features = base.features(h4).relu().mean((2, 3))
    h5 = base.hidden(features).relu() + b5.relu()
    assert_close(base(x, shifts).logits, base.output(h5) + b6)


def test_width_scales_every_layer_and_rounds_to_eights():
    assert [scaled(n, 0.25) for n in (64, 96, 128, 256, 1024, 512)] == [16, 24, 32, 64, 256, 128]
    assert scaled(64, 0.01) == 8
    base = ResNet((3, 64, 64), 5, width=0.25).eval()
    output = base(torch.randn(1, 3, 64, 64))
    assert [tuple(a.shape[1:]) for a in output.preactivations] == [(16, 16, 32), (8, 8, 64), (128,), (5,)]


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_a_width_that_leaves_no_filters_is_refused(number):
    for network in (lambda: ResNet((3, 16, 16), 5, width=number), lambda: ResNetKey((3, 16, 16), width=number)):
        with pytest.raises(ValueError, match=rf"network\.width.* got {number}"):
            network()


def test_a_hidden_layer_of_no_units_is_refused():
    for network in (lambda: ResNet((3, 16, 16), 5, units=0), lambda: ResNetKey((3, 16, 16), units=0)):
        with pytest.raises(ValueError, match=r"network\.units.* got 0"):
            network()


@pytest.mark.parametrize("image", [(3, 15, 40), (1, 40, 8)])
def test_images_that_four_poolings_would_use_up_are_refused(image):
    for network in (lambda: ResNet(image, 5), lambda: ResNetKey(image)):
        with pytest.raises(ValueError, match="16 pixels or more on a side"):
            network()


def test_the_description_phase_is_per_example_in_training_with_batch_norm(float64):
    """Eq. 5 and eq. 7: what a row of memory is made of does not depend on the other examples above the stem."""
    base = small(norm="batch").train()
    with torch.no_grad():
        features = base.stem(torch.randn(6, *SMALL))
    labels = torch.tensor([[0, 1, 2, 3, 4, 0]])
    for conditioning in (ErrorGradient(), DirectFeedback()):
        together = conditioning(base.head(features.requires_grad_()), labels, base.activations, 5)
        for i in range(6):
            output = base.head(features[i : i + 1])
            alone = conditioning(output, labels[:, i : i + 1], base.activations, 5)
            for one, all_of_them in zip(alone, together, strict=True):
                assert_close(one.dense()[0, 0], all_of_them.dense()[0, i], rtol=0, atol=1e-10)


def test_the_prediction_phase_gathers_the_statistics_and_the_description_phase_does_not():
    base = small(norm="batch").train()
    features = base.stem(torch.randn(6, *SMALL))
    before = base.block.first.norm.running_mean.clone()
    output = base.head(features)
    assert torch.equal(base.block.first.norm.running_mean, before)
    shifted = base.head(features, tuple(torch.zeros_like(a) for a in output.preactivations))
    assert not torch.equal(base.block.first.norm.running_mean, before)
    assert not torch.allclose(shifted.logits, output.logits)  # the batch's own statistics against running ones


def test_direct_feedback_takes_the_exact_shortcut():
    model = build(reads=SMALL, way=5, network=ResNetOptions(width=0.1, units=80), conditioning="df")
    output = model.base(torch.randn(5, *SMALL))
    infos = DirectFeedback()(output, torch.arange(5)[None], model.base.activations, 5)
    assert [type(info) for info in infos[:-1]] == [GatedInfo] * 3


@pytest.mark.parametrize(
    ("rates", "dropped"),
    [((0.5, 0.0, 0.0), "lower"), ((0.0, 0.5, 0.0), "hidden"), ((0.0, 0.0, 0.5), "output")],
)
def test_dropout_is_at_the_input_and_the_two_fc_layers_in_training_only(rates, dropped):
    base, x = small(dropout=rates), torch.rand(4, *SMALL) + 0.5
    inputs: list[Tensor] = []
    getattr(base, dropped).register_forward_pre_hook(lambda _, seen: inputs.append(seen[0].detach().clone()))
    for training in (False, False, True):
        base.train(training)(x)
    clean, again, noisy = inputs
    assert torch.equal(clean, again)
    kept = noisy != 0
    assert_close(noisy[kept], 2 * clean[kept])
    assert 0.2 < (~kept & (clean != 0)).sum() / (clean != 0).sum() < 0.8


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_presets_have_the_numbers_of_appendix_a(conditioning):
    config = load_preset(f"adaresnet-{conditioning}")
    assert (config.network.name, config.learner.conditioning, config.network.width) == ("resnet", conditioning, 1.0)
    assert (config.network.dropout, config.network.norm, config.network.units) == ((0.2, 0.5, 0.5), "batch", 512)
    train = config.train
    assert (train.optimizer, train.momentum, train.learning_rate, train.clip) == ("sgd", 0.9, 0.01, None)
    assert (train.validate_every, train.validation_tasks) == (400, 400)
    assert load_preset(f"adaresnet-{conditioning}", "plus").network.width < 1


@pytest.mark.parametrize(("conditioning", "first"), [("gradient", 0.0), ("df", 0.2)])
def test_adacnn_for_mini_imagenet_has_32_filters(conditioning, first):
    config = load_preset(f"adacnn-32-{conditioning}")
    assert (config.network.name, config.network.filters, config.network.dropout) == ("cnn", 32, (first, 0.3, 0.3))
    assert (config.data.name, config.train.validate_every, config.train.validation_tasks) == ("mini-imagenet", 400, 400)
