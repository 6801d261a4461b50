"""A result: one learner's accuracy from one result file, and what it is called."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csn.config import Config, PretrainConfig, load_preset
from csn.engine.evaluate import EVALUATION_SEED, Accuracy
from csn.experiments.records.checks import LEARNERS, TRAINED
from csn.experiments.records.published import by_its_authors, published, size_in_names
from csn.presets import preset_names

SEED_AND_LENGTH = {"seed", "tasks", "validate_every", "validation_tasks"}
# Changes of a preset that still compare with the published number: readings of a paper, and what its authors did.
BESIDE = ("pretrain.", "precision=", "norm=transductive", "until=blank", "context_steps=")
PRETRAINED = PretrainConfig(epochs=4, batch=64, learning_rate=2e-3)  # of the tables, for presets without one


@dataclass(frozen=True)
class Result:
    """One learner's accuracy from one result file.

    content: the contents of the file.
    learner: "trained", "untrained" or "nearest neighbour".
    config: the configuration of its training.
    """

    path: Path
    content: dict[str, Any]
    learner: str
    config: Config

    @functools.cached_property
    def changes(self) -> list[str]:
        """How its training differs from its preset."""
        return list(changed_options(self.config))

    @property
    def accuracy(self) -> Accuracy:
        """Mean and interval."""
        summary = self.content["summary"][self.learner]
        return Accuracy(summary["accuracy"], summary["interval"])

    @property
    def data(self) -> str:
        """The data set that it was tested on."""
        return str(self.content["evaluation"]["data"])

    @property
    def sampling(self) -> str:
        """How the tasks were drawn: "random", "all-inclusive" or "within-alphabet"."""
        return str(self.content["evaluation"].get("sampling", "random"))

    @property
    def unit(self) -> str:
        """What training counted: tasks, or sentences for a language model, which has a perplexity."""
        return "sentences" if "perplexity" in self.content["trained"] else "tasks"

    @property
    def tasks_in_all(self) -> int:
        """The number of training tasks, including those after the chosen model. A stopped training has fewer."""
        curve = self.content["trained"]["validation_curve"]
        return int(curve[-1][0] if curve else self.content["trained"]["tasks"])

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
        if not self._as_published:
            return ""
        cells = published().get(self.data, {}).get(self.config.preset, {})
        return str(cells.get(size_in_names(self.size, self.sampling), ""))

    @property
    def by_its_authors(self) -> str:
        """The number of a baseline's own paper for this cell, if it is not the paper's number."""
        return by_its_authors(self.data, self.config.preset, self.size) if self._as_published else ""

    @functools.cached_property
    def _as_published(self) -> bool:
        """Whether data, model and test are those of a published number."""
        elsewhere = self.data != self.config.data.name
        if self.learner != TRAINED or elsewhere or self.sampling == "within-alphabet" or not self.read_as_trained:
            return False
        others = set(self.changes) - self._papers_own
        return all(change.startswith(BESIDE) for change in others)

    @property
    def _papers_own(self) -> set[str]:
        """Changes of its preset that its paper made too.

        A deep adaLSTM has fewer units at 3 shots (appendix A), and MAML has more steps at 20 ways.
        """
        data, preset = self.config.data, self.config.preset
        if preset.startswith("adalstm-2-") and data.shot == 3:
            return {"units=200"}
        return {"inner_rate=0.1", "inner_steps=5", "test_steps=5"} if (preset, data.way) == ("maml", 20) else set()

    @property
    def read_as_trained(self) -> bool:
        """Whether it was tested with the attention that it was trained with."""
        trained = self.content["config"]["learner"].get("attention", "soft")
        return bool(self.content["evaluation"].get("attention", trained) == trained)

    @property
    def pretraining(self) -> str:
        """Whether the embedding network was pretrained, if the preset says otherwise; else ""."""
        config = self.config
        if config.preset not in preset_names():
            return ""
        by_preset = load_preset(config.preset, config.recipe).pretrain.epochs
        if bool(config.pretrain.epochs) == bool(by_preset):
            return ""
        return "pretrained" if config.pretrain.epochs else "not pretrained"

    @functools.cached_property
    def model(self) -> str:
        """Preset and recipe, with changed options, and the training data if they differ from the test data.

        It is the same for every size of tasks.
        """
        config = self.config
        if self.learner != TRAINED:
            return self.learner if self.learner == "nearest neighbour" else f"{config.preset}, {self.learner}"
        parts = [f"`{config.preset}`", config.recipe, *(c for c in self.changes if c not in self._papers_own)]
        parts += [self.pretraining] if self.pretraining else []
        if config.data.label != self.data:
            parts.append(f"trained on {config.data.name}")
        return ", ".join(parts)

    @functools.cached_property
    def name(self) -> str:
        """The model, with what was changed for these tasks."""
        if self.learner != TRAINED:
            return self.model
        parts = [self.model, *(change for change in self.changes if change in self._papers_own)]
        evaluation, way = self.content["evaluation"], self.config.data.way
        if way != evaluation["way"]:
            parts.append(f"trained on {way}-way tasks")
        if not self.read_as_trained:
            parts.append(f"tested with {evaluation['attention']} attention")
        if self.test_seed != EVALUATION_SEED:
            parts.append(f"test tasks of seed {self.test_seed}")
        return ", ".join(parts)

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return self.config.train.seed

    @property
    def test_seed(self) -> int:
        """The seed of the test tasks."""
        return int(self.content["evaluation"].get("seed", EVALUATION_SEED))

    @property
    def place(self) -> tuple[Any, ...]:
        """Where it stands in a table."""
        evaluation = self.content["evaluation"]
        sampling = self.sampling != "random"
        return evaluation["way"], evaluation["shot"], sampling, LEARNERS.index(self.learner), self.name, self.seed


def changed_options(config: Config) -> dict[str, tuple[str, str, Any]]:
    """How a run differs from its preset, except in data, seed and length: "units=200" -> section, name, preset's value.

    If a part has another name, the value is the preset's whole part. Pretraining is described in words instead.
    """
    if config.preset not in preset_names():
        return {}
    preset = load_preset(config.preset, config.recipe)
    if config.pretrain.epochs and not preset.pretrain.epochs:
        preset = dataclasses.replace(preset, pretrain=PRETRAINED)
    its, own = preset.as_dict(), config.as_dict()
    told_elsewhere = {
        "train": SEED_AND_LENGTH,
        "data": {"name", "way", "shot"},
        "pretrain": set() if config.pretrain.epochs else set(own["pretrain"]),
    }
    changed: dict[str, tuple[str, str, Any]] = {}
    for section in ("learner", "network", "key", "train", "data", "pretrain"):
        preset_part, part = its[section] or {}, own[section] or {}
        if part.get("name") != preset_part.get("name") and section in ("learner", "network", "key"):
            changed[f"{section}={part.get('name')}"] = section, "", its[section]
            continue
        for name in sorted(part.keys() - told_elsewhere.get(section, set())):
            if part[name] != preset_part[name]:
                value = tuple(part[name]) if isinstance(part[name], list) else part[name]
                changed[f"{option_label(section, name)}={value}"] = section, name, preset_part[name]
    return changed


def option_label(section: str, name: str) -> str:
    """An option as it appears in tables and file names. Options of the learner and its network need no section."""
    return f"{section}.{name}" if section in ("key", "pretrain") else name
