"""Configuration -> objects: the one table of names."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from csn.base.cnn import CNN
from csn.base.encoded import EncodedFFN
from csn.base.ffn import FFN
from csn.base.learner import BaseLearner
from csn.base.lstm import LSTM
from csn.build_baselines import build_baseline
from csn.conditioning import Conditioning, DirectFeedback, ErrorGradient
from csn.config import ModelConfig
from csn.data.fetch import Progress
from csn.data.omniglot import load_omniglot
from csn.data.penn_treebank import load_penn_treebank, penn_treebank_text
from csn.data.running_text import RunningText
from csn.data.source import Dataset
from csn.data.strokes import load_strokes
from csn.data.text_files import king_james_text, load_king_james, load_text, running_text_of
from csn.data.toy_language import load_toy_language, toy_text
from csn.keys import CNNKey, MLPKey
from csn.learner import FewShotLearner
from csn.memory import MemoryFunction
from csn.model import CSN
from csn.sentence_keys import LSTMKey, NeighbourKey


@dataclass(frozen=True)
class DataEntry:
    """A data set that can be asked for by name; `load` and `text` take a callback for the progress of a download.

    text: the same for a language model, of data sets that are texts.
    """

    about: str
    load: Callable[[Progress | None], Dataset]
    text: Callable[[Progress | None], RunningText] | None = None


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
        "sentences of a made-up language, one word blanked; embedded, no download",
        lambda _: load_toy_language(),
        lambda _: toy_text(),
    ),
    "king-james": DataEntry(
        "49,000 clauses of the King James Bible, one word blanked; comes with csn[text], no download",
        lambda _: load_king_james(),
        lambda _: king_james_text(),
    ),
    "penn-treebank": DataEntry(
        "49,000 sentences of the Wall Street Journal, one word blanked; the test words of Vinyals et al. (the paper's)",
        lambda progress: load_penn_treebank(progress=progress),
        lambda progress: penn_treebank_text(progress=progress),
    ),
    "penn-treebank-unread": DataEntry(
        "the same with validation and test sentences that its language-model oracle has not read",
        lambda progress: load_penn_treebank(held_out_from="more", progress=progress),
        lambda progress: penn_treebank_text(held_out_from="more", progress=progress),
    ),
}


TEXT_FILES = (".txt", ".txt.gz")


def load_data(name: str, progress: Progress | None = None) -> Dataset:
    """A data set by name, or the text file of that path (one sentence a line)."""
    if name.endswith(TEXT_FILES):
        return load_text(name)
    return _entry(name).load(progress)


def load_running_text(name: str, progress: Progress | None = None) -> RunningText:
    """A text by name or path, for a language model."""
    if name.endswith(TEXT_FILES):
        return running_text_of(name)
    text = _entry(name).text
    if text is None:
        texts = ", ".join(other for other, entry in DATASETS.items() if entry.text)
        raise ValueError(f"a language model needs a text, {name!r} is none: choose one of {texts}")
    return text(progress)


def load_tasks(config: ModelConfig, name: str) -> Dataset:
    """A data set as a learner knows it: a language model's vocabulary has the held-out words."""
    return load_running_text(name).tasks if config.learner == "lstm-lm" else load_data(name)


def _entry(name: str) -> DataEntry:
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}, or a text file (.txt)")
    return DATASETS[name]


def build_learner(
    config: ModelConfig, input_shape: tuple[int, ...], way: int, vocabulary: int | None = None
) -> FewShotLearner:
    """The learner that a configuration describes, for inputs of a shape and at most `way` classes.

    vocabulary: how many word ids there are, where inputs are sentences.
    """
    if way < 2:
        raise ValueError(f"tasks need way >= 2 to have something to tell apart, got {way}")
    _check_input(config, input_shape, vocabulary)

    def network(size: int) -> nn.Module:
        return _key_function(config, input_shape, vocabulary, size)

    if config.learner == "csn":
        return _csn(config, _base_learner(config, input_shape, way, vocabulary), network(config.key_size))
    return build_baseline(config, network, input_shape, way, vocabulary)


def _csn(config: ModelConfig, base: BaseLearner, key_function: nn.Module) -> CSN:
    """CSN from its two networks."""
    conditioning = _conditioning(config)
    g = MemoryFunction(
        conditioning.size(base.way),
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
        shifted=config.shifted,
    )


def _check_input(config: ModelConfig, input_shape: tuple[int, ...], vocabulary: int | None) -> None:
    """Raise ValueError unless the configured networks are for this kind of input."""
    if config.learner == "nearest":
        return
    if (vocabulary is not None) != (config.base in ("lstm", "lstm-ffn")):
        kind = "images" if vocabulary is None else "sentences"
        raise ValueError(
            f"base learner {config.base!r} does not read {kind}: cnn and ffn are for images, lstm and lstm-ffn for "
            f"sentences. Choose another preset or data set"
        )
    if config.base == "cnn" and (len(input_shape) != 3 or len(config.dropout) != 3):
        raise ValueError(
            f"a CNN takes images of shape (channels, height, width) and three dropout rates, got {input_shape} "
            f"and {config.dropout}"
        )


def _base_learner(config: ModelConfig, input_shape: tuple[int, ...], way: int, vocabulary: int | None) -> BaseLearner:
    """The network that CSN adapts."""
    if vocabulary is not None:
        return _sentence_base(config, way, vocabulary)
    if config.base == "cnn":
        (channels, height, width), (first, middle, last) = input_shape, config.dropout
        return CNN(
            (channels, height, width),
            way,
            filters=config.filters,
            dropout=(first, middle, last),
            norm=config.norm,
            shift_rule=config.shift_rule,
        )
    return FFN(
        math.prod(input_shape),
        way,
        units=config.units,
        layers=config.layers,
        dropout=config.dropout[0],
        shift_rule=config.shift_rule,
    )


def _key_function(config: ModelConfig, input_shape: tuple[int, ...], vocabulary: int | None, size: int) -> nn.Module:
    """A network of the base learner's shape with `size` linear outputs."""
    if vocabulary is not None:
        return _sentence_key(config, vocabulary, size)
    if config.base == "cnn":
        channels, height, width = input_shape
        return CNNKey((channels, height, width), size=size, filters=config.filters, norm=config.norm)
    return MLPKey(math.prod(input_shape), size=size, units=config.units, layers=config.layers)


def _sentence_base(config: ModelConfig, way: int, vocabulary: int) -> BaseLearner:
    """adaLSTM, or LSTM + adaFFN."""
    if config.base == "lstm":
        return LSTM(
            vocabulary,
            way,
            embedding=config.embedding,
            units=config.units,
            layers=config.layers,
            dropout=config.embedding_dropout,
            align=config.align,
            shift_rule=config.shift_rule,
        )
    return EncodedFFN(
        vocabulary,
        way,
        embedding=config.embedding,
        units=config.units,
        layers=config.layers,
        embedding_dropout=config.embedding_dropout,
        dropout=config.dropout[0],
        shift_rule=config.shift_rule,
    )


def _sentence_key(config: ModelConfig, vocabulary: int, size: int) -> nn.Module:
    """The key function for sentences; its embeddings are its own."""
    if config.key == "neighbours":
        return NeighbourKey(
            vocabulary,
            size=size,
            neighbours=config.neighbours,
            layers=config.key_layers,
            embedding=config.embedding,
            dropout=config.embedding_dropout,
        )
    return LSTMKey(
        vocabulary,
        size=size,
        embedding=config.embedding,
        units=config.units,
        dropout=config.embedding_dropout,
    )


def _conditioning(config: ModelConfig) -> Conditioning:
    """Direct feedback, or the gradient: preprocessed for an MLP, raw for the learned scalar of section 4.3."""
    if config.conditioning == "df":
        return DirectFeedback()
    return ErrorGradient(p=7.0 if config.g == "mlp" else None)
