"""Result files: what they must say, how they are read, and what follows from several of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from csn.config import DataConfig, PretrainConfig, config_from_json, load_preset
from csn.engine.evaluate import Accuracy, summarise
from csn.experiments.records.checks import LEARNERS, TRAINED, problem_of_result
from csn.presets import preset_names

FORMAT = 2  # of a result file
SEED_AND_LENGTH = {"seed", "tasks", "validate_every", "validation_tasks"}
PRETRAINED = PretrainConfig(epochs=4, batch=64, learning_rate=2e-3)  # as the tables do where a preset has none


@dataclass(frozen=True)
class Result:
    """One learner's accuracy from one result file; `learner` is "trained", or what was shown beside it."""

    path: Path
    content: dict[str, Any]
    learner: str

    @property
    def accuracy(self) -> Accuracy:
        """Mean and interval."""
        summary = self.content["summary"][self.learner]
        return Accuracy(summary["accuracy"], summary["interval"])

    @property
    def data(self) -> str:
        """What it was tested on."""
        return str(self.content["evaluation"]["data"])

    @property
    def sampling(self) -> str:
        """How the tasks were drawn: "random", "all-inclusive" or "within-alphabet"."""
        return str(self.content["evaluation"].get("sampling", "random"))

    @property
    def preset(self) -> str:
        """Of its training."""
        return str(self.content["config"]["preset"])

    @property
    def recipe(self) -> str:
        """Of its training."""
        return str(self.content["config"]["recipe"])

    @property
    def unit(self) -> str:
        """What training counted; a language model has a perplexity."""
        return "sentences" if "perplexity" in self.content["trained"] else "tasks"

    @property
    def size(self) -> str:
        """The tasks as in 5w1s."""
        return "{way}w{shot}s".format(**self.content["evaluation"])

    @property
    def tasks(self) -> str:
        """The tasks in words."""
        sampling = "" if self.sampling == "random" else f", {self.sampling.replace('-', ' ')}"
        return "{way}-way {shot}-shot".format(**self.content["evaluation"]) + sampling

    @property
    def published(self) -> str:
        """The paper's number for this cell, if it has one."""
        if self.learner != TRAINED or self.data != self.content["config"]["data"]["name"]:
            return ""
        if self.sampling == "within-alphabet" or not self.read_as_trained:
            return ""
        others = set(changes_of(self.content["config"])) - self._papers_own
        if any(not change.startswith(("pretrain.", "precision=")) for change in others):  # it stands beside any of them
            return ""
        cells = published().get(self.data, {}).get(self.preset, {})
        return str(cells.get(self.size + ("-all" if self.sampling == "all-inclusive" else ""), ""))

    @property
    def _papers_own(self) -> set[str]:
        """Changes of its preset that the paper made too: a deep adaLSTM has fewer units at 3 shots (appendix A)."""
        is_deep = self.preset.startswith("adalstm-2-")
        return {"units=200"} if is_deep and self.content["config"]["data"]["shot"] == 3 else set()

    @property
    def read_as_trained(self) -> bool:
        """Whether it was tested with the attention that it was trained with."""
        trained = self.content["config"]["learner"].get("attention", "soft")
        return bool(self.content["evaluation"].get("attention", trained) == trained)

    @property
    def pretraining(self) -> str:
        """Whether the embedding network was pretrained, where the preset has it otherwise."""
        config = config_from_json(json.dumps(self.content["config"]))
        if config.preset not in preset_names():
            return ""
        by_preset = load_preset(config.preset, config.recipe).pretrain.epochs
        if bool(config.pretrain.epochs) == bool(by_preset):
            return ""
        return "pretrained" if config.pretrain.epochs else "not pretrained"

    @property
    def model(self) -> str:
        """Preset and recipe, with what was changed and where it was trained if elsewhere; the same for every size of
        tasks."""
        config = self.content["config"]
        if self.learner != TRAINED:
            return self.learner if self.learner == "nearest neighbour" else f"{self.preset}, {self.learner}"
        parts = [f"`{self.preset}`", self.recipe, *(c for c in changes_of(config) if c not in self._papers_own)]
        parts += [self.pretraining] if self.pretraining else []
        if DataConfig(config["data"]["name"]).label != self.data:
            parts.append(f"trained on {config['data']['name']}")
        return ", ".join(parts)

    @property
    def name(self) -> str:
        """The model, with what was changed for these tasks."""
        if self.learner != TRAINED:
            return self.model
        config = self.content["config"]
        parts = [self.model, *(change for change in changes_of(config) if change in self._papers_own)]
        evaluation = self.content["evaluation"]
        if config["data"]["way"] != evaluation["way"]:
            parts.append(f"trained on {config['data']['way']}-way tasks")
        if not self.read_as_trained:
            parts.append(f"tested with {evaluation['attention']} attention")
        return ", ".join(parts)

    @property
    def seed(self) -> int:
        """Of its training."""
        return int(self.content["config"]["train"]["seed"])

    @property
    def place(self) -> tuple[Any, ...]:
        """Where it stands in a table."""
        evaluation = self.content["evaluation"]
        sampling = self.sampling != "random"
        return evaluation["way"], evaluation["shot"], sampling, LEARNERS.index(self.learner), self.name, self.seed


@functools.cache
def published() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """The paper's tables: data set -> preset -> tasks -> accuracy as printed."""
    return tomllib.loads((resources.files("csn.experiments.records") / "published.toml").read_text(encoding="utf-8"))


def changes_of(config: dict[str, Any]) -> list[str]:
    """How a run differs from its preset, but for its data, seed and length: ["units=200"]."""
    return list(changed_options(config))


def changed_options(config: dict[str, Any]) -> dict[str, tuple[str, str, Any]]:
    """The same with section, name and the preset's value of each; a part of another name has the preset's whole part.

    Whether there was a pretraining has words of its own.
    """
    read = config_from_json(json.dumps(config))
    if read.preset not in preset_names():
        return {}
    preset = load_preset(read.preset, read.recipe)
    if read.pretrain.epochs and not preset.pretrain.epochs:
        preset = dataclasses.replace(preset, pretrain=PRETRAINED)
    its, own = preset.as_dict(), read.as_dict()
    told_elsewhere = {
        "train": SEED_AND_LENGTH,
        "data": {"name", "way", "shot"},
        "pretrain": set() if read.pretrain.epochs else set(own["pretrain"]),
    }
    changed: dict[str, tuple[str, str, Any]] = {}
    for section in ("learner", "network", "key", "train", "data", "pretrain"):
        preset_part, part = its[section] or {}, own[section] or {}
        if part.get("name") != preset_part.get("name") and section in ("learner", "network", "key"):
            changed[f"{section}={part.get('name')}"] = section, "", its[section]
            continue
        for name in sorted(part.keys() - told_elsewhere.get(section, set())):
            if part[name] != preset_part[name]:
                changed[f"{option_label(section, name)}={_shown(part[name])}"] = section, name, preset_part[name]
    return changed


def option_label(section: str, name: str) -> str:
    """An option as tables and file names have it: those of the learner and its network need no section."""
    return f"{section}.{name}" if section in ("key", "pretrain") else name


def _shown(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def read_results(folder: Path) -> list[Result]:
    """Every accuracy of the result files in a folder and those below it, in the order of their tables."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} of result files: make some with csn evaluate RUN --out FILE")
    results = []
    for path in sorted(folder.rglob("*.json")):
        results += results_in(path)
    return sorted(results, key=lambda result: result.place)


def results_in(path: Path) -> list[Result]:
    """The accuracies of one file; none of a comparison or benchmark, which has rows. Options that are younger than the
    file have their defaults."""
    content = read_result(path, "move it away, or remove it")
    if "summary" not in content:
        return []
    try:
        config = config_from_json(json.dumps(content["config"]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is of another version of csn ({error}): evaluate again, or remove it") from error
    content = content | {"config": json.loads(config.to_json())}
    return [Result(path, content, learner) for learner in content["summary"]]


def read_result(path: Path, remedy: str = "give one that is") -> dict[str, Any]:
    """The contents of a result file, which says at least what every reader of it needs. remedy: against a file that is
    none, where it was not the user who named it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror or error}): check the path") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no result file of csn evaluate or a benchmark ({error}): {remedy}") from error
    if not isinstance(content, dict) or not (
        {"summary", "evaluation", "config", "trained"} <= set(content) or "rows" in content
    ):
        raise ValueError(f"{path} is no result file of csn evaluate or a benchmark: {remedy}")
    if "summary" in content and (form := content.get("format", 1)) != FORMAT:
        older = " (that of csn 0.1, whose configurations have a section 'model')" if form == 1 else ""
        raise ValueError(
            f"{path} has format {form!r}{older}, this version of csn reads {FORMAT}: use the version that wrote it, or "
            f"evaluate again"
        )
    if "summary" in content and (problem := problem_of_result(content)):
        raise ValueError(f"{path} {problem}: evaluate again, or remove it")
    return content


def by_seed(results: Iterable[Result]) -> list[list[Result]]:
    """Results of the same tasks that differ in the seed of their training alone, together."""
    together: dict[str, list[Result]] = {}
    for result in results:
        together.setdefault(_all_but_seed(result), []).append(result)
    groups = [same for alike in together.values() for same in _by_fingerprint(alike)]
    return [_of_different_seeds(sorted(seeds, key=lambda result: result.seed)) for seeds in groups]


def _all_but_seed(result: Result) -> str:
    """Which learner was trained how and asked what, as text."""
    config, evaluation = result.content["config"], result.content["evaluation"]
    trained = config | {"train": config["train"] | {"seed": None}}
    attention = evaluation.get("attention", config["learner"].get("attention", "soft"))
    return json.dumps([result.learner, _tasks_of(result), attention, trained], sort_keys=True)


def _by_fingerprint(results: Sequence[Result]) -> list[list[Result]]:
    """Results of the same data, together; older files without a fingerprint stay with the others while those agree."""
    prints = dict.fromkeys(result.content["evaluation"].get("fingerprint") for result in results)
    if len(prints.keys() - {None}) < 2:
        return [list(results)]
    return [[each for each in results if each.content["evaluation"].get("fingerprint") == one] for one in prints]


def _of_different_seeds(seeds: list[Result]) -> list[Result]:
    """The same, unless two of them are of one seed."""
    for one, other in itertools.pairwise(seeds):
        if one.seed == other.seed:
            raise ValueError(f"{one.path} and {other.path} are of one training, with seed {one.seed}: keep one of them")
    return seeds


def pooled(seeds: Sequence[Result]) -> Accuracy:
    """Of several trainings: the mean over tasks and seeds, and its interval over tasks."""
    return seeds[0].accuracy if len(seeds) == 1 else summarise(_task_means(seeds))


def difference(these: Sequence[Result], those: Sequence[Result]) -> Accuracy:
    """By how much these are above those, each perhaps of several seeds: task by task, so that hard tasks cancel out."""
    if other := other_tasks(these[0], those[0]):
        raise ValueError(
            f"{these[0].path} and {those[0].path} are not of the same tasks ({', '.join(other)}): evaluate both on the "
            f"same ones"
        )
    return summarise([a - b for a, b in zip(_task_means(these), _task_means(those), strict=True)])


def _task_means(seeds: Sequence[Result]) -> list[float]:
    """Of each task, the mean over trainings."""
    tasks = zip(*(each.content["accuracies"][each.learner] for each in seeds), strict=True)
    return [math.fsum(task) / len(seeds) for task in tasks]


def other_tasks(one: Result, other: Result) -> list[str]:
    """In what the tasks of two results differ; older files do not say what their data were."""
    ours, theirs = _tasks_of(one), _tasks_of(other)
    prints = {each.content["evaluation"].get("fingerprint") for each in (one, other)} - {None}
    return [name for name in ours if ours[name] != theirs[name]] + (["fingerprint"] if len(prints) > 1 else [])


def _tasks_of(result: Result) -> dict[str, Any]:
    """What decides which tasks were asked."""
    evaluation = result.content["evaluation"]
    return {name: evaluation.get(name) for name in ("data", "split", "way", "shot", "queries", "seed", "tasks")} | {
        "sampling": result.sampling
    }
