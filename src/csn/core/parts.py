"""The parts that a learner is built of: a network, a key function, and what both read.

Each part has its options in a frozen dataclass beside the class that it configures. The dataclass builds the part, so
that an option is written down once and belongs to the part that reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from csn import registry
from csn.core.base_learner import BaseLearner
from csn.core.neurons import ShiftRule
from csn.learner import FewShotLearner, InputSpec

Kind = Literal["images", "sentences"]


class NetworkOptions(ABC):
    """Options of an architecture: arguments of a base learner and of a key function of the same shape."""

    name: ClassVar[str]
    base_class: ClassVar[type[Any]]
    """Of the base learner: base_class(input, way, shift_rule=..., **options)."""
    key_class: ClassVar[type[Any]]
    """Of the key function: key_class(input, size=..., **options)."""
    reads: ClassVar[Kind] = "images"
    default_key: ClassVar[str] = "network"
    base_only: ClassVar[tuple[str, ...]] = ()
    """Options that only the base learner reads, not the key function."""
    shared_stem: bool = False
    """The key function reads the features of the base learner's stem; an architecture that can, makes it a field."""
    precision: str = "float32"
    """Of the layers that no shift reaches; an architecture that offers a choice makes it a field."""

    @abstractmethod
    def input_of(self, spec: InputSpec) -> Any:
        """What its networks have to know of their input, or a ValueError if they cannot read it."""

    def base_learner(self, spec: InputSpec, way: int, shift_rule: ShiftRule) -> BaseLearner:
        """The network that CSN adapts."""
        self._check()
        options = {name: value for name, value in vars(self).items() if name != "shared_stem"}
        return self.base_class(self.input_of(spec), way, shift_rule=shift_rule, **options)

    def key_function(self, spec: InputSpec, size: int) -> nn.Module:
        """A network of this shape with `size` linear outputs: (examples, *input) -> (examples, size)."""
        self._check()
        options = {name: value for name, value in vars(self).items() if name not in self.base_only}
        return self.key_class(self.input_of(spec), size=size, **options)

    def _check(self) -> None:
        """Every whole number is a number of layers, or of what a layer is made of."""
        check_sizes(self, *(name for name, value in vars(self).items() if type(value) is int))


class KeyOptions(ABC):
    """Options of a key function f (section 2.1.2)."""

    name: ClassVar[str]
    asks_network: ClassVar[bool] = True
    """Whether options of the network that it stands beside decide what it is."""
    test_only: ClassVar[tuple[str, ...]] = ()
    """Options that change nothing while it is pretrained."""
    size: int

    @abstractmethod
    def build(self, network: NetworkOptions, spec: InputSpec) -> nn.Module:
        """(examples, *input) -> (examples, size). `network` is the architecture that the key stands beside."""


@dataclass(frozen=True)
class NetworkKey(KeyOptions):
    """The key function has the shape of the network.

    size: numbers in a key.
    """

    name: ClassVar[str] = "network"
    size: int = 64

    def build(self, network: NetworkOptions, spec: InputSpec) -> nn.Module:
        """The network's own key function."""
        check_sizes(self, "size")
        return network.key_function(spec, self.size)


class LearnerOptions(ABC):
    """Options of a learner."""

    name: ClassVar[str]
    uses_network: ClassVar[bool] = True
    uses_key: ClassVar[bool] = True
    adapts_base: ClassVar[bool] = False
    """It adapts a base learner; others use the architecture's key function alone."""
    encodes: ClassVar[bool] = True
    """Its networks see one example at a time and no task adapts them, so that an example can be encoded once."""
    reads: ClassVar[Kind | None] = None
    """What it reads, where no network says so."""
    trained_on: ClassVar[Literal["tasks", "text"]] = "tasks"
    """Tasks, or running text."""
    mixes: ClassVar[bool] = True
    """It can be trained in mixed precision."""
    attention: str = "soft"
    """How a memory is read; a learner that offers a choice makes it a field."""

    @abstractmethod
    def build(self, parts: Parts) -> FewShotLearner[Any]:
        """The learner."""


@dataclass(frozen=True)
class Parts:
    """What a learner is built of.

    spec: what the learner reads.
    way: the largest number of classes C.
    network: an architecture, or a base learner that is ready.
    key: a kind of key function, or a key function that is ready.
    size: numbers in a key, if known.
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
            raise ValueError("this learner has to know the size of the key function's outputs: give key_size")
        return self.size

    def base_learner(self, shift_rule: ShiftRule) -> BaseLearner:
        """The network that CSN adapts."""
        if isinstance(self.network, BaseLearner):
            return self.network
        return self._architecture().base_learner(self.spec, self.way, shift_rule)

    @property
    def shares_stem(self) -> bool:
        """Whether the key function is to read the features of the base learner's stem."""
        return isinstance(self.network, NetworkOptions) and self.network.shared_stem

    def key_function(self, *, has_stem: bool = False) -> nn.Module:
        """The network whose outputs are compared. has_stem: the learner has a base learner whose stem can be shared."""
        if self.shares_stem and not (has_stem and isinstance(self.key, NetworkKey)):
            raise ValueError(
                "network.shared_stem is for a base learner that is adapted, with a key of the network's own shape: "
                "leave it out"
            )
        if isinstance(self.key, nn.Module):
            return self.key
        assert self.key is not None
        return self.key.build(self._architecture(), self.spec)

    def classifier(self) -> nn.Module:
        """A network with one output for each class, whose parameters a task adapts."""
        network = self._architecture()
        if network.shared_stem:
            raise ValueError("network.shared_stem is for a base learner and a key function: leave it out")
        if network.precision != "float32":
            raise ValueError(
                f"network.precision={network.precision} is for layers that no task adapts, and this learner adapts all "
                f"of them: leave it out"
            )
        return network.key_function(self.spec, self.way)

    def _architecture(self) -> NetworkOptions:
        if not isinstance(self.network, NetworkOptions):
            raise ValueError(
                "this learner builds its own network and takes no ready one: name an architecture (network='cnn')"
            )
        return self.network


_OPTIONS: dict[str, type[Any]] = {"learner": LearnerOptions, "network": NetworkOptions, "key": KeyOptions}


def default_options(kind: registry.PartKind, name: str, package: str | None = None) -> Any:
    """The default options of a part by its name; `package` as in `registry.load`."""
    part = registry.load(kind, name, package)
    base = _OPTIONS[kind]
    is_part = isinstance(part, type) and issubclass(part, base) and is_dataclass(part)
    if not is_part or part.name != name:
        raise registry.PartError(
            f"{kind} {name!r} leads to {part!r}, where a dataclass belongs that is a {base.__name__} and has the name "
            f"{name!r}"
        )
    return part()


def check_sizes(options: object, *names: str) -> None:
    """Raise ValueError unless these options are 1 or more; torch makes layers of no neurons, and trains them."""
    for name in names:
        value = getattr(options, name)
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")


def image_shape(spec: InputSpec, network: str) -> tuple[int, int, int]:
    """(channels, height, width) of images, or a ValueError if `spec` is of anything else."""
    if spec.vocabulary is not None or len(spec.shape) != 3:
        kind = "sentences" if spec.vocabulary is not None else f"inputs of shape {spec.shape}"
        raise ValueError(
            f"{network} reads images of shape (channels, height, width), the data has {kind}: choose another preset or "
            f"data set"
        )
    channels, height, width = spec.shape
    return channels, height, width


def vocabulary_size(spec: InputSpec, network: str) -> int:
    """The number of words, or a ValueError if `spec` is not of sentences."""
    if spec.vocabulary is None:
        raise ValueError(
            f"{network} does not read images: cnn, resnet and ffn are for images, lstm and lstm-ffn for sentences. "
            f"Choose another preset or data set"
        )
    return spec.words
