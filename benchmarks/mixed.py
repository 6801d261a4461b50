"""Compare loss curves of training in bfloat16 (autocast) and in float32, with equal seeds, tasks and initial weights.

Each training is `csn train` of a recipe on Omniglot with either value of `train.precision`, in turns seed by seed. A
curve holds the mean loss of each stretch of tasks. The difference between the precisions is taken by seed over the last
third of the tasks, and compared with the spread over seeds. Time is the processor time of training steps.

    python benchmarks/mixed.py [--presets adacnn-df ...] [--recipe paper] [--tasks 2000] [--seeds 3] [--out FILE]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from csn.config import load_preset, merge
from csn.data.registry import load_data
from csn.data.source import Dataset
from csn.engine.checkpoint import write_atomically
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes
from short_training import trained

STRETCHES = 20  # points of a curve
PRECISIONS = ("fp32", "bf16-mixed")


def row_of(preset: str, precision: str, seed: int, options: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """One training: its curve, its validation at the end, and its time."""
    train = {"precision": precision, "seed": seed, "tasks": options.tasks, "validation_tasks": 100}
    config = merge(load_preset(preset, options.recipe), {"train": train | {"validate_every": options.tasks}})
    found = trained(config, data)
    losses, size = found.losses, max(1, len(found.losses) // STRETCHES)
    return {
        "preset": preset,
        "recipe": options.recipe,
        "precision": precision,
        "seed": seed,
        "curve": [round(statistics.fmean(losses[i : i + size]), 4) for i in range(0, len(losses), size)],
        "late": round(statistics.fmean(losses[-(len(losses) // 3) :]), 4),
        "validation": found.validations[-1][2],
        "step_ms": round(found.step_ms, 2),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The late losses and times of both precisions for one preset, and the differences of pairs and seeds."""
    late = {p: [row["late"] for row in rows if row["precision"] == p] for p in PRECISIONS}
    times = {p: statistics.median(row["step_ms"] for row in rows if row["precision"] == p) for p in PRECISIONS}
    differences = [mixed - plain for plain, mixed in zip(*late.values(), strict=True)]
    return {
        "preset": rows[0]["preset"],
        "recipe": rows[0]["recipe"],
        "late": {p: round(statistics.fmean(losses), 4) for p, losses in late.items()},
        "difference": round(statistics.fmean(differences), 4),
        "differences": [round(difference, 4) for difference in differences],
        "seeds_differ_by": round(statistics.stdev(late["fp32"]), 4),
        "faster": round(times["fp32"] / times["bf16-mixed"], 2),
    }


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["adacnn-df", "adacnn-gradient"], help="default: %(default)s")
    parser.add_argument("--recipe", default="paper", help="default: %(default)s")
    parser.add_argument("--tasks", type=int, default=2000, help="tasks of a training (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/mixed.json"), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data("omniglot")
    rows = [
        row_of(preset, precision, seed, options, data)
        for preset in options.presets
        for seed in range(options.seeds)
        for precision in PRECISIONS
    ]
    summaries = [summary([row for row in rows if row["preset"] == preset]) for preset in options.presets]
    table = Table("preset", "late loss, fp32", "bf16-mixed", "difference by seed", "spread of seeds", "x as fast")
    for found in summaries:
        differences = ", ".join(f"{difference:+.4f}" for difference in found["differences"])
        cells = (*(f"{found['late'][p]:.4f}" for p in PRECISIONS), differences, f"{found['seeds_differ_by']:.4f}")
        table.add_row(found["preset"], *cells, f"{found['faster']:.2f}")
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    made = {"summaries": summaries, "rows": rows, "tasks": options.tasks, **origin("python benchmarks/mixed.py")}
    write_atomically(options.out, json_bytes(made))


if __name__ == "__main__":
    main()
