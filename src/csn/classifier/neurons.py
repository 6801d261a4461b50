"""Activations of the adapted layers before and after their shifts (eq. 1), for display."""

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
    """Activations of one adapted layer: one number per unit, or per filter (the mean over its positions)."""

    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class NeuronShift:
    """The effect of the recalled rows on a network, for one query.

    layers: the adapted hidden layers, lowest first.
    classes: label -> (probability before the shift, probability after it).
    """

    layers: tuple[LayerActivity, ...]
    classes: dict[Hashable, tuple[float, float]]


def has_shifts(learner: object) -> bool:
    """Whether a learner is a CSN: only a CSN shifts its neurons."""
    return isinstance(learner, CSN)


@torch.no_grad()
def neuron_shift(learner: CSN, inputs: Tensor, labels: Sequence[Hashable], query: Tensor) -> NeuronShift:
    """The learner's layers on one query, with and without the shifts that it reads from memory.

    Args:
        learner: A CSN.
        inputs: The remembered examples (n, *input), of at most `learner.way` classes.
        labels: One label per example.
        query: The input to recognise, (1, *input).
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
    """h of each adapted hidden layer (eq. 1), averaged over the positions of a filter: (examples, filters) each."""
    rule: ShiftRule = getattr(base, "shift_rule", "squashed")
    found = []
    for t, (a, sigma) in enumerate(zip(output.preactivations[:-1], base.activations, strict=True)):
        h = shifted_activation(a, shifts[t] if shifts else None, sigma, rule)
        found.append(h.flatten(1, -2).mean(1) if h.ndim > 2 else h)
    return found
