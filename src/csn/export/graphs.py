"""The two phases of figure 1 as modules with only tensors as inputs and outputs, for torch.export and ONNX.

A graph has no Python objects and cannot depend on values in the data. So the memory is a tuple of tensors (keys,
labels, values of every adapted layer), and a task's classes are those up to the largest label. `n` support examples,
`m` queries, `C` outputs, `d` key size, `...` neurons of a layer. There is one task, so there is no axis of tasks.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from csn.core.base_learner import BaseOutput
from csn.core.conditioning import write
from csn.core.memory import DenseValues, TaskMemory
from csn.core.model import CSN
from csn.learner import FewShotLearner


class DescribeGraph(nn.Module):
    """The description phase: support (n, *input), labels (n,) -> keys (n, d), then values (n, ...) of each layer."""

    def __init__(self, learner: CSN) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, support: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Eq. 2 for every adapted layer, at all neurons."""
        learner, needs_graph = self.learner, self.learner.conditioning.needs_graph
        features = learner.base.stem(support)
        if needs_graph:
            features = features.detach().requires_grad_()
        output = learner.base.head(features)
        unused = _unused(labels, learner.way)
        output = BaseOutput(output.logits.masked_fill(unused, -torch.inf), output.preactivations)
        infos = learner.conditioning(output, labels.unsqueeze(0), learner.base.activations, learner.way)
        shifted = list(itertools.compress(infos, learner.shifted))
        if needs_graph:  # at every neuron, because a graph cannot know how many of them have a gradient
            values = [learner.memory_function(info.dense()) for info in shifted]
        else:
            values = [layer.dense() for layer in write(shifted, learner.memory_function)]
        return (learner.embedding_network(support), *(layer.squeeze(0) for layer in values))


class PredictGraph(nn.Module):
    """The prediction phase: queries (m, *input) and a memory -> logits (m, C), attention (m, n)."""

    def __init__(self, learner: CSN) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, queries: Tensor, keys: Tensor, labels: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        """Eqs. 3, 4 and 1. Classes beyond the largest label have the logit -inf."""
        learner = self.learner
        scale = 1.0 if learner.log_scale is None else learner.log_scale.exp()
        layers = tuple(DenseValues(layer.unsqueeze(0)) for layer in values)
        memory = TaskMemory(keys.unsqueeze(0), layers, labels.unsqueeze(0), learner.way)
        attention = memory.attend(learner.embedding_network(queries).unsqueeze(0), scale, learner.attention)
        betas = iter(memory.read(attention))
        shifts = tuple(next(betas).squeeze(0) if shifted else None for shifted in learner.shifted)
        logits = learner.base.head(learner.base.stem(queries), shifts).logits
        return logits.masked_fill(_unused(labels, learner.way), -torch.inf), attention.squeeze(0)


class EpisodeGraph(nn.Module):
    """Both phases: support (n, *input), labels (n,), queries (m, *input) -> logits (m, C)."""

    def __init__(self, learner: CSN) -> None:
        super().__init__()
        self.describe, self.predict = DescribeGraph(learner), PredictGraph(learner)

    def forward(self, support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
        """The logits of the queries."""
        keys, *values = self.describe(support, labels)
        return self.predict(queries, keys, labels, *values)[0]


def _unused(labels: Tensor, way: int) -> Tensor:
    """(C,) whether each output belongs to no class of the task."""
    return torch.arange(way, device=labels.device) > labels.max()


def exportable(learner: FewShotLearner[Any]) -> CSN:
    """The learner as a CSN that graphs can be made of. Raises ValueError if it cannot be exported."""
    if not isinstance(learner, CSN):
        raise ValueError(f"{type(learner).__name__} cannot be exported: graphs are made of CSNs (learner.name 'csn')")
    if learner.passes > 1:
        raise ValueError(
            f"a support that is described {learner.passes} times cannot be exported: train with learner.passes=1"
        )
    return learner


@contextlib.contextmanager
def quiet_tracing() -> Iterator[None]:
    """Silence torch's warnings about packages that csn does not use, reserved names and deprecations within torch."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
