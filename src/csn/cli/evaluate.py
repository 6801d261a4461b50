"""`csn evaluate`: accuracy on unseen tasks, and a result file by which anyone can check it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from csn.baselines.nearest import NearestNeighbour
from csn.building import build_learner
from csn.cli.data import chosen_data, load
from csn.cli.launch import launch
from csn.cli.terminal import advance, console, or_default, prepare_machine, progress_bar, say
from csn.data.partition import PartitionSource
from csn.data.source import Dataset, EpisodeSource
from csn.engine.calibration import Calibration, query_classes
from csn.engine.checkpoint import write_atomically
from csn.engine.distributed import Ranks, connected
from csn.engine.evaluate import EVALUATION_SEED, summarise
from csn.engine.evaluate import evaluate as evaluate_tasks
from csn.engine.models import input_spec
from csn.engine.origin import check_committed
from csn.engine.run import TrainedRun, check_history, check_vocabulary, open_run
from csn.experiments.records.files import json_bytes, read_result, result_content
from csn.experiments.records.protocol import QUERIES, SOURCES, setting_of
from csn.learner import FewShotLearner

RANDOM_TASKS = 400


def evaluate(options: argparse.Namespace) -> int:
    """Run `csn evaluate`, in several processes if the options ask for them."""
    if options.devices is not None:
        return launch(options.devices, options.arguments)
    with connected() as ranks:
        return _evaluate(options, ranks)


def _evaluate(options: argparse.Namespace, ranks: Ranks) -> int:
    """Test in this process: all tasks, or its share of them."""
    with ranks.together():
        device = prepare_machine(options, ranks)
        run = open_run(options.run, attention=options.attention)
        check_history(run)
        if options.out is not None:
            check_committed(f"the result file {options.out}")
    data = ranks.prepared(lambda: load(chosen_data(options, run), run))
    check_vocabulary(run, data)
    source = _source(options, run, data)
    tasks = len(source) if isinstance(source, PartitionSource) else or_default(options.tasks, RANDOM_TASKS)
    if tasks < 2:
        raise ValueError(f"an interval needs at least 2 tasks, got {tasks}: give --tasks 2 or more")
    setting = setting_of(source, tasks, options.attention or run.config.learner.attention)
    out = options.out or options.run / _file_name(setting, run)
    if options.out is None:
        ranks.first_only(lambda: _check_replaced(out, setting))
    if not ranks.is_alone:
        facts = {"tasks": setting, "run": run.metadata, "data": data.splits[options.split].fingerprint}
        ranks.check_same({name: json.dumps(fact, sort_keys=True) for name, fact in facts.items()})
    results: dict[str, list[float]] = {}
    calibrations: dict[str, dict[str, float]] = {}
    started, classes = time.monotonic(), query_classes(source, tasks)
    with progress_bar("[bold]{task.description}") as progress:
        for label, learner in _learners(options, run, source).items():
            on_progress, own = advance(progress, progress.add_task(label, total=tasks)), Calibration()
            results[label] = evaluate_tasks(
                learner.to(device),
                source,
                tasks,
                device=device,
                on_progress=on_progress,
                on_answers=own.add,
                ranks=ranks,
            )
            calibrations[label] = Calibration.of_parts(ranks.gathered(own)).summary(classes)
    about = f"{source.way}-way {source.shot}-shot, {tasks} {_sampling(options)} {source.split} tasks"
    table = Table("learner", title=f"{data.name}, {about}")
    for header in ("accuracy, 95 % interval", "over classes", "NLL", "ECE, %"):
        table.add_column(header, justify="right")
    for label, accuracies in results.items():
        of = calibrations[label]
        over_classes = f"± {100 * of['interval_over_classes']:.2f} ({of['classes']})"
        table.add_row(label, str(summarise(accuracies)), over_classes, f"{of['nll']:.3f}", f"{100 * of['ece']:.2f}")
    console.print(table)
    if isinstance(source, PartitionSource):
        left_out = f"{len(source.left_out)} of {len(source.classes)} classes"
        say(f"{left_out} are in no task: they have too few examples, or too few classes remained for a group")
    ranks.first_only(
        lambda: write_atomically(out, json_bytes(result_content(run, setting, results, started, calibrations)))
    )
    say(f"written to {out}")
    return 0


def _file_name(setting: dict[str, Any], run: TrainedRun) -> str:
    """The file name of a result: data, split and size, plus sampling, task seed and attention if not the default."""
    parts = ["result", setting["data"], setting["split"], "{way}w{shot}s".format(**setting)]
    parts += [setting["sampling"]] if setting["sampling"] != "random" else []
    parts += [f"tasks{setting['seed']}"] if setting["seed"] != EVALUATION_SEED else []
    parts += [setting["attention"]] if setting["attention"] != run.config.learner.attention else []
    return "-".join(parts) + ".json"


def _check_replaced(path: Path, setting: dict[str, Any]) -> None:
    """Raise ValueError if the file holds the result of another test, which this one would overwrite."""
    if not path.exists():
        return
    its = read_result(path, "move it away, or give another file with --out").get("evaluation", {})
    if other := [f"{name} {its.get(name)}, here {value}" for name, value in setting.items() if its.get(name) != value]:
        raise ValueError(f"{path} holds the result of another test ({'; '.join(other)}): give --out, or move it away")


def _sampling(options: argparse.Namespace) -> str:
    """How tasks are drawn, as a name in SOURCES."""
    return "all-inclusive" if options.all_inclusive else "within-alphabet" if options.within_alphabet else "random"


def _source(options: argparse.Namespace, run: TrainedRun, data: Dataset) -> EpisodeSource:
    """The test tasks: random classes, classes of one alphabet, or all classes of the split, each in one task."""
    if options.all_inclusive and options.tasks is not None:
        raise ValueError("--all-inclusive solves every group of classes once: leave out --tasks")
    trained = run.config.data
    source = SOURCES[_sampling(options)](
        data,
        options.split,
        way=or_default(options.way, trained.way),
        shot=or_default(options.shot, trained.shot),
        queries=or_default(options.queries, QUERIES["images" if data.vocabulary is None else "sentences"]),
        seed=or_default(options.task_seed, EVALUATION_SEED),
        support=run.learner.support_of,
    )
    if isinstance(source, PartitionSource) and len(source) < 2:
        raise ValueError(
            f"split {source.split!r} of {data.name} makes {len(source)} group of {source.way} classes, but an "
            f"interval needs at least 2: evaluate on random tasks instead"
        )
    return source


def _learners(options: argparse.Namespace, run: TrainedRun, source: EpisodeSource) -> dict[str, FewShotLearner[Any]]:
    """The trained learner and, with --references, the untrained one and, for images, a nearest neighbour on pixels."""
    learners = {"trained": run.learner}
    if options.references:
        torch.manual_seed(run.config.train.seed)
        learners["untrained"] = build_learner(run.config, input_spec(run.metadata["about"]))
        if source.data.vocabulary is None:
            learners["nearest neighbour"] = NearestNeighbour(source.way)
    return learners
