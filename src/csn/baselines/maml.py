"""MAML (Finn, Abbeel and Levine, 2017): an initialisation from which a few steps of gradient descent learn a task.

The parameters of a task are a function of the initialisation. `torch.func` computes this function and vectorises it
over tasks. Where a loop over tasks is faster, a loop is used instead.

Ordinary batch norm does not work here, because a task's parameters come from only a few examples. `network.norm` can
be "support", which normalises each query independently; "transductive", as published, where the queries of a task share
their statistics (`csn.networks.task_norm`); "group"; or "none".

Shapes: `b` tasks, `n` support examples, `m` queries, `C` ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from csn.core.base_learner import start_uniform
from csn.core.parts import LearnerOptions, Parts
from csn.episode import Examples, check_examples, check_finite, check_same_tasks, support_way
from csn.learner import FewShotLearner, ordinary, out_of_inference_mode
from csn.networks.cnn import native_norms
from csn.networks.task_norm import TaskNorm, support_first

Parameters = dict[str, Tensor]
Order = Literal["first", "second"]
Rate = Literal["fixed", "one", "each"]


class Adapted(NamedTuple):
    """The network as adapted to each task.

    Args:
        parameters: (b, *shape) by name.
        way: The number of classes.
        support: The support (b, n, *input), if the network normalises by its statistics.
    """

    parameters: Parameters
    way: int
    support: Tensor | None = None


class MAML(FewShotLearner[Adapted]):
    """MAML. The network's own parameters are the initialisation theta.

    Args:
        network: (examples, *input) -> logits (examples, way).
        way: The largest number of classes.
        inner_steps: Steps of gradient descent in training.
        test_steps: Steps of gradient descent in evaluation. By default, as many as in training.
        inner_rate: The inner learning rate alpha, or its initial value.
        rate: "fixed" keeps alpha at `inner_rate`. "one" learns one alpha for all parameters. "each" learns one for each
            number of each parameter (Meta-SGD: Li et al., 2017).
        order: "second" differentiates through the inner steps. "first" treats their gradients as constants
            (section 5.2).
    """

    def __init__(
        self,
        network: nn.Module,
        way: int,
        *,
        inner_steps: int = 1,
        test_steps: int | None = None,
        inner_rate: float = 0.4,
        rate: Rate = "fixed",
        order: Order = "second",
    ) -> None:
        super().__init__()
        test_steps = inner_steps if test_steps is None else test_steps
        if inner_steps < 1 or test_steps < 1:
            raise ValueError(f"MAML needs at least one step, got {inner_steps} in training and {test_steps} in a test")
        for name, value, choices in (("rate", rate, get_args(Rate)), ("order", order, get_args(Order))):
            if value not in choices:
                raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(choices)}")
        if any(isinstance(module, _BatchNorm) for module in network.modules()):
            raise ValueError(
                "MAML takes no batch norm: the parameters of a task come from a handful of examples, and statistics of "
                "the queries would make each answer depend on the others. Use network.norm=support, group or none"
            )
        self.network, self.way, self.order = network, way, order
        self.reads_support = any(isinstance(module, TaskNorm) for module in network.modules())
        self.inner_steps, self.test_steps, self.inner_rate = inner_steps, test_steps, inner_rate
        self.rates = nn.ParameterList(_initial_rates(rate, inner_rate, list(network.parameters())))

    def describe(self, support: Examples, way: int | None = None) -> Adapted:
        """Section 2.2, the inner loop: theta'_i of every task i, from its support."""
        way = support_way(support, way)
        check_examples(support, way, self.way)
        with out_of_inference_mode():
            x, y = ordinary(support.x), ordinary(support.y)

            def adapt(x: Tensor, y: Tensor) -> Parameters:
                return self.adapted(x, y, way)

            if self._goes_one_by_one(x):
                return self._task(stacked([adapt(*task) for task in zip(x, y, strict=True)]), way, x)
            return self._task(vmap(adapt, randomness="different")(x, y), way, x)

    def predict(self, x: Tensor, task: Adapted) -> Tensor:
        """f_{theta'_i} on the queries of task i: (b, m, *input) -> (b, m, way)."""
        check_finite(x)
        check_same_tasks(x, next(iter(task.parameters.values())))
        n = 0
        if task.support is not None:
            check_same_shape(x, task.support)
            x, n = torch.cat([task.support, x], dim=1), task.support.shape[1]

        def call(parameters: Parameters, x: Tensor) -> Tensor:
            return self._call(parameters, x, n)[n:]

        if self._goes_one_by_one(x):
            with native_norms():
                logits = torch.stack([call(of_task(task.parameters, i), x[i]) for i in range(len(x))])
        else:
            logits = vmap(call, randomness="different")(task.parameters, x)
        return logits[..., : task.way]

    def _task(self, parameters: Parameters, way: int, x: Tensor) -> Adapted:
        """Make the Task. It keeps the support x (b, n, *input) if the network reads it."""
        return Adapted(parameters, way, x if self.reads_support else None)

    def adapted(self, x: Tensor, y: Tensor, way: int) -> Parameters:
        """theta' <- theta' - alpha grad_theta' L(f_theta'), from theta on, for one task: x (n, *input), y (n,)."""
        parameters: Parameters = dict(self.network.named_parameters())
        for _ in range(self.inner_steps if self.training else self.test_steps):
            if self._goes_one_by_one(x):
                gradients = self.gradients(parameters, x, y, way)[0]
            else:
                gradients = grad(self._loss)(parameters, x, y, way)
            if self.order == "first":
                gradients = {name: gradient.detach() for name, gradient in gradients.items()}
            parameters = {
                name: theta - alpha * gradients[name]
                for (name, theta), alpha in zip(parameters.items(), self._alphas(), strict=True)
            }
        return parameters

    def gradients(self, parameters: Parameters, x: Tensor, y: Tensor, way: int) -> tuple[Parameters, Tensor]:
        """Compute the gradients of one task's loss, without a graph, and that loss."""
        with torch.enable_grad(), native_norms():
            leaves = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
            loss = self._loss(leaves, x, y, way)
            gradients = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, gradients, strict=True)), loss.detach()

    def _goes_one_by_one(self, x: Tensor) -> bool:
        """Whether tasks are adapted one after the other. They are on a CPU, if nothing is differentiated twice.

        A CPU runs the convolutions of each task separately anyway, and plain autograd keeps no graph of the gradients.
        """
        return x.device.type == "cpu" and not (self.order == "second" and torch.is_grad_enabled())

    def _loss(self, parameters: Parameters, x: Tensor, y: Tensor, way: int) -> Tensor:
        """L of eq. 3: cross-entropy over the task's classes. Further outputs are ignored."""
        return F.cross_entropy(self._call(parameters, x, len(x))[:, :way], y)

    def _call(self, parameters: Parameters, x: Tensor, support: int = 0) -> Tensor:
        """f_theta'(x) for one task. The first `support` examples are its support."""
        with support_first(support):
            return functional_call(self.network, parameters, (x,))

    def _alphas(self) -> list[Tensor | float]:
        """The inner rate of every parameter of the network."""
        count = len(list(self.network.parameters()))
        if len(self.rates) == 0:
            return [self.inner_rate] * count
        return [self.rates[0]] * count if self.rates[0].ndim == 0 else list(self.rates)


def check_same_shape(x: Tensor, support: Tensor) -> None:
    """Raise ValueError unless queries (b, m, *input) are of the shape of a support (b, n, *input)."""
    if x.shape[2:] != support.shape[2:]:
        raise ValueError(
            f"queries must have the shape of their task's support, {tuple(support.shape[2:])}, got "
            f"{tuple(x.shape[2:])}: resize them"
        )


def of_task(parameters: Parameters, index: int) -> Parameters:
    """Select the parameters of one task: (b, *shape) by name -> (*shape) by name."""
    return {name: parameter[index] for name, parameter in parameters.items()}


def stacked(tasks: Sequence[Parameters]) -> Parameters:
    """Stack the parameters of several tasks: (*shape) by name -> (b, *shape) by name."""
    return {name: torch.stack([task[name] for task in tasks]) for name in tasks[0]}


def _initial_rates(rate: Rate, value: float, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Return the learned inner rates: none, one number, or one for each number of each parameter."""
    if rate == "fixed":
        return []
    if rate == "one":
        return [torch.tensor(value)]
    return [torch.full_like(parameter, value) for parameter in parameters]


@dataclass(frozen=True)
class MAMLOptions(LearnerOptions):
    """MAML.

    inner_steps: steps of gradient descent in training.
    test_steps: steps of gradient descent in a test; by default, as many as in training.
    inner_rate: inner learning rate.
    rate: "fixed", or learned: "one" for all parameters, or one for "each" number (Meta-SGD).
    order: "second" differentiates through the descent, "first" does not.
    """

    name: ClassVar[str] = "maml"
    uses_key: ClassVar[bool] = False
    encodes: ClassVar[bool] = False
    inner_steps: int = 1
    test_steps: int | None = None
    inner_rate: float = 0.4
    rate: Rate = "fixed"
    order: Order = "second"

    def build(self, parts: Parts) -> MAML:
        """Build MAML over a network with one output for each class."""
        return MAML(adapted_network(parts, "MAML"), parts.way, **vars(self))


def adapted_network(parts: Parts, learner: str) -> nn.Module:
    """Build a network whose parameters a task adapts. Its softmax layer starts at 0, as in every base learner."""
    if parts.spec.vocabulary is not None:
        raise ValueError(
            f"{learner} is for images: recurrent networks cannot be vectorised over tasks. Choose another preset"
        )
    network = parts.classifier()
    start_uniform([module for module in network.modules() if isinstance(module, nn.Linear)][-1])
    return network
