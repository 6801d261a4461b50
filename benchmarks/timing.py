"""The time of a task for each learner (appendix B and section 4.2), measured in one run, as tables and plots.

Times are ratios to the floor (csn.experiments.timing.floor) within interleaved repeats: [lower quartile, median, upper
quartile]. 11 repeats take about ten minutes.

    python benchmarks/timing.py [--repeats N] [--threads N] [--clock wall|processor] [--quick] [--tables] [--out FOLDER]

With an image size, a width or a recipe, only images are measured, without growth. The setting of appendix B is

    python benchmarks/timing.py --channels 3 --side 84 --filters 32 --recipe paper --clock processor \\
        --out results/benchmarks/timing-84
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from csn.engine.checkpoint import write_atomically
from csn.engine.machine import keep_freed_memory
from csn.engine.origin import origin
from csn.engine.steps import over, step_times
from csn.experiments.records.files import json_bytes, read_result
from csn.experiments.records.published import published
from csn.plots.drawing import blank_figure, png
from csn.printable import csv_text
from random_tasks import IMAGE, QUERIES
from timing_benches import (
    CLOCKS,
    DIRECT_FEEDBACK,
    FLOOR,
    GRADIENT,
    IMAGES,
    PHASES,
    Axis,
    Bench,
    Plan,
    image_bench,
    peak_memory,
)
from timing_pictures import growth_figure, timing_figure

MEASURED = "timing.json"
SECONDS, GROWTH_SECONDS = 0.15, 0.05  # of a repeat and contender
MEANING = (
    "time of a task as a ratio to the floor (the two networks of a CSN, without adaptation) in the same repeat: lower "
    "quartile, median, upper quartile; growth: to the floor at the first point; peak_mb: of a fresh process that takes "
    "two steps; added_mb: the part of it that the steps added"
)
Quartiles = list[float]


def run_timing(folder: Path, plan: Plan, *, tell: Callable[[str], None]) -> list[Path]:
    """Measure, and write timing.json, its tables and its pictures. Return the written files."""
    blank_figure(1)  # find out now whether matplotlib is missing, not after minutes of measuring
    content = measure_timing(plan, on_progress=tell)
    files = {folder / MEASURED: json_bytes(content)}
    files |= timing_files(folder, content)
    for path, data in files.items():
        write_atomically(path, data)
    return list(files)


def timing_files(folder: Path, content: dict[str, Any] | None = None) -> dict[Path, bytes]:
    """timing.md, timing.csv, timing.png and, if growth was measured, growth.png of a measurement.

    Args:
        folder: the folder of the files.
        content: the measurement, or None for the measurement in the folder, if there is one.
    """
    if content is None:
        if not (folder / MEASURED).exists():
            return {}
        content = read_result(folder / MEASURED)
    try:
        files = {
            folder / "timing.md": timing_page(content).encode(),
            folder / "timing.csv": timing_csv(content).encode(),
            folder / "timing.png": png(timing_figure(content), about=in_words(content, growth=False)),
        }
        if content["growth"]:
            files[folder / "growth.png"] = png(growth_figure(content), about=in_words(content, growth=True))
        return files
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # damaged, or of another version
        raise ValueError(
            f"{folder / MEASURED} is not a measurement of this program ({error!r}): measure again, or move it away"
        ) from error


def in_words(content: dict[str, Any], *, growth: bool) -> str:
    """The contents of a picture, one number in each line. A test compares committed pictures with their measurement."""
    return "\n".join(line for line in timing_csv(content).splitlines()[1:] if line.startswith("growth,") == growth)


def measure_timing(plan: Plan, *, on_progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """timing.json."""
    peaks = [(name, each, phase) for name in plan.benches for each in plan.benches[name].contenders for phase in PHASES]
    peaks = [("images", FLOOR, "inference")] if plan.quick else peaks
    tell = _counted(on_progress, len(PHASES) * (len(plan.benches) + len(plan.axes)) + len(peaks))
    before = torch.get_num_threads()
    torch.set_num_threads(plan.threads)
    keep_freed_memory()
    try:
        content = _measured(plan, tell)
        rows = {(row["bench"], row["learner"]): row for row in content["rows"]}
        for name, each, phase in peaks:
            tell(f"{name}, memory of {each}, {phase}")
            peak = peak_memory(plan.benches[name], each, phase, threads=plan.threads)
            rows[name, each]["peak_mb"][phase], rows[name, each]["added_mb"][phase] = peak
        how = {"repeats": plan.repeats, "quick": plan.quick, "clock": plan.clock, "time": MEANING}
        return {**content, **how, **origin("python benchmarks/timing.py")}
    finally:
        torch.set_num_threads(before)


def _counted(tell: Callable[[str], None] | None, total: int) -> Callable[[str], None]:
    """`tell` with the progress."""
    numbers = iter(range(1, total + 1))
    return lambda what: None if tell is None else tell(f"{next(numbers)} of {total}: {what}")


def _measured(plan: Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure all times."""
    rows, floor_seconds, gradient_over_df = [], {}, {}
    for name, bench in plan.benches.items():
        times = {}
        for phase in PHASES:
            tell(f"{name}, {phase}")
            steps = {contender: bench.step(contender, phase) for contender in bench.contenders}
            times[phase] = step_times(steps, plan.repeats, 0 if bench.small else SECONDS, CLOCKS[plan.clock])
        floor_seconds[name] = {p: round(statistics.median(times[p][FLOOR]) / bench.tasks, 6) for p in PHASES}
        for contender in bench.contenders:
            ratios = {phase: _quartiles(over(times[phase][contender], times[phase][FLOOR])) for phase in PHASES}
            rows.append({"bench": name, "learner": contender, "time": ratios, "peak_mb": {}, "added_mb": {}})
        if GRADIENT in bench.presets:
            gradient_over_df = {p: _quartiles(over(times[p][GRADIENT], times[p][DIRECT_FEEDBACK])) for p in PHASES}
    settings = {name: _setting(bench) for name, bench in plan.benches.items()}
    growth = [_growth(axis, plan, tell) for axis in plan.axes]
    return {
        "rows": rows,
        "benches": settings,
        "floor_seconds": floor_seconds,
        "gradient_over_df": gradient_over_df,
        "growth": growth,
    }


def _growth(axis: Axis, plan: Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    """Time of a task at each point. All points and contenders of a phase take turns."""
    benches = {point: axis.at(point) for point in axis.points}
    curves: dict[str, dict[str, list[Quartiles]]] = {}
    for phase in PHASES:
        tell(f"growth over {axis.name}, {phase}")
        steps = {(p, name): bench.step(name, phase) for p, bench in benches.items() for name in bench.contenders}
        seconds = step_times(steps, plan.repeats, 0 if axis.bench.small else GROWTH_SECONDS, CLOCKS[plan.clock])
        times = {(p, name): [value / benches[p].tasks for value in values] for (p, name), values in seconds.items()}
        unit = times[axis.points[0], FLOOR]
        curves[phase] = {
            name: [_quartiles(over(times[point, name], unit)) for point in axis.points]
            for name in axis.bench.contenders
        }
    return {"axis": axis.name, "points": list(axis.points), "bench": _setting(axis.bench, axis.field), "curves": curves}


def _quartiles(values: list[float]) -> Quartiles:
    return [round(value, 3) for value in statistics.quantiles(values, n=4)]


def _setting(bench: Bench, grows: str = "") -> dict[str, Any]:
    """The setting of a bench, without the sizes that grow."""
    network = bench.config(FLOOR).as_dict()["network"]
    fixed = {"way": bench.way, "shot": bench.shot, "queries": QUERIES, "tasks": bench.tasks}
    if bench.words is None:
        fixed |= {"side": bench.image[-1], "filters": network["filters"]}
    else:
        fixed |= {"words": bench.words, "units": network["units"]}
    return {name: value for name, value in fixed.items() if name != grows} | {"recipe": bench.recipe}


def timing_page(content: dict[str, Any]) -> str:
    """timing.md."""
    pictures = "![Time of a task](timing.png)\n" + "\n![Growth](growth.png)\n" * bool(content["growth"])
    return f"# What a task costs\n\n{timing_markdown(content)}\n{pictures}"


def timing_markdown(content: dict[str, Any]) -> str:
    """A table for each bench and each axis of growth: medians, quartiles in brackets."""
    parts = []
    for bench, setting in content["benches"].items():
        floor = content["floor_seconds"][bench]
        rows = [row for row in content["rows"] if row["bench"] == bench]
        cells = [(r["learner"], *(_cell(r["time"][p]) for p in PHASES), *(_memory(r, p) for p in PHASES)) for r in rows]
        if bench == "sentences":
            ratio = [_cell(content["gradient_over_df"][phase]) for phase in PHASES]
            cells.append(("gradient / direct feedback", *ratio, "", ""))
            cells.append((f"the same in the paper, {_paper_seconds()}", "", f"{paper_gradient_over_df():.2f}", "", ""))
        parts.append(
            f"{bench.capitalize()}: {_words(setting)}. The floor takes {1000 * floor['train']:.1f} ms a task in "
            f"training and {1000 * floor['inference']:.1f} ms in inference."
        )
        head = ("learner", *(f"{phase}, x the floor" for phase in PHASES), *(f"peak MB, {phase}" for phase in PHASES))
        parts.append(_table(head, cells))
    for growth in content["growth"]:
        parts.append(f"Growth over {growth['axis']}, x the floor at {growth['points'][0]}: {_words(growth['bench'])}.")
        curves = [(name, p, *map(_cell, curve)) for p in PHASES for name, curve in growth["curves"][p].items()]
        parts.append(_table(("learner", "phase", *map(str, growth["points"])), curves))
    return "\n\n".join(parts) + "\n"


def timing_csv(content: dict[str, Any]) -> str:
    """A line for each number. A number without quartiles is in the column median."""
    header = ("measure", "of", "point", "learner", "phase", "lower quartile", "median", "upper quartile")
    return csv_text([header, *_lines(content)])


def _lines(content: dict[str, Any]) -> Iterator[Sequence[Any]]:
    for bench, seconds in content["floor_seconds"].items():
        yield from (("floor, seconds a task", bench, "", FLOOR, phase, "", seconds[phase], "") for phase in PHASES)
    for row in content["rows"]:
        bench, learner = row["bench"], row["learner"]
        yield from (("x the floor", bench, "", learner, phase, *row["time"][phase]) for phase in PHASES)
        for measure in ("peak_mb", "added_mb"):
            yield from ((measure, bench, "", learner, phase, "", value, "") for phase, value in row[measure].items())
    for phase, quartiles in content["gradient_over_df"].items():
        yield "gradient / direct feedback", "sentences", "", "adalstm-2", phase, *quartiles
    for growth in content["growth"]:
        for phase, curves in growth["curves"].items():
            for learner, curve in curves.items():
                for point, quartiles in zip(growth["points"], curve, strict=True):
                    yield "growth", growth["axis"], point, learner, phase, *quartiles


def paper_gradient_over_df() -> float:
    """The paper's measurement (section 4.2)."""
    seconds = published()["timing"]
    return float(seconds[GRADIENT]["seconds"]) / float(seconds[DIRECT_FEEDBACK]["seconds"])


def _paper_seconds() -> str:
    seconds = published()["timing"]
    return f"{seconds[GRADIENT]['seconds']} s / {seconds[DIRECT_FEEDBACK]['seconds']} s for 400 test tasks"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines])


def _cell(quartiles: Quartiles) -> str:
    low, middle, high = quartiles
    return f"{middle:.2f} ({low:.2f} - {high:.2f})"


def _memory(row: dict[str, Any], phase: str) -> str:
    return f"{row['peak_mb'][phase]} (+{row['added_mb'][phase]})" if phase in row["peak_mb"] else ""


def _words(setting: dict[str, Any]) -> str:
    """The fixed sizes in words: 5-way 1-shot, ..."""
    names = {
        "way": "{}-way",
        "shot": "{}-shot",
        "queries": "{} queries a class",
        "tasks": "{} task a step" if setting.get("tasks") == 1 else "{} tasks a step",
        "side": "{0} x {0} pixels",
        "words": "{} words a sentence",
        "filters": "{} filters",
        "units": "{} units a layer",
        "recipe": "{} recipe",
    }
    return ", ".join(text.format(setting[name]) for name, text in names.items() if name in setting)


def main() -> None:
    """Measure and write, or only write the tables and pictures of a measurement again."""
    parser = argparse.ArgumentParser(description="What a task costs each learner.")
    parser.add_argument("--repeats", type=int, default=11, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny networks, for a trial")
    parser.add_argument("--channels", type=int, default=IMAGE[0], help="channels of images (default: %(default)s)")
    parser.add_argument("--side", type=int, default=IMAGE[-1], help="side of images in pixels (default: %(default)s)")
    parser.add_argument("--filters", type=int, help="filters of the networks of images (default: those of the presets)")
    parser.add_argument(
        "--recipe", default=IMAGES.recipe, help="recipe of the learners of images (default: %(default)s)"
    )
    parser.add_argument("--tables", action="store_true", help="only the tables and pictures of the file that is there")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/timing"), help="default: %(default)s")
    options = parser.parse_args()
    if options.tables:
        for path, content in timing_files(options.out).items():
            write_atomically(path, content)
    else:
        run_timing(options.out, planned(options), tell=print)


def planned(options: argparse.Namespace) -> Plan:
    """All benches, or only images if they have another size, width or recipe."""
    plan = Plan(repeats=options.repeats, threads=options.threads, clock=options.clock)
    bench = image_bench(channels=options.channels, side=options.side, filters=options.filters, recipe=options.recipe)
    if bench != IMAGES:
        plan = replace(plan, benches={"images": bench}, axes=())
    return plan.made_quick() if options.quick else plan


if __name__ == "__main__":
    main()
