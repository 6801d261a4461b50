"""Few-shot regression: compare CSNs with MAML and ridge regression, on sinusoids and on a table of scikit-learn.

    python benchmarks/regression.py            # results/shifts/regression.json
    python benchmarks/regression.py --seeds 1 --seconds 1 --out /tmp/regression.json

Sinusoids follow Finn et al. (2017): amplitude in [0.1, 5], phase in [0, pi], x in [-5, 5], 10 examples. The table is
the breast cancer data set: 569 rows of 30 standardised measurements. A task hides one measurement, shows it for 10 rows
and asks for it in other rows. The last 10 measurements and a third of the rows are used only for testing.

MAML has the setting of its authors: one inner step of 0.01. (Learned inner rates began at
0.01 and moved by 0.003 in a step of Adam; at 0.03 the inner loop diverged, and one training of three ended in NaN.)
Every learner trains for the same CPU time in one thread. Ridge regression is fitted only to the support. Its penalty
and the width of its kernel are the best of a grid on training tasks.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import vmap

from csn.baselines.maml import MAML
from csn.core.regression import Measurements, regressor
from csn.data.synthetic import seeded
from csn.engine.checkpoint import write_atomically
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes
from csn.networks.ffn import FFN, MLPKey
from shifts import BATCH, trained_for

SHOTS, QUERIES = 10, 10
TEST_TASKS, TEST_SEED = 600, 2 * 10**6
Draw = Callable[[torch.Generator, int, bool], tuple[Measurements, Measurements]]


def sinusoids(generator: torch.Generator, b: int, test: bool) -> tuple[Measurements, Measurements]:
    """y = amplitude * sin(x + phase)."""
    amplitude = 0.1 + 4.9 * torch.rand(b, 1, generator=generator)
    phase = math.pi * torch.rand(b, 1, generator=generator)
    x = 10 * torch.rand(b, SHOTS + QUERIES, generator=generator) - 5
    return _parts(x.unsqueeze(-1), amplitude * torch.sin(x + phase))


def table() -> Draw:
    """Predict one measurement of a table from the others, which are in their columns. Its own column is 0."""
    from sklearn.datasets import load_breast_cancer

    rows = torch.tensor(load_breast_cancer().data, dtype=torch.float32)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    cut = len(rows) * 2 // 3
    known = rows[order[:cut]]
    rows = (rows - known.mean(0)) / known.std(0)
    columns = torch.randperm(30, generator=torch.Generator().manual_seed(0))

    def draw(generator: torch.Generator, b: int, test: bool) -> tuple[Measurements, Measurements]:
        which, among = (order[cut:], columns[20:]) if test else (order[:cut], columns[:20])
        hidden = among[torch.randint(len(among), (b, 1), generator=generator)]
        picked = which[torch.rand(b, len(which), generator=generator).argsort(1)[:, : SHOTS + QUERIES]]
        x = rows[picked]
        place = hidden.unsqueeze(-1).expand(*x.shape[:2], 1)
        return _parts(x.scatter(-1, place, 0.0), x.gather(-1, place).squeeze(-1))

    return draw


def _parts(x: Tensor, y: Tensor) -> tuple[Measurements, Measurements]:
    return Measurements(x[:, :SHOTS], y[:, :SHOTS]), Measurements(x[:, SHOTS:], y[:, SHOTS:])


class MAMLRegressor(MAML):
    """MAML with the squared error."""

    def forward(self, support: Measurements, query: Measurements) -> Tensor:  # type: ignore[override]
        """The mean squared error on the queries."""
        parameters = vmap(lambda x, y: self.adapted(x, y, 1))(support.x, support.y)
        return F.mse_loss(vmap(self._call)(parameters, query.x).squeeze(-1), query.y)

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor, way: int) -> Tensor:
        return F.mse_loss(self._call(parameters, x).squeeze(-1), y)


def learners(inputs: int) -> dict[str, Callable[[], nn.Module]]:
    """Networks of one shape: two hidden layers of 64 units, keys of 32 numbers."""

    def csn(conditioning: Any) -> nn.Module:
        base, key = FFN(inputs, 1, units=64, dropout=0.0), MLPKey(inputs, size=32, units=64)
        return regressor(base, key, conditioning=conditioning, temperature=10.0)

    def maml() -> nn.Module:
        return MAMLRegressor(MLPKey(inputs, size=1, units=64), 2, inner_steps=1, inner_rate=0.01)

    return {"CSN, direct feedback": lambda: csn("df"), "CSN, gradient": lambda: csn("gradient"), "MAML": maml}


def train(learner: nn.Module, draw: Draw, seed: int, seconds: float) -> int:
    """Train for a fixed time. Return the number of tasks seen."""
    return trained_for(seconds, learner, lambda tasks: learner(*draw(seeded(seed, tasks), BATCH, False)))


def ridge(support: Measurements, x: Tensor, penalty: float, width: float | None) -> Tensor:
    """Predictions (b, m): linear around the mean of y, or with a Gaussian kernel of this width."""

    def kernel(one: Tensor, other: Tensor) -> Tensor:
        return one @ other.mT if width is None else torch.exp(-torch.cdist(one, other).square() / (2 * width**2))

    mean = support.y.mean(1, keepdim=True)
    eye = torch.eye(len(support))
    weights = torch.linalg.solve(kernel(support.x, support.x) + penalty * eye, (support.y - mean).unsqueeze(-1))
    return mean + (kernel(x, support.x) @ weights).squeeze(-1)


def best_ridge(draw: Draw, *, kernel: bool) -> tuple[float, float | None]:
    """Penalty and width with the least error on training tasks."""
    support, query = draw(seeded(TEST_SEED + 1, 0), 400, False)
    widths: tuple[float | None, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0) if kernel else (None,)
    grid = itertools.product((0.01, 0.1, 1.0, 10.0, 100.0), widths)
    return min(grid, key=lambda pair: float(F.mse_loss(ridge(support, query.x, *pair), query.y)))


def rows_of(name: str, draw: Draw, seeds: int, seconds: float) -> list[dict[str, Any]]:
    """Mean squared errors on the same test tasks."""
    support, query = draw(seeded(TEST_SEED, 0), TEST_TASKS, True)
    rows = []
    for label, kernel in (("ridge regression", False), ("kernel ridge regression", True)):
        chosen = best_ridge(draw, kernel=kernel)
        error = float(F.mse_loss(ridge(support, query.x, *chosen), query.y))
        rows.append({"data": name, "learner": label, "errors": [error], "penalty": chosen[0], "width": chosen[1]})
    mean = support.y.mean(1, keepdim=True).expand_as(query.y)
    rows.append({"data": name, "learner": "mean of the support", "errors": [float(F.mse_loss(mean, query.y))]})
    for label, build in learners(support.x.shape[-1]).items():
        errors, seen = [], []
        for seed in range(seeds):
            torch.manual_seed(seed)
            learner = build()
            seen.append(train(learner, draw, seed, seconds))
            errors.append(float(learner.eval()(support, query).detach()))
        rows.append({"data": name, "learner": label, "errors": errors, "seconds": seconds, "tasks": seen})
    return rows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of a learner (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of a training (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/shifts/regression.json"), help="default: %(default)s")
    options = parser.parse_args()
    torch.set_num_threads(1)
    made = origin("python benchmarks/regression.py")
    sets = {"sinusoids": sinusoids, "breast cancer": table()}
    rows = [row for name, draw in sets.items() for row in rows_of(name, draw, options.seeds, options.seconds)]
    shown = Table("data", "learner", "mean squared error", "over seeds")
    for row in rows:
        errors = row["errors"]
        spread = f"{min(errors):.3f} to {max(errors):.3f}" if len(errors) > 1 else ""
        shown.add_row(row["data"], row["learner"], f"{statistics.mean(errors):.3f}", spread)
    Console().print(shown)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, json_bytes({"rows": rows} | made))


if __name__ == "__main__":
    main()
