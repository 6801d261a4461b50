"""Cross-domain: trained on Omniglot, strokes or photographs; tested on new classes of each, and on glyphs of fonts.

    python benchmarks/cross_domain.py           # the trainings that the result file does not have yet
    python benchmarks/cross_domain.py --page    # only write its table into docs/studies/cross-domain.md

All pictures are grey and 28 x 28. Photographs are those of tiny-imagenet-fewshot in shades of grey. Glyphs are letters
and figures of installed fonts (drawings.py). Learners train with their `plus` recipe, without pretraining, on equally
many tasks. The checkpoint with the best validation accuracy on the training domain is tested on the same tasks of every
domain. Classes of the tests are in no training.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from csn.building import build_learner
from csn.config import load_preset, merge
from csn.data.registry import LoadOptions, load_data
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine.checkpoint import load_checkpoint, write_atomically
from csn.engine.evaluate import EVALUATION_SEED, evaluate
from csn.engine.origin import commit, origin
from csn.engine.train import Trainer
from csn.experiments.records.files import json_bytes
from csn.experiments.records.statistics import over_seeds
from drawings import prepared

LEARNERS = ("adacnn-df", "matching", "prototypical")
TRAINED, TESTED = ("omniglot", "strokes", "photographs"), ("omniglot", "strokes", "photographs", "glyphs")
SIZES = ((5, 1), (5, 5))
QUERIES = 15
VALIDATION_WAY = 5  # photographs have 16 validation classes, fewer than a training task
TASKS, TEST_TASKS = 1000, 400
CHANGES: dict[str, dict[str, Any]] = {
    "pretrain": {"epochs": 0},
    "train": {"tasks": TASKS, "validate_every": 250, "validation_tasks": 200},
}
PAGE = Path(__file__).parents[1] / "docs" / "studies" / "cross-domain.md"
BEGIN, END = "<!-- table of benchmarks/cross_domain.py -->\n", "<!-- end -->"


def grey(classes: ClassExamples) -> ClassExamples:
    """Colour photographs in shades of grey: (examples, 3, h, w) bytes -> (examples, 1, h, w) bytes."""
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    rows = [(part.float() * weights).sum(1, keepdim=True).round().to(torch.uint8) for part in classes.x.split(4096)]
    return ClassExamples(torch.cat(rows), classes.counts, classes.names)


def domain(name: str) -> Dataset:
    """A domain of grey pictures of 28 x 28 pixels."""
    if name == "glyphs":
        return prepared(name)
    if name != "photographs":
        return load_data(name)
    data = load_data("tiny-imagenet-fewshot", LoadOptions(image_size=28))
    return Dataset(name, {split: grey(classes) for split, classes in data.splits.items()})


def cells(data: dict[str, Dataset], trained_on: str, name: str, seed: int) -> list[dict[str, Any]]:
    """One training and its tests on every domain."""
    config = merge(load_preset(name, "plus"), CHANGES)
    config = merge(config, {"train": {"seed": seed}})
    own, size = data[trained_on], {"shot": config.data.shot, "queries": config.data.queries, "seed": seed}
    training = EpisodeSource(own, "train", way=config.data.way, **size)
    validation = EpisodeSource(own, "val", way=VALIDATION_WAY, **size)
    torch.manual_seed(seed)
    learner = build_learner(config, own.input_spec)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(learner, config.train, training, validation, Path(folder))
        trainer.run()
        tensors, _ = load_checkpoint(Path(folder) / "best.safetensors")
        learner.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    rows = []
    for tested_on, (way, shot) in itertools.product(TESTED, SIZES):
        test = EpisodeSource(data[tested_on], "test", way=way, shot=shot, queries=QUERIES, seed=EVALUATION_SEED)
        found = float(np.mean(evaluate(learner, test, TEST_TASKS)))
        cell = {"trained_on": trained_on, "learner": name, "seed": seed, "tested_on": tested_on, "way": way}
        rows.append(cell | {"shot": shot, "accuracy": round(found, 5), "validation": trainer.best, "commit": commit()})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """A Markdown table: domains and learners of the training by domains and shots of the test."""
    lines = [f"| trained on | learner | {' | '.join(f'{name}, {shot}-shot' for name in TESTED for _, shot in SIZES)} |"]
    lines.append(f"|---|---|{'---:|' * len(TESTED) * len(SIZES)}")
    for trained_on, learner in itertools.product(TRAINED, LEARNERS):
        texts = []
        for tested_on, (_, shot) in itertools.product(TESTED, SIZES):
            wanted = {"trained_on": trained_on, "learner": learner, "tested_on": tested_on, "shot": shot}
            found = [100 * row["accuracy"] for row in rows if wanted.items() <= row.items()]
            spread = over_seeds(found)
            texts.append(f"{np.mean(found):.1f}" + (f" ± {spread.interval:.1f}" if spread else ""))
        lines.append(f"| {trained_on} | {learner} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def filled(page: str, rows: list[dict[str, Any]]) -> str:
    """The page with the table."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}{table(rows)}{END}", page, flags=re.DOTALL)


def main() -> None:
    """Train what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/cross-domain.json"), help="%(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each cell (default: %(default)s)")
    parser.add_argument("--page", action="store_true", help="only write the table into the page")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else []
    if options.page:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
        return
    torch.set_num_threads(1)
    done = {(row["seed"], row["trained_on"], row["learner"]) for row in rows}
    data = {name: domain(name) for name in TESTED}
    made = origin("python benchmarks/cross_domain.py") | {"tasks": TASKS, "test_tasks": TEST_TASKS, "queries": QUERIES}
    console = Console()
    for seed, trained_on, learner in itertools.product(range(options.seeds), TRAINED, LEARNERS):
        if (seed, trained_on, learner) not in done:
            rows += cells(data, trained_on, learner, seed)
            console.print(trained_on, learner, seed, [row["accuracy"] for row in rows[-len(TESTED) * len(SIZES) :]])
            write_atomically(options.out, json_bytes({"rows": rows} | made))


if __name__ == "__main__":
    main()
