"""The cost of grafting: adaCNN rebuilt by `csn.graft` against csn's own adaCNN, in training and in inference.

    python benchmarks/graft.py
    python benchmarks/graft.py --repeats 5 --filters 16 --out /tmp/graft.json

Both learners have the same weights and take turns on the same tasks; a ratio is the median of the turns' ratios.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import csn
from csn.core.model import CSN
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.origin import origin
from csn.episode import Episode, Examples
from csn.experiments.records.files import json_bytes
from csn.networks.cnn import CNN, CNNKey, ConvStack, pool

IMAGE, WAY, QUERIES = (1, 28, 28), 5, 5


class PlainCNN(nn.Module):
    """adaCNN as the author of another project would write it, without csn."""

    def __init__(self, filters: int, way: int = WAY) -> None:
        super().__init__()
        self.lower = ConvStack(1, filters, 2)
        self.convolutions = nn.ModuleList(nn.Conv2d(filters, filters, 3, padding=1) for _ in range(3))
        self.activations = nn.ModuleList(nn.ReLU() for _ in range(3))
        self.output = nn.Linear(filters, way)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, 1, height, width) -> (examples, way)."""
        x = self.lower(x)
        for convolution, activation in zip(self.convolutions, self.activations, strict=True):
            x = pool(activation(convolution(x)))
        return self.output(x.flatten(1))


def pair(conditioning: str, filters: int) -> dict[str, Any]:
    """Both learners."""
    options = {"conditioning": conditioning, "temperature": 10.0}
    base, key = CNN(IMAGE, WAY, filters=filters), CNNKey(IMAGE, filters=filters)
    nn.init.normal_(base.output.weight, std=0.1)  # at 0, no gradient would reach the hidden layers
    own = csn.build("csn", reads=IMAGE, way=WAY, network=base, key=key, **options)
    network = PlainCNN(filters).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for theirs, ours in ((network.lower, base.lower), (network.convolutions, base.adapted)):
        theirs.load_state_dict(ours.state_dict())
    network.output.load_state_dict(base.output.state_dict())
    layers = ["activations.*", "output"]
    grafted = csn.graft(network, layers=layers, way=WAY, key=copy.deepcopy(key), stem="lower", reads=IMAGE, **options)
    grafted.memory_function.load_state_dict(own.memory_function.state_dict())
    return {"own": own, "grafted": grafted}


def training_step(learner: CSN, episode: Episode) -> None:
    """Forward and backward."""
    learner.zero_grad()
    learner(episode).loss.backward()


def inference_step(learner: CSN, episode: Episode) -> None:
    """Describe and predict."""
    with torch.inference_mode():
        learner.predict(episode.query.x, learner.describe(episode.support))


def ratio(learners: dict[str, CSN], step: Callable[[CSN, Episode], None], episode: Episode, repeats: int) -> float:
    """The median over turns of the grafted learner's time, divided by the time of csn's own."""
    ratios = []
    for turn in range(repeats + 3):
        times = {}
        for name in ("own", "grafted") if turn % 2 else ("grafted", "own"):
            started = time.process_time()
            for _ in range(3):
                step(learners[name], episode)
            times[name] = time.process_time() - started
        ratios.append(times["grafted"] / times["own"])
    return statistics.median(ratios[3:])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="turns (default: %(default)s)")
    parser.add_argument("--filters", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/graft.json"), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    shown, rows = Table("conditioning", "tasks", "training", "inference", title="grafted by built in"), []
    for conditioning in ("df", "gradient"):
        for shot in (1, 5):
            learners = pair(conditioning, options.filters)
            labels = [torch.arange(WAY).repeat_interleave(each)[None] for each in (shot, QUERIES)]
            episode = Episode(*(Examples(torch.rand(1, y.shape[1], *IMAGE), y) for y in labels), WAY)
            row = {
                step.__name__: round(ratio(learners, step, episode, options.repeats), 3)
                for step in (training_step, inference_step)
            }
            rows.append({"conditioning": conditioning, "shot": shot, **row})
            shown.add_row(conditioning, f"5-way {shot}-shot", *(f"{value:.2f}" for value in row.values()))
    Console().print(shown)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, json_bytes({"rows": rows} | origin("python benchmarks/graft.py")))


if __name__ == "__main__":
    main()
