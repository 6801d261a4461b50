"""The speed-up of training with more processes, measured on this machine and modelled for larger ones.

    python benchmarks/scaling.py           # measure, model and write the result file
    python benchmarks/scaling.py --page    # only write its tables into docs/distributed.md

Measured: the steps of one process with several threads, and of as many processes with one thread each, in turns. Each
is measured in wall time and in processor time. On idle cores, wall time would equal processor time plus the time in
which ranks wait for each other.

Modelled: a step of N processes takes the measured processor time of its tasks, plus the time in which a ring adds up
the gradients over a link of published speed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from csn.building import build_learner
from csn.config import load_preset, merge
from csn.data.registry import load_data
from csn.data.source import EpisodeSource
from csn.engine.checkpoint import write_atomically
from csn.engine.distributed import connected
from csn.engine.origin import origin
from csn.engine.train import Trainer
from csn.experiments.records.files import json_bytes

PRESET, WARM_UP = "adacnn-df", 2
# Bytes a second in one direction, and seconds until the first one arrives.
LINKS = {
    "NVLink 4 (450 GB/s)": (450e9, 3e-6),
    "InfiniBand NDR (50 GB/s)": (50e9, 3e-6),
    "Ethernet, 100 Gb/s": (12.5e9, 30e-6),
    "Ethernet, 10 Gb/s": (1.25e9, 50e-6),
}
CLUSTERS = (("8 GPUs of a machine", 8, "NVLink 4 (450 GB/s)"), ("64 nodes", 64, "InfiniBand NDR (50 GB/s)"))
CLUSTERS += (("64 nodes", 64, "Ethernet, 10 Gb/s"),)
PAGE = Path(__file__).parents[1] / "docs" / "distributed.md"
BEGIN, END = "<!-- tables of benchmarks/scaling.py -->\n", "<!-- end -->"
# The median of wall times, but the least processor time, because other work on a core can only add to it.
TYPICAL = {"seconds": statistics.median, "processor": min}
FASTER = (1, 100)  # times a core of this machine: a core, and the assumed speed of a GPU


def steps(tasks: int, count: int, threads: int, norm: str) -> dict[str, Any]:
    """Wall and processor seconds of each step of this rank, and the bytes of its gradients."""
    torch.set_num_threads(threads)
    with connected() as ranks, tempfile.TemporaryDirectory() as scratch:
        config = load_preset(PRESET, "plus")
        config = merge(config, {"data": {"name": "strokes", "way": 5, "shot": 1, "queries": 5}})
        config = merge(config, {"network": {"norm": norm}})
        config = merge(config, {"train": {"tasks_per_step": tasks, "tasks": 10**6}})
        data = load_data("strokes")
        sources = [EpisodeSource(data, split, way=5, shot=1, queries=5, seed=0) for split in ("train", "val")]
        torch.manual_seed(0)
        trainer = Trainer(build_learner(config, data.input_spec), config.train, *sources, Path(scratch))
        trainer.ranks = ranks
        trainer.learner.train()
        seconds, processor = [], []
        for _ in range(WARM_UP + count):
            started, busy = time.perf_counter(), time.process_time()
            trainer._agreed(trainer._step(), lambda: False, False)
            seconds.append(time.perf_counter() - started)
            processor.append(time.process_time() - busy)
        size = sum(p.numel() * p.element_size() for p in trainer.learner.parameters() if p.requires_grad)
        return {"seconds": seconds[WARM_UP:], "processor": processor[WARM_UP:], "bytes": size}


def measured(norm: str, world: int, threads: int, tasks: int, count: int) -> dict[str, Any]:
    """The measurement of rank 0 in a fresh group of processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if world > 1:
        shared |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    program = [sys.executable, __file__, "--measure", norm, str(tasks), str(count), str(threads)]
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} if world > 1 else {} for rank in range(world)]
    processes = [subprocess.Popen(program, env={**shared, **rank}, stdout=subprocess.PIPE) for rank in ranks]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"{world} processes failed")
    return json.loads(said[0])


def modelled(fixed: float, each: float, size: float, link: tuple[float, float], world: int, tasks: int) -> float:
    """Seconds of a step: the largest share's tasks, and a ring that passes the gradients on 2 (N - 1) times."""
    speed, latency = link
    return fixed + each * -(-tasks // world) + 2 * (world - 1) * (size / world / speed + latency)


def measurements(repeats: int, count: int) -> dict[str, Any]:
    """Wall and processor seconds of a step. The arrangements take turns."""
    plain = ((1, 1, 8), (2, 1, 8), (1, 1, 32), (2, 1, 32))
    arrangements = [("batch", *one) for one in (*plain, (1, 2, 8), (4, 1, 8), (1, 1, 1))]
    arrangements += [("group", *one) for one in plain]
    taken: dict[tuple[str, int, int, int], dict[str, list[float]]]
    taken = {arrangement: {"seconds": [], "processor": []} for arrangement in arrangements}
    size = 0
    for _ in range(repeats):
        for (norm, world, threads, tasks), found_so_far in taken.items():
            found = measured(norm, world, threads, tasks, max(4, 8 * count // tasks))
            for kind, all_of_them in found_so_far.items():
                all_of_them.append(TYPICAL[kind](found[kind]))
            size = found["bytes"]
    rows = [
        {"norm": norm, "processes": world, "threads": threads, "tasks": tasks}
        | {kind: TYPICAL[kind](values) for kind, values in found_so_far.items()}
        | {"all": found_so_far}
        for (norm, world, threads, tasks), found_so_far in taken.items()
    ]
    return {"rows": rows, "bytes": size}


def alone_in(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of one process with one thread, by the norm and the tasks of a step."""
    return {(row["norm"], row["tasks"]): row for row in rows if (row["processes"], row["threads"]) == (1, 1)}


def model(rows: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """The modelled speed-up over one process, for more tasks in a step and more processes than this machine has."""
    alone_with = {tasks: row["processor"] for (norm, tasks), row in alone_in(rows).items() if norm == "batch"}
    eight, one = alone_with[8], alone_with[1]
    each = (eight - one) / 7
    fixed = max(one - each, 0.0)
    found = []
    for faster in FASTER:
        for name, world, link in CLUSTERS:
            for tasks in (8, 64, 512):
                if tasks < world:
                    continue
                alone = fixed / faster + each / faster * tasks
                together = modelled(fixed / faster, each / faster, size, LINKS[link], world, tasks)
                case = {"cluster": name, "link": link, "faster": faster, "tasks": tasks}
                found.append({**case, "speed": alone / together})
    return found


def lines_of(content: dict[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """The cells of the measured table and of the modelled table, heads first."""
    alone = alone_in(content["rows"])
    heads = [
        "norm",
        "processes",
        "threads each",
        "tasks a step",
        "ms a step",
        "speed",
        "ms of each process's core",
        "speed",
    ]
    measured_lines = [heads]
    for row in content["rows"]:
        cells = [str(row[name]) for name in ("norm", "processes", "threads", "tasks")]
        base = alone[row["norm"], row["tasks"]]
        for kind in ("seconds", "processor"):
            cells += [f"{1000 * row[kind]:.0f}", f"{base[kind] / row[kind]:.2f}x"]
        measured_lines.append(cells)
    paper = [["cluster", "link", "a process is", "tasks a step", "speed (model)"]]
    for row in content["model"]:
        kind, speed = f"{row['faster']}x a core", f"{row['speed']:.1f}x"
        paper.append([row["cluster"], row["link"], kind, str(row["tasks"]), speed])
    return measured_lines, paper


def filled(page: str, content: dict[str, Any]) -> str:
    """The page with both tables."""
    tables = []
    for heads, *rows in lines_of(content):
        rule = ["---" if head in ("cluster", "link", "norm") else "---:" for head in heads]
        tables.append("\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)))
    new = f"{BEGIN}{tables[0]}\n\n{tables[1]}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: new, page, flags=re.DOTALL)


def main() -> None:
    """Measure, model, print, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/scaling.json"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--page", action="store_true", help="only write the tables into docs/distributed.md")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        norm, *numbers = options.measure
        print(json.dumps(steps(*map(int, numbers), norm)))
        return
    if options.page:
        content = json.loads(options.out.read_text(encoding="utf-8"))
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), content), encoding="utf-8")
        return
    load = os.getloadavg()[0]
    found = measurements(options.repeats, options.steps)
    content = {"origin": origin("benchmarks/scaling.py"), "load": load, **found}
    content |= {"model": model(found["rows"], found["bytes"]), "links": LINKS}
    console = Console()
    for heads, *rows in lines_of(content):
        table = Table(*heads, title=f"{PRESET} (plus), 5-way")
        for cells in rows:
            table.add_row(*cells)
        console.print(table)
    console.print(f"{found['bytes']:,} bytes of gradients a step; load of the machine at the start {load:.1f}")
    write_atomically(options.out, json_bytes(content))


if __name__ == "__main__":
    main()
