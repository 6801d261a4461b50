"""What adaptation costs: time per step of a CSN as a ratio to the same two networks without adaptation.

The floor is the base learner and the key function over the same support and queries, one call each, forward and (in
training) backward with an Adam step, with nothing in between: no information, no memory, no attention, no shifts.
For adaLSTM the floor has torch's own `nn.LSTM` in place of ours: one pass over the support, one over the queries, each
sentence once. All sentences fill the window, so that ours, which skips padding, has none to skip.
adaResNet is measured in full (84 x 84, width 1) and at a quarter of its width on 64 x 64, its size for a CPU. Peak
memory is that of a fresh process that takes two steps, in MB.
Contenders take turns within one process, repeat after repeat, and the median of the per-repeat ratios is shown with its
quartiles, so that whatever else the machine does hits all of them alike.

    python benchmarks/overhead.py [--threads N] [--repeats N] [--only 5w1s | adalstm-1 | adaresnet | ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from csn.building import build_learner
from csn.config import Config, load_preset, merge
from csn.core.model import CSN
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.origin import origin
from csn.episode import Episode
from csn.experiments.timing.floor import (
    Floor,
    SentenceFloor,
    inference_step,
    randomise_output,
    ratios,
    training_step,
)
from csn.learner import InputSpec
from random_tasks import IMAGE, QUERIES, VOCABULARY, WORDS, peak_of, random_episode, random_sentences

SETTINGS = {"5w1s": (5, 1), "5w5s": (5, 5), "20w1s": (20, 1), "20w5s": (20, 5)}
SENTENCES = {"adalstm-1": 1, "adalstm-2": 2}  # layers
RESNETS = {"adaresnet": (1.0, 84), "adaresnet-small": (0.25, 64)}  # width, side
# What is measured, and of which preset: `paper` follows the error of direct feedback to its end, `plus` does not.
KINDS = {"df": ("df", "detached"), "df-end-to-end": ("df", "end-to-end"), "gradient": ("gradient", "detached")}


def contenders(name: str) -> tuple[dict[str, nn.Module], Episode]:
    """The floor, then every kind of conditioning, and what they are to do."""
    torch.manual_seed(0)
    if name in SENTENCES:
        way, shot = SETTINGS["5w1s"]
        models = {kind: build_learner(_preset(name, kind), InputSpec((WORDS,), VOCABULARY)) for kind in KINDS}
        return {"floor": SentenceFloor(models["df"]), **_awake(models)}, random_sentences(way, shot)
    if name in RESNETS:
        (way, shot), (width, side) = SETTINGS["5w1s"], RESNETS[name]
        image = (3, side, side)
        wide = {"network": {"width": width}}
        models = {kind: build_learner(merge(_preset("adaresnet", kind), wide), InputSpec(image)) for kind in KINDS}
        return {"floor": Floor(models["df"]), **_awake(models)}, random_episode(way, shot, image)
    way, shot = SETTINGS[name]
    models = {kind: build_learner(_preset("adacnn", kind, way), InputSpec(IMAGE)) for kind in KINDS}
    return {"floor": Floor(models["df"]), **_awake(models)}, random_episode(way, shot)


def _preset(name: str, kind: str, way: int = 5) -> Config:
    conditioning, feedback = KINDS[kind]
    own = {"data": {"way": way}, "learner": {"feedback": feedback}}
    return merge(load_preset(f"{name}-{conditioning}"), own)


def _awake(models: dict[str, CSN]) -> dict[str, CSN]:
    for model in models.values():
        randomise_output(model)
    return models


PHASES = {"train": training_step, "inference": inference_step}


def peak_memory(name: str, phase: str, kind: str, threads: int) -> int:
    """MB that a process of its own needs at most for two steps; measured there, so that nothing else counts."""
    arguments = [sys.executable, __file__, "--peak", name, phase, kind, "--threads", str(threads)]
    return int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def print_peak(name: str, phase: str, kind: str) -> None:
    """What `peak_memory` runs in the other process."""
    learners, episode = contenders(name)
    print(peak_of(PHASES[phase](learners[kind], episode)).process)


def main() -> None:
    """Measure and print one table."""
    names = [*SETTINGS, *SENTENCES, *RESNETS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=21, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=names, help="some settings instead of all")
    parser.add_argument("--out", type=Path, help="result file (JSON)")
    parser.add_argument("--peak", nargs=3, metavar=("TASKS", "PHASE", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    if options.peak:
        print_peak(*options.peak)
        return

    columns = ("direct feedback", "direct feedback, end to end", "error gradient")
    title = "time per step, x the floor"
    table = Table("tasks", "phase", "floor, ms", *columns, "peak MB: floor and these", title=title)
    rows = []
    for name in options.only or names:
        learners, episode = contenders(name)
        for phase, make in PHASES.items():
            steps = {kind: make(learner, episode) for kind, learner in learners.items()}
            measured = ratios(steps, options.repeats)
            started = time.perf_counter()
            steps["floor"]()
            floor_ms = 1000 * (time.perf_counter() - started)
            row = {"tasks": name, "phase": phase, "floor_ms": round(floor_ms, 1)}
            for kind in KINDS:
                quartiles = statistics.quantiles(measured[kind], n=4)
                row[kind] = [round(quartile, 3) for quartile in quartiles]
            row["peak_mb"] = {kind: peak_memory(name, phase, kind, options.threads) for kind in learners}
            rows.append(row)
            table.add_row(
                name,
                phase,
                f"{floor_ms:.1f}",
                *(f"{row[kind][1]:.2f} ({row[kind][0]:.2f} - {row[kind][2]:.2f})" for kind in KINDS),
                ", ".join(map(str, row["peak_mb"].values())),
            )
    Console().print(table)
    if options.out:
        content = {
            "rows": rows,
            "queries_per_class": QUERIES,
            "repeats": options.repeats,
            **origin("python benchmarks/overhead.py"),
        }
        write_atomically(options.out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
