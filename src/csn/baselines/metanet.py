"""Meta Networks (Munkhdalai and Yu, 2017): slow weights, and fast weights made from the gradients of losses.

`b` tasks, `n` support examples, `m` queries, `C` ways, `d` key size, `P` weights of a network. Letters are those of
their algorithm 1: a base learner b with slow weights W and a representation function u with slow weights Q. From the
gradients of each support example's loss, m writes one row of fast weights W*_i into a memory. From the gradients of a
few parts of the support, d (an LSTM) makes fast weights Q* of the task. u computes keys with Q and Q*. The key of a
query reads its W* from the memory. As in the original, gradients are constants: nothing is differentiated twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.baselines.coordinates import CoordinateLSTM
from csn.core.base_learner import he_initialise
from csn.core.conditioning import preprocess_gradient
from csn.core.memory import MemoryFunction, log_scale
from csn.core.parts import LearnerOptions, Parts, check_sizes, image_shape
from csn.core.shortcuts.piecewise import preprocessed
from csn.episode import Examples, check_examples, check_finite, check_same_tasks, support_way
from csn.learner import FewShotLearner, ordinary
from csn.networks.cnn import channels_last, check_images, pool, pooled_size

P_OF_EQ_6 = 7.0  # for the preprocessing of gradients, which both papers take from Andrychowicz et al. (2016)
FAST_START = 0.001  # initial scale of the last layers of m and d: an offset common to all weights adds up over inputs


class AugmentedNetwork(nn.Module):
    """Convolutions with ReLU and pooling, then two linear layers, all without biases.

    A layer augmented by fast weights W* (section 3.3) is relu(W x) + relu(W* x), the last one W x + W* x.
    """

    def __init__(self, image: tuple[int, int, int], outputs: Sequence[int], *, filters: int, layers: int = 5) -> None:
        super().__init__()
        self.image = image
        channels = [image[0]] + [filters] * (layers - 1)
        self.convolutions = nn.ModuleList(nn.Conv2d(i, filters, 3, padding=1, bias=False) for i in channels)
        widths = [filters * pooled_size(image, layers), *outputs]
        self.linear = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in zip(widths, outputs, strict=False))
        he_initialise(self.modules())
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def weights(self) -> list[Tensor]:
        """The slow weights, layer by layer."""
        return [layer.weight for layer in (*self.convolutions, *self.linear)]

    def check_input(self, x: Tensor) -> None:
        """Raise ValueError unless x (examples, *input) has the form that this network was built for."""
        check_images(x, self.image)

    def forward(self, x: Tensor, fast: Sequence[Tensor]) -> Tensor:
        """Run (examples, *image) under slow and fast weights. `fast` has (groups, *shape) for each layer. The examples
        of a group are consecutive, and all groups have equally many."""
        for layer, weight in zip(self.convolutions, fast, strict=False):
            x = pool(F.relu(layer(channels_last(x))) + F.relu(_convolve_groups(x, weight)))
        x = x.flatten(1)
        for index, (layer, weight) in enumerate(zip(self.linear, fast[len(self.convolutions) :], strict=True)):
            slow, quick = layer(x), torch.bmm(x.unflatten(0, (len(weight), -1)), weight.mT).flatten(0, 1)
            x = slow + quick if index == len(self.linear) - 1 else F.relu(slow) + F.relu(quick)
        return x

    def loss_gradients(self, x: Tensor, labels: Tensor, way: int, head: Tensor | None = None) -> list[Tensor]:
        """Gradients of each example's own cross-entropy under the slow weights alone: (examples, *shape) of each layer.

        One backward pass gives the gradients of all preactivations, from which each example's weight gradients follow
        in closed form: delta x^T. `head` holds the weights of a further linear layer if the network ends below the
        classes.
        """
        layers = [*self.convolutions, *self.linear]
        inputs, preactivations = [], []
        with torch.inference_mode(False), torch.enable_grad():
            h, labels = ordinary(x), ordinary(labels)
            for index, layer in enumerate(layers):
                inputs.append(h.detach())
                weight = layer.weight.detach()
                convolution = isinstance(layer, nn.Conv2d)
                a = F.conv2d(h, weight, padding=1) if convolution else F.linear(h, weight)
                preactivations.append(a if a.requires_grad else a.requires_grad_())
                is_last = index == len(layers) - 1 and head is None
                h = pool(F.relu(a)) if convolution else a if is_last else F.relu(a)
                if index == len(self.convolutions) - 1:
                    h = h.flatten(1)
            logits = h if head is None else F.linear(h, head)
            # The loss is a sum and no layer mixes examples, so each row's gradient belongs to its own loss.
            loss = F.cross_entropy(logits[:, :way], labels, reduction="sum")
            deltas = torch.autograd.grad(loss, preactivations)
        return [
            _weight_gradients(a, delta, layer.weight.shape)
            for a, delta, layer in zip(inputs, deltas, layers, strict=True)
        ]


class Parameterised(NamedTuple):
    """Keys (b, n, d), memory of W*_i (b, n, P), Q* (b, *shape) of each layer of u, labels (b, n) and way."""

    keys: Tensor
    memory: Tensor
    representation: tuple[Tensor, ...]
    labels: Tensor
    way: int


class MetaNet(FewShotLearner[Parameterised]):
    """Meta Networks.

    The base learner b and the representation function u have the same shape. As in the authors' program, there is one m
    and one d for convolutions, and another for linear layers.

    Args:
        image: (channels, height, width).
        way: The largest number of classes.
        filters: Filters of every convolution.
        size: d, numbers in a key.
        units: Units of the networks m and d.
        parts: Parts into which the support is divided. d reads the gradients of one part after the other, so the order
            of the support matters.
        temperature: None for raw cosines as published, or the initial value of a learned scale on them.
    """

    head: Tensor

    def __init__(
        self,
        image: tuple[int, int, int],
        way: int,
        *,
        filters: int = 64,
        size: int = 64,
        units: int = 20,
        parts: int = 5,
        temperature: float | None = None,
    ) -> None:
        super().__init__()
        if parts < 1:
            raise ValueError(f"d reads the gradients of at least one part of the support, got {parts}")
        self.way, self.parts = way, parts
        self.base = AugmentedNetwork(image, (size, way), filters=filters)
        self.representation = AugmentedNetwork(image, (size,), filters=filters)
        # Only gradients, which are constants, pass through this layer, so it cannot be trained.
        self.register_buffer("head", torch.randn(way, size) * (2 / size) ** 0.5)
        self.log_scale = log_scale(temperature)
        self.m_convolutions, self.m_linear = (_small_m(units) for _ in range(2))
        self.d_convolutions, self.d_linear = (_small_d(units) for _ in range(2))

    def describe(self, support: Examples, way: int | None = None) -> Parameterised:
        """Algorithm 1, lines 1 to 15."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        x, labels = support.x.flatten(0, 1), support.y.flatten()
        self.base.check_input(x)
        task = self._task_weights(self.representation.loss_gradients(x, labels, way, self.head), support.y)
        keys = self.representation(x, task).unflatten(0, support.y.shape)
        gradients = self.base.loss_gradients(x, labels, way)
        kinds = zip((self.m_convolutions, self.m_linear), _by_kind(self.base, gradients), strict=True)
        memory = torch.cat([preprocessed(m, part, P_OF_EQ_6) for m, part in kinds], dim=1)
        return Parameterised(keys, memory.unflatten(0, support.y.shape), tuple(task), support.y, way)

    def predict(self, x: Tensor, task: Parameterised) -> Tensor:
        """Algorithm 1, lines 16 to 20: (b, m, *image) -> logits (b, m, way)."""
        check_finite(x)
        check_same_tasks(x, task.labels)
        flat = x.flatten(0, 1)
        self.base.check_input(flat)
        if len(flat) == 0:
            return x.new_zeros(*x.shape[:2], task.way)
        fast = torch.bmm(self._attend(self._query_keys(x, task), task), task.memory).flatten(0, 1)  # (b * m, P)
        return self.base(flat, _by_layer(self.base, fast)).unflatten(0, x.shape[:2])[..., : task.way]

    def attend(self, x: Tensor, task: Parameterised) -> Tensor:
        """The weight of each row of the memory for each query: (b, m, *image) -> (b, m, n)."""
        return self._attend(self._query_keys(x, task), task)

    def _query_keys(self, x: Tensor, task: Parameterised) -> Tensor:
        return self.representation(x.flatten(0, 1), task.representation).unflatten(0, x.shape[:2])

    def _attend(self, keys: Tensor, task: Parameterised) -> Tensor:
        """The softmax of cosines of keys (b, m, d) -> (b, m, n)."""
        cosine = F.normalize(keys, dim=-1) @ F.normalize(task.keys, dim=-1).mT
        return (cosine if self.log_scale is None else self.log_scale.exp() * cosine).softmax(-1)

    def _task_weights(self, gradients: list[Tensor], labels: Tensor) -> list[Tensor]:
        """Q* = d(gradients of the mean losses of parts of the support): (b * n, *shape) -> (b, *shape), each layer."""
        kinds = []
        parts = _by_kind(self.representation, gradients)
        for d, part in zip((self.d_convolutions, self.d_linear), parts, strict=True):
            rows = part.unflatten(0, labels.shape)  # (b, n, P)
            means = [mean.mean(1) for mean in rows.tensor_split(min(self.parts, labels.shape[1]), dim=1)]
            sequence = preprocess_gradient(torch.stack(means), P_OF_EQ_6)  # (T, b, P, 2)
            kinds.append(d(sequence.flatten(1, 2).mT).unflatten(0, (labels.shape[0], -1)))
        return _by_layer(self.representation, torch.cat(kinds, dim=1))


def _small_m(units: int) -> MemoryFunction:
    m = MemoryFunction(2, units=units)
    m.scale(FAST_START)
    return m


def _small_d(units: int) -> CoordinateLSTM:
    d = CoordinateLSTM(2, units=units)
    nn.init.zeros_(d.output.bias)
    with torch.no_grad():
        d.output.weight.mul_(FAST_START)
    return d


def _convolve_groups(x: Tensor, weights: Tensor) -> Tensor:
    """Convolve groups with their own weights: (groups * k, i, h, w), (groups, o, i, 3, 3) -> (groups * k, o, h, w)."""
    groups, (_, i, height, width) = len(weights), x.shape
    grouped = x.view(groups, -1, i, height, width).transpose(0, 1).reshape(-1, groups * i, height, width)
    # Pad beforehand: torch cannot tell the memory format of a map of one pixel, and fails in double precision.
    y = F.conv2d(F.pad(grouped, (1, 1, 1, 1)), weights.flatten(0, 1), groups=groups)
    return y.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 1)


def _weight_gradients(x: Tensor, delta: Tensor, shape: torch.Size) -> Tensor:
    """Each example's gradient of a layer's weight, from its input x and the gradient delta of its preactivations."""
    if delta.ndim == 2:
        return delta.unsqueeze(2) * x.unsqueeze(1)
    return torch.bmm(delta.flatten(2), F.unfold(x, 3, padding=1).mT).unflatten(2, shape[1:])


def _by_kind(network: AugmentedNetwork, layers: list[Tensor]) -> list[Tensor]:
    """(rows, *shape) of each layer -> (rows, weights) of all convolutions and of all linear layers."""
    first = len(network.convolutions)
    return [torch.cat([layer.flatten(1) for layer in part], dim=1) for part in (layers[:first], layers[first:])]


def _by_layer(network: AugmentedNetwork, rows: Tensor) -> list[Tensor]:
    """(rows, P) -> (rows, *shape) of each layer."""
    shapes = [weight.shape for weight in network.weights()]
    parts = rows.split([shape.numel() for shape in shapes], dim=1)
    return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(frozen=True)
class MetaNetOptions(LearnerOptions):
    """MetaNet, which builds its own two convolutional networks.

    filters: filters of every convolution.
    size: numbers in a key.
    units: units of the networks that turn gradients into fast weights.
    parts: parts of a support, whose gradients are read one after the other.
    temperature: none for raw cosines, or the initial value of a learned scale.
    """

    name: ClassVar[str] = "metanet"
    uses_network: ClassVar[bool] = False
    uses_key: ClassVar[bool] = False
    encodes: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    filters: int = 64
    size: int = 64
    units: int = 20
    parts: int = 5
    temperature: float | None = None

    def build(self, parts: Parts) -> MetaNet:
        """Build it for images."""
        check_sizes(self, "filters", "size", "units", "parts")
        return MetaNet(image_shape(parts.spec, "MetaNet"), parts.way, **vars(self))
