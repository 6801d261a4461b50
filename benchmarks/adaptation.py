"""Ways to adapt one network to a task: fine-tuning, LoRA, a prompt, and conditionally shifted neurons by `csn.graft`.

    python benchmarks/adaptation.py                     # results/shifts/adaptation.json
    python benchmarks/adaptation.py --tasks 10 --pretrain 5 --meta 5 --out /tmp/adaptation.json

A small vision transformer learns to classify the training characters of csn's strokes and is frozen. Each way then
learns tasks of unseen characters. The ways that use gradient descent run Adam on the support for 20 steps, with a new
output layer that starts at 0 and the rate that was best on validation tasks. The grafted network first trains f's
temperature, g and its output layer on tasks of the training characters. After that it takes no gradient steps. Its keys
are the features that the frozen network passes to its output layer. A task's time includes learning it and answering 15
queries, one task at a time in one thread.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import csn
from csn.data.source import as_input
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import summarise
from csn.engine.origin import origin
from csn.episode import Episode
from csn.experiments.records.files import json_bytes

WAY, QUERIES, WIDTH, PATCH, DEPTH = 5, 3, 48, 7, 3
RANK, TOKENS = 4, 4
GRID = tuple(itertools.product((1e-3, 5e-3, 2e-2), (20,)))  # rates and steps


class Block(nn.Module):
    """Pre-norm attention and a GELU perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.act, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, tokens, WIDTH) -> the same."""
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(self.act(self.up(self.norm2(x))))


class ViT(nn.Module):
    """A vision transformer for 28 x 28 ink. `prompt` tokens can be added to those of the image."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (28 // PATCH) ** 2 + 1, WIDTH))
        self.prompt = nn.Parameter(torch.zeros(1, 0, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.feature = nn.LayerNorm(WIDTH), nn.Identity()
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, 1, 28, 28) -> (examples, classes)."""
        h = self.patches(x).flatten(2).mT
        h = torch.cat([self.token.expand(len(h), -1, -1), h], dim=1) + self.positions
        h = torch.cat([h, self.prompt.expand(len(h), -1, -1)], dim=1)
        for block in self.blocks:
            h = block(h)
        return self.head(self.feature(self.norm(h)[:, 0]))


class LoRA(nn.Module):
    """W x + B A x of rank RANK, where W does not change (Hu et al., 2021)."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.a = nn.Parameter(torch.randn(RANK, linear.in_features) / linear.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        return self.linear(x) + x @ self.a.T @ self.b.T


def prepared(backbone: ViT, way: str) -> ViT:
    """A copy of the backbone with a new output layer, in which the parameters of a way of adapting can be trained."""
    network = copy.deepcopy(backbone).requires_grad_(way == "full fine-tuning")
    network.head = nn.Linear(WIDTH, WAY)
    nn.init.zeros_(network.head.weight)
    nn.init.zeros_(network.head.bias)
    if way == "LoRA":
        for block in network.blocks:
            block.up, block.down = LoRA(block.up), LoRA(block.down)  # type: ignore[assignment]
    if way == "prompt":
        network.prompt = nn.Parameter(0.02 * torch.randn(1, TOKENS, WIDTH))
    return network


def descended(backbone: ViT, way: str, rate: float, steps: int, episode: Episode) -> Tensor:
    """Logits of the queries after descending on the support."""
    network = prepared(backbone, way)
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=rate)
    x, y = episode.support.x[0], episode.support.y[0]
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        return network(episode.query.x[0])


class Measured(NamedTuple):
    """The accuracy and the seconds of each task."""

    accuracies: list[float]
    seconds: float


def measured(answer: Callable[[Episode], Tensor], source: csn.EpisodeSource, tasks: int) -> Measured:
    """One task at a time."""
    accuracies, started = [], 0.0
    for index in range(-1, tasks):  # the first one is a warm-up
        if index == 0:
            started, accuracies = time.process_time(), []
        episode = source.batch(max(index, 0), 1)
        accuracies.append(float((answer(episode).argmax(-1) == episode.query.y[0]).float().mean()))
    return Measured(accuracies, (time.process_time() - started) / tasks)


def clock(seconds: float) -> Iterator[float]:
    """Yield the elapsed fraction of a CPU time until the time is over."""
    started = time.process_time()
    while (part := (time.process_time() - started) / seconds) < 1:
        yield part


def pretrained(data: Any, seconds: float) -> ViT:
    """The backbone as a classifier of all training classes."""
    classes = data.splits["train"]
    labels = torch.from_numpy(np.repeat(np.arange(len(classes)), classes.counts))
    torch.manual_seed(0)
    network = ViT(len(classes))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, fused=True)
    for part in clock(seconds):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - part)
        rows = torch.randint(len(labels), (128,))
        optimizer.zero_grad()
        F.cross_entropy(network(as_input(classes.x[rows])), labels[rows]).backward()
        optimizer.step()
    return network.requires_grad_(False).eval()


def grafted(backbone: ViT, source: csn.EpisodeSource, conditioning: str, seconds: float) -> csn.CSN:
    """Conditionally shifted neurons in the frozen backbone."""
    torch.manual_seed(0)
    network = prepared(backbone, "head alone")
    learner = csn.graft(
        network,
        layers=["blocks.*.act", "head"],
        way=WAY,
        key="feature",
        reads=(1, 28, 28),
        conditioning=conditioning,
        temperature=10.0,
    )
    optimizer = torch.optim.Adam([p for p in learner.parameters() if p.requires_grad], lr=3e-3)
    index = 0
    for part in clock(seconds):
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - part)
        optimizer.zero_grad()
        learner(source.batch(index, 4)).loss.backward()
        optimizer.step()
        index += 4
    return learner.eval()


def rows_of(data: Any, shot: int, backbone: ViT, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every way of adapting at this number of shots."""
    train, val, test = (
        csn.EpisodeSource(data, split, way=WAY, shot=shot, queries=QUERIES, seed=2018)
        for split in ("train", "val", "test")
    )
    rows = []

    def add(way: str, answer: Callable[[Episode], Tensor], **about: Any) -> None:
        found = measured(answer, test, options.tasks)
        accuracy, interval = summarise(found.accuracies)
        rows.append({"shot": shot, "way": way, "accuracy": accuracy, "interval": interval} | about)
        rows[-1]["milliseconds"] = round(1000 * found.seconds, 2)

    for way in ("head alone", "full fine-tuning", "LoRA", "prompt"):

        def score(pair: tuple[float, int], way: str = way) -> float:
            answer = lambda episode: descended(backbone, way, *pair, episode)  # noqa: E731
            return sum(measured(answer, val, options.tasks // 4).accuracies)

        rate, steps = max(GRID, key=score)
        add(way, lambda e, w=way, r=rate, s=steps: descended(backbone, w, r, s, e), rate=rate, steps=steps)
    for conditioning in ("df", "gradient"):
        learner = grafted(backbone, train, conditioning, options.meta)

        def answer(episode: Episode, learner: csn.CSN = learner) -> Tensor:
            with torch.inference_mode():
                return learner.predict(episode.query.x, learner.describe(episode.support, WAY))[0]

        add(f"csn.graft, {conditioning}", answer, meta_seconds=options.meta)
    return rows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100, help="tasks of a test (default: %(default)s)")
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 5], help="default: 1 5")
    parser.add_argument("--pretrain", type=float, default=60.0, help="seconds (default: %(default)s)")
    parser.add_argument("--meta", type=float, default=30.0, help="seconds of training on tasks (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/shifts/adaptation.json"), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = csn.load_data("strokes")
    backbone = pretrained(data, options.pretrain)
    rows = [row for shot in options.shots for row in rows_of(data, shot, backbone, options)]
    shown = Table("tasks", "way", "accuracy, %", "ms a task", "rate, steps")
    for row in rows:
        accuracy = f"{100 * row['accuracy']:.1f} ± {100 * row['interval']:.1f}"
        chosen = f"{row['rate']:g}, {row['steps']}" if "rate" in row else ""
        shown.add_row(f"5-way {row['shot']}-shot", row["way"], accuracy, f"{row['milliseconds']:.1f}", chosen)
    Console().print(shown)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    made = {"rows": rows, "pretrain_seconds": options.pretrain} | origin("python benchmarks/adaptation.py")
    write_atomically(options.out, json_bytes(made))


if __name__ == "__main__":
    main()
