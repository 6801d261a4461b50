"""What the paper is about, made visible: activations of the adapted layers before and after their shifts (eq. 1)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from csn.core.base_learner import BaseLearner, BaseOutput, Shifts
from csn.core.model import CSN
from csn.core.neurons import ShiftRule, shifted_activation
from csn.data.source import as_input
from csn.episode import Examples


@dataclass(frozen=True)
class LayerActivity:
    """Activations of one adapted layer, one number for each unit or filter (mean over its places)."""

    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class NeuronShift:
    """What the recalled rows do to a network on one query.

    layers: the adapted hidden layers, the lowest first. classes: label -> (probability before, after).
    """

    layers: tuple[LayerActivity, ...]
    classes: dict[Hashable, tuple[float, float]]


def has_shifts(learner: object) -> bool:
    """Whether a learner is a CSN, whose neurons are shifted."""
    return isinstance(learner, CSN)


@torch.no_grad()
def neuron_shift(learner: CSN, inputs: Tensor, labels: Sequence[Hashable], query: Tensor) -> NeuronShift:
    """The learner's own layers on a query (1, *input), with and without the shifts that it reads from a memory.

    Args:
        learner: a CSN.
        inputs: the remembered examples (n, *input), of at most `learner.way` classes.
        labels: of each example.
        query: what is to be recognised.
    """
    order = list(dict.fromkeys(labels))
    if not 1 <= len(order) <= learner.way:
        raise ValueError(f"the layers tell 1 to {learner.way} classes apart, got {len(order)}: leave some out")
    dtype = next(learner.parameters()).dtype
    numbers = torch.tensor([[order.index(label) for label in labels]])
    memory = learner.describe(Examples(as_input(inputs, dtype)[None], numbers), way=learner.way)
    encoded = learner.encode(as_input(query, dtype))
    features, shifts = encoded[1], learner.recalled(encoded, memory)
    (plain, *before), (shifted, *after) = (
        [output.logits, *activities(learner.base, output, betas)]
        for output, betas in ((learner.base.head(features), None), (learner.base.head(features, shifts), shifts))
    )
    probabilities = [logits[0, : len(order)].softmax(-1).tolist() for logits in (plain, shifted)]
    return NeuronShift(
        tuple(LayerActivity(*(tuple(part[0].tolist()) for part in pair)) for pair in zip(before, after, strict=True)),
        dict(zip(order, zip(*probabilities, strict=True), strict=True)),
    )


def activities(base: BaseLearner, output: BaseOutput, shifts: Shifts | None) -> list[Tensor]:
    """h of each adapted hidden layer (eq. 1), mean over the places of a filter: (examples, filters) each."""
    rule: ShiftRule = getattr(base, "shift_rule", "squashed")
    found = []
    for t, (a, sigma) in enumerate(zip(output.preactivations[:-1], base.activations, strict=True)):
        h = shifted_activation(a, shifts[t] if shifts else None, sigma, rule)
        found.append(h.flatten(1, -2).mean(1) if h.ndim > 2 else h)
    return found
