"""Evaluation: examples that many tasks ask about go through the network once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from csn.build import build_learner
from csn.config import ModelConfig
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine import evaluate as engine
from csn.engine.evaluate import evaluate, room_for

CLASSES, EACH, TASKS = 6, 8, 60


def source(way: int = 4, *, image: tuple[int, int, int] = (1, 8, 8)) -> EpisodeSource:
    """Noisy pictures of six classes."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (CLASSES, 1, *image)) * 0.5 + rng.integers(0, 128, (CLASSES, EACH, *image))
    x = torch.from_numpy(pictures.reshape(-1, *image).astype(np.uint8))
    classes = ClassExamples(x, np.full(CLASSES, EACH), tuple("abcdef"))
    return EpisodeSource(Dataset("noise", {"test": classes}), "test", way=way, shot=1, queries=5, seed=3)


def learner(name: str = "csn", **options):
    torch.manual_seed(0)
    config = ModelConfig(learner=name, filters=8, norm="batch", temperature=10.0, **options)
    return build_learner(config, (1, 8, 8), 4).eval()


@pytest.mark.parametrize(
    ("name", "options"), [("csn", {}), ("csn", {"conditioning": "gradient"}), ("prototypical", {}), ("siamese", {})]
)
def test_encoding_first_changes_no_answer(name, options, monkeypatch):
    asked = learner(name, **options)
    once = evaluate(asked, source(), TASKS)
    monkeypatch.setattr(engine, "KEPT_BYTES", 0)
    assert evaluate(asked, source(), TASKS) == once
    assert 0.3 < np.mean(once) < 1  # some right, some wrong: the comparison says something


def test_an_example_is_encoded_once_however_many_tasks_ask_about_it(monkeypatch):
    asked, seen = learner("prototypical"), []
    network = asked.embedding.forward
    monkeypatch.setattr(asked.embedding, "forward", lambda x: seen.append(len(x)) or network(x))
    evaluate(asked, source(), TASKS)
    assert sum(seen) == CLASSES * EACH
    seen.clear()
    monkeypatch.setattr(engine, "KEPT_BYTES", 0)
    evaluate(asked, source(), TASKS)
    assert sum(seen) > TASKS * 4 * 6  # one batch too many: the one that showed how large its encodings are


def test_tasks_that_ask_about_most_examples_once_are_not_encoded_first(monkeypatch):
    asked = learner("prototypical")
    monkeypatch.setattr(asked, "encode", lambda x: pytest.fail("encoded"))
    evaluate(asked, source(), CLASSES * EACH // 24)  # as many examples as there are
    with pytest.raises(pytest.fail.Exception, match="encoded"):
        evaluate(asked, source(), CLASSES * EACH // 24 + 1)


def test_a_learner_that_encodes_nothing_is_asked_task_by_task():
    accuracies = evaluate(build_learner(ModelConfig(learner="nearest"), (1, 8, 8), 4), source(), TASKS)
    assert len(accuracies) == TASKS
    assert np.mean(accuracies) > 0.5


def test_more_ways_than_the_learner_has_are_refused():
    with pytest.raises(ValueError, match="built for 2 to 4 ways, got 5"):
        evaluate(learner(), source(way=5), TASKS)


def test_examples_that_are_not_finite_are_refused():
    broken = source()
    broken.classes = ClassExamples(broken.classes.x.float(), broken.classes.counts, broken.classes.names)
    broken.classes.x[:] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        evaluate(learner(), broken, TASKS)


def test_room_has_the_memory_format_of_what_it_is_for(monkeypatch):
    features = torch.randn(3, 8, 4, 5).contiguous(memory_format=torch.channels_last)
    keys, kept = room_for((torch.randn(3, 7), features), 10)
    assert keys.shape == (10, 7)
    assert kept.shape == (10, 8, 4, 5)
    assert kept.is_contiguous(memory_format=torch.channels_last)
    kept[torch.tensor([4, 9, 2])] = features
    assert_close(kept[torch.tensor([[9], [2]])].flatten(0, 1), features[1:])
    monkeypatch.setattr(engine, "KEPT_BYTES", 4 * 10 * (7 + 8 * 4 * 5) - 1)
    assert room_for((torch.randn(3, 7), features), 10) is None
