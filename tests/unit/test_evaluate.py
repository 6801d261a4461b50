"""Evaluation: examples that many tasks ask about go through the network once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from csn.building import build
from csn.data.source import ClassExamples, Dataset, EpisodeSource
from csn.engine import evaluate as engine
from csn.engine.evaluate import encodings_for, evaluate
from csn.networks.cnn import CNNOptions

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
    if name != "siamese":
        options = {"temperature": 10.0, **options}
    return build(name, reads=(1, 8, 8), way=4, network=CNNOptions(filters=8, norm="batch"), **options).eval()


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
    monkeypatch.setattr(engine, "ENCODED_AT_ONCE", 7)
    evaluate(asked, source(), TASKS)
    assert sum(seen) == 1 + CLASSES * EACH  # and one to see how large encodings are
    assert max(seen) == 7
    seen.clear()
    monkeypatch.setattr(engine, "KEPT_BYTES", 0)
    evaluate(asked, source(), TASKS)
    assert sum(seen) == 1 + TASKS * 4 * 6


def test_tasks_that_have_most_examples_to_themselves_are_not_encoded_first():
    asked = learner("prototypical")
    most = CLASSES * EACH * engine.REPEATED // 24  # tasks that ask about so many examples
    assert encodings_for(asked, source(), 1, "cpu") is None
    assert encodings_for(asked, source(), most + 1, "cpu") is not None


def test_only_examples_that_are_asked_about_are_kept(monkeypatch):
    few = source()
    monkeypatch.setattr(few, "_draw_classes", lambda rng, index: np.array([5, 0, 3, 1]))
    encodings = encodings_for(learner(), few, TASKS, "cpu")
    kept = [row for c in (0, 1, 3, 5) for row in range(c * EACH, (c + 1) * EACH)]
    assert encodings.rows.tolist() == kept
    assert {len(part) for part in encodings.kept} == {len(kept)}


def test_encodings_keep_their_memory_format_and_have_a_limit(monkeypatch):
    asked = learner()
    encodings = encodings_for(asked, source(), TASKS, "cpu")
    keys, features = encodings.kept
    assert keys.shape == (CLASSES * EACH, 64)
    assert features.is_contiguous(memory_format=torch.channels_last)
    assert not features.is_contiguous()
    size = keys.numel() * keys.element_size() + features.numel() * features.element_size()
    monkeypatch.setattr(engine, "KEPT_BYTES", size - 1)
    assert encodings_for(asked, source(), TASKS, "cpu") is None


def test_a_support_told_in_words_is_not_taken_for_examples(monkeypatch):
    told = source()
    monkeypatch.setattr(told, "_words", torch.zeros(CLASSES * EACH))
    assert encodings_for(learner(), told, TASKS, "cpu") is None


def test_a_learner_that_encodes_nothing_is_asked_task_by_task():
    accuracies = evaluate(build("nearest", reads=(1, 8, 8), way=4), source(), TASKS)
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
