"""A small adaCNN learns to learn: after a minute of training it tells characters apart that it has never seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from csn.building import build_learner
from csn.config import load_preset, merge
from csn.data.images.strokes import load_strokes
from csn.data.source import EpisodeSource
from csn.engine.evaluate import evaluate, summarise
from csn.engine.train import Trainer
from csn.learner import InputSpec


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["paper", "plus"])
@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_unseen_characters_are_recognised(conditioning: str, recipe: str, tmp_path: Path) -> None:
    config = merge(
        load_preset(f"adacnn-{conditioning}", recipe),
        {
            "data": {"way": 5, "queries": 5},
            "network": {"filters": 16, "dropout": [0.0, 0.0, 0.0]},
            "train": {"tasks": 800, "tasks_per_step": 4, "validate_every": 800, "validation_tasks": 20},
        },
    )
    data = load_strokes(alphabets=20)
    sources = {
        split: EpisodeSource(data, split, way=5, shot=1, queries=5, seed=0) for split in ("train", "val", "test")
    }
    torch.manual_seed(0)
    learner = build_learner(config, InputSpec((1, 28, 28)))
    before = summarise(evaluate(learner, sources["test"], 100))
    Trainer(learner, config.train, sources["train"], sources["val"], tmp_path).run()
    after = summarise(evaluate(learner, sources["test"], 100))
    assert after.mean - after.interval > max(0.6, before.mean + before.interval)
