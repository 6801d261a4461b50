"""Repeated description in a network: eqs. 5-7 and eq. 2, applied again to the error that remains under the shifts.

The first pass is the paper's. In each further pass, the support reads the memory and is predicted like a query. The
remaining error, or its gradient, is described and added to the memory:

    V <- V + g(I) - g(rest).

Here `rest` is the information of a neuron without an error, so a neuron whose error is gone writes nothing. The
information stays first-order: no gradient flows from one pass into the passes before it. Direct feedback uses the
sigma' of the first pass in all passes, so the sum of the written values keeps its cheap exact form.
docs/repeated-description.md has the derivation.
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
    """Compute the information of a later pass.

    Args:
        conditioning: The kind of conditioning information.
        first: The information of the first pass.
        output: The output for b * n examples under their present shifts.
        labels: (b, n).
        activations: sigma of every adapted hidden layer.
        way: The number of classes of the task.
    """
    if not isinstance(conditioning, DirectFeedback):
        if not all(a.requires_grad for a in output.preactivations):
            raise ValueError(
                "passes after the first need the gradients of shifted neurons, which this network does not keep: use "
                "learner.conditioning=df, or learner.passes=1"
            )
        return conditioning(output, labels, activations, way)
    error = conditioning.error(output.logits.detach(), labels, way)
    hidden = [replace(info, error=error) for info in first if isinstance(info, GatedInfo | ScaledInfo)]
    return (*hidden, conditioning.output_info(error))


def added(values: LayerValues, more: LayerValues, rest: Tensor) -> LayerValues:
    """V + g(I) - g(rest). Gated values that share their gates stay gated."""
    if isinstance(values, GatedValues) and isinstance(more, GatedValues) and values.gate is more.gate:
        return GatedValues(values.gate, values.gain + more.gain, values.base)  # a gain is relative to g(rest)
    return DenseValues(values.dense() + more.dense() - rest)
