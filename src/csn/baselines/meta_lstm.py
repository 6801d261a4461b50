"""Meta-Learner LSTM (Ravi and Larochelle, 2017): the cell state of an LSTM is the parameters of a network.

`b` tasks, `n` support examples, `C` ways, `P` parameters of the network. Numbers of equations are those of their paper.
As in the original, gradients and losses are constants, so there are no second derivatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from csn.baselines.coordinates import CHUNK, State, lstm_step
from csn.baselines.maml import MAML, Adapted, adapted_network, of_task, stacked
from csn.core.conditioning import preprocess_gradient
from csn.core.parts import LearnerOptions, Parts
from csn.episode import Examples, check_examples, support_way
from csn.learner import ordinary, out_of_inference_mode
from csn.networks.sentences import initialise_lstm

FORGET_START = 5.0  # the forget gate starts at sigmoid(5) = 0.993: parameters are kept


class Gates(NamedTuple):
    """The first layer's state, and the gates f and i (R,) before their sigmoid."""

    lower: State
    forget: Tensor
    input: Tensor


class MetaLSTM(MAML):
    """theta_t = f_t theta_{t-1} - i_t grad L_t (eq. 2). An LSTM computes f_t and i_t for each parameter separately.

    The network's own parameters are theta_0 (the cell's initial state), which is learned too. All parameters share the
    weights of two layers. First an LSTM reads the preprocessed gradient and loss. Then f and i are computed from its
    state, from theta and from the previous gates (eqs. 3 and 4). Every step reads the whole support, so its order does
    not matter.

    Args:
        network: (examples, *input) -> logits (examples, way).
        way: The largest number of classes.
        units: Units of the LSTM.
        inner_steps: Steps in training.
        test_steps: Steps in evaluation. By default, as many as in training.
        inner_rate: The initial value of i.
    """

    def __init__(
        self,
        network: nn.Module,
        way: int,
        *,
        units: int = 20,
        inner_steps: int = 5,
        test_steps: int | None = None,
        inner_rate: float = 0.01,
    ) -> None:
        super().__init__(network, way, inner_steps=inner_steps, test_steps=test_steps, order="first")
        if not 0 < inner_rate < 1:
            raise ValueError(f"inner_rate, where the input gate starts, must lie between 0 and 1, got {inner_rate}")
        self.lower = nn.LSTM(4, units)
        initialise_lstm(self.lower)
        self.gates = nn.Parameter(0.01 * torch.randn(2, units + 2))  # for f and i: state, theta, last gate
        self.biases = nn.Parameter(torch.tensor([FORGET_START, math.log(inner_rate / (1 - inner_rate))]))

    def describe(self, support: Examples, way: int | None = None) -> Adapted:
        """Algorithm 1, lines 7 to 12: theta_T of every task."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        with out_of_inference_mode():
            x = ordinary(support.x)
            return self._task(self._adapt(x, ordinary(support.y), way), way, x)

    def _adapt(self, x: Tensor, y: Tensor, way: int) -> dict[str, Tensor]:
        b = len(y)
        names, initial = zip(*self.network.named_parameters(), strict=True)
        shapes = [parameter.shape for parameter in initial]
        theta = torch.cat([parameter.flatten() for parameter in initial]).repeat(b)  # (b * P,)

        def by_name(flat: Tensor) -> dict[str, Tensor]:
            parts = flat.view(b, -1).split([shape.numel() for shape in shapes], dim=1)
            return {name: part.unflatten(1, shape) for name, part, shape in zip(names, parts, shapes, strict=True)}

        losses_and_gradients = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0, None), randomness="different")
        parts = theta.split(CHUNK)  # chunks of parameters that fit into the cache
        gates: tuple[Gates | None, ...] = (None,) * len(parts)
        for _ in range(self.inner_steps if self.training else self.test_steps):
            if self._goes_one_by_one(x):
                read, tasks = by_name(theta.detach()), range(b)
                found = [self.gradients(of_task(read, task), x[task], y[task], way) for task in tasks]
                gradients, losses = stacked([each for each, _ in found]), torch.stack([loss for _, loss in found])
            else:
                gradients, losses = losses_and_gradients(by_name(theta.detach()), x, y, way)
            gradient = torch.cat([part.flatten(1) for part in gradients.values()], dim=1).flatten().detach()
            loss = losses.detach().repeat_interleave(len(theta) // b)
            chunks = zip(parts, gradient.split(CHUNK), loss.split(CHUNK), gates, strict=True)
            parts, gates = zip(*(self.update(*each) for each in chunks), strict=True)
            theta = torch.cat(parts)
        return by_name(theta)

    def update(self, theta: Tensor, gradient: Tensor, loss: Tensor, gates: Gates | None) -> tuple[Tensor, Gates]:
        """Eqs. 2 to 4 for parameters (R,) with their gradients and their tasks' losses. The first step has no gates."""
        lower, before = (None, 0.0) if gates is None else (gates.lower, torch.stack([gates.forget, gates.input]))
        information = torch.cat([preprocess_gradient(gradient), preprocess_gradient(loss)], dim=-1)  # (R, 4)
        lower = lstm_step(self.lower, information.T, lower)
        of_state, of_theta, of_gate = self.gates.split([self.gates.shape[1] - 2, 1, 1], dim=1)
        forget, entry = of_state @ lower.h + of_theta * theta + self.biases.unsqueeze(1) + of_gate * before  # (2, R)
        return forget.sigmoid() * theta - entry.sigmoid() * gradient, Gates(lower, forget, entry)


@dataclass(frozen=True)
class MetaLSTMOptions(LearnerOptions):
    """Meta-Learner LSTM.

    units: units of the LSTM that reads gradients.
    inner_steps: steps in training.
    test_steps: steps in a test; by default, as many as in training.
    inner_rate: initial value of the input gate.
    """

    name: ClassVar[str] = "meta-lstm"
    uses_key: ClassVar[bool] = False
    encodes: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    units: int = 20
    inner_steps: int = 1
    test_steps: int | None = None
    inner_rate: float = 0.4

    def build(self, parts: Parts) -> MetaLSTM:
        """Build it over a network with one output for each class."""
        return MetaLSTM(adapted_network(parts, "the Meta-Learner LSTM"), parts.way, **vars(self))
