"""Compare a stem shared by base learner and key function with two stems, and with a Prototypical Network.

All three are trained on Omniglot with recipe `plus` at 5 ways, in turns seed by seed, and validated during training.
Time is the processor time of training steps. It answers two questions. Is sharing level over the
seeds? How long does each take to reach an accuracy, as a multiple of the Prototypical Network's time?

    python benchmarks/shared_stem.py [--tasks 1500] [--seeds 3] [--until 0.9] [--out FILE]
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
from csn.engine.checkpoint import write_atomically
from csn.engine.origin import origin
from short_training import trained

ARMS = {"two stems": ("adacnn-df", False), "shared stem": ("adacnn-df", True), "prototypical": ("prototypical", False)}


def config_of(arm: str, seed: int, options: argparse.Namespace) -> Config:
    """Recipe plus, at 5 ways and one shot."""
    preset, shared = ARMS[arm]
    train = {"seed": seed, "tasks": options.tasks, "validation_tasks": 200}
    train |= {"validate_every": max(1, options.tasks // 10)}
    config = merge(load_preset(preset, "plus"), {"data": {"way": 5, "shot": 1}, "train": train})
    return merge(config, {"network": {"shared_stem": True}}) if shared else config


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1500, help="tasks of a training (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--until", type=float, default=0.9, help="the accuracy to time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/shared-stem.json"), help="a JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data("omniglot")
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for arm in ARMS:
            found = trained(config_of(arm, seed, options), data)
            row = {"arm": arm, "seed": seed, "step_ms": round(found.step_ms, 1), "validations": found.validations}
            rows.append(row | {"seconds_to": found.seconds_to(options.until)})
    table = Table("network", "validation at the end, by seed", "step, ms", f"seconds to {100 * options.until:g} %")
    for arm in ARMS:
        mine = [row for row in rows if row["arm"] == arm]
        ends = ", ".join(f"{100 * row['validations'][-1][2]:.1f}" for row in mine)
        step = f"{statistics.median(row['step_ms'] for row in mine):.1f}"
        table.add_row(arm, ends, step, ", ".join(str(row["seconds_to"]) for row in mine))
    Console().print(table)
    made = {"rows": rows, "until": options.until, **origin("python benchmarks/shared_stem.py")}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, (json.dumps(made, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
