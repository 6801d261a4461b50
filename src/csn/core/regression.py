"""Regression: CSNs that predict a real number y, with the squared error instead of the cross-entropy.

The loss of a support example is (y_hat - y)^2 / 2. Its gradient at the output neuron is therefore y_hat - y, and so is
the error of eq. 7. Everything else follows section 2, with one output.

Shapes: `b` tasks, `n` support examples, `m` queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.base_learner import BaseLearner
from csn.core.conditioning import Conditioning, DirectFeedback, ErrorGradient
from csn.core.initialisation import GUARD_DRAWS
from csn.core.memory import Attention, MemoryFunction, TaskMemory
from csn.core.model import CSN
from csn.core.neurons import ShiftedLayers
from csn.episode import check_finite, check_same_tasks


@dataclass(frozen=True)
class Measurements:
    """Examples labelled with real numbers.

    Args:
        x: (b, n, *input).
        y: (b, n).
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.y.ndim != 2 or self.x.shape[:2] != self.y.shape:
            raise ValueError(
                f"measurements need x of shape (tasks, examples, *input) and y of shape (tasks, examples); got x "
                f"{tuple(self.x.shape)} and y {tuple(self.y.shape)}. For a single task, add a leading axis: x[None]"
            )
        if not self.y.is_floating_point():
            raise ValueError(f"measurements are real numbers, got y of {self.y.dtype}: convert it with y.float()")

    def __len__(self) -> int:
        """Examples of each task."""
        return self.y.shape[1]


class SquaredErrorGradient(ErrorGradient):
    """Eqs. 5-6 with the squared error."""

    def loss(self, logits: Tensor, labels: Tensor, way: int) -> Tensor:
        """Sum of (y_hat - y)^2 / 2: logits (b * n, 1), labels (b, n)."""
        return (logits.squeeze(1) - labels.flatten()).square().sum() / 2


class SquaredErrorFeedback(DirectFeedback):
    """Eq. 7 with the squared error: each neuron gets one number, sigma'(a) (y_hat - y)."""

    def error(self, logits: Tensor, labels: Tensor, way: int) -> Tensor:
        """y_hat - y: logits (b * n, 1), labels (b, n) -> (b, n, 1)."""
        return logits.view(*labels.shape, 1) - labels.unsqueeze(-1)


class CSNRegressor(CSN):
    """A CSN with one real-valued output. `describe` takes `Measurements`, and `predict` returns (b, m)."""

    def describe(self, support: Measurements, way: int | None = None) -> TaskMemory:  # type: ignore[override]
        """The description phase: one memory row per measurement."""
        if len(support) == 0 or support.x.shape[0] == 0:
            raise ValueError("the support is empty: a task needs at least one measurement")
        check_finite(support.x)
        check_finite(support.y)
        x = self._flat(support.x)
        keys, features = self._encoded(x, grad=self._end_to_end())
        return self._write(features, keys, support.y, 1)

    def predict(self, x: Tensor, task: TaskMemory) -> Tensor:
        """The prediction phase: (b, m, *input) -> y_hat (b, m)."""
        check_finite(x)
        check_same_tasks(x, task.labels)
        return super().predict(x, task).squeeze(-1)

    def forward(self, support: Measurements, query: Measurements) -> Tensor:  # type: ignore[override]
        """Compute the mean squared error on the queries."""
        check_finite(query.y)
        return F.mse_loss(self.predict(query.x, self.describe(support)), query.y)

    @torch.no_grad()
    def guard_initialisation(self) -> None:
        """Start with a g that moves a prediction towards y: the draw with the largest |d|, scaled so that d >= 2.

        d = g(-1) - g(1). An error of -1 at the output means that the prediction is too low. The g that exactly undoes
        an error, g(e) = -e, has d = 2.
        """
        g = self.memory_function
        like = g.weights()[0][0]
        info = self.conditioning.output_info(like.new_tensor([[[-1.0], [1.0]]]))
        best, start = 0.0, {}
        for _ in range(GUARD_DRAWS):
            low, high = info.values(g).dense().flatten().tolist()
            if low < high:
                g.scale(-1)
            if abs(low - high) > best:
                best, start = abs(low - high), {name: tensor.clone() for name, tensor in g.state_dict().items()}
            g.initialise()
        g.load_state_dict(start)
        g.scale(max(1, 2 / best))


def regressor(
    base: BaseLearner,
    key_function: nn.Module,
    *,
    conditioning: Literal["df", "gradient"] = "df",
    g_units: int = 20,
    temperature: float | None = None,
    attention: Attention = "soft",
    shifted: ShiftedLayers = "all",
) -> CSNRegressor:
    """Build a CSN for regression.

    Args:
        base: A base learner with one output, such as `FFN(inputs, 1)`.
        key_function: (examples, *input) -> (examples, d).
        conditioning: "df", direct feedback (eq. 7), or "gradient" (eqs. 5-6).
        g_units: Units of each hidden layer of g.
        temperature: None for raw cosines (eq. 3), or the initial value of a learned scale.
        attention: "soft" (eq. 3), or "hard" (appendix A).
        shifted: The layers that are shifted.
    """
    if base.way != 1:
        raise ValueError(f"regression needs a base learner with one output, got {base.way}: build it with way=1")
    if conditioning not in ("df", "gradient"):
        raise ValueError(f"conditioning must be one of df, gradient; got {conditioning!r}")
    kind: Conditioning = SquaredErrorFeedback() if conditioning == "df" else SquaredErrorGradient()
    g = MemoryFunction(kind.size(1), units=g_units)
    return CSNRegressor(base, key_function, g, kind, temperature=temperature, attention=attention, shifted=shifted)
