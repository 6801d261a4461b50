"""Rapid adaptation with conditionally shifted neurons (Munkhdalai et al., ICML 2018).

The public names are imported when they are first used: `import csn` alone loads neither torch nor any data set.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from csn.building import build
    from csn.classifier.classifier import FewShotClassifier
    from csn.config import Config, load_preset
    from csn.core.base_learner import BaseLearner, BaseOutput
    from csn.core.model import CSN
    from csn.data.registry import load_data
    from csn.data.source import EpisodeSource
    from csn.engine.run import open_run as load_run
    from csn.episode import Episode, Examples
    from csn.learner import FewShotLearner, InputSpec
    from csn.networks.graft import graft

__version__ = "0.2.0"
__all__ = [
    "CSN",
    "BaseLearner",
    "BaseOutput",
    "Config",
    "Episode",
    "EpisodeSource",
    "Examples",
    "FewShotClassifier",
    "FewShotLearner",
    "InputSpec",
    "build",
    "graft",
    "load_data",
    "load_preset",
    "load_run",
]
_PLACES = {
    "CSN": "csn.core.model:CSN",
    "BaseLearner": "csn.core.base_learner:BaseLearner",
    "BaseOutput": "csn.core.base_learner:BaseOutput",
    "Config": "csn.config:Config",
    "Episode": "csn.episode:Episode",
    "EpisodeSource": "csn.data.source:EpisodeSource",
    "Examples": "csn.episode:Examples",
    "FewShotClassifier": "csn.classifier.classifier:FewShotClassifier",
    "FewShotLearner": "csn.learner:FewShotLearner",
    "InputSpec": "csn.learner:InputSpec",
    "build": "csn.building:build",
    "graft": "csn.networks.graft:graft",
    "load_data": "csn.data.registry:load_data",
    "load_preset": "csn.config:load_preset",
    "load_run": "csn.engine.run:open_run",
}


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name not in _PLACES:
        raise AttributeError(f"module 'csn' has no attribute {name!r}: its names are {', '.join(__all__)}")
    module, _, attribute = _PLACES[name].partition(":")
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
