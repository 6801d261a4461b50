"""Repeated description in a network: eqs. 5-7 and 2 again, for the error that is left under the shifts written so far.

After the first pass, which is the paper's, the support is predicted as a query would be: by what it reads back. What is
then left of its error, or of its gradient, is described too and added to the memory,

    V <- V + g(I) - g(rest),

where `rest` is what a neuron without an error is told, so that nothing is written where nothing is left. Information
stays first-order: a pass is a constant to the passes before it. With direct feedback sigma' stays that of the first
pass, so that the sum of what is written keeps its exact cheap form. docs/repeated-description.md has the derivation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from csn.core.base_learner import BaseOutput
from csn.core.conditioning import Conditioning, DirectFeedback, GatedInfo, LayerInfo, ScaledInfo
from csn.core.memory import DenseValues, GatedValues, LayerValues
from csn.core.neurons import Activation


def described_again(
    conditioning: Conditioning,
    first: Sequence[LayerInfo],
    output: BaseOutput,
    labels: Tensor,
    activations: Sequence[Activation],
    way: int,
) -> tuple[LayerInfo, ...]:
    """Information of a later pass; output: of b * n examples under their shifts, first: information of the first."""
    if not isinstance(conditioning, DirectFeedback):
        if not all(a.requires_grad for a in output.preactivations):
            raise ValueError(
                "this network keeps no gradients of its neurons under shifts, which passes after the first need: use "
                "learner.conditioning=df, or learner.passes=1"
            )
        return conditioning(output, labels, activations, way)
    error = conditioning.error(output.logits.detach(), labels, way)
    hidden = [replace(info, error=error) for info in first if isinstance(info, GatedInfo | ScaledInfo)]
    return (*hidden, conditioning.output_info(error))


def added(values: LayerValues, more: LayerValues, rest: Tensor) -> LayerValues:
    """V + g(I) - g(rest); gated values that share their gates stay gated."""
    if isinstance(values, GatedValues) and isinstance(more, GatedValues) and values.gate is more.gate:
        return GatedValues(values.gate, values.gain + more.gain, values.base)  # a gain is above g(rest) already
    return DenseValues(values.dense() + more.dense() - rest)
