"""adaCNN (section 4.1, appendix A): five convolutions and a softmax layer, the last four adapted."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from csn.building import build, build_learner
from csn.config import load_preset, merge
from csn.learner import InputSpec
from csn.networks.cnn import CNN, CNNKey, CNNOptions, pooled_size

OMNIGLOT, MINI_IMAGENET = (1, 28, 28), (3, 84, 84)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_last_four_layers_are_adapted_and_sides_go_28_14_7_4_2_1():
    base = CNN(OMNIGLOT, 5).eval()
    x = torch.randn(2, *OMNIGLOT)
    assert base.stem(x).shape == (2, 64, 7, 7)
    output = base(x)
    # conv3 sees 7 x 7, conv4 4 x 4, conv5 2 x 2, softmax 1 x 1; neurons are (height, width, filters)
    assert [tuple(a.shape) for a in output.preactivations] == [(2, 7, 7, 64), (2, 4, 4, 64), (2, 2, 2, 64), (2, 5)]
    assert base.output.in_features == 64
    assert [sigma.name for sigma in base.activations] == ["relu"] * 3


def test_sides_go_84_42_21_11_6_3_on_mini_imagenet():
    output = CNN(MINI_IMAGENET, 5, filters=32).eval()(torch.randn(1, *MINI_IMAGENET))
    assert [tuple(a.shape[1:]) for a in output.preactivations] == [(21, 21, 32), (11, 11, 32), (6, 6, 32), (5,)]


@pytest.mark.parametrize(("image", "layers", "pixels"), [(OMNIGLOT, 5, 1), (OMNIGLOT, 4, 4), (MINI_IMAGENET, 5, 9)])
def test_pooled_size_by_hand(image, layers, pixels):
    assert pooled_size(image, layers) == pixels


def test_parameters_of_the_omniglot_model_by_hand():
    convolutions = (9 * 1 * 64 + 64) + 4 * (9 * 64 * 64 + 64)
    model = build_learner(load_preset("adacnn-gradient"), InputSpec(OMNIGLOT))
    assert count(model.base) == convolutions + 64 * 5 + 5
    assert count(model.key_function) == convolutions + 64 * 64 + 64
    assert count(model.memory_function) == (2 * 20 + 20) + (20 * 20 + 20) + (20 + 1)
    config = merge(load_preset("adacnn-df"), {"data": {"way": 20}, "learner": {"guard": False}})
    df = build_learner(config, InputSpec(OMNIGLOT))
    assert count(df.memory_function) == (20 * 20 + 20) + (20 * 20 + 20) + (20 + 1)
    assert count(df.base) == convolutions + 64 * 20 + 20


def test_parameters_of_the_mini_imagenet_model_by_hand():
    convolutions = (9 * 3 * 32 + 32) + 4 * (9 * 32 * 32 + 32)
    model = build(reads=MINI_IMAGENET, way=5, network=CNNOptions(filters=32))
    assert count(model.base) == convolutions + 9 * 32 * 5 + 5
    assert count(model.key_function) == convolutions + 9 * 32 * 64 + 64


def test_keys_have_64_numbers_from_a_linear_layer():
    key = build(reads=OMNIGLOT, way=5).key_function
    keys = key(torch.randn(50, *OMNIGLOT))
    assert keys.shape == (50, 64)
    assert (keys < 0).any()


def plain(x: Tensor, convolutions: nn.ModuleList) -> Tensor:
    """Convolution, ReLU, pooling, in the paper's order."""
    for convolution in convolutions:
        x = F.max_pool2d(F.conv2d(x, convolution.weight, convolution.bias, padding=1).relu(), 2, ceil_mode=True)
    return x


def test_unshifted_it_is_a_plain_cnn(float64):
    torch.manual_seed(0)
    base, key, x = CNN(OMNIGLOT, 5, filters=8).eval(), CNNKey(OMNIGLOT, size=6, filters=8), torch.randn(3, *OMNIGLOT)
    for layer in (*base.modules(), *key.modules()):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.bias)
    nn.init.normal_(base.output.weight)
    features = plain(plain(x, base.lower.convolutions), base.adapted)
    assert_close(base(x).logits, F.linear(features.flatten(1), base.output.weight, base.output.bias))
    features = plain(x, key.convolutions.convolutions)
    assert_close(key(x), F.linear(features.flatten(1), key.output.weight, key.output.bias))


def test_weights_start_as_he_et_al_and_biases_at_zero():
    torch.manual_seed(0)
    model = build(reads=OMNIGLOT, way=5)
    checked = 0
    for module in (*model.base.modules(), *model.key_function.modules()):
        if isinstance(module, nn.Conv2d | nn.Linear) and module is not model.base.output:
            fan_in = module.weight[0].numel()
            n = module.weight.numel()
            # the standard deviation of n normal numbers is itself known to about 1 / sqrt(2 n)
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=4 / math.sqrt(2 * n))
            assert abs(module.weight.mean().item()) < 4 * math.sqrt(2 / fan_in / n)
            assert (module.bias == 0).all()
            checked += 1
    assert checked == 11


def test_an_untrained_model_predicts_uniformly_without_shifts():
    base = build(reads=OMNIGLOT, way=5, network=CNNOptions(filters=8)).base
    assert (base(torch.randn(3, *OMNIGLOT)).logits == 0).all()


def inputs_of(module: nn.Module, base: CNN, x: Tensor) -> Tensor:
    """What a layer is fed when the network sees x."""
    seen: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    base(x)
    hook.remove()
    return seen[0]


@pytest.mark.parametrize(
    ("rates", "dropped"),
    [
        ((0.5, 0.0, 0.0), "lower.convolutions.0"),
        ((0.0, 0.5, 0.0), "adapted.2"),
        ((0.0, 0.0, 0.5), "output"),
    ],
)
def test_dropout_is_at_the_input_the_last_convolution_and_the_softmax_in_training_only(rates, dropped):
    torch.manual_seed(0)
    base = CNN(OMNIGLOT, 5, filters=16, dropout=rates)
    x = torch.rand(4, *OMNIGLOT) + 0.5
    reached = False
    for name, module in base.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            base.eval()
            clean = inputs_of(module, base, x)
            assert torch.equal(clean, inputs_of(module, base, x))
            base.train()
            noisy = inputs_of(module, base, x)
            if name == dropped:
                reached = True
                kept = noisy != 0
                assert_close(noisy[kept], 2 * clean[kept])  # scaled by 1 / (1 - 0.5)
                zeroed = (~kept & (clean != 0)).sum() / (clean != 0).sum()
                assert 0.3 < zeroed < 0.7
            elif not reached:
                assert torch.equal(noisy, clean)
    assert reached


@pytest.mark.parametrize(("preset", "rates"), [("adacnn-gradient", (0.0, 0.3, 0.3)), ("adacnn-df", (0.2, 0.3, 0.3))])
def test_presets_have_the_numbers_of_appendix_a(preset, rates):
    config = load_preset(preset)
    assert (config.network.name, config.network.filters, config.key.size) == ("cnn", 64, 64)
    assert config.learner.g_units in (20, 40)
    assert config.network.dropout == rates
    assert (config.train.optimizer, config.train.learning_rate, config.train.clip) == ("adam", 0.001, 10.0)
    assert (config.learner.temperature, config.network.norm, config.learner.attention) == (None, "none", "soft")
    model = build_learner(config, InputSpec(OMNIGLOT))
    found = tuple(module.p for module in model.base.modules() if isinstance(module, nn.Dropout))
    assert found == rates


@pytest.mark.parametrize("x", [torch.zeros(2, 28, 28), torch.zeros(2, 3, 28, 28)], ids=["no channels", "3 channels"])
def test_images_of_the_wrong_shape_are_named(x):
    with pytest.raises(ValueError, match=r"images of shape \(1, 28, 28\), got \("):
        CNN(OMNIGLOT, 5, filters=4)(x)


def test_unknown_normalisation_is_refused():
    with pytest.raises(ValueError, match=r"'layer'.*none, batch, group, support or transductive"):
        CNN(OMNIGLOT, 5, norm="layer")


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_normalisation_is_below_the_adapted_layers_only(norm):
    base = CNN(OMNIGLOT, 5, filters=8, norm=norm)
    kinds = nn.BatchNorm2d | nn.GroupNorm
    names = [name for name, module in base.named_modules() if isinstance(module, kinds)]
    assert names == ["lower.norms.0", "lower.norms.1"]
