"""A training step compiled into one graph by torch.compile. The graph is tried once before training uses it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from csn.episode import Episode
from csn.learner import EpisodeOutput, FewShotLearner

Step = Callable[[Episode], EpisodeOutput]


def compiled(learner: FewShotLearner[Any], episode: Episode, *, strict: bool) -> Step:
    """The learner's compiled step. If compiling fails, a warning is issued and the learner itself is returned.

    Args:
        learner: The learner to train.
        episode: Tasks for a trial of the step, forward and backward. The trial leaves no trace in the learner.
        strict: Whether to raise ValueError if compiling fails.
    """
    graph = torch.compile(learner, fullgraph=True, dynamic=False)

    def step(tasks: Episode) -> EpisodeOutput:
        with torch._dynamo.config.patch(trace_autograd_ops=True):  # eq. 5 asks for gradients within the graph
            output: EpisodeOutput = graph(tasks)
            return output

    try:
        _try(learner, step, episode)
    except Exception as error:  # a compiler can fail in many ways
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
        if strict:
            raise ValueError(
                f"torch.compile fails on this step ({reason}): leave out --compile strict, or give --compile alone, "
                f"which trains without a graph if compiling fails"
            ) from error
        warnings.warn(f"torch.compile fails on this step ({reason}); training goes on without it", RuntimeWarning, 2)
        return learner
    return step


def _try(learner: FewShotLearner[Any], step: Step, episode: Episode) -> None:
    """Run one step forward and backward, then restore gradients, statistics and random numbers."""
    buffers = {name: buffer.clone() for name, buffer in learner.named_buffers()}
    devices = [episode.support.x.device] if episode.support.x.is_cuda else []
    try:
        with torch.random.fork_rng(devices):
            step(episode).loss.backward()
    finally:
        learner.zero_grad()
        with torch.no_grad():
            for name, buffer in learner.named_buffers():
                buffer.copy_(buffers[name])
