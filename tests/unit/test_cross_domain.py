"""The study across domains: grey photographs, cells of tiny data, and the table on its page."""

from __future__ import annotations

import json

import numpy as np
import torch

import cross_domain
from csn.data.source import ClassExamples, Dataset


def tiny(name: str, seed: int) -> Dataset:
    """Classes of noise around a pattern."""
    generator = np.random.default_rng(seed)

    def classes(split: str, count: int) -> ClassExamples:
        patterns = generator.integers(0, 256, (count, 1, 1, 28, 28)).repeat(20, 1)
        noise = generator.integers(-20, 20, patterns.shape)
        x = torch.from_numpy((patterns + noise).clip(0, 255).astype(np.uint8)).flatten(0, 1)
        return ClassExamples(x, np.full(count, 20), tuple(f"{name} {split} {i}" for i in range(count)))

    return Dataset(name, {split: classes(split, 20) for split in ("train", "val", "test")})


def test_photographs_turn_grey_by_the_weights_of_the_eye():
    red, green, blue = (torch.zeros(1, 3, 2, 2, dtype=torch.uint8) for _ in range(3))
    red[:, 0], green[:, 1], blue[:, 2] = 200, 200, 200
    photographs = ClassExamples(torch.cat([red, green, blue]), np.array([2, 1]), ("a", "b"))
    found = cross_domain.grey(photographs)
    assert (found.x.shape, found.x.dtype, found.names) == ((3, 1, 2, 2), torch.uint8, ("a", "b"))
    assert found.x[:, 0, 0, 0].tolist() == [60, 117, 23]


def test_a_training_is_tested_on_every_domain_with_its_best_checkpoint(monkeypatch):
    monkeypatch.setattr(cross_domain, "TEST_TASKS", 4)
    changes = {"train": {"tasks": 4, "validate_every": 2, "validation_tasks": 2, "tasks_per_step": 2}}
    monkeypatch.setattr(cross_domain, "CHANGES", changes | {"pretrain": {"epochs": 0}, "network": {"filters": 4}})
    data = {name: tiny(name, seed) for seed, name in enumerate(cross_domain.TESTED)}
    rows = cross_domain.cells(data, "strokes", "prototypical", 1)
    assert [(row["tested_on"], row["shot"]) for row in rows] == [
        (name, shot) for name in cross_domain.TESTED for shot in (1, 5)
    ]
    assert all(row["trained_on"] == "strokes" and 0.5 < row["accuracy"] <= 1 for row in rows)
    assert rows == cross_domain.cells(data, "strokes", "prototypical", 1), "the same seed trains the same model"


def test_the_table_has_means_and_intervals_over_seeds():
    rows = [
        {"trained_on": of, "learner": learner, "tested_on": on, "shot": shot, "seed": seed, "accuracy": accuracy}
        for of in cross_domain.TRAINED
        for learner in cross_domain.LEARNERS
        for on in cross_domain.TESTED
        for _, shot in cross_domain.SIZES
        for seed, accuracy in enumerate((0.4, 0.5, 0.6))
    ]
    assert "| strokes | matching | 50.0 ± 24.8 |" in cross_domain.table(rows)


def test_the_page_has_the_table_of_the_file():
    page = cross_domain.PAGE.read_text(encoding="utf-8")
    path = cross_domain.PAGE.parents[2] / "results" / "benchmarks" / "cross-domain.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert cross_domain.filled(page, rows) == page, "run python benchmarks/cross_domain.py --page"
    cells = len(cross_domain.TRAINED) * len(cross_domain.LEARNERS) * len(cross_domain.TESTED) * len(cross_domain.SIZES)
    assert len(rows) == cells * len({row["seed"] for row in rows}), "a seed has every cell"
