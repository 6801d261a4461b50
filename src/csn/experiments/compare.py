"""Compares learners on the same training tasks and the same test tasks, with their time as a ratio to one floor.

A comparison is a folder with a run and a result file of each learner, comparison.json and comparison.png. Files that
are there and up to date are reused, so a comparison that was stopped can go on.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from csn.baselines.nearest import NearestNeighbour
from csn.building import build_learner
from csn.config import Config, config_from_json, load_preset, merge, parse_option
from csn.core.model import CSN
from csn.data.source import Dataset
from csn.engine.calibration import Calibration, query_classes
from csn.engine.checkpoint import checkpoint_sha256, load_checkpoint, write_atomically
from csn.engine.evaluate import EVALUATION_SEED, evaluate, summarise
from csn.engine.lengthen import config_in
from csn.engine.origin import origin
from csn.engine.run import open_run
from csn.engine.steps import inference_step, ratios, training_step
from csn.experiments.records.files import json_bytes, read_result, result_content
from csn.experiments.records.protocol import setting_of, tasks_like
from csn.experiments.tables.budget import seconds_of_task
from csn.experiments.timing.floor import floor_of
from csn.learner import FewShotLearner

NEAREST = "nearest neighbour"
VALIDATIONS, VALIDATION_TASKS = 5, 100  # validations of a training, and tasks per validation
FLOORS = {"images": "adacnn-df", "sentences": "adalstm-1-df"}


@dataclass(frozen=True)
class Contender:
    """A learner to compare, and the folder of its run."""

    name: str
    config: Config
    folder: Path

    @property
    def trained(self) -> bool:
        """Whether its folder has a finished run of this configuration."""
        if not (self.folder / "best.safetensors").exists() or not (self.folder / "last.safetensors").exists():
            return False
        _, metadata = load_checkpoint(self.folder / "last.safetensors")
        same = config_from_json(json.dumps(metadata["about"]["config"])) == self.config
        return bool(same and metadata["tasks"] >= self.config.train.tasks)

    def check_folder(self) -> None:
        """Raise ValueError if its folder has a run of another configuration.

        A shorter run is not accepted as its beginning, because it validated after other numbers of tasks.
        """
        if config_in(self.folder) not in (None, self.config):
            raise ValueError(
                f"{self.folder} is a run of other options or another number of tasks: give those, compare into another "
                f"folder with --out, or remove it"
            )

    def trained_for(self, tasks: int) -> Contender:
        """This contender with another number of training tasks, and as many validations as all contenders have."""
        length = {"tasks": tasks, "validate_every": max(1, tasks // VALIDATIONS)}
        return dataclasses.replace(self, config=merge(self.config, {"train": length}))


def contenders(
    names: Sequence[str],
    folder: Path = Path(),
    *,
    recipe: str,
    data: str,
    way: int,
    shot: int,
    queries: int,
    tasks: int,
    seed: int,
    changes: Sequence[str] = (),
) -> list[Contender]:
    """One contender for each name, PRESET or PRESET:RECIPE. All learn from the same tasks and nothing else."""
    equal: dict[str, dict[str, Any]] = {
        "data": {"name": data, "way": way, "shot": shot, "queries": queries},
        "pretrain": {"epochs": 0},
        "train": {"tasks": tasks, "seed": seed},
    }
    ours = {f"{section}.{name}" for section, values in equal.items() for name in values} | {"train.validate_every"}
    if useless := sorted(ours & {change.partition("=")[0].strip() for change in changes}):
        raise ValueError(
            f"--set {', '.join(useless)}: the same for all learners of a comparison; tasks have options of their own "
            f"(--tasks, --way, --shot, --queries, --seed, --data), there is no pretraining, and all validate alike"
        )
    found = []
    for name in names:
        preset, _, own = name.partition(":")
        config = merge(load_preset(preset, own or recipe), {"train": {"validation_tasks": VALIDATION_TASKS}})
        config = functools.reduce(merge, [*map(parse_option, changes), equal], config)
        if config.learner.trained_on == "text":
            raise ValueError(f"{name!r} is trained on running text, not on tasks: it cannot be compared at equal cost")
        found.append(Contender(name, config, folder / name.replace(":", "-")).trained_for(tasks))
    if len({contender.folder for contender in found}) < len(found):
        raise ValueError(f"each learner can be compared once, got {', '.join(names)}: leave the repetitions out")
    return found


def bought_for(contender: Contender, data: Dataset, seconds: float, device: torch.device) -> Contender:
    """The contender with as many training tasks as take about `seconds` on this machine.

    An earlier run with the same options keeps its number of tasks.
    """
    earlier = config_in(contender.folder)
    if earlier is not None and (same := contender.trained_for(earlier.train.tasks)).config == earlier:
        return same
    learner = untrained(contender, data).to(device)
    affordable = seconds / seconds_of_task(contender.config, learner, data, device)
    per_step = contender.config.train.tasks_per_step
    return contender.trained_for(per_step * max(1, round(affordable / per_step)))


def untrained(contender: Contender, data: Dataset) -> FewShotLearner[Any]:
    """The learner before training, or a ValueError if it does not read this kind of data."""
    torch.manual_seed(contender.config.train.seed)
    return build_learner(contender.config, data.input_spec)


def result_of(
    contender: Contender,
    data: Dataset,
    tasks: int,
    queries: int,
    *,
    device: torch.device,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Read or make a contender's result file: its accuracy on the first `tasks` test tasks, the same for everyone."""
    source = tasks_like(contender.config, data, "test", queries=queries, seed=EVALUATION_SEED)
    path = contender.folder / "result.json"
    setting = setting_of(source, tasks, contender.config.learner.attention)
    if path.exists():  # of this model, by its bytes: the times of files follow a clock that may be set back
        content = read_result(path)
        of_this = content["trained"].get("checkpoint_sha256") == checkpoint_sha256(contender.folder)
        if of_this and content["evaluation"] == setting:
            return content
    run, started, own = open_run(contender.folder), time.monotonic(), Calibration()
    learner = run.learner.to(device)
    accuracies = evaluate(learner, source, tasks, device=device, on_progress=on_progress, on_answers=own.add)
    calibration = own.summary(query_classes(source, tasks))
    content = result_content(run, setting, {"trained": accuracies}, started, {"trained": calibration})
    write_atomically(path, json_bytes(content))
    return content


def time_ratios(
    contenders: Sequence[Contender], data: Dataset, repeats: int, *, device: torch.device
) -> dict[str, dict[str, list[float]]]:
    """Time of a task as a ratio to the floor: name -> phase -> quartiles. For the floor itself, seconds.

    A step has one task. Trained learners are timed, because weights that are still 0 may cost less.
    """
    config = contenders[0].config
    tasks = tasks_like(config, data, "test", queries=config.data.queries, seed=config.train.seed)
    episode = tasks.batch(0, 1).to(device)
    floor = _floor(config, data).to(device)
    learners: dict[str, nn.Module] = {"floor": floor}
    learners |= {each.name: open_run(each.folder).learner.to(device) for each in contenders}
    training = {each.name: each.config.train for each in contenders}
    inference = {name: inference_step(learner, episode) for name, learner in learners.items()}
    if data.vocabulary is None:
        inference[NEAREST] = inference_step(NearestNeighbour(config.data.way), episode)
    phases = {
        "inference": inference,
        "train": {n: training_step(copy.deepcopy(each), episode, training.get(n)) for n, each in learners.items()},
    }
    measured: dict[str, dict[str, list[float]]] = {name: {} for name in inference}
    for phase, steps in phases.items():
        for name, values in ratios(steps, repeats).items():
            measured[name][phase] = [round(value, 3) for value in statistics.quantiles(values, n=4)]
        started = time.perf_counter()
        steps["floor"]()
        measured["floor"][phase] = [time.perf_counter() - started]
    return measured


def summary(
    contenders: Sequence[Contender],
    results: Mapping[str, dict[str, Any]],
    times: Mapping[str, dict[str, list[float]]],
    data: Dataset,
    *,
    repeats: int,
    device: torch.device,
) -> dict[str, Any]:
    """The content of comparison.json: a row for each learner, best first, and the meaning of the numbers."""
    evaluation = next(iter(results.values()))["evaluation"]
    rows = []
    for each in contenders:
        trained = results[each.name]["trained"]
        row = {"learner": each.name, **results[each.name]["summary"]["trained"], "time": times[each.name]}
        budget = {"tasks": each.config.train.tasks, "chosen": trained["tasks"], "seconds": trained["seconds_in_all"]}
        rows.append({**row, "training": budget})
    if NEAREST in times:
        config = contenders[0].config
        source = tasks_like(config, data, "test", queries=evaluation["queries"], seed=EVALUATION_SEED)
        accuracies = evaluate(NearestNeighbour(source.way), source, evaluation["tasks"], device=device)
        numbers = dict(zip(("accuracy", "interval"), summarise(accuracies), strict=True))
        rows.append({"learner": NEAREST, **numbers, "time": times[NEAREST], "training": {"tasks": 0}})
    return {
        "rows": sorted(rows, key=lambda row: -row["accuracy"]),
        "evaluation": evaluation,
        "time": "of a task as a ratio to the floor, the two networks of a CSN without adaptation: lower quartile, "
        "median, upper quartile of interleaved repeats, one task a step",
        "floor_seconds": {phase: round(seconds[0], 4) for phase, seconds in times["floor"].items()},
        "repeats": repeats,
        **origin(),
    }


def _floor(config: Config, data: Dataset) -> nn.Module:
    """The two networks of a CSN of the same size for this data."""
    preset = load_preset(FLOORS["images" if data.vocabulary is None else "sentences"])
    size = (config.as_dict()["network"] or config.as_dict()["learner"]).items()
    alike = {name: value for name, value in size if name in ("filters", "precision")}
    network = {} if data.vocabulary is not None else alike
    config = merge(preset, {"data": {"way": config.data.way}, "network": network})
    csn = build_learner(config, data.input_spec)
    assert isinstance(csn, CSN)
    return floor_of(csn)
