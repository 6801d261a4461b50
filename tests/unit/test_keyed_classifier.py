"""FewShotClassifier over vectors, sentences, photographs and any encoder: one contract for all of them."""

from __future__ import annotations

import json
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_encoders import needs_photos, needs_text

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.encoder import Encoder
from csn.classifier.thresholds import calibrate_unknown
from csn.core.repeated import HeadOptions
from csn.data.images.strokes import load_strokes
from csn.engine.checkpoint import load_checkpoint, save_checkpoint

HEADS = ("csn", "centroid", "logistic")


def blobs(way: int = 4, shot: int = 5, d: int = 8, seed: int = 0, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(way, d))
    labels = np.repeat(np.arange(way), shot)
    return centres[labels] + spread * rng.normal(size=(way * shot, d)), np.array(list("abcdefgh"))[labels]


@parametrize_with_checks([FewShotClassifier(encoder=None), FewShotClassifier(encoder=None, head="centroid")])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("head", HEADS)
def test_it_learns_and_answers(head: Any) -> None:
    x, y = blobs()
    new, labels = blobs(seed=1)
    classifier = FewShotClassifier(encoder=None, head=head).fit(x, y)
    assert classifier.score(new, labels) > 0.9
    proba = classifier.predict_proba(new)
    np.testing.assert_allclose(proba.sum(1), 1)
    logs = classifier.decision_function(new)
    np.testing.assert_allclose(logs.argmax(1), proba.argmax(1))
    two = FewShotClassifier(encoder=None, head=head).fit(x[:10], y[:10])
    np.testing.assert_array_equal(two.decision_function(new) > 0, two.predict(new) == "b")


def test_probabilities_are_those_of_the_head_by_hand() -> None:
    x, y = blobs(way=2, shot=1)
    found = FewShotClassifier(encoder=None, head="centroid").fit(x, y).predict_proba(x[:1])[0]
    cosine = x[0] @ x[1] / np.linalg.norm(x[0]) / np.linalg.norm(x[1])
    a, t = HeadOptions().scale, HeadOptions().temperature
    assert found[0] == pytest.approx(1 / (1 + np.exp(a * (cosine - 1) / t)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 19)), min_size=1, max_size=14), st.sampled_from(HEADS))
def test_any_sequence_of_learning_and_forgetting_equals_never_having_seen(steps: Any, head: Any) -> None:
    """To the bit, whatever was learned and forgotten before."""
    x, y = blobs()
    kept = [0, 7, 12]
    classifier = FewShotClassifier(encoder=None, head=head).fit(x[kept], y[kept])
    for learn, which in steps:
        if learn:
            classifier.partial_fit(x[[which]], y[[which]])
            kept.append(which)
        elif len(kept) > 1:
            place = which % len(kept)
            classifier.forget(indices=place)
            del kept[place]
        classifier.predict(x)
    never = FewShotClassifier(encoder=None, head=head).fit(x[kept], y[kept])
    assert classifier.predict_proba(x).tobytes() == never.predict_proba(x).tobytes()
    assert classifier.similarity(x).tobytes() == never.similarity(x).tobytes()
    assert classifier.memory_.held_out_similarity.tobytes() == never.memory_.held_out_similarity.tobytes()


def test_what_the_package_ships_reads_its_keys_with_the_same_head_and_forgets_exactly() -> None:
    data = load_strokes(alphabets=5, characters=8).splits["train"]
    x, y = data.x[:200:10, 0].numpy(), np.repeat(list("abcd"), 5)
    classifier = FewShotClassifier("characters").fit(x, y).forget(indices=[0, 8]).forget("c")
    kept = [i for i in range(20) if i not in (0, 8) and y[i] != "c"]
    assert classifier.predict_proba(x).tobytes() == FewShotClassifier().fit(x[kept], y[kept]).predict_proba(x).tobytes()
    parts = FewShotClassifier()
    for i in kept:
        parts.partial_fit(x[[i]], y[[i]])
    assert classifier.predict_proba(x).tobytes() == parts.predict_proba(x).tobytes()
    assert len(classifier.inputs_) == len(kept)
    assert classifier.recall(classifier.inputs_[:2], ["z", "z"]).predict(x[kept[:1]]).tolist() in (["z"], ["a"])


def test_what_pushed_an_answer_is_named() -> None:
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None).fit(x, y, names=[f"row{i}" for i in range(len(x))])
    for i, found in enumerate(classifier.explain(x)):
        assert found.label == y[i]
        assert sum(source.weight for source in found.sources) == pytest.approx(1)
        assert [source.weight for source in found.sources] == sorted((s.weight for s in found.sources), reverse=True)
        assert found.sources[0].label == y[i]
        assert all(source.name == f"row{source.index}" for source in found.sources)
        assert any(source.push < 0 for source in found.sources)
        assert all(source.weight == 0 for source in found.sources if source.push < 0)
    assert FewShotClassifier(encoder=None, head="logistic").fit(x, y).explain(x)[0].sources == ()


def test_neighbours_and_embeddings() -> None:
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None).fit(x, y)
    distances, indices = classifier.kneighbors(x, 3)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for i in range(len(x)):
        order = np.argsort(1 - unit @ unit[i], kind="stable")[:3]
        np.testing.assert_allclose(distances[i], (1 - unit @ unit[i])[order], atol=1e-12)
        assert indices[i, 0] == i
    assert classifier.kneighbors(x, 3, return_distance=False).tolist() == indices.tolist()
    np.testing.assert_array_equal(classifier.transform(x), x)
    with pytest.raises(ValueError, match="from 1 to the 20"):
        classifier.kneighbors(x, 21)


def test_the_threshold_of_the_task_itself_by_hand() -> None:
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None, unknown_threshold="own").fit(x, y)
    own = []
    for fold in range(5):  # the examples of a class are neighbours: 0 to 4, 5 to 9 ...
        out = np.arange(len(x)) % 5 == fold
        own.extend(FewShotClassifier(encoder=None).fit(x[~out], y[~out]).similarity(x[out]))
    assert classifier.threshold() == pytest.approx(np.quantile(own, 0.1))
    alone = np.append(y[:-1], "z")  # the only example of z is never held out
    alone_too = FewShotClassifier(encoder=None).fit(x, alone)
    assert len(alone_too.memory_.held_out_similarity) == len(x) - 1
    opposite = -x.mean(0, keepdims=True)
    assert classifier.predict(np.concatenate([x[:1], opposite])).tolist() == [y[0], None]
    assert classifier.explain(opposite)[0].label is None


def test_the_similarity_by_hand() -> None:
    """The best class's cosine plus 1 - C / n of its shift, less 0.75 (C - 1) / (C + 7) of the mean of the others."""
    x, y = blobs(way=3)
    query = blobs(way=3, seed=1)[0][:4]
    options, classifier = HeadOptions(), FewShotClassifier(encoder=None).fit(x, y)
    values = classifier.memory_.task.values.numpy()
    unit, asked = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (x, query))
    for q, found in zip(asked, classifier.similarity(query), strict=True):
        fits = []
        for c, label in enumerate("abc"):
            mean = unit[y == label].sum(0)
            shift = sum(np.exp(options.sharpness * (k @ q - 1)) * v[c] for k, v in zip(unit, values, strict=True))
            fits.append(q @ mean / np.linalg.norm(mean) + (1 - 3 / len(x)) * shift / options.scale)
        best, *others = sorted(fits, reverse=True)
        assert found == pytest.approx(best - 0.75 * 2 / 10 * sum(others) / 2)
    alone = FewShotClassifier(encoder=None).fit(x[::5], y[::5])  # one example of a class: cosines alone, not centred
    fits = np.sort(asked @ unit[::5].T, axis=1)
    np.testing.assert_allclose(alone.similarity(query), fits[:, 2] - 0.75 / 10 * fits[:, :2].sum(1))
    assert FewShotClassifier(encoder=None).fit(x[:1], y[:1]).similarity(x[:1])[0] == pytest.approx(1)  # no other class


def test_a_number_of_an_earlier_score_is_replaced_with_a_warning(tmp_path: Path) -> None:
    x, y = blobs()
    FewShotClassifier(encoder=None, unknown_threshold=0.31).fit(x, y).save(tmp_path / "task.csn")
    assert FewShotClassifier.load(tmp_path / "task.csn").threshold() == 0.31
    tensors, about = load_checkpoint(tmp_path / "task.csn")
    del about["unknown_score"]
    save_checkpoint(tmp_path / "older.csn", tensors, about)
    with pytest.warns(UserWarning, match=r'older.csn was made by an earlier csn.*0.31.*"own" is used instead'):
        older = FewShotClassifier.load(tmp_path / "older.csn")
    assert older.unknown_threshold == "own"
    older.save(tmp_path / "newer.csn")
    assert FewShotClassifier.load(tmp_path / "newer.csn").unknown_threshold == "own"


def test_one_example_a_class_has_no_threshold_of_its_own() -> None:
    x, y = blobs(shot=1)
    classifier = FewShotClassifier(encoder=None, unknown_threshold="own").fit(x, y)
    with pytest.warns(UserWarning, match="every input is answered"):
        assert classifier.predict(x).tolist() == y.tolist()
    drawings = load_strokes(alphabets=5, characters=8).splits["train"].x[:60:20, 0].numpy()
    with pytest.warns(UserWarning, match=r"the encoder's threshold 0\.\d\d"):
        FewShotClassifier(unknown_threshold="own").fit(drawings, [0, 1, 2]).predict(drawings)


def test_a_threshold_is_calibrated_on_new_examples() -> None:
    classifier = FewShotClassifier(encoder=None).fit(*blobs(way=3))
    x, y = blobs(way=5, shot=40, seed=2)
    found = calibrate_unknown(classifier, x, y, keep=0.9)
    assert found.kept.mean == pytest.approx(0.9, abs=0.01)
    assert found.caught.mean > 0.5
    assert found.threshold == pytest.approx(np.quantile(classifier.similarity(x[:120]), 0.1))
    assert np.isnan(calibrate_unknown(classifier, x[:120], y[:120]).caught.mean)
    for bad, message in (((x, ["q"] * len(x)), "none of these"), ((x, y[:3]), "labels")):
        with pytest.raises(ValueError, match=message):
            calibrate_unknown(classifier, *bad)


@pytest.mark.parametrize("given_as", ["sized", "own", "calibrated", True, float("nan")])
def test_bad_thresholds_are_refused(given_as: Any) -> None:
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None, unknown_threshold=given_as).fit(x, y)
    if given_as == "own":
        assert classifier.predict(x) is not None
        return
    with pytest.raises(ValueError, match="unknown_threshold"):
        classifier.predict(x)


def test_task_files_and_pickles_are_small_and_equal_to_the_bit(tmp_path: Path) -> None:
    x, y = blobs(shot=20, d=32)
    path = tmp_path / "task.csn"
    for head in HEADS:
        classifier = FewShotClassifier(encoder=None, head=head, unknown_threshold="own")  # type: ignore[arg-type]
        classifier.fit(x.astype(np.float32), y, names=["a"] * len(x))
        classifier.predict(x.astype(np.float32))
        classifier.save(path)
        pickled = pickle.dumps(classifier)
        assert len(pickled) < 2 * path.stat().st_size < 4 * x.size * 4
        for other in (FewShotClassifier.load(path), pickle.loads(pickled)):
            assert other.predict_proba(x).tobytes() == classifier.predict_proba(x).tobytes()
            assert (other.head, other.unknown_threshold, other.encoder) == (head, "own", None)
            assert other.predict(x).tolist() == classifier.predict(x).tolist()
            assert other.forget("a").partial_fit(x[:1], ["z"]).predict(x[:1]).tolist() == ["z"]
            if head != "logistic":
                assert other.explain(x[-1:])[0].sources[0].name == "a"


def test_drawings_are_pickled_small_and_saved_with_their_inputs(tmp_path: Path) -> None:
    x = load_strokes(alphabets=5, characters=8).splits["train"].x[:100:10, 0].numpy()
    y = np.repeat([1, 2], 5)
    for head in ("csn", "learner"):
        classifier = FewShotClassifier(head=head).fit(x, y)  # type: ignore[arg-type]
        classifier.save(tmp_path / "task.csn")
        pickled = pickle.dumps(classifier)
        assert len(pickled) < 2 * (tmp_path / "task.csn").stat().st_size
        for other in (FewShotClassifier.load(tmp_path / "task.csn"), pickle.loads(pickled)):
            assert other.predict_proba(x).tobytes() == classifier.predict_proba(x).tobytes()
            assert torch.equal(other.inputs_, classifier.inputs_)


def test_a_task_file_needs_the_encoder_that_it_was_made_with(tmp_path: Path) -> None:
    x, y = blobs()
    path, pca = tmp_path / "task.csn", PCA(3).fit(x)
    FewShotClassifier(encoder=pca).fit(list(x), y).save(path)
    loaded = FewShotClassifier.load(path, encoder=pca)
    assert loaded.predict(list(x)).tolist() == FewShotClassifier(encoder=pca).fit(list(x), y).predict(list(x)).tolist()
    with pytest.raises(ValueError, match="same encoder="):
        FewShotClassifier.load(path)
    with pytest.raises(ValueError, match="other weights"):
        FewShotClassifier.load(path, encoder=PCA(3).fit(x + x**2))
    FewShotClassifier(encoder=None).fit(x, y).save(path)
    with pytest.raises(ValueError, match="made with encoder 'vectors'"):
        FewShotClassifier.load(path, encoder=pca)
    tensors, about = load_checkpoint(path)
    for change in (
        {"encoder": "sound"},
        {"head": "x"},
        {"head": None},
        {"names": ["a"]},
        {"names": [1] * 20},
        {"unknown_threshold": True},
        {"fingerprint": "x"},
        {"labels": about["labels"][:3]},
    ):
        save_checkpoint(path, tensors, about | change)
        with pytest.raises(ValueError):
            FewShotClassifier.load(path)
    for keys in (tensors["keys"][0], tensors["keys"].long(), tensors["keys"][:, :0], tensors["keys"] * torch.nan):
        save_checkpoint(path, {"keys": keys}, about)
        with pytest.raises(ValueError, match="whole task"):
            FewShotClassifier.load(path)


def test_pipelines_grids_and_clones() -> None:
    x, y = blobs()
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), FewShotClassifier(encoder=None)), {"fewshotclassifier__head": HEADS}, cv=2
    )
    assert grid.fit(x, y).best_score_ > 0.9
    assert make_pipeline(FewShotClassifier(encoder=None), StandardScaler()).fit_transform(x, y).shape == x.shape
    other = clone(FewShotClassifier(encoder=None, head="logistic", batch_size=7, cache=False))
    assert (other.encoder, other.head, other.batch_size, other.cache) == (None, "logistic", 7, False)


def length_and_os(items: list[str]) -> list[list[int]]:
    return [[len(item), item.count("o")] for item in items]


def test_an_encoder_of_ones_own_is_shared_by_clones_and_goes_to_other_processes() -> None:
    encoder = Encoder(length_and_os, kind="text")
    texts, labels = ["o", "oo", "ooo", "aaaa", "aaaaa", "aaaaaa"], [0, 0, 0, 1, 1, 1]
    classifier = FewShotClassifier(encoder=encoder)
    assert clone(classifier).encoder is encoder
    assert GridSearchCV(classifier, {"head": HEADS}, cv=3).fit(texts, labels).best_score_ > 0.9
    there = pickle.loads(pickle.dumps(classifier.fit(texts, labels)))
    assert there.predict(texts).tolist() == labels
    assert there.encoder.fingerprint == encoder.fingerprint


def test_frames_in_and_out() -> None:
    x, y = blobs()
    frame = pd.DataFrame(x, columns=[f"n{i}" for i in range(8)])
    classifier = FewShotClassifier(encoder=None, unknown_threshold=0.0).fit(frame, pd.Series(y))
    assert classifier.feature_names_in_.tolist() == list(frame.columns)
    found = classifier.answers(frame)
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == ["label", "probability", "similarity", "most_like"]
    assert found["label"].tolist() == y.tolist()
    polars = FewShotClassifier(encoder=None).fit(pl.DataFrame(frame.to_dict("list")), pl.Series(y.tolist()))
    assert isinstance(polars.answers(pl.DataFrame(frame.to_dict("list")), "polars"), pl.DataFrame)
    texts = ["one two", "three four", "one", "four"]
    sizes = Encoder(lambda items: [[len(item) == size for size in (7, 10, 3, 4)] for item in items], kind="text")
    for column in (texts, tuple(texts), np.array(texts), np.array(texts, object), pd.Series(texts), pl.Series(texts)):
        assert FewShotClassifier(encoder=sizes).fit(column, [0, 1, 2, 3]).predict(column).tolist() == [0, 1, 2, 3]
    assert FewShotClassifier(encoder=sizes).fit(pd.DataFrame({"t": texts}), [0, 1, 2, 3]).predict("one").tolist() == [2]
    with pytest.raises(ValueError, match="2 columns, a, b"):
        FewShotClassifier(encoder=sizes).fit(pd.DataFrame({"a": texts, "b": texts}), [0, 1, 2, 3])


TEXTS, PHOTOS = ["a sentence", "and one more"], np.random.default_rng(0).random((2, 40, 50, 3))
A_TEXT_ENCODER = Encoder(lambda items: [[len(item), 1] for item in items], kind="text")
A_PHOTO_ENCODER = Encoder(lambda items: [[1, 2] for _ in items], kind="photos")


@pytest.mark.parametrize(
    ("encoder", "X", "message"),
    [
        ("drawings", TEXTS, 'encoder="text"'),
        ("drawings", np.zeros((2, 1024)), "encoder=None"),
        (None, TEXTS, 'encoder="text"'),
        (None, PHOTOS, 'encoder="photos"'),
        (A_TEXT_ENCODER, PHOTOS, 'encoder="photos"'),
        (A_TEXT_ENCODER, np.zeros((2, 5)), "encoder=None"),
        (A_TEXT_ENCODER, ["a.png", "b.jpg"], 'encoder="photos"'),
        (A_TEXT_ENCODER, ["a", " \n"], "input 1 is an empty text"),
        (A_TEXT_ENCODER, ["a", "b" * 1_000_001], "1,000,001 characters"),
        (A_TEXT_ENCODER, ["a", PHOTOS[0]], "input 1 is not a sentence"),
        (A_TEXT_ENCODER, [], "no examples"),
        (A_PHOTO_ENCODER, TEXTS, 'encoder="text"'),
        (A_PHOTO_ENCODER, [PHOTOS[0], "a sentence"], "input 1 is a text"),
        (A_PHOTO_ENCODER, ["nowhere.jpg"], "no file nowhere.jpg"),
        (A_PHOTO_ENCODER, np.zeros((2, 5)), "encoder=None"),
        ("sound", TEXTS, "unknown encoder 'sound'"),
        (3, TEXTS, "an encoder is a name"),
    ],
)
def test_input_of_another_kind_names_the_remedy(encoder: Any, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(encoder=encoder).fit(X, list(range(len(X))))


def test_a_long_text_is_taken() -> None:
    assert FewShotClassifier(encoder=A_TEXT_ENCODER).fit(["x" * 100_000, "y"], [0, 1]).predict("yy").tolist() == [1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"head": "x"}, "unknown head"),
        ({"head": "learner"}, "no layers to shift"),
        ({"run": "x"}, "not both"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_bad_parameters_are_refused(parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FewShotClassifier(encoder=A_TEXT_ENCODER, **parameters).fit(TEXTS, [0, 1])


def test_photographs_given_as_drawings_are_told() -> None:
    drawings = load_strokes(alphabets=5, characters=8).splits["train"].x[:100:20, 0].numpy()
    rng = np.random.default_rng(0)
    smooth = np.kron(rng.random((6, 8, 8, 3)), np.ones((1, 8, 8, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = FewShotClassifier().fit(drawings, list(range(5)))
        classifier.predict(255 - drawings)
    with pytest.warns(UserWarning, match="6 of 6 inputs are not drawings.*photos"):
        classifier.predict(smooth)
    with pytest.warns(UserWarning, match="6 of 6 inputs"):
        FewShotClassifier().fit(smooth, list(range(6)))
    strict = FewShotClassifier(unknown_threshold=-1.0).fit(drawings, list(range(5)))
    assert strict.predict(smooth).tolist() == [None] * 6
    assert strict.predict(drawings).tolist() == [0, 1, 2, 3, 4]


def test_what_another_thread_learned_meanwhile_is_kept() -> None:
    """While one example is encoded, another is learned and one is forgotten: all three happen."""
    x, _ = blobs(way=2, shot=2)
    meanwhile = []

    def encode(items: list[np.ndarray]) -> np.ndarray:
        if meanwhile:
            meanwhile.pop()()
        return np.stack(items)

    classifier = FewShotClassifier(encoder=encode, cache=False).fit(list(x[:2]), ["a", "gone"])
    meanwhile += [lambda: classifier.partial_fit([x[2]], ["c"]).forget("gone")]
    classifier.partial_fit([x[3]], ["b"])
    assert classifier.labels_.tolist() == ["a", "c", "b"]


def test_readers_and_writers_in_eight_threads(tmp_path: Path) -> None:
    """Every answer comes from one whole state; nothing that was learned is lost."""
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None).fit(x, y)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for i in range(20):
                classifier.partial_fit(x[[i]], [f"t{number}"])
                if i % 3 == 0:
                    classifier.forget(f"t{number}")
        except BaseException as error:
            errors.append(error)

    def read(_: int) -> None:
        try:
            for _ in range(20):
                proba = classifier.predict_proba(x)
                assert proba.shape[1] >= 4
                assert np.isfinite(proba).all()
                classifier.explain(x[:2])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=(write, read)[i % 2], args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(set(classifier.labels_.tolist()) - set("abcd")) == ["t0", "t2", "t4", "t6"]
    assert all(classifier.labels_.tolist().count(f"t{i}") == 1 for i in (0, 2, 4, 6))  # the 20th, after the last forget


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([2**63, -1], int),
        (np.array([2**63, 1], dtype=np.uint64), int),
        (np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), np.datetime64),
        (np.array([1, 2], dtype=np.int8), int),
        ([True, False], bool),
        (["x\0", "x"], str),
    ],
)
def test_labels_keep_their_kind_and_value(labels: Any, kind: type) -> None:
    x, _ = blobs(way=2, shot=1)
    classifier = FewShotClassifier(encoder=None).fit(x, labels)
    found = classifier.predict(x).tolist() if kind is not np.datetime64 else list(classifier.predict(x))
    assert found == list(labels)
    assert all(isinstance(label, kind) for label in found)


@needs_text
def test_sentences(tmp_path: Path) -> None:
    learned = ["book a flight to rome", "i need a plane ticket", "what is my balance", "how much money have i"]
    asked = ["fly me to boston please", "show the balance of my account"]
    classifier = FewShotClassifier(encoder="text", unknown_threshold="own").fit(
        learned, ["fly", "fly", "money", "money"]
    )
    assert FewShotClassifier(encoder="text").fit(learned, list("aabb")).predict(asked).tolist() == ["a", "b"]
    classifier.save(tmp_path / "task.csn")
    assert (tmp_path / "task.csn").stat().st_size < 4 * 384 * 4 + 2000
    assert len(pickle.dumps(classifier)) < 2 * (tmp_path / "task.csn").stat().st_size
    loaded = FewShotClassifier.load(tmp_path / "task.csn")
    assert loaded.encoder == "text"
    assert np.array_equal(loaded.predict_proba(asked), classifier.predict_proba(asked))
    assert json.dumps(loaded.get_params()["unknown_threshold"]) == '"own"'


@needs_photos
def test_photographs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    red, blue = (np.clip(rng.random((3, 64, 64, 3)) * 0.3 + tint, 0, 1) for tint in ((0.7, 0, 0), (0, 0, 0.7)))
    classifier = FewShotClassifier(encoder="photos").fit(np.concatenate([red[:2], blue[:2]]), ["r", "r", "b", "b"])
    assert classifier.predict([red[2], blue[2]]).tolist() == ["r", "b"]
    assert classifier.transform(red).shape == (3, 1280)
    classifier.save(tmp_path / "task.csn")
    assert FewShotClassifier.load(tmp_path / "task.csn").predict(red[2:]).tolist() == ["r"]


def test_vectors_too_long_for_their_precision_are_refused() -> None:
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None).fit(x, y)
    with pytest.raises(ValueError, match="scale them down"):
        classifier.predict(1e300 * x)
    assert classifier.predict(1e100 * x).tolist() == classifier.predict(x).tolist()


def test_a_frame_of_another_kind_is_refused_and_one_unknown_example_is_enough() -> None:
    x, y = blobs()
    classifier = FewShotClassifier(encoder=None).fit(x, y)
    with pytest.raises(ValueError, match="'pandas' or 'polars', got 'cudf'"):
        classifier.answers(x, frame="cudf")  # type: ignore[arg-type]
    found = calibrate_unknown(classifier, np.vstack([x[:2], -x[:1]]), [*y[:2], "new"])
    assert found.caught.mean == 1.0
    assert np.isnan(found.caught.interval)
