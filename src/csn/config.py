"""Configuration: frozen dataclasses, read from preset files, changed by name, written to JSON. Modules never see it."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from csn.baselines.finetune import Head
from csn.baselines.maml import Order, Rate
from csn.baselines.prototypical import Distance
from csn.core.memory import Attention
from csn.core.neurons import ShiftedLayers, ShiftRule
from csn.data.images.folder import BadFiles
from csn.networks.cnn import Norm
from csn.networks.precision import Precision
from csn.networks.sentences import Alignment, Until

RECIPES = ("paper", "plus")


@dataclass(frozen=True)
class DataConfig:
    """Which tasks: a data set by name, C-way, k-shot, and unseen examples per class and training task.

    vary: train on tasks of any way from 2 to C and any shot from 1 to k, and choose the model on C-way 1-shot ones.
    name: of a known data set, or the path of a folder of images, a zip archive or a CSV list of them, or a text file.
    image_size: pixels on a side, None for the data set's own. bad_files: "skip" leaves out images that cannot be used.
    """

    name: str = "strokes"
    way: int = 5
    shot: int = 1
    queries: int = 5
    vary: bool = False
    image_size: int | None = None
    bad_files: BadFiles = "stop"

    @property
    def label(self) -> str:
        """The name, as part of a file's: of a path its last part."""
        return Path(self.name).name.partition(".")[0]


@dataclass(frozen=True)
class ModelConfig:
    """Which learner and network. Fields that they have no use for are ignored.

    learner: its network is the base learner and a key function for "csn", the key function alone for the others.
    filters: of the CNN. width: of the ResNet, times its filters and units. units and layers: of the FFN, or of the LSTM
    (its encoder, in "lstm-ffn"); the ResNet has one hidden layer of `units`. precision: in which the CNN and the ResNet
    convolve below their adapted layers, and in the key function. shifted: layers that the shifts of "csn" reach.
    feedback: whether training follows the error of direct feedback into the base learner. align: which steps of two
    sentences correspond, in the LSTM of "lstm". until: how far LSTMs read a sentence. embedding, embedding_dropout,
    key, neighbours (words on either side of the blank) and key_layers (over them): for sentences; the key "context"
    reads the rest of the sentence too. distance: of Prototypical Networks. context_steps: of Matching Networks, 0 for
    no context. inner_steps, test_steps, inner_rate, rate and order: of MAML; the first three of the Meta-Learner LSTM
    and (without test_steps) of fine-tuning too. head: of fine-tuning. guard and quiet: how CSN's g starts. g_units: of
    CSN's g, MetaNet's m and d, and the Meta-Learner LSTM. gradient_parts: of a support, which MetaNet's d reads.
    sequence_length: for which SNAIL is laid out, way + 1 if None. memory_rows, memory_size, heads and units (of its
    controller): of MANN.
    """

    learner: Literal[
        "csn",
        "prototypical",
        "matching",
        "siamese",
        "nearest",
        "maml",
        "metanet",
        "snail",
        "mann",
        "meta-lstm",
        "finetune",
        "lstm-lm",
    ] = "csn"
    base: Literal["cnn", "resnet", "ffn", "lstm", "lstm-ffn"] = "cnn"
    conditioning: Literal["gradient", "df"] = "df"
    feedback: Literal["detached", "end-to-end"] = "detached"
    filters: int = 64
    width: float = 1.0
    units: int = 128
    layers: int = 3
    dropout: tuple[float, ...] = (0.0, 0.0, 0.0)
    norm: Norm = "none"
    precision: Precision = "float32"
    shift_rule: ShiftRule = "squashed"
    shifted: ShiftedLayers = "all"
    align: Alignment = "blank"
    until: Until = "end"
    embedding: int = 100
    embedding_dropout: float = 0.0
    key: Literal["neighbours", "context", "lstm"] = "neighbours"
    neighbours: int = 2
    key_layers: int = 1
    key_size: int = 64
    g_units: int = 20
    g: Literal["mlp", "simple"] = "mlp"
    temperature: float | None = None
    attention: Attention = "soft"
    guard: bool = True
    quiet: bool = False
    distance: Distance = "euclidean"
    context_steps: int = 0
    inner_steps: int = 1
    test_steps: int | None = None
    inner_rate: float = 0.4
    rate: Rate = "fixed"
    order: Order = "second"
    gradient_parts: int = 5
    sequence_length: int | None = None
    memory_rows: int = 128
    memory_size: int = 40
    heads: int = 4
    head: Head = "linear"


@dataclass(frozen=True)
class NamingConfig:
    """Before any task: passes over the training examples in which the network whose outputs are compared (the key
    function) learns to name their classes; none by default. The rest is as in training, but the rate decays to 0."""

    epochs: int = 0
    batch: int = 256
    learning_rate: float = 3e-3


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Counts are tasks, not steps; of a language model, sentences."""

    tasks: int = 100_000
    tasks_per_step: int = 4
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    schedule: Literal["constant", "cosine"] = "constant"
    clip: float | None = None
    augment: float = 0.0
    validate_every: int = 2000
    validation_tasks: int = 400
    patience: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Config:
    """A whole run."""

    preset: str = "custom"
    recipe: str = "paper"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    naming: NamingConfig = field(default_factory=NamingConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def to_json(self) -> str:
        """The configuration as readable JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def preset_names() -> list[str]:
    """Every preset that comes with the package."""
    return sorted(path.name[:-5] for path in resources.files("csn.presets").iterdir() if path.name.endswith(".toml"))


def preset_about(name: str) -> str:
    """A preset's one-line description."""
    return str(_read_preset(name)["about"])


def load_preset(name: str, recipe: str = "paper") -> Config:
    """A preset's configuration; the plus recipe is written as its differences from the paper's."""
    if recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}: choose one of {', '.join(RECIPES)}")
    table = _read_preset(name)
    config = Config(preset=name, recipe=recipe)
    for layer in RECIPES[: RECIPES.index(recipe) + 1]:
        config = merge(config, table.get(layer, {}))
    return config


def _read_preset(name: str) -> dict[str, Any]:
    if name not in preset_names():
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(preset_names())}")
    return tomllib.loads((resources.files("csn.presets") / f"{name}.toml").read_text(encoding="utf-8"))


def config_from_json(text: str) -> Config:
    """The inverse of `Config.to_json`."""
    try:
        options = json.loads(text)
    except RecursionError as error:
        raise ValueError("a configuration has options in sections, got JSON that is nested too deeply") from error
    if not isinstance(options, dict):
        raise ValueError(f"a configuration is a JSON object with sections of options, got {text[:40]!r}")
    return merge(Config(), options)


Nested = typing.TypeVar("Nested", Config, DataConfig, ModelConfig, NamingConfig, TrainConfig)


def merge(config: Nested, changes: Mapping[str, Any]) -> Nested:
    """`config` with some fields changed; sections are changed field by field. Names and types are checked."""
    hints = typing.get_type_hints(type(config))
    updates: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in hints:
            raise ValueError(f"unknown option {name!r}: {type(config).__name__} has {', '.join(hints)}")
        current = getattr(config, name)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise ValueError(f"{name!r} is a section with options of its own, got {value!r}")
            updates[name] = merge(current, value)  # type: ignore[type-var]
        else:
            updates[name] = _checked(name, hints[name], value)
    return dataclasses.replace(config, **updates)


def parse_option(text: str) -> dict[str, Any]:
    """`train.learning_rate=0.01` -> {"train": {"learning_rate": 0.01}}. The value is JSON, or else a plain string."""
    path, separator, value = text.partition("=")
    section, dot, name = path.strip().partition(".")
    if not separator or not dot:
        raise ValueError(f"cannot read option {text!r}: write SECTION.NAME=VALUE, for example train.learning_rate=0.01")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = value.strip()
    return {section: {name: parsed}}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _checked(name: str, hint: Any, value: Any) -> Any:
    """`value` as the field's type, or a ValueError that says what the field takes."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    for option in options:
        if option is type(None) and value is None:
            return None
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple) and all(map(_is_number, value)):
            return tuple(float(item) for item in value)
        if option is float and _is_number(value):
            return float(value)
        if option in (int, str, bool) and type(value) is option:
            return value
    wanted = " or ".join(
        " | ".join(map(str, typing.get_args(option)))
        if typing.get_origin(option) is Literal
        else getattr(option, "__name__", str(option))
        for option in options
    )
    raise ValueError(f"option {name!r} takes {wanted}, got {value!r}")
