"""Where shifts matter: every arm on every family of synthetic tasks, with equal training times.

    python benchmarks/shifts.py                          # all cells, a file in results/shifts for each family
    python benchmarks/shifts.py --families rule xor --arms df-all matching --seeds 0 --folder /tmp/shifts
    python benchmarks/shifts.py --page docs/where-shifts-matter.md --figure docs/images/shifts.png   # of what is there

Each arm trains for a fixed CPU time in one thread, so other programs do not matter. Its learning rate falls to 0 over
that time. The test uses tasks that no arm was trained on. Cells that a file already holds are not made again, so an
interrupted study continues where it stopped. Each cell records its commit.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from torch import Tensor, nn

from csn.baselines.embedding import Embedded
from csn.baselines.finetune import FineTunedOptions
from csn.baselines.maml import MAMLOptions
from csn.baselines.matching import MatchingNetwork, MatchingOptions
from csn.baselines.prototypical import PrototypicalOptions
from csn.building import build
from csn.core.model import CSNOptions
from csn.core.parts import LearnerOptions, Parts
from csn.core.repeated import CSNHead, HeadOptions
from csn.data.synthetic import FAMILIES, SIZE, Family
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import task_accuracies
from csn.engine.origin import commit, origin
from csn.episode import Episode
from csn.experiments.records.files import json_bytes
from csn.learner import FewShotLearner
from csn.networks.ffn import FFNOptions, MLPKey
from csn.plots.drawing import png
from shift_pictures import STYLES, shifts_figure

UNITS, LAYERS, KEY, BATCH, RATE = 64, 4, 32, 32, 3e-3
TEST_TASKS, TEST_SEED = 600, 2 * 10**6  # training seeds are far below
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Repeated(MatchingNetwork):
    """A Matching Network in training; in a test, its keys are described again and again (core/repeated.py)."""

    def compare(self, queries: Tensor, task: Embedded) -> Tensor:
        """(b, m, d) -> (b, m, way)."""
        if self.training:
            return super().compare(queries, task)
        head, answers = CSNHead(HeadOptions(decay=0.1, centre=False)), []
        for keys, labels, asked in zip(task.embeddings, task.labels, queries, strict=True):
            answers.append(head.predict(asked, head.describe(keys, labels, task.way)))
        return torch.stack(answers)


class RepeatedOptions(MatchingOptions):
    """Options of `Repeated`."""

    def build(self, parts: Parts) -> Repeated:
        """Build it over the key function's outputs."""
        return Repeated(parts.key_function(), parts.way, temperature=self.temperature)


ARMS: Mapping[str, LearnerOptions] = {
    "df-all": CSNOptions(conditioning="df", temperature=10.0),
    "matching": MatchingOptions(temperature=10.0),
    "df-output": CSNOptions(conditioning="df", temperature=10.0, shifted="output"),
    "df-hidden": CSNOptions(conditioning="df", temperature=10.0, shifted="hidden"),
    "gradient-all": CSNOptions(conditioning="gradient", temperature=10.0),
    "none": CSNOptions(conditioning="df", temperature=10.0, shifted="none"),
    "prototypical": PrototypicalOptions(),
    "maml": MAMLOptions(inner_steps=3, inner_rate=0.1, rate="each"),
    "finetune": FineTunedOptions(),
    "repeated": RepeatedOptions(temperature=10.0),
}


class Seen(nn.Module):
    """A key function that is given only the first numbers of an example."""

    def __init__(self, seen: int) -> None:
        super().__init__()
        self.seen = seen
        self.network = MLPKey(seen, size=KEY, units=UNITS, layers=LAYERS)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, SIZE) -> (examples, KEY)."""
        return self.network(x[:, : self.seen])


def learner_of(arm: str, family: Family) -> FewShotLearner[Any]:
    """Build an arm for a family. All arms have the same network and the same key function."""
    options = ARMS[arm]
    network = FFNOptions(units=UNITS, layers=LAYERS)
    key = Seen(family.key_sees) if options.uses_key else None
    return build(options, reads=(SIZE,), way=family.sizes.way, network=network, key=key, key_size=KEY)


class Tasks(Protocol):
    """A source of tasks, such as a `Family`."""

    def batch(self, seed: int, first: int, tasks: int) -> Episode:
        """Tasks first ... first + tasks - 1 of a seed."""


def train(
    learner: FewShotLearner[Any], family: Tasks, seed: int, seconds: float, *, batch: int = BATCH, rate: float = RATE
) -> int:
    """Train for a fixed time. Return the number of tasks seen."""
    return trained_for(seconds, learner, lambda tasks: learner(family.batch(seed, tasks, batch)).loss, batch, rate)


def trained_for(
    seconds: float, learner: nn.Module, loss_of: Callable[[int], Tensor], batch: int = BATCH, rate: float = RATE
) -> int:
    """Train with Adam and a cosine schedule for a fixed time, and return the number of tasks seen.

    `loss_of` gives the loss of the next batch, from the number of tasks seen.
    """
    optimizer = torch.optim.Adam(learner.parameters(), lr=rate, fused=True)
    started, tasks = time.process_time(), 0
    while (part := (time.process_time() - started) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * part)) / 2
        optimizer.zero_grad(set_to_none=True)
        loss_of(tasks).backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 5.0)
        optimizer.step()
        tasks += batch
    return tasks


def accuracy(learner: FewShotLearner[Any], family: Family) -> float:
    """The mean accuracy over test tasks, which are the same for every arm and seed."""
    learner.eval()
    found = []
    for first in range(0, TEST_TASKS, 200):
        episode = family.batch(TEST_SEED, first, 200)
        with torch.no_grad():
            found.append(task_accuracies(learner(episode).logits, episode.query.y))
    return float(torch.cat(found).mean())


def cell(name: str, arm: str, seed: int, seconds: float) -> dict[str, Any]:
    """One training and its test."""
    family = FAMILIES[name]
    torch.manual_seed(seed)
    learner = learner_of(arm, family)
    tasks = train(learner, family, seed, seconds)
    row = {"family": name, "arm": arm, "seed": seed, "seconds": seconds, "tasks": tasks}
    return row | {"accuracy": round(accuracy(learner, family), 5), "commit": commit()}


def interval(values: list[float]) -> float:
    """Half of the 95 % t interval over seeds."""
    return T_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def by_cell(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[int, float]]]:
    """family -> arm -> seed -> accuracy in per cent."""
    found: dict[str, dict[str, dict[int, float]]] = {name: {} for name in FAMILIES}
    for row in rows:
        found[row["family"]].setdefault(row["arm"], {})[row["seed"]] = 100 * row["accuracy"]
    return {name: arms for name, arms in found.items() if arms}


def mean_of(values: Iterable[float]) -> tuple[float, float]:
    """The mean and half of its interval, which is NaN for one seed."""
    listed = list(values)
    return statistics.mean(listed), interval(listed)


def in_words(values: Iterable[float], *, sign: str = "") -> str:
    """A mean, the ends of its interval if it has one, and its number of seeds."""
    listed = list(values)
    if not listed:
        return ""
    mean, half = mean_of(listed)
    ends = "" if math.isnan(half) else f" [{mean - half:{sign}.1f}, {mean + half:{sign}.1f}]"
    return f"{mean:{sign}.1f}{ends} ({len(listed)})"


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print Markdown tables of accuracies, and of the differences between all shifts and each other arm by seed."""
    cells = by_cell(rows)
    arms = [arm for arm in STYLES if any(arm in of for of in cells.values())]
    for title, others, sign in (("accuracy, %", arms, ""), ("CSN with all shifts less ...", arms[1:], "+")):
        console.print(f"| {title} | {' | '.join(STYLES[arm].label for arm in others)} |", soft_wrap=True)
        console.print(f"|---|{'---|' * len(others)}")
        for name, of in cells.items():
            found = [of.get(arm, {}) if not sign else _less(of["df-all"], of.get(arm, {})) for arm in others]
            texts = [in_words(values.values(), sign=sign) for values in found]
            console.print(f"| {name} | {' | '.join(texts)} |", soft_wrap=True)
        console.print()


def fill(rows: list[dict[str, Any]], path: Path) -> None:
    """Put the tables between the marks of a page."""
    tables = io.StringIO()
    show(rows, Console(file=tables, width=100))
    before, mark, rest = path.read_text(encoding="utf-8").partition("<!-- shifts -->\n")
    _, end, after = rest.partition("<!-- /shifts -->")
    if not mark or not end:
        raise SystemExit(f"{path} has no marks <!-- shifts --> and <!-- /shifts -->: the tables go between them")
    write_atomically(path, f"{before}{mark}{tables.getvalue().strip()}\n{end}{after}".encode())


def _less(these: dict[int, float], those: dict[int, float]) -> dict[int, float]:
    return {seed: these[seed] - those[seed] for seed in these if seed in those}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The figure."""
    cells = {name: {arm: mean_of(values.values()) for arm, values in of.items()} for name, of in by_cell(rows).items()}
    about = {name: family.about for name, family in FAMILIES.items()}
    chance = {name: 100 / family.sizes.way for name, family in FAMILIES.items()}
    figure = shifts_figure(cells, about, chance, title="Where shifts matter: accuracy with 95 % intervals over seeds")
    write_atomically(path, png(figure, "accuracy of few-shot learners on families of synthetic tasks"))


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The cells of every family's file."""
    files = sorted(folder.glob("shifts-*.json"))
    if not files:
        raise SystemExit(f"no results in {folder}: make some with python benchmarks/shifts.py")
    return [row for path in files for row in json.loads(path.read_text())["rows"]]


def make(name: str, options: argparse.Namespace, console: Console) -> None:
    """The cells of a family that are missing."""
    path = options.folder / f"shifts-{name.replace(' ', '-')}.json"
    made = origin("python benchmarks/shifts.py")
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["arm"], row["seed"]) for row in rows}
    for seed, arm in itertools.product(options.seeds, options.arms):
        if (arm, seed) in done:
            continue
        rows.append(cell(name, arm, seed, options.seconds))
        console.print(rows[-1])
        options.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json_bytes({"rows": rows} | made))


def main() -> None:
    """Make the missing cells, or print or draw all cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="default: 0 1 2 3 4")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of a training (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("results/shifts"), help="default: %(default)s")
    parser.add_argument("--show", action="store_true", help="only print the tables of the cells that exist")
    parser.add_argument("--page", type=Path, metavar="FILE", help="only fill a page with these tables")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="only draw the cells that exist")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    if options.show:
        show(rows_in(options.folder), console)
    if options.page:
        fill(rows_in(options.folder), options.page)
    if options.figure:
        draw(rows_in(options.folder), options.figure)
    if not (options.show or options.page or options.figure):
        for name in options.families:
            make(name, options, console)


if __name__ == "__main__":
    main()
