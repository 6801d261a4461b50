"""The cost of adaptation: time per step of a CSN as a ratio to the same two networks without adaptation.

The floor is the base learner and the key function over the same support and queries, one call each, forward and (in
training) backward with an Adam step, with nothing in between: no information, no memory, no attention, no shifts.
Detached feedback needs no gradient of the support through the base learner. The least floor leaves that gradient out,
so a ratio to it is stricter. For adaLSTM, the floors use torch's own `nn.LSTM` instead of ours: one pass over the
support and one over the queries. All sentences fill the window, so our LSTM, which skips padding, gains nothing. The
machine's limit is the time of the floor's convolutions and matrix products alone, forward and backward, without loss,
activations and optimizer.

adaResNet is measured in full (84 x 84, width 1) and at its size for a CPU (64 x 64, width 1/4). Peak memory, in MB, is
that of a fresh process that takes two steps. Contenders take turns within one process, so other work on the machine
affects all of them alike. The table shows the median of the per-repeat ratios with quartiles. --clock cpu counts
processor time instead of wall time, for a machine with other work. Rows that the file has already from the same commit
stay there, so that a table can be measured in parts.

    python benchmarks/overhead.py [--threads N] [--repeats N] [--only 5w1s | adalstm-1 | adaresnet | ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from csn.building import build_learner
from csn.config import Config, load_preset, merge
from csn.core.model import CSN
from csn.core.shortcuts.products import chosen
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.origin import origin
from csn.engine.steps import Step, inference_step, over, step_times, training_step
from csn.episode import Episode
from csn.experiments.records.files import json_bytes
from csn.experiments.timing.floor import Floor, SentenceFloor, floor_of, randomise_output
from csn.learner import EpisodeOutput, InputSpec
from random_tasks import IMAGE, QUERIES, VOCABULARY, WORDS, peak_of, random_episode, random_sentences

SETTINGS = {"5w1s": (5, 1), "5w5s": (5, 5), "20w1s": (20, 1), "20w5s": (20, 5)}
SENTENCES = ("adalstm-1", "adalstm-2")
RESNETS = {"adaresnet": (1.0, 84), "adaresnet-small": (0.25, 64)}  # width, side
# The measurements and their presets. `paper` trains the error of direct feedback end to end, `plus` detaches it.
KINDS = {"df": ("df", "detached"), "df-end-to-end": ("df", "end-to-end"), "gradient": ("gradient", None)}
# The columns: numerator, denominator and title of each ratio.
COLUMNS = {
    "df": ("df", "floor", "direct feedback"),
    "df-least": ("df", "least", "direct feedback, x the least floor"),
    "df-end-to-end": ("df-end-to-end", "floor", "direct feedback, end to end"),
    "gradient": ("gradient", "floor", "error gradient"),
    "gradient-least": ("gradient", "least", "error gradient, x the least floor"),
    "limit": ("limit", "floor", "the machine's limit"),
}
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


class LeastFloor(nn.Module):
    """A floor without the gradient of the support through the base learner."""

    def __init__(self, floor: Floor | SentenceFloor) -> None:
        super().__init__()
        self.floor = floor

    def forward(self, episode: Episode) -> EpisodeOutput:
        """The floor's step. The base learner runs on the support without a graph."""
        support, query = episode.support.x.flatten(0, 1), episode.query.x.flatten(0, 1)
        keys = self.floor.key_function(torch.cat([support, query]))
        with torch.no_grad():
            self._logits(support)
        logits = self._logits(query)
        loss = F.cross_entropy(logits, episode.query.y.flatten()) + keys.square().mean()
        return EpisodeOutput(loss, logits.unflatten(0, episode.query.y.shape))

    def _logits(self, x: Tensor) -> Tensor:
        if isinstance(self.floor, Floor):
            return self.floor.base(x).logits
        states, _ = self.floor.lstm(self.floor.embedding(x))
        return self.floor.output(states[:, -1])


def limit_step(floor: nn.Module, episode: Episode, *, backward: bool) -> Step:
    """The floor's convolutions and products, each by itself on its inputs in a step."""
    calls: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda module, inputs, _: calls.append((module, inputs[0].detach())))
        for module in floor.modules()
        if isinstance(module, nn.Conv2d | nn.Linear | nn.LSTM)
    ]
    with torch.no_grad():
        floor(episode)
    for hook in hooks:
        hook.remove()
    first = {id(x) for _, x in calls if x.shape[1:] == episode.query.x.shape[2:]}  # images need no gradient

    def step() -> Tensor:
        with torch.set_grad_enabled(backward):
            for module, x in calls:
                read = x.detach().requires_grad_(backward and id(x) not in first)
                output = module(read)
                output = output[0] if isinstance(output, tuple) else output
                if backward:
                    output.backward(output.detach())
        floor.zero_grad()
        return output

    return step


def contenders(name: str) -> tuple[dict[str, nn.Module], Episode]:
    """Both floors, then every kind of conditioning, each with its step."""
    torch.manual_seed(0)
    way, shot = SETTINGS.get(name, SETTINGS["5w1s"])
    if name in SENTENCES:
        spec, episode = InputSpec((WORDS,), VOCABULARY), random_sentences(way, shot)
    else:
        image = (3, *(RESNETS[name][1],) * 2) if name in RESNETS else IMAGE
        spec, episode = InputSpec(image), random_episode(way, shot, image)
    models: dict[str, nn.Module] = {}
    for kind in KINDS:
        learner = build_learner(_config(name, kind, way), spec)
        assert isinstance(learner, CSN)
        randomise_output(learner)
        models[kind] = learner
    assert isinstance(models["df"], CSN)
    floor = floor_of(models["df"])
    return {"floor": floor, "least": LeastFloor(floor), **models}, episode


def _config(name: str, kind: str, way: int) -> Config:
    conditioning, feedback = KINDS[kind]
    base = "adaresnet" if name in RESNETS else name if name in SENTENCES else "adacnn"
    changes: dict[str, Any] = {"data": {"way": way}}
    if feedback:
        changes["learner"] = {"feedback": feedback}
    if name in RESNETS:
        changes["network"] = {"width": RESNETS[name][0]}
    return merge(load_preset(f"{base}-{conditioning}"), changes)


PHASES = {"train": training_step, "inference": inference_step}


def measured(name: str, phase: str, repeats: int, clock: Clock, seconds: float) -> dict[str, Any]:
    """A row: quartiles of the ratios within each repeat."""
    learners, episode = contenders(name)
    steps = {kind: PHASES[phase](learner, episode) for kind, learner in learners.items()}
    steps["limit"] = limit_step(learners["floor"], episode, backward=phase == "train")
    times = step_times(steps, repeats, seconds, clock)
    row: dict[str, Any] = {"tasks": name, "phase": phase}
    row["floor_ms"] = round(1000 * statistics.median(times["floor"]), 1)
    for column, (what, to, _) in COLUMNS.items():
        ratios = over(times[what], times[to])
        row[column] = [round(quartile, 3) for quartile in statistics.quantiles(ratios, n=4)]
    return row


def peak_memory(name: str, phase: str, kind: str, threads: int) -> int:
    """Peak memory in MB for two steps, measured in a separate process so that nothing else counts."""
    arguments = [sys.executable, __file__, "--peak", name, phase, kind, "--threads", str(threads)]
    return int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def blas() -> str:
    """The libraries that multiply matrices: torch's, and csn's choice."""
    library = next((name for name in ("mkl", "openblas", "accelerate") if name in torch.__config__.show().lower()), "?")
    return f"{library}; csn multiplies by {chosen()}"


def joined(out: Path, rows: list[dict[str, Any]], made: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """These rows with those of a file that was made alike by other commands, in the order of the settings."""
    before = json.loads(out.read_text()) if out.exists() else {}
    if all(before.get(key) == made[key] for key in ("commit", "repeats", "clock", "blas", "machine")):
        measured = {row["tasks"] for row in rows}
        rows = [*(row for row in before["rows"] if row["tasks"] not in measured), *rows]
        made |= {"command": f"{before['command']}; {made['command']}"}
    return {"rows": sorted(rows, key=lambda row: names.index(row["tasks"])), **made}


def main() -> None:
    """Measure and print one table."""
    names = [*SETTINGS, *SENTENCES, *RESNETS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=21, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.15, help="per contender and repeat (default: %(default)s)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="the clock that counts (default: %(default)s)")
    parser.add_argument("--no-memory", action="store_true", help="leave out the peak memory")
    parser.add_argument("--only", nargs="+", choices=names, help="some settings instead of all")
    parser.add_argument("--out", type=Path, help="result file (JSON)")
    parser.add_argument("--peak", nargs=3, metavar=("TASKS", "PHASE", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    if options.peak:
        name, phase, kind = options.peak
        learners, episode = contenders(name)
        print(peak_of(PHASES[phase](learners[kind], episode)).process)
        return

    made = {**origin("python benchmarks/overhead.py"), "blas": blas()}
    title = f"time per step, x the floor; {made['machine']['cpu']}, {options.threads} thread(s), {made['blas']}"
    table = Table("tasks", "phase", "floor, ms", *(name for *_, name in COLUMNS.values()), "peak MB", title=title)
    rows = []
    for name in options.only or names:
        for phase in PHASES:
            row = measured(name, phase, options.repeats, CLOCKS[options.clock], options.seconds)
            if not options.no_memory:
                row["peak_mb"] = {kind: peak_memory(name, phase, kind, options.threads) for kind in ("floor", *KINDS)}
            rows.append(row)
            ratios = (f"{row[kind][1]:.2f} ({row[kind][0]:.2f} - {row[kind][2]:.2f})" for kind in COLUMNS)
            peak = ", ".join(map(str, row.get("peak_mb", {}).values()))
            table.add_row(name, phase, f"{row['floor_ms']:.1f}", *ratios, peak)
    Console().print(table)
    if options.out:
        made |= {"queries_per_class": QUERIES, "repeats": options.repeats, "clock": options.clock}
        write_atomically(options.out, json_bytes(joined(options.out, rows, made, names)))


if __name__ == "__main__":
    main()
