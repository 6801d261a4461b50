"""How a model is tested: which tasks, and how they are drawn. Result files say it, so that tests can be repeated."""

from __future__ import annotations

from typing import Any

from csn.config import Config
from csn.data.alphabets import WithinAlphabet
from csn.data.partition import PartitionSource
from csn.data.source import Dataset, EpisodeSource, Split
from csn.engine.evaluate import EVALUATION_SEED
from csn.episode import SupportOf

SOURCES: dict[str, type[EpisodeSource]] = {
    "random": EpisodeSource,
    "all-inclusive": PartitionSource,
    "within-alphabet": WithinAlphabet,
}
QUERIES = {"images": 15, "sentences": 1}  # of a class: more sentences than one would leave rare words out
_SIZE = ("way", "shot", "queries", "seed")


def tasks_like(
    config: Config, data: Dataset, split: Split, *, queries: int, seed: int, support: SupportOf = "examples"
) -> EpisodeSource:
    """Random tasks with the classes and shots of a training."""
    size = config.data
    return EpisodeSource(data, split, way=size.way, shot=size.shot, queries=queries, seed=seed, support=support)


def setting_of(source: EpisodeSource, tasks: int, attention: str) -> dict[str, Any]:
    """What a result file says about its tasks: the first `tasks` of a source."""
    setting = {
        "data": source.data.name,
        "fingerprint": source.classes.fingerprint,
        "split": source.split,
        **{name: getattr(source, name) for name in _SIZE},
        "tasks": tasks,
        "sampling": next(name for name, kind in SOURCES.items() if type(source) is kind),
        "attention": attention,
    }
    return setting | ({"left_out": list(source.left_out)} if isinstance(source, PartitionSource) else {})


def source_of(setting: dict[str, Any], data: Dataset, support: SupportOf) -> EpisodeSource:
    """The tasks that a result file describes, or a ValueError if the data has changed."""
    missing = [name for name in ("way", "shot", "queries") if name not in setting]
    if missing or setting.get("split") not in data.splits:
        raise ValueError(
            f"to ask again, a result must say {', '.join(missing) or 'its split'}, and of {data.name} the split is one "
            f"of {', '.join(data.splits)}, got {setting.get('split')!r}: evaluate again"
        )
    sizes = {"seed": EVALUATION_SEED} | {name: setting[name] for name in _SIZE if name in setting}
    source = SOURCES[setting.get("sampling", "random")](data, setting["split"], **sizes, support=support)
    if setting.get("fingerprint", source.classes.fingerprint) != source.classes.fingerprint:
        raise ValueError(
            f"split {source.split!r} of {data.name} is not what it was: its fingerprint is "
            f"{source.classes.fingerprint[:12]}, that of the result {setting['fingerprint'][:12]}"
        )
    return source
