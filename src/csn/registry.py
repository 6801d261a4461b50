"""The names of all parts, as lazy references: importing this module loads neither torch nor any part.

Other packages add names through entry points (groups `csn.learners`, `csn.networks`, `csn.keys`, `csn.datasets` and
`csn.presets`). Their parts can then be used wherever csn's own parts can.
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any, Literal

PartKind = Literal["learner", "network", "key", "dataset", "preset"]

# Each name leads to the options of a part, or to the entry of a data set.
PARTS: Mapping[PartKind, Mapping[str, str]] = {
    "learner": {
        "csn": "csn.core.model:CSNOptions",
        "prototypical": "csn.baselines.prototypical:PrototypicalOptions",
        "matching": "csn.baselines.matching:MatchingOptions",
        "siamese": "csn.baselines.siamese:SiameseOptions",
        "nearest": "csn.baselines.nearest:NearestOptions",
        "maml": "csn.baselines.maml:MAMLOptions",
        "metanet": "csn.baselines.metanet:MetaNetOptions",
        "snail": "csn.baselines.snail:SNAILOptions",
        "mann": "csn.baselines.mann:MANNOptions",
        "meta-lstm": "csn.baselines.meta_lstm:MetaLSTMOptions",
        "finetune": "csn.baselines.finetune:FineTunedOptions",
        "lstm-lm": "csn.baselines.lstm_lm:LanguageModelOptions",
    },
    "network": {
        "cnn": "csn.networks.cnn:CNNOptions",
        "resnet": "csn.networks.resnet:ResNetOptions",
        "ffn": "csn.networks.ffn:FFNOptions",
        "lstm": "csn.networks.lstm:LSTMOptions",
        "lstm-ffn": "csn.networks.encoded:EncodedFFNOptions",
    },
    "key": {
        "network": "csn.core.parts:NetworkKey",
        "four-blocks": "csn.networks.plain_keys:FourBlocksOptions",
        "pixels": "csn.networks.plain_keys:PixelsOptions",
        "residual": "csn.networks.residual:ResidualKeyOptions",
        "neighbours": "csn.networks.neighbours:NeighbourKeyOptions",
        "context": "csn.networks.neighbours:ContextKeyOptions",
        "words": "csn.networks.words:WordKeyOptions",
    },
    "dataset": {},  # csn's own are in csn.data.registry
    "preset": {},  # csn's own are the files of csn.presets
}
WORDS: Mapping[PartKind, str] = {"dataset": "data set"}


class PartError(ValueError):
    """A part does not exist or cannot be loaded."""


def names(kind: PartKind) -> list[str]:
    """All names of a kind: csn's own, then those of other packages."""
    return list(dict.fromkeys([*PARTS[kind], *_plugins(kind)]))


def load(kind: PartKind, name: str, package: str | None = None) -> Any:
    """Load what a name leads to. An unknown name raises a PartError that lists the known names.

    Args:
        kind: The kind of part.
        name: The name of the part.
        package: The package that the part came from when it was first used; None for csn.
    """
    word = WORDS.get(kind, kind)
    if (entry := plugin(kind, name, own=name in PARTS[kind])) is not None:
        try:
            return entry.load()
        except Exception as error:  # another package can fail in any way
            raise PartError(
                f"{word} {name!r} of {_package(entry)} could not be imported ({type(error).__name__}: {error}): "
                f"repair or uninstall that package"
            ) from error
    if name in PARTS[kind]:
        return pkgutil.resolve_name(PARTS[kind][name])
    if package is not None:
        raise PartError(f"{word} {name!r} comes with {package}, which is not installed: install that package")
    raise PartError(unknown(word, name, names(kind)))


def plugin(kind: PartKind, name: str, *, own: bool) -> importlib.metadata.EntryPoint | None:
    """The entry point of another package that adds a name, or None. More than one package raises a PartError.

    Args:
        kind: The kind of part.
        name: The name of the part.
        own: Whether csn itself has a part of this name.
    """
    entries = _plugins(kind).get(name, ())
    owners = [*(["csn"] if own else []), *map(_package, entries)]
    if len(owners) > 1:
        raise PartError(
            f"{WORDS.get(kind, kind)} {name!r} comes with more than one package ({', '.join(owners)}): uninstall all "
            f"but one"
        )
    return entries[0] if entries else None


def package_of(kind: PartKind, name: str) -> str | None:
    """The package and version that a name comes from; None for csn itself."""
    entries = _plugins(kind).get(name, ())
    return _package(entries[0]) if entries else None


def plugin_names(kind: PartKind) -> list[str]:
    """The names that other packages add."""
    return list(_plugins(kind))


@functools.cache
def _plugins(kind: PartKind) -> Mapping[str, tuple[importlib.metadata.EntryPoint, ...]]:
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=f"csn.{kind}s"):
        alike = found.setdefault(entry.name, [])
        if all((entry.value, _package(entry)) != (other.value, _package(other)) for other in alike):
            alike.append(entry)
    return {name: tuple(entries) for name, entries in sorted(found.items())}


def _package(entry: importlib.metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message about an unknown name: it suggests the nearest known name and lists all of them."""
    known = list(known)
    return f"unknown {what} {name!r}: {suggestion(name, known)}There are {', '.join(known)}"


def unknown_option(whose: str, name: str, known: Iterable[str]) -> str:
    """The message about an option that a part does not have."""
    known = list(known)
    return f"{whose} has no option {name!r}: {suggestion(name, known)}It has {', '.join(known) or 'none'}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The known name nearest to an unknown one, as a question, or ""."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""
