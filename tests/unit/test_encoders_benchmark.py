"""benchmarks/encoders.py in small: the same tasks for all models, and numbers that can be worked out by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from csn.core.repeated import HeadOptions

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import encoded_sets
import encoders
import finetuning
import head_designs
import unknown


def test_an_area_under_the_curve_by_hand():
    assert encoders.auroc(torch.tensor([0.9, 0.5]), torch.tensor([0.1, 0.5, 0.7])) == pytest.approx((3 + 1.5) / 6)


def test_models_that_differ_in_nothing_but_their_head_see_the_same_tasks():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(8, 16))
    y = np.repeat(np.arange(8), 20)
    x = torch.from_numpy((centres[y] + 0.7 * rng.normal(size=(160, 16))).astype(np.float32))
    data = encoders.Vectors(x, y, HeadOptions())
    found = encoders.measured("made up", data, 4, 5, 6)
    assert found == encoders.measured("made up", data, 4, 5, 6) | {"models": found["models"]}
    models = found["models"]
    assert models.keys() == {"csn", "nearest", "centroid", "ridge", "logistic"}
    assert all(models[m]["accuracy"].mean > 0.8 for m in models)
    assert models["logistic"]["over_logistic"].mean == 0
    assert all(models[m]["unknown"].mean > 0.85 for m in models)
    one = encoders.measured("made up", data, 4, 1, 6)["models"]
    assert one["nearest"]["accuracies"] == one["centroid"]["accuracies"]
    assert models["csn"]["seconds"] < models["logistic"]["seconds"]


def test_digits_end_to_end():
    """A row of the committed table in small: the package's keys, and features that need no training."""
    data = encoders.sets(["digits"], None)["digits"]
    models = ["csn", "nearest", "logistic", "hog"]
    found = encoders.measured("digits", data, 5, 5, 2, models)["models"]
    assert found["csn"]["accuracy"].mean > 0.85
    assert found["csn"]["accuracy"].mean >= found["nearest"]["accuracy"].mean - 0.03
    assert list(found) == models


def test_the_page_has_the_numbers_of_the_result_files():
    root = Path(__file__).parents[2]
    files = [root / "results" / "encoders" / f"{name}.json" for name in ORDER]
    assert encoders.page(files) in (root / "docs" / "encoders.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "table"),
    [("unknown", unknown.table), ("designs", head_designs.table), ("finetuning", finetuning.table)],
)
def test_the_page_has_the_numbers_of_the_other_files_too(name, table):
    root = Path(__file__).parents[2]
    rows = json.loads((root / "results" / "encoders" / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    assert table(rows) in (root / "docs" / "encoders.md").read_text(encoding="utf-8")


ORDER = ("intents", "photographs", "digits", "glyphs", "doodles")


def test_a_folder_of_photographs_of_ones_own(tmp_path):
    from PIL import Image

    from csn.classifier.encoders.encoder import Encoder

    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(3):
            Image.new("RGB", (8, 8), (i, 0, 255 * (label == "a"))).save(tmp_path / label / f"{i}.png")
    data = encoded_sets.photographs(
        tmp_path, Encoder(lambda items: [[len(item.name), 1] for item in items], kind="photos")
    )
    assert data.x.shape == (6, 2)
    assert data.y.tolist() == ["a"] * 3 + ["b"] * 3
