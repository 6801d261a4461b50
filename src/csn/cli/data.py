"""`csn data`, and how all commands load data with a progress bar."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from csn.cli.lists import datasets
from csn.cli.terminal import console, progress_bar, say
from csn.config import DataConfig, changed
from csn.data.fetch import Progress as Report
from csn.data.images.folder import NAMED, ImageReport, check_images
from csn.data.images.options import SIZE
from csn.data.registry import (
    LoadOptions,
    as_path,
    data_entry,
    dataset_names,
    load_data,
    load_running_text,
)
from csn.data.source import SPLITS, Dataset
from csn.engine.run import TrainedRun


def data(options: argparse.Namespace) -> int:
    """Run `csn data`. `csn data check` returns 1 if it finds problems."""
    if options.action == "list":
        return datasets()
    if options.name is None:
        raise ValueError(
            f"csn data {options.action} needs a path or the name of a data set: {', '.join(dataset_names())}"
        )
    name = data_name(options.name)
    if options.action == "check" and name not in dataset_names() and data_entry(name).resizable:
        return _check(Path(name), options.image_size or SIZE)
    loaded = load(DataConfig(name, image_size=options.image_size, bad_files=options.bad_files or "stop"))
    table = Table("split", "classes", "examples", "smallest class", "input", title=loaded.name)
    for split in SPLITS:
        classes = loaded.splits[split]
        table.add_row(
            split,
            str(len(classes)),
            str(len(classes.x)),
            str(classes.counts.min()),
            " x ".join(map(str, classes.x.shape[1:])),
        )
    console.print(table)
    return 0


def load(config: DataConfig, run: TrainedRun | None = None) -> Dataset:
    """Load the configured data set, and show a progress bar if that takes long.

    Args:
        config: The data set, and how to read it.
        run: A run. Images are resized to the size that it was trained on.
    """
    size = config.image_size
    if run is not None and data_entry(config.name).resizable:
        size = run.metadata["about"]["input"][-1]
    with _bar(config.name) as report:
        options = LoadOptions(report, size, config.bad_files)
        if run is not None and run.config.learner.trained_on == "text":
            return load_running_text(config.name, options).tasks
        return load_data(config.name, options)


def chosen_data(options: argparse.Namespace, run: TrainedRun | None) -> DataConfig:
    """The data that the options ask for; otherwise the data that the run was trained on."""
    config = DataConfig() if run is None else run.config.data
    changes = {"name": options.data and data_name(options.data), "bad_files": options.bad_files}
    return changed("data", config, {name: value for name, value in changes.items() if value is not None})


def data_name(text: str) -> str:
    """A known name unchanged, or the absolute path, so that a run finds its data from any folder."""
    path = None if text in dataset_names() else as_path(text)
    return text if path is None else str(path)


def _check(path: Path, size: int) -> int:
    """Report on images of the user's own."""
    with _bar(path.name) as progress:
        report = check_images(path, size=size, progress=progress)
    table = Table("split", "classes", "images", "smallest class", "largest class", title=path.name)
    for split in SPLITS:
        counts = list(report.counts[split].values())
        extremes = (str(min(counts)), str(max(counts))) if counts else ("", "")
        table.add_row(split, str(len(counts)), str(sum(counts)), *extremes)
    console.print(table)
    say(f"size of the images: {_sizes(report)}; csn resizes them to {size} x {size}")
    _several("problem", [f"{where}: {why}" for where, why in report.problems])
    _several("image in more than one split", [" = ".join(names) for names in report.duplicates])
    _several("file of another kind, ignored", report.ignored)
    if report.problems:
        say("--bad-files skip leaves out these files and classes")
    return 1 if report.problems or report.duplicates else 0


def _sizes(report: ImageReport) -> str:
    if len(report.sizes) <= 3:
        return ", ".join(f"{width} x {height} ({count})" for (width, height), count in report.sizes.items()) or "none"
    widths, heights = zip(*report.sizes, strict=True)
    middle = statistics.median_low(sorted(size for size, count in report.sizes.items() for _ in range(count)))
    return (
        f"{min(widths)} x {min(heights)} to {max(widths)} x {max(heights)}, median {middle[0]} x {middle[1]}, "
        f"{len(report.sizes)} different sizes"
    )


def _several(what: str, lines: Sequence[str]) -> None:
    """Print a count and the lines below it: all problems, but only the first of other kinds."""
    if not lines:
        return
    say(f"{len(lines)} x {what}:")
    for line in lines if what == "problem" else lines[:NAMED]:
        say(f"  {line}")
    if what != "problem" and len(lines) > NAMED:
        say(f"  and {len(lines) - NAMED} more")


@contextmanager
def _bar(name: str) -> Iterator[Report]:
    """A callback that starts a progress bar at its first call: cached data need none."""
    progress = progress_bar("{task.description}")

    def report(done: int, total: int) -> None:
        if not progress.tasks:
            progress.add_task(Path(name).name, total=None)
            progress.start()
        progress.update(progress.tasks[0].id, completed=done, total=total or None)

    try:
        yield report
    finally:
        if progress.tasks:
            progress.stop()
