"""Keys that tell which words two sentences share (networks/words.py), and the ids of words out of vocabulary."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from csn import building
from csn.baselines.lstm_lm import LanguageModel
from csn.cli.main import main
from csn.data.text.sentences import text_dataset
from csn.engine.run import open_run
from csn.learner import InputSpec
from csn.networks.lstm import LSTM
from csn.networks.neighbours import NeighbourKey
from csn.networks.sentences import BLANK, PAD, UNKNOWN
from csn.networks.words import Pooling, WordCodes, WordKey, WordKeyOptions

VOCABULARY = 12


def key(**options: object) -> WordKey:
    torch.manual_seed(0)
    return WordKey(VOCABULARY, size=8, embedding=6, units=10, **options).eval()


def rows(*sentences: list[int]) -> torch.Tensor:
    return torch.tensor(sentences)


def test_a_word_has_one_code_and_two_words_have_almost_orthogonal_ones():
    codes = WordCodes(4096)(torch.tensor([-3, -4, 5, -3]))
    assert set(codes.unique().tolist()) == {-1.0, 1.0}
    cosines = F.normalize(codes, dim=-1) @ F.normalize(codes, dim=-1).T
    assert cosines[0, 3] == pytest.approx(1.0)
    assert cosines[0, 1].abs() < 0.08  # five standard deviations of random codes
    assert cosines[1, 2].abs() < 0.08


def test_the_cosine_of_two_keys_is_the_learned_one_plus_the_weights_of_shared_words():
    x = rows([4, -7, BLANK, 5, PAD], [6, -7, BLANK, 5, PAD], [4, -8, BLANK, 9, PAD])
    network = key(codes=4096, code_weights=(0.6, 0.2, 0.1), neighbours=1)
    with torch.no_grad():
        keys = network(x)
    learned = F.normalize(keys[:, :8], dim=-1)
    found = F.normalize(keys, dim=-1) @ F.normalize(keys, dim=-1).T
    # All three have an unknown and a known neighbour and an unknown word: each key has the length sqrt(1.9).
    shared = (learned[0] @ learned[1] + 0.6 + 0.2 + 0.1) / 1.9
    assert found[0, 1].item() == pytest.approx(shared.item(), abs=1e-5)
    apart = (learned[0] @ learned[2]) / 1.9
    assert found[0, 2].item() == pytest.approx(apart.item(), abs=0.05)


def test_a_neighbour_counts_on_its_own_side_only():
    x = rows([4, -7, BLANK, 5], [4, 5, BLANK, -7])
    with torch.no_grad():
        keys = key(codes=4096, code_weights=(1.0, 0.0, 0.0))(x)
    of_codes = keys[:, 8 : 8 + 4096]
    assert of_codes.norm(dim=-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
    assert (of_codes[0] @ of_codes[1]).abs() < 0.08


def test_codes_are_zero_in_training_and_without_unknown_words():
    x = rows([4, -7, BLANK, 5], [4, 3, BLANK, 5])
    network = key(codes=16)
    in_training = network.train()(x)
    assert in_training.shape == (2, 8 + 3 * 16)
    assert not in_training[:, 8:].any()
    with torch.no_grad():
        in_evaluation = network.eval()(x)
    assert in_evaluation[0, 8:24].any()
    assert not in_evaluation[1, 8:24].any()
    assert not in_evaluation[1, 40:].any()


@torch.no_grad()
def test_a_pooling_is_a_mean_weighted_by_position_and_content():
    torch.manual_seed(1)
    pooling = Pooling(3, 2, farthest=2)
    torch.nn.init.normal_(pooling.position)
    x = rows([PAD, 5, BLANK, 7, 8, 9], [PAD, PAD, BLANK, PAD, PAD, PAD])
    embedded = torch.randn(2, 6, 3)
    found = pooling(x, embedded)
    for head in range(2):
        scores = {
            t: float(embedded[0, t] @ pooling.content.weight[head] + pooling.position[min(max(t - 2, -2), 2) + 2, head])
            for t in (1, 3, 4, 5)
        }
        total = sum(torch.tensor(score).exp() for score in scores.values())
        expected = sum(torch.tensor(score).exp() / total * embedded[0, t] for t, score in scores.items())
        torch.testing.assert_close(found[0, 3 * head : 3 * head + 3], expected)
    assert not found[1].any()  # a sentence of nothing but its blank


@pytest.mark.parametrize("part", ["lstm", "neighbours", "context"])
def test_networks_read_every_word_out_of_vocabulary_as_unknown(part):
    torch.manual_seed(0)
    network = {
        "lstm": lambda: LSTM(VOCABULARY, 3, embedding=4, units=5),
        "neighbours": lambda: NeighbourKey(VOCABULARY, embedding=4),
        "context": lambda: NeighbourKey(VOCABULARY, embedding=4, context=True),
    }[part]()
    own, one = (rows([PAD, 4, i, BLANK, j, 6]) for i, j in ((-3, -9), (UNKNOWN, UNKNOWN)))
    first, second = network(own), network(one)
    if part == "lstm":
        first, second = first.logits, second.logits
    assert torch.equal(first, second)


def test_a_language_model_reads_every_word_out_of_vocabulary_as_unknown():
    torch.manual_seed(0)
    model = LanguageModel(VOCABULARY, 2, embedding=4, units=5).eval()
    words = torch.tensor([[3, 4]])
    own, one = (rows([4, i, BLANK, 6])[None] for i in (-3, UNKNOWN))
    assert torch.equal(model.predict(own, words), model.predict(one, words))


def test_words_out_of_vocabulary_have_numbers_of_their_own():
    train = [["a", "b", "c"], ["a", "c", "b"], ["b", "a", "c"], ["c", "b", "a"]]
    held_out = [["a", "zig", "new"], ["zig", "b", "new", "zig"], ["zag", "old", "new"], ["zag", "c"], ["val", "a"]]
    held_out += [["val", "b", "new"]]
    data = text_dataset(
        "made", [*train, *held_out], ["zig", "zag"], val_words=1, val_range=(2, 2), class_min=2, reach=3, seed=1,
        never=["new", "old", "c"],
    )  # fmt: skip
    test = {name: [] for name in data.splits["test"].names}
    rows_of = iter(data.splits["test"].x.tolist())
    for name, count in zip(data.splits["test"].names, data.splits["test"].counts.tolist(), strict=True):
        test[name] = [next(rows_of) for _ in range(count)]
    new = test["zig"][0][4]
    assert new < 0
    assert test["zag"][0][5] == new  # the same word under another class
    assert test["zag"][0][4] not in (new, UNKNOWN)
    assert test["zag"][0][4] < 0
    assert test["zig"][1][6] == UNKNOWN  # the blanked word again, which must not give itself away
    assert not (data.splits["train"].x < 0).any()


def test_an_option_that_is_wrong_is_refused():
    network = building._options("network", "lstm")
    spec = InputSpec((0,), VOCABULARY)
    for options, words in (
        (WordKeyOptions(code_weights=(0.1, -1.0, 0.0)), "three numbers of 0 or more"),
        (WordKeyOptions(codes=0), "codes must be 1 or more"),
    ):
        with pytest.raises(ValueError, match=words):
            options.build(network, spec)
    learner = building.build("matching", reads=spec, way=3, network="lstm", key=WordKeyOptions(learned=8, codes=4))
    assert learner.embed(rows([4, 5, BLANK, 6])).shape == (1, 8 + 12)


def test_a_trained_key_is_loaded_with_its_codes(tmp_path):
    folder = tmp_path / "run"
    train = [
        "train",
        "matching-sentences",
        "--recipe",
        "best",
        "--data",
        "toy-language",
        "--threads",
        "1",
        "--tasks",
        "8",
    ]
    small = ["network.units=8", "network.embedding=8", "pretrain.epochs=0", "train.validation_tasks=4", "key.codes=16"]
    changes = [part for change in small for part in ("--set", change)]
    assert main([*train, *changes, "--out", str(folder)]) == 0
    key = open_run(folder).learner.embedding_network
    codes = WordCodes(16)
    assert torch.equal(key.codes.a, codes.a)
    assert torch.equal(key.codes.b, codes.b)
