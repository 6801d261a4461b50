"""Configuration -> baseline: what `csn.build` builds every other system of the tables with."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from csn.baselines.finetune import FineTuned
from csn.baselines.lstm_lm import LanguageModel
from csn.baselines.maml import MAML
from csn.baselines.mann import MANN
from csn.baselines.matching import MatchingNetwork
from csn.baselines.meta_lstm import MetaLSTM
from csn.baselines.metanet import MetaNet
from csn.baselines.nearest import NearestNeighbour
from csn.baselines.prototypical import PrototypicalNetwork
from csn.baselines.siamese import SiameseNetwork
from csn.baselines.snail import SNAIL
from csn.config import ModelConfig
from csn.core.base_learner import start_uniform
from csn.learner import FewShotLearner


def build_baseline(
    config: ModelConfig,
    network: Callable[[int], nn.Module],
    input_shape: tuple[int, ...],
    way: int,
    vocabulary: int | None,
) -> FewShotLearner:
    """The baseline that a configuration names; `network(size)` makes the network that all of them share."""
    size = config.key_size
    if config.learner == "prototypical":
        return PrototypicalNetwork(network(size), way, distance=config.distance, temperature=config.temperature)
    if config.learner == "matching":
        return MatchingNetwork(
            network(size),
            way,
            size=size,
            context_steps=config.context_steps,
            temperature=config.temperature,
        )
    if config.learner == "siamese":
        return SiameseNetwork(network(size), way, size=size)
    if config.learner in ("maml", "meta-lstm"):
        return _gradient_learner(config, network(way), way, vocabulary)
    if config.learner == "snail":
        return SNAIL(network(size), way, size=size, length=config.sequence_length)
    if config.learner == "mann":
        return MANN(
            _standardised(config, network(size)),
            way,
            size=size,
            units=config.units,
            rows=config.memory_rows,
            row_size=config.memory_size,
            heads=config.heads,
            temperature=config.temperature,
        )
    if config.learner == "finetune":
        return FineTuned(
            network(size),
            way,
            head=config.head,
            steps=config.inner_steps,
            rate=config.inner_rate,
            temperature=config.temperature or 10.0,
        )
    if config.learner == "metanet":
        return MetaNet(
            _image(config, input_shape, vocabulary),
            way,
            filters=config.filters,
            size=size,
            units=config.g_units,
            steps=config.gradient_parts,
            temperature=config.temperature,
        )
    if config.learner == "nearest":
        return NearestNeighbour(way)
    if config.learner == "lstm-lm":
        return _language_model(config, way, vocabulary)
    raise ValueError(f"unknown learner {config.learner!r}")


def _standardised(config: ModelConfig, network: nn.Module) -> nn.Module:
    """Embeddings under a last batch norm, where the network has batch norm.

    What embeddings of an untrained network have in common is larger than what tells them apart, and a memory that is
    read by cosines then finds every row alike.
    """
    return nn.Sequential(network, nn.BatchNorm1d(config.key_size)) if config.norm == "batch" else network


def _gradient_learner(config: ModelConfig, network: nn.Module, way: int, vocabulary: int | None) -> MAML:
    """MAML or the Meta-Learner LSTM; the softmax layer starts at 0, as that of every base learner."""
    if vocabulary is not None:
        raise ValueError(
            f"{config.learner} is for images: recurrent networks cannot be vectorised over tasks. Choose another preset"
        )
    start_uniform([module for module in network.modules() if isinstance(module, nn.Linear)][-1])
    if config.learner == "meta-lstm":
        return MetaLSTM(
            network,
            way,
            units=config.g_units,
            inner_steps=config.inner_steps,
            test_steps=config.test_steps,
            inner_rate=config.inner_rate,
        )
    return MAML(
        network,
        way,
        inner_steps=config.inner_steps,
        test_steps=config.test_steps,
        inner_rate=config.inner_rate,
        rate=config.rate,
        order=config.order,
    )


def _image(config: ModelConfig, input_shape: tuple[int, ...], vocabulary: int | None) -> tuple[int, int, int]:
    """The shape of images, or a ValueError from a learner whose networks are convolutions only."""
    if vocabulary is not None or config.base != "cnn":
        raise ValueError(f"{config.learner} is for images and model.base=cnn, got {config.base}: choose another preset")
    channels, height, width = input_shape
    return channels, height, width


def _language_model(config: ModelConfig, way: int, vocabulary: int | None) -> LanguageModel:
    """The LSTM-LM oracle."""
    assert vocabulary is not None  # _check_input saw to it
    return LanguageModel(
        vocabulary,
        way,
        embedding=config.embedding,
        units=config.units,
        layers=config.layers,
        dropout=config.dropout[0],
    )
