"""The log of a run: one JSON line for every 100 tasks and every validation."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from csn.engine.checkpoint import write_atomically
from csn.engine.pretrain import FOLDER as PRETRAIN_FOLDER
from csn.engine.reports import Listener, StepReport, ValidationReport
from csn.engine.train import LOG_EVERY, TrainingLoop


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The records of log.jsonl. Damaged lines are skipped, such as a last line that was cut off."""
    records = []
    path = folder / "log.jsonl"
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError, RecursionError):  # a number may have too many digits
            record = json.loads(line)
            if isinstance(record, dict) and all(_is_number(record.get(name)) for name in ("tasks", "seconds")):
                records.append(record)
    return records


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@contextlib.contextmanager
def run_log(trainer: TrainingLoop) -> Iterator[Listener]:
    """A listener that writes log.jsonl, from the trainer's current task on.

    It writes TensorBoard files too if tensorboard is installed.
    """
    folder, steps = trainer.folder, trainer.unlogged
    kept = [record for record in read_log(folder) if record["tasks"] <= trainer.tasks]
    path = folder / "log.jsonl"
    write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
    before = kept or read_log(folder / PRETRAIN_FOLDER)  # the time of the pretraining counts as time of the run
    earlier = before[-1]["seconds"] if before else 0.0
    started = time.monotonic()
    board = _tensorboard(folder)

    with path.open("a", encoding="utf-8") as file:

        def listener(report: StepReport | ValidationReport) -> None:
            record: dict[str, Any] = {"tasks": report.tasks, "seconds": round(earlier + time.monotonic() - started, 1)}
            if isinstance(report, StepReport):
                if report.tasks // LOG_EVERY == (report.tasks - 1) // LOG_EVERY and len(steps) < LOG_EVERY:
                    return
                record["train"] = {
                    "loss": sum(step.loss for step in steps) / len(steps),
                    "accuracy": sum(step.accuracy for step in steps) / len(steps),
                }
                steps.clear()
            else:
                record["validation"] = {
                    "accuracy": report.accuracy,
                    "interval": report.interval,
                    "best": report.best,
                    **({} if report.perplexity is None else {"perplexity": report.perplexity}),
                }
            file.write(json.dumps(record) + "\n")
            file.flush()
            if board:
                kind = "train" if "train" in record else "validation"
                for name, value in record[kind].items():
                    board.add_scalar(f"{kind}/{name}", float(value), report.tasks)

        try:
            yield listener
        finally:
            if board:
                board.close()


def _tensorboard(folder: Path) -> Any:
    """A TensorBoard writer, or None if tensorboard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(folder / "tensorboard")
