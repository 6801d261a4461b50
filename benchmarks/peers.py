"""Compare csn with other libraries on the same work: MAML, Prototypical Networks and sampling of tasks.

All contenders have the same networks, tasks and steps, and take turns within one process. The table shows the median of
the per-repeat ratios to csn with quartiles. A ratio above 1 is slower than csn. Install csn and the other libraries in
a separate environment:

    python -m venv peers && peers/bin/pip install -e . -r benchmarks/peers.txt
    peers/bin/python benchmarks/peers.py [--repeats N] [--clock wall | cpu] [--out FILE]

MAML: 4 tasks of 5 ways and 1 shot, 5 queries a class, with adaCNN's network. The step computes the loss and the
gradients of the initialisation, without an optimizer. higher and torchopt get one task after the other, as in their
authors' programs. torchopt has no first order. Prototypical Networks: one task, forward and backward, with squared
distances here and plain distances in easyfsl. Sampling: tasks of a data set of Omniglot's size in memory, as tensors
that a network can read.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call

from csn.building import build
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.origin import origin
from csn.episode import Episode
from csn.experiments.records.files import json_bytes
from csn.networks.cnn import CNNOptions
from overhead import CLOCKS, interleaved
from random_tasks import IMAGE, random_episode

WAY, SHOT, QUERIES, TASKS, RATE = 5, 1, 5, 4, 0.05
Step = Callable[[], Tensor]


def tasks_of(episode: Episode) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Support and queries of every task, each with its labels."""
    support, query = episode.support, episode.query
    return list(zip(support.x, support.y, query.x, query.y, strict=True))


def maml_of_csn(order: str, steps: int, episode: Episode, norm: str) -> tuple[Step, nn.Module]:
    """csn's learner, and its network."""
    options: dict[str, Any] = {"order": order, "inner_steps": steps, "inner_rate": RATE}
    learner = build("maml", reads=IMAGE, way=WAY, network=CNNOptions(filters=64, norm=norm), **options).train()

    def step() -> Tensor:
        learner.zero_grad()
        loss = learner(episode).loss
        loss.backward()
        return loss.detach()

    return step, learner.network


def plain_maml(network: nn.Module, order: str, steps: int, episode: Episode) -> Step:
    """A loop over tasks in a few lines of torch."""

    def step() -> Tensor:
        network.zero_grad()
        total = torch.zeros(())
        for x, y, queries, labels in tasks_of(episode):
            fast = dict(network.named_parameters())
            for _ in range(steps):
                loss = F.cross_entropy(functional_call(network, fast, (x,)), y)
                gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=order == "second")
                fast = {name: p - RATE * g for (name, p), g in zip(fast.items(), gradients, strict=True)}
            loss = F.cross_entropy(functional_call(network, fast, (queries,)), labels) / len(episode.query.y)
            loss.backward()
            total += loss.detach()
        return total

    return step


def higher_maml(network: nn.Module, order: str, steps: int, episode: Episode) -> Step:
    """higher. In first order, the gradient at the adapted parameters is given to the initial ones."""
    import higher

    inner = torch.optim.SGD(network.parameters(), lr=RATE)

    def step() -> Tensor:
        network.zero_grad()
        total = torch.zeros(())
        for x, y, queries, labels in tasks_of(episode):
            second = order == "second"
            with higher.innerloop_ctx(network, inner, copy_initial_weights=False, track_higher_grads=second) as (
                f,
                opt,
            ):
                for _ in range(steps):
                    opt.step(F.cross_entropy(f(x), y))
                loss = F.cross_entropy(f(queries), labels) / len(episode.query.y)
                if second:
                    loss.backward()
                else:
                    gradients = torch.autograd.grad(loss, list(f.parameters()))
                    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
            total += loss.detach()
        return total

    return step


def torchopt_maml(network: nn.Module, steps: int, episode: Episode) -> Step:
    """torchopt, in second order."""
    import torchopt

    inner = torchopt.MetaSGD(network, lr=RATE)

    def step() -> Tensor:
        network.zero_grad()
        total = torch.zeros(())
        start, state = torchopt.extract_state_dict(network), torchopt.extract_state_dict(inner)
        for x, y, queries, labels in tasks_of(episode):
            for _ in range(steps):
                inner.step(F.cross_entropy(network(x), y))
            loss = F.cross_entropy(network(queries), labels) / len(episode.query.y)
            loss.backward()
            total += loss.detach()
            torchopt.recover_state_dict(network, start)
            torchopt.recover_state_dict(inner, state)
        return total

    return step


def maml(order: str, steps: int, norm: str) -> dict[str, Step]:
    """Every library's step, with the same initialisation."""
    torch.manual_seed(0)
    episode = random_episode(WAY, SHOT, tasks=TASKS)
    step, network = maml_of_csn(order, steps, episode, norm)
    found = {
        "csn": step,
        "plain loop": plain_maml(network, order, steps, episode),
        "higher": higher_maml(network, order, steps, episode),
    }
    if order == "second":
        found["torchopt"] = torchopt_maml(network, steps, episode)
    return found


def easyfsl() -> Any:
    """easyfsl's modules. It imports torchvision, whose compiled part fits one torch only, and calls none of it."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for name in ("", ".datasets", ".models", ".models.resnet", ".transforms", ".ops"):
            sys.modules[f"torchvision{name}"] = MagicMock()
    import easyfsl.methods
    import easyfsl.samplers

    return easyfsl


def prototypical(shot: int) -> dict[str, Step]:
    """One task, forward and backward."""
    torch.manual_seed(0)
    episode = random_episode(WAY, shot)
    learner = build("prototypical", reads=IMAGE, way=WAY, network=CNNOptions(filters=64)).train()
    network = learner.embedding_network
    theirs = easyfsl().methods.PrototypicalNetworks(backbone=network).train()
    x, y, queries, labels = tasks_of(episode)[0]

    def csn_step() -> Tensor:
        learner.zero_grad()
        loss = learner(episode).loss
        loss.backward()
        return loss.detach()

    def their_step() -> Tensor:
        theirs.zero_grad()
        theirs.process_support_set(x, y)
        loss = F.cross_entropy(theirs(queries), labels)
        loss.backward()
        return loss.detach()

    return {"csn": csn_step, "easyfsl": their_step}


def sampling(way: int, shot: int) -> dict[str, Step]:
    """Tasks from 964 classes of 20 images in memory."""
    samplers = easyfsl().samplers
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (964 * 20, *IMAGE), dtype=np.uint8))
    classes = ClassExamples(images, np.full(964, 20), tuple(map(str, range(964))))
    source = EpisodeSource(Dataset("d", {"train": classes}), "train", way=way, shot=shot, queries=QUERIES, seed=0)

    class Theirs(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return images[index].float() / 255, index // 20

        def __len__(self) -> int:
            return len(images)

        def get_labels(self) -> list[int]:
            return [index // 20 for index in range(len(images))]

    data = Theirs()
    torch.utils.data.Sampler.__init__ = lambda self, data_source=None: None  # type: ignore[method-assign]  # as it was
    sampler = samplers.TaskSampler(data, n_way=way, n_shot=shot, n_query=QUERIES, n_tasks=1)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=sampler.episodic_collate_fn)
    drawn = iter(range(10**9))
    return {"csn": lambda: source.batch(next(drawn), 1).query.x, "easyfsl": lambda: next(iter(loader))[2]}


WORK: dict[str, Callable[[], dict[str, Step]]] = {
    **{
        f"MAML, {order} order, {steps} step(s), norm {norm}": lambda order=order, steps=steps, norm=norm: maml(
            order, steps, norm
        )
        for order in ("first", "second")
        for steps in (1, 5)
        for norm in ("group", "none")
    },
    "Prototypical, 5w1s": lambda: prototypical(1),
    "Prototypical, 5w5s": lambda: prototypical(5),
    "sampling, 5w1s": lambda: sampling(5, 1),
    "sampling, 20w5s": lambda: sampling(20, 5),
}


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=21, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.15, help="per contender and repeat (default: %(default)s)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="the clock that counts (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="result file (JSON)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    made = origin("python benchmarks/peers.py") | {"peers": {n: version(n) for n in ("higher", "torchopt", "easyfsl")}}
    names = ("plain loop", "higher", "torchopt", "easyfsl")
    table = Table("work", "csn, ms", *names, title=f"x the time of csn; {made['machine']['cpu']}, one thread")
    rows = []
    for work, make in WORK.items():
        times = interleaved(make(), options.repeats, CLOCKS[options.clock], options.seconds)
        row: dict[str, Any] = {"work": work, "csn_ms": round(1000 * statistics.median(times["csn"]), 2)}
        for name in times.keys() - {"csn"}:
            ratios = [one / other for one, other in zip(times[name], times["csn"], strict=True)]
            row[name] = [round(quartile, 3) for quartile in statistics.quantiles(ratios, n=4)]
        rows.append(row)
        cells = (f"{row[n][1]:.2f} ({row[n][0]:.2f} - {row[n][2]:.2f})" if n in row else "" for n in names)
        table.add_row(work, f"{row['csn_ms']:.1f}", *cells)
    Console().print(table)
    if options.out:
        about = {"repeats": options.repeats, "clock": options.clock}
        write_atomically(options.out, json_bytes({"rows": rows, **about, **made}))


if __name__ == "__main__":
    main()
