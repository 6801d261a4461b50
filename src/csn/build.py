"""Configuration -> objects: the one table of names."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from csn.base.cnn import CNN
from csn.base.ffn import FFN
from csn.base.learner import BaseLearner
from csn.conditioning import Conditioning, DirectFeedback, ErrorGradient
from csn.config import ModelConfig
from csn.data.fetch import Progress
from csn.data.omniglot import load_omniglot
from csn.data.penn_treebank import load_penn_treebank
from csn.data.source import Dataset
from csn.data.strokes import load_strokes
from csn.data.text_files import load_king_james
from csn.data.toy_language import load_toy_language
from csn.keys import CNNKey, MLPKey
from csn.memory import MemoryFunction
from csn.model import CSN


@dataclass(frozen=True)
class DataEntry:
    """A data set that can be asked for by name; `load` takes a callback for the progress of a download."""

    about: str
    load: Callable[[Progress | None], Dataset]


DATASETS = {
    "strokes": DataEntry("characters drawn by random stroke programs; embedded, no download", lambda _: load_strokes()),
    "omniglot": DataEntry(
        "1623 handwritten characters, 1200 for training and 423 for testing at random (the paper's split)",
        lambda progress: load_omniglot(progress=progress),
    ),
    "omniglot-background": DataEntry(
        "the same with the original split into background and evaluation alphabets",
        lambda progress: load_omniglot(protocol="background", progress=progress),
    ),
    "toy-language": DataEntry(
        "sentences of a made-up language, one word blanked; embedded, no download", lambda _: load_toy_language()
    ),
    "king-james": DataEntry(
        "49,000 clauses of the King James Bible, one word blanked; comes with csn[text], no download",
        lambda _: load_king_james(),
    ),
    "penn-treebank": DataEntry(
        "49,000 sentences of the Wall Street Journal, one word blanked; the test words of Vinyals et al. (the paper's)",
        lambda progress: load_penn_treebank(progress=progress),
    ),
}


def load_data(name: str, progress: Progress | None = None) -> Dataset:
    """A data set by name."""
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}")
    return DATASETS[name].load(progress)


def build_learner(config: ModelConfig, input_shape: tuple[int, ...], way: int) -> CSN:
    """The learner that a configuration describes, for inputs of a shape and at most `way` classes."""
    base, key_function = _networks(config, input_shape, way)
    conditioning = _conditioning(config)
    g = MemoryFunction(
        conditioning.size(way),
        units=config.g_units,
        layers=3 if config.g == "mlp" else 1,
        bias=config.g == "mlp" or config.conditioning == "df",
    )
    return CSN(
        base,
        key_function,
        g,
        conditioning,
        temperature=config.temperature,
        attention=config.attention,
        guard=config.guard,
    )


def _networks(config: ModelConfig, input_shape: tuple[int, ...], way: int) -> tuple[BaseLearner, nn.Module]:
    """The base learner and a key function of the same shape."""
    if config.base == "cnn":
        if len(input_shape) != 3 or len(config.dropout) != 3:
            raise ValueError(
                f"a CNN takes images of shape (channels, height, width) and three dropout rates, got {input_shape} "
                f"and {config.dropout}"
            )
        channels, height, width = input_shape
        image, (first, middle, last) = (channels, height, width), config.dropout
        return (
            CNN(
                image,
                way,
                filters=config.filters,
                dropout=(first, middle, last),
                norm=config.norm,
                shift_rule=config.shift_rule,
            ),
            CNNKey(image, size=config.key_size, filters=config.filters, norm=config.norm),
        )
    inputs = math.prod(input_shape)
    return (
        FFN(
            inputs,
            way,
            units=config.units,
            layers=config.layers,
            dropout=config.dropout[0],
            shift_rule=config.shift_rule,
        ),
        MLPKey(inputs, size=config.key_size, units=config.units, layers=config.layers),
    )


def _conditioning(config: ModelConfig) -> Conditioning:
    """Direct feedback, or the gradient: preprocessed for an MLP, raw for the learned scalar of section 4.3."""
    if config.conditioning == "df":
        return DirectFeedback()
    return ErrorGradient(p=7.0 if config.g == "mlp" else None)
