"""Compare a stem shared by base learner and key function with two stems, and with a Prototypical Network.

Each is trained on Omniglot as recipe `plus` does, at 20 ways, in turns seed by seed. It is validated during training on
tasks of 5 ways and 1 shot, the same for all. Training ends after a number of tasks fixed beforehand. Time is the
processor time of training steps. It answers two questions. How long does each take to reach an accuracy, as a multiple
of the Prototypical Network's time? Is sharing level at the end, within a margin, over the seeds?

The file is written after each training. A training that the file has already is not repeated by the same commit.

    python benchmarks/shared_stem.py [--conditioning gradient] [--tasks 3000] [--seeds 3] [--until 0.98] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from csn.config import Config, load_preset, merge
from csn.data.registry import load_data
from csn.data.source import Dataset, EpisodeSource
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED, evaluate
from csn.engine.origin import origin
from csn.engine.run import VALIDATION_QUERIES
from csn.experiments.records.files import json_bytes
from csn.experiments.records.statistics import over_seeds
from short_training import trained

TWO, SHARED, PROTOTYPICAL = "two stems", "shared stem", "prototypical"
ARMS = (TWO, SHARED, PROTOTYPICAL)
VALIDATIONS, VALIDATION_TASKS, LAST_TASKS = 20, 200, 1000  # of a training, of each but the last, of the last
SUFFIX = {"df": "", "gradient": "-gradient"}  # of the result file
MARGIN = 0.005  # in which accuracies are level


def config_of(arm: str, seed: int, options: argparse.Namespace) -> Config:
    """Recipe plus, at its 20 ways."""
    preset = arm if arm == PROTOTYPICAL else f"adacnn-{options.conditioning}"
    train = {"seed": seed, "tasks": options.tasks, "validation_tasks": VALIDATION_TASKS}
    train |= {"validate_every": max(1, options.tasks // VALIDATIONS)}
    config = merge(load_preset(preset, "plus"), {"data": {"shot": 1}, "train": train})
    return config if arm == PROTOTYPICAL else merge(config, {"network": {"shared_stem": arm == SHARED}})


def row_of(arm: str, seed: int, options: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """One training: its step, its validations, its accuracy at the end and its time to the wanted accuracy."""
    tasks = EpisodeSource(data, "val", way=5, shot=1, queries=VALIDATION_QUERIES, seed=EVALUATION_SEED)
    found = trained(config_of(arm, seed, options), data, tasks)
    return {
        "arm": arm,
        "seed": seed,
        "step_ms": round(found.step_ms, 1),
        "validations": found.validations,
        "last": round(statistics.fmean(evaluate(found.learner, tasks, LAST_TASKS)), 5),
        "seconds_to": found.seconds_to(options.until),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the seeds say together. Pairs of equal seeds have equal tasks."""

    def column(arm: str, name: str) -> list[Any]:
        return [row[name] for row in sorted(rows, key=lambda row: row["seed"]) if row["arm"] == arm]

    pairs = zip(column(SHARED, "last"), column(TWO, "last"), strict=True)
    difference = over_seeds([shared - two for shared, two in pairs])
    made: dict[str, Any] = {"arms": {}}
    for arm in ARMS:
        times = list(zip(column(arm, "seconds_to"), column(PROTOTYPICAL, "seconds_to"), strict=True))
        reached = all(one is not None and other is not None for one, other in times)
        made["arms"][arm] = {
            "step_ms": statistics.median(column(arm, "step_ms")),
            "last": round(statistics.fmean(column(arm, "last")), 5),
            "time_of_prototypical": [round(one / other, 2) for one, other in times] if reached else None,
        }
    if difference is not None:
        made["difference"] = round(difference.mean, 5)
        made["interval"] = round(difference.interval, 5)
        made["verdict"] = difference.verdict(MARGIN)
    return made


def table_of(rows: list[dict[str, Any]], found: dict[str, Any], until: float) -> Table:
    """One line for each network."""
    verdict = found.get("verdict") or "not decided"
    title = f"sharing: {100 * found['difference']:+.2f} points, {verdict}" if "difference" in found else "one seed"
    columns = ("network", "at the end, by seed", "step, ms", f"seconds to {100 * until:g} %", "x Prototypical")
    table = Table(*columns, title=title)
    for arm, about in found["arms"].items():
        mine = [row for row in rows if row["arm"] == arm]
        ends = ", ".join(f"{100 * row['last']:.2f}" for row in mine)
        times = ", ".join(str(row["seconds_to"]) for row in mine)
        table.add_row(arm, ends, f"{about['step_ms']:.1f}", times, str(about["time_of_prototypical"]))
    return table


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conditioning", choices=("df", "gradient"), default="df", help="default: %(default)s")
    parser.add_argument("--tasks", type=int, default=3000, help="tasks of a training (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--until", type=float, default=0.98, help="the accuracy to time (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="default: results/benchmarks/shared-stem.json, or -gradient.json")
    options = parser.parse_args()
    options.out = options.out or Path(f"results/benchmarks/shared-stem{SUFFIX[options.conditioning]}.json")
    torch.set_num_threads(1)
    data = load_data("omniglot")
    command = f"python benchmarks/shared_stem.py --conditioning {options.conditioning} --tasks {options.tasks}"
    made = {"tasks": options.tasks, "until": options.until, **origin(command)}
    rows: list[dict[str, Any]] = []
    if options.out.exists():
        before = json.loads(options.out.read_text())
        rows = before["rows"] if all(before.get(name) == made[name] for name in ("tasks", "until", "commit")) else []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for arm in ARMS:
            if any((row["arm"], row["seed"]) == (arm, seed) for row in rows):
                continue
            rows.append(row_of(arm, seed, options, data))
            write_atomically(options.out, json_bytes({"rows": rows, **made}))
    found = summary(rows)
    Console().print(table_of(rows, found, options.until))
    write_atomically(options.out, json_bytes({**found, "rows": rows, **made}))


if __name__ == "__main__":
    main()
