"""Configuration: frozen dataclasses that are read from presets, changed by name and written to JSON.

Networks and learners never see a whole configuration.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from csn import registry
from csn.data.images.options import BadFiles, Framing, Redraw
from csn.presets import preset_names, read_preset

if TYPE_CHECKING:
    from csn.core.parts import KeyOptions, LearnerOptions, NetworkOptions

RECIPES = ("paper", "plus", "best")
PARTS: tuple[registry.PartKind, ...] = ("learner", "network", "key")


@dataclass(frozen=True)
class DataConfig:
    """Which tasks to train on.

    name: a known data set, or the path of a folder of images, a zip archive or CSV list of them, or a text file.
    way: classes per task.
    shot: labelled examples per class.
    queries: unseen examples per class in a training task.
    vary: train on tasks of any way from 2 to `way` and any shot from 1 to `shot`, and validate on 1-shot tasks.
    image_size: pixels per side; None for the data set's own size.
    bad_files: "stop" at an image that cannot be used, or "skip" it.
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
        """The name as it appears in file names. For a path, this is its last part."""
        return Path(self.name).name.partition(".")[0]


@dataclass(frozen=True)
class PretrainConfig:
    """How the embedding network first learns to classify all training classes.

    epochs: passes over the training examples; 0 for no pretraining.
    batch: examples per step.
    learning_rate: the highest learning rate; it decays to 0 along a cosine.
    warm_up: fraction of the steps in which the rate rises from 0.
    optimizer: "sgd" with Nesterov momentum, "adam", or None for the same as train.optimizer.
    momentum: momentum of "sgd" during pretraining.
    weight_decay: weight decay of "sgd" during pretraining.
    classifier: "linear", or "cosine" with a learned scale.
    label_smoothing: fraction of the target that is spread over all classes.
    average: decay of a running average of the weights, which is then validated and kept; 0 for no average.
    mirror: treat the mirror images of a class as another class.
    augment: strength of random distortions; None for the same as train.augment.
    redraw: how drawings are changed further: the "same" pen and place, another "pen", or "any" pen, size and place.
    bend: strength of elastic distortions of drawings; 0 for none.
    framing: how photographs are changed: "turned" (and scaled and moved), or "cropped" (and in other colours).
    precision: precision of the whole network during pretraining.
    keep: do not train the pretrained network on tasks.
    """

    epochs: int = 0
    batch: int = 256
    learning_rate: float = 3e-3
    warm_up: float = 0.0
    optimizer: Literal["adam", "sgd"] | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    classifier: Literal["linear", "cosine"] = "linear"
    label_smoothing: float = 0.0
    average: float = 0.0
    mirror: bool = False
    augment: float | None = None
    redraw: Redraw = "pen"
    bend: float = 0.0
    framing: Framing = "turned"
    precision: Literal["float32", "bfloat16"] = "float32"
    keep: bool = False


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Counts are tasks, not steps. A language model counts sentences instead.

    tasks: training tasks in all.
    tasks_per_step: tasks whose losses are averaged in one step.
    micro_tasks: tasks computed at a time if memory is too small for a whole step; None for all of them. It must divide
        tasks_per_step. Gradients add up to those of the whole step, but batch norm uses the statistics of each part.
    precision: "fp32", or "bf16-mixed" for torch's autocast; eqs. 3 and 5 to 7, g and recurrences stay in float32.
    compile: "off", "on" for torch.compile, or "strict" to stop if compiling fails; "on" then trains without it.
    optimizer: "adam", or "sgd" with `momentum`.
    learning_rate: the learning rate at the start.
    momentum: momentum of SGD.
    schedule: "constant", "cosine" for a decay to 0, or "halving" every 2,000 tasks.
    clip: the largest absolute value of a gradient; None for no limit.
    augment: strength of random distortions of training images.
    validate_every: tasks between two validations.
    validation_tasks: tasks per validation.
    patience: validations without progress before training stops; None for no limit.
    seed: seed of initialisation, tasks and dropout.
    """

    tasks: int = 100_000
    tasks_per_step: int = 4
    micro_tasks: int | None = None
    precision: Literal["fp32", "bf16-mixed"] = "fp32"
    compile: Literal["off", "on", "strict"] = "off"
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    schedule: Literal["constant", "cosine", "halving"] = "constant"
    clip: float | None = None
    augment: float = 0.0
    validate_every: int = 2000
    validation_tasks: int = 400
    patience: int | None = None
    seed: int = 0


def _default(kind: registry.PartKind, name: str, package: str | None = None) -> Any:
    from csn.core.parts import default_options  # which loads torch

    return default_options(kind, name, package)


@dataclass(frozen=True)
class Config:
    """The configuration of a whole run. `network` and `key` are None if the learner builds its own networks."""

    preset: str = "custom"
    recipe: str = "paper"
    data: DataConfig = field(default_factory=DataConfig)
    learner: LearnerOptions = field(default_factory=lambda: _default("learner", "csn"))
    network: NetworkOptions | None = field(default_factory=lambda: _default("network", "cnn"))
    key: KeyOptions | None = field(default_factory=lambda: _default("key", "network"))
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @property
    def reads_sentences(self) -> bool:
        """Whether the learner reads sentences rather than images."""
        return (self.learner.reads or (self.network.reads if self.network else "images")) == "sentences"

    @property
    def precision(self) -> str:
        """The precision of the layers without shifts."""
        return self.network.precision if self.network else "float32"

    def as_dict(self) -> dict[str, Any]:
        """The configuration as JSON values. Each part has its name, and its package if that is not csn."""
        options = dataclasses.asdict(self)
        for kind in PARTS:
            if options[kind] is not None:
                name = getattr(self, kind).name
                package = registry.package_of(kind, name)
                options[kind] = {"name": name, **({"package": package} if package else {}), **options[kind]}
        return json.loads(json.dumps(options))

    def to_json(self) -> str:
        """The configuration as readable JSON."""
        return json.dumps(self.as_dict(), indent=2) + "\n"


def load_preset(name: str, recipe: str = "paper") -> Config:
    """The configuration of a preset.

    A recipe holds only its differences from the recipe `paper`, or from the recipe that it extends.
    """
    if recipe not in RECIPES:
        raise ValueError(registry.unknown("recipe", recipe, RECIPES))
    table = read_preset(name)
    if recipe == "best" and recipe not in table:
        having = [other for other in preset_names() if recipe in read_preset(other)]
        raise ValueError(f"preset {name!r} has no recipe 'best': choose one of {', '.join(having)}")
    config = Config(preset=name, recipe=recipe)
    for layer in dict.fromkeys(("paper", table.get(recipe, {}).get("extends", "paper"), recipe)):
        changes = {section: options for section, options in table.get(layer, {}).items() if section != "extends"}
        config = merge(config, changes)
    return config


def config_from_json(text: str) -> Config:
    """The inverse of `Config.to_json`."""
    try:
        options = json.loads(text)
    except RecursionError as error:
        raise ValueError("a configuration has options in sections, got JSON that is nested too deeply") from error
    if not isinstance(options, dict):
        raise ValueError(f"a configuration is a JSON object with sections of options, got {text[:40]!r}")
    if "model" in options:
        raise ValueError(
            "this configuration has all its options in a section 'model', the form of csn 0.1: train again, or read "
            "it with that version"
        )
    return merge(Config(), options)


def merge(config: Config, changes: Mapping[str, Any]) -> Config:
    """`config` with some options changed, section by section. Names and types of options are checked."""
    sections = [item.name for item in dataclasses.fields(Config)]
    if unknown := [name for name in changes if name not in sections]:
        raise ValueError(registry.unknown("section of options", unknown[0], sections))
    for name in ("preset", "recipe"):
        if name in changes:
            config = dataclasses.replace(config, **{name: _checked(name, str, changes[name])})
    for name in ("data", "pretrain", "train"):
        if name in changes:
            config = dataclasses.replace(config, **{name: changed(name, getattr(config, name), changes[name])})
    for kind in PARTS:  # in this order: the learner decides on the network, and the network on the key
        if kind in changes:
            config = _with_part(config, kind, changes[kind])
    return config


def _with_part(config: Config, kind: registry.PartKind, changes: Any) -> Config:
    """`config` with another part of this kind, or with some options of the part changed."""
    current = getattr(config, kind)
    if changes is None and current is None:
        return config
    if current is None:
        raise ValueError(
            f"learner {config.learner.name!r} builds its own networks and has no section {kind!r}: leave it out"
        )
    options = dict(_section(kind, changes))
    name, package = options.pop("name", current.name), options.pop("package", None)
    if not isinstance(name, str) or not isinstance(package, str | None):
        raise ValueError(f"{kind}.name is the name of a {kind}, got {name!r} of package {package!r}")
    part = changed(kind, current if name == current.name else _default(kind, name, package), options, config)
    if kind == "network" and not config.learner.adapts_base:
        _check_shape_only(part, config.learner.name)
    new = dataclasses.replace(config, **{kind: part})
    return new if name == current.name else _fitting(new, config)


def _check_shape_only(network: NetworkOptions, learner: str) -> None:
    """Raise ValueError if a network has options that this learner would ignore, because it has no base learner."""
    ignored = [name for name in network.base_only if getattr(network, name) != getattr(type(network), name)]
    if ignored:
        raise ValueError(
            f"network.{ignored[0]} is an option of an adapted base learner; learner {learner!r} has none: leave it out"
        )


def _fitting(config: Config, before: Config) -> Config:
    """`config` with the parts that its new learner or network needs instead of those of `before`."""
    network, key = config.network, config.key
    if not config.learner.uses_network:
        return dataclasses.replace(config, network=None, key=None)
    network = network or _default("network", "cnn")
    if not config.learner.uses_key:
        return dataclasses.replace(config, network=network, key=None)
    was_default = before.network is not None and key is not None and key.name == before.network.default_key
    if key is None or (before.network is not network and was_default):
        key = _default("key", network.default_key)
    return dataclasses.replace(config, network=network, key=key)


def _section(name: str, changes: Any) -> Mapping[str, Any]:
    if not isinstance(changes, Mapping):
        raise ValueError(f"{name!r} is a section of options: give names and values, got {changes!r}")
    return changes


def changed(section: str, options: Any, changes: Any, config: Config | None = None) -> Any:
    """A dataclass of options with some of its fields changed."""
    hints = _hints(options.__class__)
    known = [item.name for item in dataclasses.fields(options)]
    updates = {}
    for name, value in _section(section, changes).items():
        if name not in known:
            raise ValueError(_unknown_option(section, options, name, known, config))
        updates[name] = _checked(f"{section}.{name}", hints[name], value)
    return dataclasses.replace(options, **updates)


def _unknown_option(section: str, options: Any, name: str, known: list[str], config: Config | None) -> str:
    """The message about an unknown option: it names the nearest option, and any part that has the option."""
    whose = f"{section} {options.name!r}" if section in PARTS else section
    others = [(kind, getattr(config, kind)) for kind in PARTS if kind != section] if config else []
    having = [kind for kind, part in others if part is not None and name in vars(part)]
    return registry.unknown_option(whose, name, known) + "".join(f". There is a {kind}.{name}" for kind in having)


@functools.cache
def _hints(options: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(options)


def parse_option(text: str) -> dict[str, Any]:
    """`train.learning_rate=0.01` -> {"train": {"learning_rate": 0.01}}. A value that is not JSON is a plain string."""
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
    """Whether a value is a number that a float can be. JSON has whole numbers of any size."""
    return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)


def _checked(name: str, hint: Any, value: Any) -> Any:
    """`value` converted to the field's type, or a ValueError that says which values the field takes."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    numbers = isinstance(value, list | tuple) and all(map(_is_number, value))
    for option in options:
        if option is type(None) and value is None:
            return None
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if typing.get_origin(option) is tuple and numbers and len(value) == len(typing.get_args(option)):
            return tuple(float(item) for item in value)
        if option is float and _is_number(value):
            return float(value)
        if option in (int, str, bool) and type(value) is option:
            return value
    raise ValueError(f"option {name!r} takes {' or '.join(map(_in_words, options))}, got {value!r}")


def _in_words(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return " or ".join(map(str, typing.get_args(option)))
    if typing.get_origin(option) is tuple:
        return f"{len(typing.get_args(option))} numbers"
    words = {type(None): "null", int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(option, str(option))
