"""What all commands share: one console, plain lines, progress bars, and the machine they run on."""

from __future__ import annotations

import argparse
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

console = Console()


def say(line: str) -> None:
    """One line on the terminal as it is: no markup, no colours of numbers, no breaks in paths."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def said_warnings() -> Iterator[None]:
    """Where a warning is one plain line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        yield


class _Shrinking(TextColumn):
    """Text that ends in an ellipsis where the terminal is narrow, so that count and time left can be read."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class _Count(MofNCompleteColumn):
    """So many of so many, or a percentage where the units say nothing."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.percentage:.0f} %") if task.fields.get("in_percent") else super().render(task)


def progress_bar(*columns: str, remembers: float = 30.0) -> Progress:
    """A bar with a count and the time left, and text columns before it. remembers: the seconds by which it judges."""
    return Progress(
        *(_Shrinking(column, table_column=Column()) for column in columns),
        BarColumn(bar_width=20),  # with loss, accuracy and speed before it, 80 columns are enough
        _Count(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        console=console,
        speed_estimate_period=remembers,
    )


def advance(progress: Progress, bar: TaskID) -> Callable[[int], None]:
    """A callback that moves a bar."""
    return lambda done: progress.update(bar, completed=done)


def or_default(option: int | None, default: int) -> int:
    """An option, or its default where it was not given."""
    return default if option is None else option


def prepare_machine(options: argparse.Namespace, ranks: Ranks = ALONE) -> torch.device:
    """Threads, memory and the device that `options` ask for; of several processes, only the first one speaks."""
    console.quiet = not ranks.is_first
    if options.threads is not None:
        if options.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {options.threads}")
        torch.set_num_threads(options.threads)
    keep_freed_memory()
    return choose_device(options.device, None if ranks.is_alone else ranks.local)


class StopRequest:
    """Whether a signal has asked to stop, and the status to end with then."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self) -> bool:
        """Whether it has."""
        return self.number is not None

    @property
    def status(self) -> int:
        """130 for Ctrl-C; else 75, which tells a scheduler to start the command again (sysexits: EX_TEMPFAIL)."""
        return 130 if self.number == signal.SIGINT else 75


@contextmanager
def stop_signal() -> Iterator[StopRequest]:
    """The first Ctrl-C (or SIGTERM, or a closed terminal) asks a long job to save and stop; a second one ends the
    program at once."""
    request = StopRequest()

    def ask(number: int, frame: Any) -> None:
        if request():
            raise KeyboardInterrupt
        request.number = number
        if number == signal.SIGINT:  # a validation that is running is finished first, which may take a while
            with suppress(OSError):
                say("stopping, and saving before that; Ctrl-C again ends at once, without saving")

    numbers = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # nohup means it
        numbers.append(hangup)
    previous = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
