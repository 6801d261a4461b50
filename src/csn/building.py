"""Learners from named parts, from networks of one's own, or from a configuration."""

from __future__ import annotations

from typing import Any

from torch import nn

from csn import registry
from csn.allocator import keep_freed_memory
from csn.config import Config, changed
from csn.core.base_learner import BaseLearner
from csn.core.parts import KeyOptions, LearnerOptions, NetworkOptions, Parts, default_options
from csn.learner import FewShotLearner, InputSpec


def build(
    learner: str | LearnerOptions = "csn",
    *,
    reads: InputSpec | tuple[int, ...],
    way: int,
    network: str | NetworkOptions | BaseLearner | None = None,
    key: str | KeyOptions | nn.Module | None = None,
    key_size: int | None = None,
    **options: Any,
) -> FewShotLearner[Any]:
    """A learner of named parts, or of networks of one's own.

    Parameters
    ----------
    learner:
        A name, or options such as `CSNOptions(...)`.
    reads:
        The shape of one example, or an `InputSpec` where examples are sentences.
    way:
        The largest number of classes to tell apart.
    network:
        The name or options of an architecture ("cnn" by default), or a `BaseLearner` of one's own.
    key:
        The name or options of a key function, or a module of one's own: (examples, *input) -> (examples, key_size).
        By default one of the network's shape; a `BaseLearner` of one's own needs it.
    key_size:
        Numbers in a key of one's own; not every learner needs to know.
    options:
        Of the learner, where it is given by its name.
    """
    if way < 2:
        raise ValueError(f"a learner needs way >= 2, classes to tell apart; got {way}")
    if options and not isinstance(learner, str):
        raise ValueError(f"learner {learner.name!r} has its options already: leave out {', '.join(options)}")
    keep_freed_memory()  # for a training loop of one's own, too
    chosen: LearnerOptions = changed("learner", _options("learner", learner), options)
    for kind, part, used in (("network", network, chosen.uses_network), ("key", key, chosen.uses_key)):
        if part is not None and not used:
            raise ValueError(f"learner {chosen.name!r} takes no {kind}: leave it out")
    of_network = _options("network", "cnn" if network is None else network)
    if key is None and isinstance(of_network, BaseLearner) and chosen.uses_key:
        raise ValueError("a base learner of your own needs a key function: give key, a name or a module")
    default_key = of_network.default_key if isinstance(of_network, NetworkOptions) else "network"
    of_key = _options("key", default_key if key is None else key)
    spec = reads if isinstance(reads, InputSpec) else InputSpec(tuple(reads))
    size = (of_key.size or None) if isinstance(of_key, KeyOptions) else key_size
    built = chosen.build(Parts(spec, way, of_network, of_key, size))
    built.input_spec = spec
    return built


def _options(kind: registry.PartKind, part: Any) -> Any:
    """The default options of a part that is given by its name; anything else as it is."""
    return default_options(kind, part) if isinstance(part, str) else part


def build_learner(config: Config, spec: InputSpec) -> FewShotLearner[Any]:
    """The learner that a configuration describes, for inputs of a kind and at most `data.way` classes."""
    return build(config.learner, reads=spec, way=config.data.way, network=config.network, key=config.key)
