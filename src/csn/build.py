"""Configuration -> objects: the one table of names."""

from __future__ import annotations

import math

from torch import nn

from csn.build_baselines import build_baseline
from csn.config import ModelConfig
from csn.core.base_learner import BaseLearner
from csn.core.conditioning import Conditioning, DirectFeedback, ErrorGradient
from csn.core.memory import MemoryFunction
from csn.core.model import CSN
from csn.data.images.mini_imagenet import load_mini_imagenet, load_tiny_imagenet
from csn.data.images.omniglot import load_omniglot
from csn.data.images.strokes import load_strokes
from csn.data.registry import DataEntry, LoadOptions, as_path, own_entry
from csn.data.source import Dataset
from csn.data.text.files import king_james_text, load_king_james
from csn.data.text.penn_treebank import load_penn_treebank, penn_treebank_text
from csn.data.text.running import RunningText
from csn.data.text.toy_language import load_toy_language, toy_text
from csn.learner import FewShotLearner
from csn.networks.cnn import CNN
from csn.networks.encoded import EncodedFFN
from csn.networks.ffn import FFN
from csn.networks.keys import CNNKey, MLPKey, ResNetKey
from csn.networks.lstm import LSTM
from csn.networks.resnet import ResNet
from csn.networks.sentence_keys import LSTMKey, NeighbourKey

CONVOLVING = ("cnn", "resnet")
ENCODING = ("csn", "matching", "prototypical", "siamese", "snail", "mann", "finetune")  # examples regardless of a task

DATASETS = {
    "strokes": DataEntry("characters drawn by random stroke programs; embedded, no download", lambda _: load_strokes()),
    "omniglot": DataEntry(
        "1623 handwritten characters, 1200 for training and 423 for testing at random (the paper's split)",
        lambda options: load_omniglot(progress=options.progress),
    ),
    "omniglot-background": DataEntry(
        "the same with the original split into background and evaluation alphabets",
        lambda options: load_omniglot(protocol="background", progress=options.progress),
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
        lambda options: load_penn_treebank(progress=options.progress),
        lambda options: penn_treebank_text(progress=options.progress),
    ),
    "penn-treebank-unread": DataEntry(
        "the same with validation and test sentences that its language-model oracle has not read",
        lambda options: load_penn_treebank(held_out_from="more", progress=options.progress),
        lambda options: penn_treebank_text(held_out_from="more", progress=options.progress),
    ),
    "penn-treebank-masked": DataEntry(
        "the tasks of penn-treebank-unread with five times the training text, in which held-out words are unknown",
        lambda options: load_penn_treebank(held_out_from="more", training_text="masked", progress=options.progress),
        lambda options: penn_treebank_text(held_out_from="more", training_text="masked", progress=options.progress),
    ),
    "mini-imagenet": DataEntry(
        "100 classes of 600 photographs, 84 x 84, in the split of Ravi and Larochelle (the paper's); your own copy",
        lambda options: load_mini_imagenet(**options.for_images()),
        resizable=True,
    ),
    "tiny-imagenet-fewshot": DataEntry(
        "a stand-in of that shape: 100 classes of 550 photographs, 64 x 64, of Tiny ImageNet; your own copy",
        lambda options: load_tiny_imagenet(**options.for_images()),
        resizable=True,
    ),
}


def load_data(name: str, options: LoadOptions | None = None) -> Dataset:
    """A data set by name, or from the path of images or of a text (one sentence a line)."""
    options, entry = options or LoadOptions(), data_entry(name)
    if options.image_size is not None and not entry.resizable:
        raise ValueError(f"{name} comes in one size: leave out the image size, got {options.image_size}")
    return entry.load(options)


def load_running_text(name: str, options: LoadOptions | None = None) -> RunningText:
    """A text by name or path, for a language model."""
    text = data_entry(name).text
    if text is None:
        texts = ", ".join(other for other, entry in DATASETS.items() if entry.text)
        raise ValueError(f"a language model needs a text, {name!r} is none: choose one of {texts}")
    return text(options or LoadOptions())


def load_tasks(config: ModelConfig, name: str, options: LoadOptions | None = None) -> Dataset:
    """A data set as a learner knows it: a language model's vocabulary has the held-out words."""
    return load_running_text(name, options).tasks if config.learner == "lstm-lm" else load_data(name, options)


def data_entry(name: str) -> DataEntry:
    """The data set of a known name, or the one that the files of a path make."""
    if name in DATASETS:
        return DATASETS[name]
    if (path := as_path(name)) is None:
        raise ValueError(
            f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}, or a text file (.txt), or the path of a "
            f"folder, zip archive or CSV list of images"
        )
    return own_entry(path)


def build_learner(
    config: ModelConfig, input_shape: tuple[int, ...], way: int, vocabulary: int | None = None
) -> FewShotLearner:
    """The learner that a configuration describes, for inputs of a shape and at most `way` classes.

    vocabulary: how many word ids there are, where inputs are sentences.
    """
    if way < 2:
        raise ValueError(f"a learner needs way >= 2, classes to tell apart; got {way}")
    for option in ("filters", "units", "key_size"):  # torch makes layers of no neurons, and trains them
        if getattr(config, option) < 1:
            raise ValueError(f"model.{option} must be 1 or more, got {getattr(config, option)}")
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
        quiet=config.quiet,
        shifted=config.shifted,
    )


def reads_sentences(config: ModelConfig) -> bool:
    """Whether the configured networks are for sentences rather than images."""
    return config.base in ("lstm", "lstm-ffn")


def _check_input(config: ModelConfig, input_shape: tuple[int, ...], vocabulary: int | None) -> None:
    """Raise ValueError unless the configured networks are for this kind of input."""
    if config.learner == "nearest":
        return
    if (vocabulary is not None) != reads_sentences(config):
        kind = "images" if vocabulary is None else "sentences"
        raise ValueError(
            f"base learner {config.base!r} does not read {kind}: cnn, resnet and ffn are for images, lstm and "
            f"lstm-ffn for sentences. Choose another preset or data set"
        )
    if config.precision != "float32" and (config.base not in CONVOLVING or config.learner not in ENCODING):
        raise ValueError(
            f"model.precision={config.precision} is for convolutions that no task adapts: those of "
            f"{', '.join(ENCODING)} with base {' or '.join(CONVOLVING)}; got {config.learner} with {config.base}. "
            f"Leave it out"
        )
    if config.base in CONVOLVING and (len(input_shape) != 3 or len(config.dropout) != 3):
        raise ValueError(
            f"base learner {config.base!r} takes images of shape (channels, height, width) and three dropout rates, "
            f"got {input_shape} and {config.dropout}"
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
            precision=config.precision,
            shift_rule=config.shift_rule,
        )
    if config.base == "resnet":
        (channels, height, width), (first, middle, last) = input_shape, config.dropout
        return ResNet(
            (channels, height, width),
            way,
            width=config.width,
            units=config.units,
            dropout=(first, middle, last),
            norm=config.norm,
            precision=config.precision,
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
        return CNNKey(
            (channels, height, width),
            size=size,
            filters=config.filters,
            norm=config.norm,
            precision=config.precision,
        )
    if config.base == "resnet":
        channels, height, width = input_shape
        return ResNetKey(
            (channels, height, width),
            size=size,
            width=config.width,
            units=config.units,
            norm=config.norm,
            precision=config.precision,
        )
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
            until=config.until,
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
        until=config.until,
        shift_rule=config.shift_rule,
    )


def _sentence_key(config: ModelConfig, vocabulary: int, size: int) -> nn.Module:
    """The key function for sentences; its embeddings are its own."""
    if config.key != "lstm":
        return NeighbourKey(
            vocabulary,
            size=size,
            neighbours=config.neighbours,
            layers=config.key_layers,
            embedding=config.embedding,
            dropout=config.embedding_dropout,
            context=config.key == "context",
        )
    return LSTMKey(
        vocabulary,
        size=size,
        embedding=config.embedding,
        units=config.units,
        layers=config.layers,  # as many as the base learner has
        dropout=config.embedding_dropout,
        until=config.until,
    )


def _conditioning(config: ModelConfig) -> Conditioning:
    """Direct feedback, or the gradient: preprocessed for an MLP, raw for the learned scalar of section 4.3."""
    if config.conditioning == "df":
        return DirectFeedback(end_to_end=config.feedback == "end-to-end")
    return ErrorGradient(p=7.0 if config.g == "mlp" else None)
