"""The parts of a learner: a network, a key function, and the input that both read.

The options of each part are a frozen dataclass next to the class that it configures. The dataclass also builds the
part, so each option is written down once and belongs to the part that reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from torch import nn

from csn import registry
from csn.core.base_learner import BaseLearner
from csn.core.neurons import ShiftRule
from csn.learner import FewShotLearner, InputSpec

Kind = Literal["images", "sentences"]


class NetworkOptions(ABC):
    """Options of an architecture: the arguments of a base learner and of a key function of the same shape."""

    name: ClassVar[str]
    base_class: ClassVar[type[Any]]
    """Class of the base learner, called as base_class(input, way, shift_rule=..., **options)."""
    key_class: ClassVar[type[Any]]
    """Class of the key function, called as key_class(input, size=..., **options)."""
    reads: ClassVar[Kind] = "images"
    default_key: ClassVar[str] = "network"
    base_only: ClassVar[tuple[str, ...]] = ()
    """Options that only the base learner reads, not the key function."""
    shared_stem: bool = False
    """Whether the key function reads the features of the base learner's stem. An architecture that supports this
    redefines it as a field."""
    precision: str = "float32"
    """Precision of the layers that are never shifted. An architecture that offers a choice redefines it as a field."""

    @abstractmethod
    def input_of(self, spec: InputSpec) -> Any:
        """Return the facts about the input that the networks need. Raise ValueError if they cannot read it."""

    def base_learner(self, spec: InputSpec, way: int, shift_rule: ShiftRule) -> BaseLearner:
        """Build the network that CSN adapts."""
        self._check()
        options = {name: value for name, value in vars(self).items() if name != "shared_stem"}
        return self.base_class(self.input_of(spec), way, shift_rule=shift_rule, **options)

    def key_function(self, spec: InputSpec, size: int) -> nn.Module:
        """Build a network of this shape with `size` linear outputs: (examples, *input) -> (examples, size)."""
        self._check()
        options = {name: value for name, value in vars(self).items() if name not in self.base_only}
        return self.key_class(self.input_of(spec), size=size, **options)

    def _check(self) -> None:
        """Check that every integer option is 1 or more: each counts layers, or the units or filters of a layer."""
        check_sizes(self, *(name for name, value in vars(self).items() if type(value) is int))


class KeyOptions(ABC):
    """Options of a key function f (section 2.1.2)."""

    name: ClassVar[str]
    asks_network: ClassVar[bool] = True
    """Whether the key function depends on the options of the network that it is used with."""
    test_only: ClassVar[tuple[str, ...]] = ()
    """Options that have no effect during pretraining."""
    size: int

    @abstractmethod
    def build(self, network: NetworkOptions, spec: InputSpec) -> nn.Module:
        """Build the key function, (examples, *input) -> (examples, size).

        Args:
            network: The architecture that the key function is used with.
            spec: The input.
        """


@dataclass(frozen=True)
class NetworkKey(KeyOptions):
    """The key function has the shape of the network.

    size: numbers in a key.
    """

    name: ClassVar[str] = "network"
    size: int = 64

    def build(self, network: NetworkOptions, spec: InputSpec) -> nn.Module:
        """Build the network's own key function."""
        check_sizes(self, "size")
        return network.key_function(spec, self.size)


class LearnerOptions(ABC):
    """Options of a learner."""

    name: ClassVar[str]
    uses_network: ClassVar[bool] = True
    uses_key: ClassVar[bool] = True
    adapts_base: ClassVar[bool] = False
    """Whether the learner adapts a base learner. Other learners use only the architecture's key function."""
    encodes: ClassVar[bool] = True
    """Whether each example can be encoded once for all tasks: its networks see one example at a time, and no task
    adapts them."""
    reads: ClassVar[Kind | None] = None
    """The kind of input, if no network determines it."""
    trained_on: ClassVar[Literal["tasks", "text"]] = "tasks"
    """Whether the learner is trained on tasks or on running text."""
    mixes: ClassVar[bool] = True
    """Whether the learner can be trained in mixed precision."""
    attention: str = "soft"
    """How the memory is read. A learner that offers a choice redefines it as a field."""

    @abstractmethod
    def build(self, parts: Parts) -> FewShotLearner[Any]:
        """Build the learner."""


@dataclass(frozen=True)
class Parts:
    """The parts from which a learner is built.

    Args:
        spec: The input of the learner.
        way: The largest number of classes C.
        network: An architecture, or a base learner that exists already.
        key: A kind of key function, or a key function that exists already.
        size: Numbers in a key, if known.
    """

    spec: InputSpec
    way: int
    network: NetworkOptions | BaseLearner | None
    key: KeyOptions | nn.Module | None
    size: int | None

    @property
    def key_size(self) -> int:
        """Numbers in a key."""
        if self.size is None:
            raise ValueError("this learner must know the size of the key function's outputs: give key_size")
        return self.size

    def base_learner(self, shift_rule: ShiftRule) -> BaseLearner:
        """Return the network that CSN adapts."""
        if isinstance(self.network, BaseLearner):
            return self.network
        return self._architecture().base_learner(self.spec, self.way, shift_rule)

    @property
    def shares_stem(self) -> bool:
        """Whether the key function reads the features of the base learner's stem."""
        return isinstance(self.network, NetworkOptions) and self.network.shared_stem

    def key_function(self, *, has_stem: bool = False) -> nn.Module:
        """Return the network whose outputs are compared.

        Args:
            has_stem: Whether the learner has a base learner whose stem can be shared.
        """
        if self.shares_stem and not (has_stem and isinstance(self.key, NetworkKey)):
            raise ValueError(
                "network.shared_stem needs a learner that adapts a base learner, and key.name=network: set it to false"
            )
        if isinstance(self.key, nn.Module):
            return self.key
        assert self.key is not None
        return self.key.build(self._architecture(), self.spec)

    def classifier(self) -> nn.Module:
        """Build a network with one output for each class, whose parameters a task adapts."""
        network = self._architecture()
        if network.shared_stem:
            raise ValueError("network.shared_stem needs a base learner and a key function: set it to false")
        if network.precision != "float32":
            raise ValueError(
                f"network.precision={network.precision} applies to layers that no task adapts, but this learner adapts "
                f"all of them: leave it out"
            )
        return network.key_function(self.spec, self.way)

    def _architecture(self) -> NetworkOptions:
        if not isinstance(self.network, NetworkOptions):
            raise ValueError(
                "this learner builds its own network and cannot use an existing one: name an architecture "
                "(network='cnn')"
            )
        return self.network


_OPTIONS: dict[str, type[Any]] = {"learner": LearnerOptions, "network": NetworkOptions, "key": KeyOptions}


def default_options(kind: registry.PartKind, name: str, package: str | None = None) -> Any:
    """Return the default options of the part with this name. `package` is the one of `registry.load`."""
    part = registry.load(kind, name, package)
    base = _OPTIONS[kind]
    is_part = isinstance(part, type) and issubclass(part, base) and is_dataclass(part)
    if not is_part or part.name != name:
        raise registry.PartError(
            f"{kind} {name!r} must be a dataclass derived from {base.__name__} with the name {name!r}, got {part!r}: "
            f"correct its entry point"
        )
    return part()


def check_sizes(options: object, *names: str) -> None:
    """Raise ValueError unless these options are 1 or more. torch itself accepts layers without neurons."""
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")


def check_choices(options: object) -> None:
    """Raise ValueError unless each option with a list of names is one of them: a misspelt one would mean another."""
    for name, hint in get_type_hints(type(options)).items():
        if get_origin(hint) is Literal and getattr(options, name) not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}; got {getattr(options, name)!r}")


def image_shape(spec: InputSpec, network: str) -> tuple[int, int, int]:
    """Return (channels, height, width) of images. Raise ValueError if `spec` describes anything else."""
    if spec.vocabulary is not None or len(spec.shape) != 3:
        kind = "sentences" if spec.vocabulary is not None else f"inputs of shape {spec.shape}"
        raise ValueError(
            f"{network} reads images of shape (channels, height, width), but the data has {kind}: choose another "
            f"preset or data set"
        )
    channels, height, width = spec.shape
    return channels, height, width


def vocabulary_size(spec: InputSpec, network: str) -> int:
    """Return the number of words. Raise ValueError if `spec` does not describe sentences."""
    if spec.vocabulary is None:
        raise ValueError(
            f"{network} does not read images: cnn, resnet and ffn are for images, lstm and lstm-ffn for sentences. "
            f"Choose another preset or data set"
        )
    return spec.words
