"""benchmarks/shifts_real.py: frozen keys beside pixels, and the page that shows its result files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import shifts_real
from csn.data.source import ClassExamples, Dataset
from csn.networks.cnn import CNN

ROOT = Path(__file__).resolve().parents[2]
KEY = 3


@pytest.fixture
def data() -> Dataset:
    """Six classes of ten rows: noise for pixels, and a key that names the class."""
    rows = torch.rand(60, shifts_real.PIXELS + KEY, generator=torch.Generator().manual_seed(0))
    angles = torch.arange(6).repeat_interleave(10) * torch.pi / 3
    rows[:, -KEY:] = torch.stack([angles.cos(), angles.sin(), torch.zeros(60)], dim=1)
    return Dataset("rows", {"train": ClassExamples(rows, np.full(6, 10), tuple("abcdef"))})


def test_the_page_shows_what_the_files_of_real_drawings_say():
    file = io.StringIO()
    rows = shifts_real.rows_in(ROOT / "results" / "shifts")
    shifts_real.show(rows, Console(file=file, width=100))
    page = (ROOT / "docs" / "where-shifts-matter.md").read_text(encoding="utf-8")
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert len(lines) == 2 + 2 * 9  # the head, and two keys on three sets of three shots
    assert [line for line in lines if line not in page] == []
    assert {row["arm"] for row in rows} == set(shifts_real.COMPARED)
    assert {(row["seconds"], len(row["commit"])) for row in rows} == {(15.0, 40)}


def test_a_row_is_pixels_and_then_its_key(data):
    x = data.splits["train"].x[:4]
    torch.manual_seed(0)
    network = shifts_real.OfPixels(5)
    torch.manual_seed(0)
    plain = CNN(shifts_real.IMAGE, 5, filters=shifts_real.FILTERS)
    assert torch.equal(shifts_real.FrozenKey()(x), x[:, -KEY:])
    assert torch.equal(network(x).logits, plain(x[:, :-KEY].unflatten(1, shifts_real.IMAGE)).logits)
    with pytest.raises(ValueError, match="append the keys"):
        network(x[:, :-KEY])


def test_training_tasks_have_one_and_five_shots_in_turn(data):
    tasks = shifts_real.OneAndFiveShots(data)
    assert [tasks.batch(0, first, 2).support.y.shape for first in (0, 2, 4)] == [(2, 5), (2, 25), (2, 5)]


@pytest.mark.parametrize("arm", shifts_real.COMPARED)
def test_arms_read_the_frozen_key_and_only_csn_reads_pixels(data, arm):
    torch.manual_seed(0)
    learner = shifts_real.learner_of(arm, KEY).eval()
    if arm != "matching":
        torch.nn.init.normal_(learner.base.output.weight)  # it starts at 0, so that no pixel counts yet
    episode = shifts_real.OneAndFiveShots(data).batch(0, 0, 2)
    task = learner.describe(episode.support)
    other = episode.query.x.clone()
    other[..., : shifts_real.PIXELS] = 0
    with torch.no_grad():
        same = torch.equal(learner.predict(episode.query.x, task), learner.predict(other, task))
    assert same == (arm == "matching")
    moved = [name for name, _ in learner.named_parameters() if name.startswith("key")]
    assert moved == []


def test_a_table_has_the_seeds_that_all_arms_have():
    cells = {"df-all": (0.5, 0.6), "df-output": (0.4, 0.6), "df-hidden": (0.2, 0.2), "matching": (0.3, 0.5)}
    rows = [
        {"key": key, "set": name, "shot": shot, "arm": arm, "seed": seed, "accuracy": accuracy}
        for key in ("random", "characters")
        for name, shots in shifts_real.SHOTS.items()
        for shot in shots
        for arm, values in cells.items()
        for seed, accuracy in enumerate(values)
    ]
    rows += [row | {"seed": 2, "accuracy": 1.0} for row in rows if row["arm"] == "df-all" and row["seed"] == 0]
    file = io.StringIO()
    shifts_real.show(rows, Console(file=file, width=100))
    arms = "55.0 (50.0 to 60.0) | 50.0 (40.0 to 60.0) | 20.0 (20.0 to 20.0) | 40.0 (30.0 to 50.0)"
    expected = f"| random key, glyphs, 20-shot | {arms} | +5.0 (+0.0 to +10.0) | +15.0 (+10.0 to +20.0) |"
    assert expected in file.getvalue()
