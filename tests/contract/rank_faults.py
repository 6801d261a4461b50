"""What goes wrong on one rank of two, one thing after the other; what each rank sees is written to a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import rank_cases
import torch

from csn.engine.distributed import Ranks, connected
from csn.engine.train import TrainingLoop


def message(function: Callable[[], object]) -> str:
    """What a function fails with, the name of the error first, or what it returns."""
    try:
        return f"returned {function()}"
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def disk_full() -> None:
    raise OSError(28, "No space left on device")


def broken(ranks: Ranks, folder: Path) -> TrainingLoop:
    """A training in which the loss of rank 1 is not a number."""
    loop = rank_cases.trainer("df", folder)
    loop.ranks = ranks
    if ranks.rank == 1:
        loop.learner.register_forward_hook(
            lambda learner, inputs, output: output._replace(loss=output.loss * torch.nan)
        )
    return loop


def with_step_of(count: int, ranks: Ranks, folder: Path) -> TrainingLoop:
    loop = rank_cases.trainer("df", folder)
    loop.ranks = ranks
    loop.config = rank_cases.dataclasses.replace(loop.config, tasks_per_step=count)
    return loop


def fails_on_rank_1(ranks: Ranks) -> None:
    with ranks.together():
        if ranks.rank == 1:
            raise ValueError("no data here")


def stopped(ranks: Ranks, folder: Path) -> str:
    """Rank 1 is asked to stop after its first step."""
    loop = rank_cases.trainer("df", folder)
    loop.ranks = ranks
    outcome = loop.run(should_stop=lambda: ranks.rank == 1 and loop.tasks >= 5)
    return f"{outcome} at {loop.tasks}"


def resumed(ranks: Ranks, folder: Path) -> str:
    loop = rank_cases.trainer("df", folder)
    loop.ranks = ranks
    loop.resume()
    return f"from {loop.tasks} {loop.run()}"


def main(out: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    seen: dict[str, str] = {}
    path = None
    try:
        with connected() as ranks:
            path = out / f"seen-{ranks.rank}.json"
            seen["options"] = message(lambda: ranks.check_same({"train.seed": 3, "train.clip": ranks.rank}))
            seen["data"] = message(lambda: ranks.prepared(lambda: ["rows"]))
            seen["one"] = message(lambda: fails_on_rank_1(ranks))
            seen["disk"] = message(lambda: ranks.first_only(disk_full))
            seen["few"] = message(lambda: with_step_of(1, ranks, out / "few").run())
            seen["last"] = message(lambda: with_step_of(7, ranks, out / "few").run())
            seen["loss"] = message(lambda: broken(ranks, out / "nan").run())
            seen["stop"] = message(lambda: stopped(ranks, out / "stopped"))
            seen["resume"] = message(lambda: resumed(ranks, out / "stopped"))
            if ranks.rank == 1:
                path.write_text(json.dumps(seen))
                os._exit(9)
            ranks.total(1.0)
    except ConnectionError as error:
        seen["dead"] = str(error)
    if path is not None:
        path.write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
