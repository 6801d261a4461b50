"""What all commands share: the console, plain lines, progress bars, the machine, and requests to stop."""

from __future__ import annotations

import argparse
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from csn.engine.distributed import ALONE, Ranks
from csn.engine.machine import choose_device, keep_freed_memory
from csn.printable import printable

console = Console()
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def say(line: str) -> None:
    """Print one line: no markup, no colours, no line breaks in paths, control characters as text."""
    console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def said_warnings() -> Iterator[None]:
    """Print each warning as one plain line while this context is open."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        yield


class _Shrinking(TextColumn):
    """Text that a narrow terminal cuts with an ellipsis, so that count and time left stay visible."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Count(MofNCompleteColumn):
    """DONE/TOTAL, or a percentage if the units mean nothing to the user."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.percentage:.0f} %") if task.fields.get("in_percent") else super().render(task)


def progress_bar(*columns: str, remembers: float = 30.0) -> Progress:
    """A progress bar with a count and the time left.

    Args:
        columns: The text columns in front of the bar.
        remembers: The time left is estimated from the speed of this many seconds.
    """
    return Progress(
        *(_Shrinking(column, table_column=Column()) for column in columns),
        BarColumn(bar_width=20),  # fits 80 columns with loss, accuracy and speed in front
        _Count(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        console=console,
        speed_estimate_period=remembers,
    )


def advance(progress: Progress, bar: TaskID) -> Callable[[int], None]:
    """A callback that moves a bar."""
    return lambda done: progress.update(bar, completed=done)


def or_default(option: int | None, default: int) -> int:
    """The option, or the default if it was not given."""
    return default if option is None else option


def read_seconds(text: str) -> float:
    """'30m' -> 1800; also 90s, 2h, or plain seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"cannot read the budget {text!r}: write 90s, 30m or 2h")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def prepare_machine(options: argparse.Namespace, ranks: Ranks = ALONE) -> torch.device:
    """Set up threads and memory, and return the device. Of several processes only the first prints."""
    console.quiet = not ranks.is_first
    if options.threads is not None:
        if options.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {options.threads}")
        torch.set_num_threads(options.threads)
    keep_freed_memory()
    return choose_device(options.device, None if ranks.is_alone else ranks.local)


class StopRequest:
    """Whether a signal has asked to stop, and the exit status for it."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self) -> bool:
        """Whether a signal has asked to stop."""
        return self.number is not None

    @property
    def status(self) -> int:
        """130 for Ctrl-C, otherwise 75 (EX_TEMPFAIL), which tells a scheduler to restart the command."""
        return 130 if self.number == signal.SIGINT else 75


@contextmanager
def stop_signal() -> Iterator[StopRequest]:
    """Let the first Ctrl-C, SIGTERM or hang-up ask a long job to save and stop. A second one ends it at once."""
    request = StopRequest()

    def ask(number: int, frame: Any) -> None:
        if request():
            raise KeyboardInterrupt
        request.number = number
        if number == signal.SIGINT:  # a running validation finishes first, which may take a while
            with suppress(OSError):
                say("saving and stopping; press Ctrl-C again to stop at once without saving")

    numbers = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # nohup ignores hang-ups on purpose
        numbers.append(hangup)
    previous = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
