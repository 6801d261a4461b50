"""Where shifts matter on real drawings: frozen keys, trained on Omniglot, tested on Omniglot, glyphs and doodles.

    python benchmarks/shifts_real.py --key random        # results/shifts/real-random.json
    python benchmarks/shifts_real.py --key characters    # results/shifts/real-characters.json
    python benchmarks/shifts_real.py --show              # the tables of what is there

Keys are computed once and never trained. "random" is a CNN of random weights, another one for each seed; its keys are
centred on the mean of the training drawings, because otherwise they have nearly one direction. "characters" is the key
function of the weights that come with csn. An arm trains for a fixed CPU time on 5-way tasks of Omniglot's background
alphabets, 1 and 5 shots in turn. All arms are tested on the same tasks. Cells that a file already has are not made
again. benchmarks/drawings.py says where doodles come from.
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

import csn
from csn.building import build
from csn.classifier.pretrained import open_shipped
from csn.core.neurons import ShiftRule
from csn.core.parts import LearnerOptions
from csn.data.source import ClassExamples, Dataset, EpisodeSource, as_input
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import EVALUATION_SEED, evaluate
from csn.engine.origin import commit, origin
from csn.episode import Episode
from csn.experiments.records.files import json_bytes
from csn.learner import FewShotLearner, InputSpec
from csn.networks.cnn import CNN, CNNKey
from drawings import prepared
from shift_pictures import STYLES
from shifts import ARMS, train

IMAGE, PIXELS = (1, 28, 28), 28 * 28
WAY, QUERIES, FILTERS, RANDOM_SIZE = 5, 5, 32, 64
BATCH, RATE, TEST_TASKS = 4, 1e-3, 100
COMPARED = ("df-all", "df-output", "df-hidden", "matching")
SHOTS = {"omniglot": (1, 5, 15), "glyphs": (1, 5, 20), "doodles": (1, 5, 20)}  # Omniglot has 20 drawings of a class


class OfPixels(CNN):
    """adaCNN for rows that hold the pixels of a drawing, followed by its key."""

    def __init__(self, way: int, shift_rule: ShiftRule = "squashed") -> None:
        super().__init__(IMAGE, way, filters=FILTERS, shift_rule=shift_rule)

    def check_input(self, x: Tensor) -> None:
        """Rows of at least as many numbers as a drawing has pixels."""
        if x.shape[-1] <= PIXELS:
            raise ValueError(f"expected {PIXELS} pixels and a key, got rows of {x.shape[-1]} numbers: append the keys")

    def stem(self, x: Tensor) -> Tensor:
        """(examples, pixels and key) -> (examples, filters, 7, 7)."""
        return super().stem(x[:, :PIXELS].unflatten(1, IMAGE))


class FrozenKey(nn.Module):
    """The key that a row holds."""

    def forward(self, x: Tensor) -> Tensor:
        """(examples, pixels and key) -> (examples, d)."""
        return x[:, PIXELS:]


@dataclass(frozen=True)
class OneAndFiveShots:
    """Training tasks of 1 and of 5 shots, one batch of each in turn."""

    data: Dataset

    def batch(self, seed: int, first: int, tasks: int) -> Episode:
        """Tasks first ... first + tasks - 1 of a seed."""
        shot = (1, 5)[first // tasks % 2]
        source = EpisodeSource(self.data, "train", way=WAY, shot=shot, queries=QUERIES, seed=seed)
        return source.batch(first, tasks)


def drawings() -> dict[str, Dataset]:
    """Omniglot's unturned background characters and its evaluation characters, glyphs and doodles."""
    omniglot = csn.load_data("omniglot-background")
    classes = omniglot.splits["train"]
    unturned = np.array(["/rot" not in name for name in classes.names])
    train_classes = ClassExamples(
        classes.x[torch.from_numpy(unturned.repeat(classes.counts))],
        classes.counts[unturned],
        tuple(name for name in classes.names if "/rot" not in name),
    )
    found = {"omniglot": Dataset("omniglot", {"train": train_classes, "test": omniglot.splits["test"]})}
    return found | {name: prepared(name) for name in SHOTS if name != "omniglot"}


@torch.inference_mode()
def with_keys(sets: dict[str, Dataset], key: str, seed: int) -> dict[str, Dataset]:
    """The same sets. An example is the pixels of a drawing, followed by its key."""
    if key == "random":
        torch.manual_seed(seed)
        embed: Any = CNNKey(IMAGE, size=RANDOM_SIZE, filters=FILTERS)
    else:
        embed = open_shipped(key)[0].embed

    def keys(classes: ClassExamples) -> Tensor:
        return torch.cat([embed(as_input(x)) for x in classes.x.split(80)])

    of_training = keys(sets["omniglot"].splits["train"])
    middle = of_training.mean(0) if key == "random" else torch.zeros(())

    def joined(classes: ClassExamples, found: Tensor) -> ClassExamples:
        rows = torch.cat([as_input(classes.x).flatten(1), found - middle], dim=1).clone()
        return ClassExamples(rows, classes.counts, classes.names)

    return {
        name: Dataset(
            name,
            {
                split: joined(classes, of_training if split == "train" else keys(classes))
                for split, classes in data.splits.items()
            },
        )
        for name, data in sets.items()
    }


def learner_of(arm: str, key_size: int) -> FewShotLearner[Any]:
    """Build an arm. All arms have the same network and the same frozen keys."""
    options: LearnerOptions = ARMS[arm]
    network = {"network": OfPixels(WAY)} if options.uses_network else {}
    spec = InputSpec((PIXELS + key_size,))
    return build(options, reads=spec, way=WAY, key=FrozenKey(), key_size=key_size, **network)


def cells(sets: dict[str, Dataset], key: str, arm: str, seed: int, seconds: float) -> list[dict[str, Any]]:
    """One training and its tests."""
    torch.manual_seed(seed)
    data = sets["omniglot"]
    learner = learner_of(arm, data.splits["train"].x.shape[1] - PIXELS)
    tasks = train(learner, OneAndFiveShots(data), seed, seconds, batch=BATCH, rate=RATE)
    about = {"key": key, "arm": arm, "seed": seed, "seconds": seconds, "tasks": tasks, "commit": commit()}
    rows = []
    for name, shot in ((name, shot) for name, shots in SHOTS.items() for shot in shots):
        source = EpisodeSource(sets[name], "test", way=WAY, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
        found = evaluate(learner, source, TEST_TASKS)
        rows.append({"set": name, "shot": shot, "accuracy": round(float(np.mean(found)), 5)} | about)
    return rows


def in_words(values: list[float], sign: str = "") -> str:
    """A mean, with the least and the greatest of several seeds, because few seeds give no useful interval."""
    mean = f"{np.mean(values):{sign}.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):{sign}.1f} to {max(values):{sign}.1f})"


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """A Markdown table: keys, sets and shots by arms, over the seeds that all arms have."""
    found = {(r["key"], r["set"], r["shot"], r["arm"], r["seed"]): 100 * r["accuracy"] for r in rows}
    heads = [*(STYLES[arm].label for arm in COMPARED), "all less output alone", "all less Matching"]
    console.print(f"| accuracy, % | {' | '.join(heads)} |", soft_wrap=True)
    console.print(f"|---|{'---|' * len(heads)}")
    for key, name in itertools.product(("random", "characters"), SHOTS):
        for shot in SHOTS[name]:
            seeds = sorted({r["seed"] for r in rows if r["key"] == key})
            cells = [[found.get((key, name, shot, arm, seed), np.nan) for seed in seeds] for arm in COMPARED]
            of = dict(zip(COMPARED, np.array(cells)[:, ~np.isnan(cells).any(0)], strict=True))
            texts = [in_words(list(of[arm])) for arm in COMPARED]
            texts += [in_words(list(of["df-all"] - of[other]), "+") for other in ("df-output", "matching")]
            console.print(f"| {key} key, {name}, {shot}-shot | {' | '.join(texts)} |", soft_wrap=True)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The cells of both keys."""
    return [row for path in sorted(folder.glob("real-*.json")) for row in json.loads(path.read_text())["rows"]]


def make(key: str, options: argparse.Namespace, console: Console) -> None:
    """The cells of a key that are missing."""
    path = options.folder / f"real-{key}.json"
    made = origin("python benchmarks/shifts_real.py") | {"test_tasks": TEST_TASKS}
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["arm"], row["seed"]) for row in rows}
    plain, sets, keyed = drawings(), {}, -1
    for seed, arm in itertools.product(options.seeds, COMPARED):
        if (arm, seed) in done:
            continue
        if not sets or (key == "random" and keyed != seed):
            sets, keyed = with_keys(plain, key, seed), seed
        rows += cells(sets, key, arm, seed, options.seconds)
        console.print([(row["arm"], row["set"], row["shot"], row["accuracy"]) for row in rows[-9:]], rows[-1]["tasks"])
        options.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json_bytes({"rows": rows} | made))


def main() -> None:
    """Make the missing cells, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", choices=["random", "characters"], default="random", help="default: %(default)s")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="default: 0 1")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of a training (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("results/shifts"), help="default: %(default)s")
    parser.add_argument("--show", action="store_true", help="only print the tables of the cells that exist")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.show:
        show(rows_in(options.folder), Console())
    else:
        make(options.key, options, Console())


if __name__ == "__main__":
    main()
