"""The cost of a step as a ratio to the floor, which is the same networks on the same examples without adaptation.

Contenders take turns within one process, so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.config import TrainConfig
from csn.core.model import CSN
from csn.engine.optimizing import build_optimizer
from csn.episode import Episode
from csn.learner import EpisodeOutput
from csn.networks.lstm import LSTM

Step = Callable[[], Tensor]
Contender = TypeVar("Contender", bound=Hashable)


class Floor(nn.Module):
    """The two networks of a CSN, side by side."""

    def __init__(self, csn: CSN) -> None:
        super().__init__()
        self.base, self.key_function = csn.base, csn.embedding_network

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Every image through both networks; a loss that sends gradients through both."""
        n = episode.support.y.numel()
        x = torch.cat([episode.support.x.flatten(0, 1), episode.query.x.flatten(0, 1)])
        keys, logits = self.key_function(x), self.base(x).logits[n:]
        loss = F.cross_entropy(logits, episode.query.y.flatten()) + keys.square().mean()
        return EpisodeOutput(loss, logits.unflatten(0, episode.query.y.shape))


class SentenceFloor(nn.Module):
    """An nn.LSTM of the same size instead of an adaLSTM, and the key function."""

    def __init__(self, csn: CSN) -> None:
        super().__init__()
        assert isinstance(csn.base, LSTM)
        units = csn.base.output.in_features
        self.embedding, self.key_function = csn.base.embedding, csn.key_function
        self.lstm = nn.LSTM(self.embedding.size, units, len(csn.base.layers), batch_first=True)
        self.output = nn.Linear(units, csn.way)

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Two passes, support and queries; a loss that sends gradients through both and through the keys."""
        loss, x = torch.zeros(()), torch.cat([episode.support.x.flatten(0, 1), episode.query.x.flatten(0, 1)])
        for examples in (episode.support, episode.query):
            states, _ = self.lstm(self.embedding(examples.x.flatten(0, 1)))
            logits = self.output(states[:, -1])
            loss = loss + F.cross_entropy(logits, examples.y.flatten())
        loss = loss + self.key_function(x).square().mean()
        return EpisodeOutput(loss, logits.unflatten(0, episode.query.y.shape))


def training_step(learner: nn.Module, episode: Episode, config: TrainConfig | None = None) -> Step:
    """One whole step: loss, gradients, optimizer."""
    optimizer = build_optimizer(learner, config or TrainConfig())
    learner.train()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = learner(episode).loss
        loss.backward()
        optimizer.step()
        return loss

    return step


def inference_step(learner: nn.Module, episode: Episode) -> Step:
    """Description and prediction."""
    learner.eval()

    @torch.no_grad()
    def step() -> Tensor:
        return learner(episode).logits

    return step


def ratios(steps: Mapping[Contender, Step], repeats: int, seconds: float = 0.15) -> dict[Contender, list[float]]:
    """The time of each contender divided by the first one's, one ratio per repeat of `seconds` per contender."""
    times = step_times(steps, repeats, seconds)
    return {contender: over(values, times[next(iter(times))]) for contender, values in times.items()}


def over(times: list[float], others: list[float]) -> list[float]:
    """The ratio within each repeat."""
    return [one / other for one, other in zip(times, others, strict=True)]


def step_times(
    steps: Mapping[Contender, Step],
    repeats: int,
    seconds: float = 0.15,
    clock: Callable[[], float] | None = None,
) -> dict[Contender, list[float]]:
    """Seconds of a step of each contender, one number per repeat.

    Args:
        steps: The step of each contender.
        repeats: The number of rounds in which the contenders take turns.
        seconds: The time that a repeat takes per contender.
        clock: Wall time by default. Use `time.process_time` if other processes share the machine.
    """
    clock = clock or time.perf_counter
    counts = {}
    for contender, step in steps.items():
        step()
        started = clock()
        step()
        counts[contender] = max(1, round(seconds / max(clock() - started, 1e-9)))
    results: dict[Contender, list[float]] = {contender: [] for contender in steps}
    contenders = list(steps)
    for repeat in range(repeats):
        first = repeat % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            started = clock()
            for _ in range(counts[contender]):
                steps[contender]()
            results[contender].append((clock() - started) / counts[contender])
    return results


def seconds_of_step(step: Step) -> float:
    """Roughly the seconds of a step under the present load: the median of three steps after two warm-up steps."""
    return statistics.median(step_times({"": step}, repeats=3, seconds=0)[""])


def floor_of(csn: CSN) -> nn.Module:
    """The floor of a CSN's two networks. Its softmax layer lets gradients pass."""
    randomise_output(csn)
    return SentenceFloor(csn) if isinstance(csn.base, LSTM) else Floor(csn)


def randomise_output(csn: CSN) -> None:
    """Softmax layers start at 0, which would leave the hidden layers no gradient and eq. 2 nothing to do."""
    output = getattr(csn.base, "output", None)
    if isinstance(output, nn.Linear):
        nn.init.normal_(output.weight, std=0.2)
