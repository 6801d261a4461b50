"""Building learners from named parts, from your own networks, or from a configuration."""

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
    """Build a learner from named parts or from your own networks.

    Args:
        learner: A name, or options such as `CSNOptions(...)`.
        reads: The shape of one example, or an `InputSpec` if examples are sentences.
        way: The largest number of classes.
        network: The name or options of an architecture ("cnn" by default), or your own `BaseLearner`.
        key: The name or options of a key function, or your own module: (examples, *input) -> (examples, key_size). By
            default, the key function has the network's shape. It must be given with your own `BaseLearner`.
        key_size: Numbers in a key of your own module. Only some learners need it.
        options: Options of the learner, if the learner is given by name.
    """
    if way < 2:
        raise ValueError(f"a learner needs way >= 2, the number of its classes; got {way}")
    if options and not isinstance(learner, str):
        raise ValueError(f"learner {learner.name!r} has its options already: leave out {', '.join(options)}")
    keep_freed_memory()  # also helps users' own training loops
    chosen: LearnerOptions = changed("learner", _options("learner", learner), options)
    for kind, part, used in (("network", network, chosen.uses_network), ("key", key, chosen.uses_key)):
        if part is not None and not used:
            raise ValueError(f"learner {chosen.name!r} takes no {kind}: leave it out")
    of_network = _options("network", "cnn" if network is None else network)
    if key is None and isinstance(of_network, BaseLearner) and chosen.uses_key:
        raise ValueError("your own base learner needs a key function: give key, a name or a module")
    default_key = of_network.default_key if isinstance(of_network, NetworkOptions) else "network"
    of_key = _options("key", default_key if key is None else key)
    spec = reads if isinstance(reads, InputSpec) else InputSpec(tuple(reads))
    size = (of_key.size or None) if isinstance(of_key, KeyOptions) else key_size
    built = chosen.build(Parts(spec, way, of_network, of_key, size))
    built.input_spec = spec
    return built


def _options(kind: registry.PartKind, part: Any) -> Any:
    """Return the default options of a part that is given by name. Return anything else unchanged."""
    return default_options(kind, part) if isinstance(part, str) else part


def build_learner(config: Config, spec: InputSpec) -> FewShotLearner[Any]:
    """Build the learner that a configuration describes, for the given input and at most `data.way` classes."""
    return build(config.learner, reads=spec, way=config.data.way, network=config.network, key=config.key)
