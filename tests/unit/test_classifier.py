"""FewShotClassifier: scikit-learn's conventions, exact forgetting, task files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from csn.baselines.nearest import NearestNeighbour
from csn.building import build
from csn.classifier import sources
from csn.classifier.classifier import FewShotClassifier
from csn.classifier.pretrained import fingerprint
from csn.classifier.thresholds import calibrate_on_tasks
from csn.core.model import CSN
from csn.core.parts import NetworkKey
from csn.data.images.strokes import load_strokes
from csn.engine.checkpoint import load_checkpoint, save_checkpoint
from csn.episode import Episode, Examples
from csn.learner import FewShotLearner, InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.encoded import EncodedFFNOptions
from csn.networks.ffn import FFNOptions
from csn.networks.neighbours import NeighbourKeyOptions

WAY = 4


def cnn(conditioning: str = "df", way: int = WAY, seed: int = 0) -> CSN:
    torch.manual_seed(seed)
    parts = {"network": CNNOptions(filters=8), "key": NetworkKey(16), "conditioning": conditioning}
    learner = build("csn", reads=(1, 28, 28), way=way, temperature=10.0, **parts).eval()
    torch.nn.init.normal_(learner.base.output.weight, std=0.3)  # as after some training
    return learner


def ffn(inputs: int = 6, way: int = WAY) -> CSN:
    torch.manual_seed(0)
    learner = build("csn", reads=(inputs,), way=way, network=FFNOptions(units=16), key=NetworkKey(16), temperature=10.0)
    learner = learner.double().eval()
    torch.nn.init.normal_(learner.base.output.weight, std=0.3)
    return learner


class AnyWidth(FewShotLearner):
    """An adaFFN for vectors of any length up to 64, padded with zeros: scikit-learn's checks come in many widths."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = ffn(64, 8)
        self.way = 8

    def __repr__(self) -> str:
        return "AnyWidth()"

    def describe(self, support: Examples, way: int | None = None) -> object:
        return self.inner.describe(Examples(_padded(support.x), support.y), way)

    def predict(self, x: torch.Tensor, task: object) -> torch.Tensor:
        return self.inner.predict(_padded(x), task)  # type: ignore[arg-type]


def _padded(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, 64 - x.shape[-1]))


@pytest.fixture(scope="module")
def drawings() -> tuple[np.ndarray, np.ndarray]:
    """Six classes of five drawings, (30, 28, 28) uint8, and their labels."""
    x = load_strokes(alphabets=5, characters=8).splits["train"]
    rows = np.concatenate([np.arange(5) + start for start in (np.cumsum(x.counts) - x.counts)[:6]])
    return x.x[torch.from_numpy(rows)][:, 0].numpy(), np.repeat(list("abcdef"), 5)


UNTRAINED = "a learner that was never trained cannot be held to an accuracy"
VECTORS_ONLY = {
    "check_classifiers_train": UNTRAINED,
    "check_estimators_overwrite_params": "joblib.hash of a torch module is not that of its deep copy; see "
    "test_a_copy_is_kept_so_that_training_goes_on_elsewhere",
}


@parametrize_with_checks(
    [FewShotClassifier(learner=NearestNeighbour(64)), FewShotClassifier(learner=AnyWidth())],
    expected_failed_checks=lambda estimator: {} if isinstance(estimator.learner, NearestNeighbour) else VECTORS_ONLY,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("learner", [cnn("df"), cnn("gradient"), NearestNeighbour(WAY)], ids=["df", "gradient", "nn"])
@pytest.mark.parametrize("classes", ["abc", "abcdef"], ids=["one match", "tournament"])
def test_forgetting_equals_never_having_seen(learner, classes, drawings):
    x, y = drawings
    chosen = np.flatnonzero(np.isin(y, list(classes)))
    order = chosen[np.random.default_rng(0).permutation(len(chosen))]
    x, y, queries = x[order][:-6], y[order][:-6], drawings[0][order][-6:]
    first = y[0]
    for forget, kept in (
        ({"label": first}, np.flatnonzero(y != first)),
        ({"indices": [0, 3]}, np.setdiff1d(np.arange(len(y)), [0, 3])),
    ):
        whole = FewShotClassifier(learner=learner).fit(x, y)
        whole.predict(queries)
        whole.forget(**forget)
        never = FewShotClassifier(learner=learner).fit(x[kept], y[kept])
        assert whole.predict_proba(queries).tobytes() == never.predict_proba(queries).tobytes()
        assert whole.classes_.tolist() == never.classes_.tolist()
        assert whole.labels_.tolist() == y[kept].tolist()


@pytest.mark.parametrize("learner", [cnn("df"), cnn("gradient"), NearestNeighbour(WAY)], ids=["df", "gradient", "nn"])
def test_learning_in_parts_equals_learning_at_once(learner, drawings):
    x, y = drawings
    parts = FewShotClassifier(learner=learner)
    for start in range(0, len(x), 7):
        parts.partial_fit(x[start : start + 7], y[start : start + 7])
    whole = FewShotClassifier(learner=learner).fit(x, y)
    assert parts.predict_proba(x).tobytes() == whole.predict_proba(x).tobytes()


def test_the_answers_are_those_of_the_learner(drawings):
    """One match: the probabilities of an ordinary episode at the learner's full way, cut to the classes in use."""
    x, y = drawings[0][:15], drawings[1][:15]
    learner = cnn()
    support = torch.from_numpy(x)[None, :, None].float() / 255
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])[None]
    logits = learner.predict(support, learner.describe(Examples(support, labels), WAY))[0, :, :3]
    found = FewShotClassifier(learner=learner).fit(x, y).predict_proba(x)
    torch.testing.assert_close(torch.from_numpy(found).float(), logits.softmax(-1), atol=1e-5, rtol=1e-4)
    one_by_one = np.concatenate([FewShotClassifier(learner=learner).fit(x, y).predict_proba(q[None]) for q in x])
    np.testing.assert_allclose(one_by_one, found, atol=1e-5)


def test_a_tournament_by_hand():
    """Nearest neighbour of 2 ways on a line: the nearest class wins and keeps its odds against every champion."""
    x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    classifier = FewShotClassifier(learner=NearestNeighbour(2)).fit(x, [10, 11, 12, 13, 14])
    query = 1.9  # distances 1.9, 0.9, 0.1, 1.1, 2.1; groups (10, 11), (12, 13), (14); 12 beats 11, then 14
    found = classifier.predict_proba([[query]])[0]
    odds = np.exp([-(1.9 - 0.9) - (0.9 - 0.1), -(0.9 - 0.1), 0, -(1.1 - 0.1), -(2.1 - 0.1)])
    np.testing.assert_allclose(found, odds / odds.sum(), rtol=1e-5)
    assert classifier.predict(x).tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_matches_in_one_batch_are_those_one_by_one(conditioning, monkeypatch):
    """One drawing of each of twelve classes: queries meet in finals of their own, all in one call."""
    train = load_strokes(alphabets=5, characters=8).splits["train"]
    x = train.x[torch.from_numpy((np.cumsum(train.counts) - train.counts)[:12])][:, 0].numpy()
    learner = cnn(conditioning, way=3)
    torch.nn.init.normal_(learner.base.output.weight, std=0.01)
    learner.log_scale.data.fill_(6.0)  # the memory decides, by the drawing that is most alike
    classifier = FewShotClassifier(learner=learner).fit(x, np.arange(12))
    calls, predict = [], CSN.predict_encoded
    monkeypatch.setattr(CSN, "predict_encoded", lambda *given: calls.append(1) or predict(*given))
    together, count = classifier.predict_proba(x), len(calls)
    monkeypatch.setattr("csn.classifier.remembered.ROWS_PER_CALL", 0)
    calls.clear()
    np.testing.assert_allclose(classifier.predict_proba(x), together, rtol=1e-4, atol=1e-7)
    assert len(calls) > count  # there were different finals


def test_an_explained_answer_sees_each_network_once(drawings, monkeypatch):
    x, y = drawings
    classifier = FewShotClassifier(learner=cnn(), unknown_threshold=0.5).fit(x[:15], y[:15])
    classifier.predict(x[15:])
    learner, seen = classifier.learner_, []
    for name in ("stem", "head"):
        method = getattr(learner.base, name)
        monkeypatch.setattr(learner.base, name, lambda *given, n=name, m=method: seen.append(n) or m(*given))
    hook = learner.key_function.register_forward_hook(lambda *_: seen.append("key"))
    counts = {}
    for name in ("predict_proba", "explain"):
        seen.clear()
        getattr(classifier, name)(x[15:])
        counts[name] = sorted(seen)
    hook.remove()
    assert counts["explain"] == counts["predict_proba"] == ["head", "key", "stem"]


@pytest.mark.parametrize("learner", [cnn("df"), cnn("gradient"), NearestNeighbour(WAY)], ids=["df", "gradient", "nn"])
def test_a_task_file_gives_the_same_answers_to_the_bit(learner, drawings, tmp_path):
    x, y = drawings
    classifier = FewShotClassifier(learner=learner).fit(x, y)
    classifier.save(tmp_path / "task.csn")
    loaded = FewShotClassifier.load(tmp_path / "task.csn", learner=learner)
    assert loaded.predict_proba(x).tobytes() == classifier.predict_proba(x).tobytes()
    for each in (classifier, loaded):
        each.forget("a").partial_fit(x[:2], ["g", "a"])
    assert loaded.predict_proba(x).tobytes() == classifier.predict_proba(x).tobytes()


def test_a_task_file_is_refused_unless_whole_and_of_this_model(drawings, tmp_path):
    path, learner = tmp_path / "task.csn", cnn()
    FewShotClassifier(learner=learner, unknown_threshold=0.5).fit(*drawings).save(path)
    assert FewShotClassifier.load(path, learner=learner).unknown_threshold == 0.5
    assert path.stat().st_size < 30 * 2500
    with pytest.raises(ValueError, match="other weights"):
        FewShotClassifier.load(path, learner=cnn(seed=1))
    with pytest.raises(ValueError, match="run= or learner="):
        FewShotClassifier.load(path)
    whole = path.read_bytes()
    for content in (whole[:-50], whole[:50], b"", b"hello", whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"truncated|altered"):
            FewShotClassifier.load(path, learner=learner)
    path.write_bytes(whole)
    tensors, about = load_checkpoint(path)
    for change in (
        {"labels": about["labels"][:-1]},
        {"labels": [["a"]] * 30},
        {"labels": about["labels"][1:] + about["labels"][:1]},
        {"layers": about["layers"][:1]},
        {"layers": [layer | {"neurons": [10**9, 10**9]} for layer in about["layers"]]},
        {"layers": 3},
        {"input": [1, 14, 14]},
        {"kind": "else"},
        {"task_version": 2},
        {"unknown_threshold": "x"},
        {"way": None},
    ):
        save_checkpoint(path, tensors, about | change)
        with pytest.raises(ValueError):
            FewShotClassifier.load(path, learner=learner)
    save_checkpoint(path, tensors | {"keys": tensors["keys"][:, :3]}, about)
    with pytest.raises(ValueError, match="another form"):
        FewShotClassifier.load(path, learner=learner)


@pytest.mark.parametrize("label", [("a", 1), frozenset("a"), 1j, b"x"])
def test_a_label_that_json_cannot_carry_is_learned_but_not_saved(label, drawings, tmp_path):
    classifier = FewShotClassifier(learner=cnn()).fit(drawings[0][:2], [label, "b"])
    assert set(classifier.predict(drawings[0][:2]).tolist()) <= {label, "b"}
    with pytest.raises(ValueError, match="strings, finite numbers or booleans"):
        classifier.save(tmp_path / "task.csn")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("labels", [["😀", "שלום"], [1, "1"], [True, False], [2, 1], [("a", 1), 3]])
def test_labels_of_any_kind(labels, drawings):
    classifier = FewShotClassifier(learner=NearestNeighbour(WAY)).fit(drawings[0][[0, 5]], labels)
    assert classifier.predict(drawings[0][[0, 5]]).tolist() == labels
    assert classifier.score(drawings[0][[0, 5]], labels) == 1.0


def test_half_precision_is_learned_as_what_it_is(drawings):
    x = torch.tensor(drawings[0][:6]).bfloat16() / 256  # exact: eight bits
    classifier = FewShotClassifier(learner=cnn()).fit(x, drawings[1][:6])
    expected = FewShotClassifier(learner=cnn()).fit(x.float(), drawings[1][:6])
    assert classifier.predict_proba(list(x)).tobytes() == expected.predict_proba(x.float()).tobytes()


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_what_is_missing_is_no_label(missing, drawings):
    for labels in (["a", missing], pd.Series(["a", missing], dtype=object)):
        with pytest.raises(ValueError, match="None and NaN mean unknown and cannot be learned"):
            FewShotClassifier(learner=NearestNeighbour(WAY)).fit(drawings[0][:2], labels)


def test_cross_validation_pipeline_clone_and_parameters(drawings):
    x, y = drawings
    classifier = FewShotClassifier(learner=NearestNeighbour(8), unknown_threshold=None)
    assert cross_val_score(classifier, x, y, cv=2).shape == (2,)
    inverted = make_pipeline(FunctionTransformer(lambda images: 255 - images), classifier)
    assert inverted.fit(x, y).predict(x).tolist() == y.tolist()
    other = clone(classifier).set_params(device="cpu", unknown_threshold=0.3)
    assert other.get_params()["unknown_threshold"] == 0.3
    assert not hasattr(other, "classes_")


def test_explain_names_the_examples_and_their_weights(drawings):
    x, y = drawings
    for count in (15, 30):  # one match, and a tournament
        classifier = FewShotClassifier(learner=cnn()).fit(x[:count], y[:count])
        for i, found in enumerate(classifier.explain(x[:count])):
            assert sum(source.weight for source in found.sources) == pytest.approx(1, abs=1e-5)
            assert all(source.label == y[source.index] for source in found.sources)
            assert found.similarity == pytest.approx(classifier.similarity(x[i : i + 1])[0], abs=1e-5)
            if count == 15:
                assert found.sources[0].index == i
            assert found.label in {source.label for source in found.sources}
            assert max(found.probabilities, key=found.probabilities.__getitem__) == found.label
    assert classifier.explain_figure(x[:2], title="why").axes
    with pytest.raises(ValueError, match="no attention"):
        FewShotClassifier(learner=NearestNeighbour(WAY)).fit(x, y).explain(x)


def test_an_explanation_without_sources_has_the_same_answer(drawings):
    x, y = drawings
    for classifier in (FewShotClassifier(unknown_threshold=0.5), FewShotClassifier(learner=cnn())):
        classifier.fit(x[:15], y[:15])
        full = classifier.explain(x[:20])
        assert classifier.explain(x[:20], sources=False) == [replace(found, sources=()) for found in full]
        assert all(found.sources for found in full)


def test_only_files_need_the_name_of_the_weights(drawings, monkeypatch, tmp_path):
    """It takes a third of the time of a fit: every weight is read."""
    x, y = drawings
    monkeypatch.setattr(sources, "fingerprint", lambda learner: pytest.fail("the weights were read"))
    classifier = FewShotClassifier().fit(x[:5], y[:5])
    classifier.partial_fit(x[5:6], y[5:6]).forget(indices=0).explain(x[:1])
    with pytest.raises(pytest.fail.Exception, match="the weights were read"):
        classifier.save(tmp_path / "task.csn")


def test_what_is_like_nothing_remembered_is_unknown(drawings):
    x, y = drawings
    classifier = FewShotClassifier(learner=cnn(), unknown_threshold=0.999999).fit(x[:1], y[:1])
    assert classifier.predict(x[[0, 7]]).tolist() == ["a", None]
    assert classifier.score(x[[0, 7]], ["a", "b"]) == 0.5
    assert classifier.explain(x[7:8])[0].label is None
    with pytest.raises(ValueError, match="keys"):
        FewShotClassifier(learner=NearestNeighbour(WAY), unknown_threshold=0.5).fit(x, y).predict(x)


def test_calibration_keeps_what_it_promises():
    data = load_strokes(alphabets=8, characters=10)
    found = calibrate_on_tasks(cnn(), data, way=2, tasks=60, find_on="val", report_on="val")
    assert found.kept.mean == pytest.approx(0.95, abs=0.01)
    assert 0 <= found.caught.mean <= 1
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibrate_on_tasks(cnn(), data, keep=95)


def test_vectors_and_word_numbers():
    x = np.random.default_rng(0).normal(size=(6, 6))
    classifier = FewShotClassifier(learner=ffn()).fit(x, list("abcabc"))
    assert classifier.n_features_in_ == 6
    assert classifier.predict_proba(x).shape == (6, 3)
    network = EncodedFFNOptions(units=8, embedding=8, layers=1)
    learner = build("csn", reads=InputSpec((5,), 9), way=3, network=network, key=NeighbourKeyOptions(8))
    words = FewShotClassifier(learner=learner.eval())
    rows = torch.tensor([[0, 3, 1, 4, 0], [5, 6, 1, 7, 8], [0, 0, 1, 4, 5]])
    assert words.fit(rows, [0, 1, 2]).predict(rows).shape == (3,)


def test_a_copy_is_kept_so_that_training_goes_on_elsewhere(drawings):
    learner = cnn().train()
    untouched = fingerprint(learner)
    classifier = FewShotClassifier(learner=learner).fit(*drawings)
    before = classifier.predict_proba(drawings[0])
    assert fingerprint(learner) == untouched
    assert learner.training
    torch.nn.init.zeros_(learner.base.output.weight)
    assert classifier.predict_proba(drawings[0]).tobytes() == before.tobytes()
    assert learner(Episode(*[Examples(torch.rand(1, 2, 1, 28, 28), torch.tensor([[0, 1]]))] * 2, 2)).loss.isfinite()


def test_bad_use_is_said_clearly(drawings):
    x, y = drawings
    with pytest.raises(ValueError, match="no weights named 'nothing'"):
        FewShotClassifier("nothing").fit(x, y)
    with pytest.raises(ValueError, match="not both"):
        FewShotClassifier(run="x", learner=cnn()).fit(x, y)
    with pytest.raises(ValueError, match="no checkpoint"):
        FewShotClassifier(run="nowhere").fit(x, y)
    classifier = FewShotClassifier(learner=cnn())
    with pytest.raises(NotFittedError):
        classifier.predict(x)
    with pytest.raises(NotFittedError):
        classifier.forget("a")
    for labels, message in ((y[:3], "30 labels"), ([None] * 30, "None"), ([[1]] * 30, "hashable"), (None, "y is None")):
        with pytest.raises(ValueError, match=message):
            classifier.fit(x, labels)
    classifier.fit(x, y)
    for arguments, message in (
        ({"label": "z"}, "no remembered example"),
        ({}, "neither"),
        ({"label": "a", "indices": [0]}, "both"),
        ({"indices": [30]}, r"\[0, 30\)"),
        ({"indices": [0.5]}, "whole numbers"),
        ({"indices": -1}, "whole numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.forget(**arguments)
    assert len(classifier.labels_) == 30
    blank = np.concatenate([x[:1], np.zeros_like(x[:1])])
    before = classifier.predict_proba(x)
    with pytest.raises(ValueError, match="image 1: the drawing is empty"):
        classifier.partial_fit(blank, ["a", "b"])
    assert classifier.predict_proba(x).tobytes() == before.tobytes()
    with pytest.raises(NotFittedError, match="forgotten"):
        classifier.forget(indices=range(30)).predict(x)
    assert classifier.partial_fit(x[0][None], "new").predict(x[:1]).tolist() == ["new"]
    assert json.dumps(classifier.classes_.tolist()) == '["new"]'
    assert not Path("nowhere").exists()


def test_a_blank_classifier_shares_the_model_and_nothing_that_is_remembered(drawings):
    x, y = drawings
    first = FewShotClassifier(learner=cnn()).fit(x[:10], y[:10])
    second = first.blank()
    assert second.learner_ is first.learner_
    assert len(second.labels_) == 0
    assert second.inputs_.shape == (0, 1, 28, 28)
    second.partial_fit(x[10:20], y[10:20])
    assert first.classes_.tolist() == ["a", "b"]
    assert second.classes_.tolist() == ["c", "d"]
    alone = FewShotClassifier(learner=cnn()).fit(x[10:20], y[10:20])
    assert np.array_equal(second.predict_proba(x), alone.predict_proba(x))


def test_recalled_inputs_answer_as_those_that_were_learned_to_the_bit(drawings):
    x, y = drawings
    learned = FewShotClassifier(learner=cnn()).fit(x, y)
    recalled = learned.blank().recall(learned.inputs_, learned.labels_.tolist())
    assert np.array_equal(recalled.predict_proba(x), learned.predict_proba(x))


def test_a_classifier_takes_over_a_task_file_of_its_own_model_and_refuses_another_ones(drawings, tmp_path):
    x, y = drawings
    learned = FewShotClassifier(learner=cnn()).fit(x, y)
    learned.save(tmp_path / "task.csn")
    restored = learned.blank().restore(tmp_path / "task.csn")
    assert np.array_equal(restored.predict_proba(x), learned.predict_proba(x))
    with pytest.raises(ValueError, match="other weights"):
        FewShotClassifier(learner=cnn(seed=1)).blank().restore(tmp_path / "task.csn")
