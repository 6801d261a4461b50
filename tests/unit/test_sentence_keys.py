"""Key functions for sentences, and what a run remembers of its vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import tensor
from torch.testing import assert_close

from csn.building import build_learner
from csn.config import load_preset
from csn.data.source import Dataset
from csn.engine.models import describe_vocabulary
from csn.engine.run import TrainedRun, check_vocabulary
from csn.learner import InputSpec
from csn.networks.encoded import EncodedFFN
from csn.networks.lstm import LSTM, LSTMKey
from csn.networks.neighbours import NeighbourKey, neighbour_ids

CENTRED = tensor([[0, 3, 4, 1, 5, 6, 7], [8, 9, 3, 1, 0, 0, 0], [0, 0, 0, 1, 4, 4, 0]])
STARTED = tensor([[3, 4, 1, 5, 6, 7, 0], [8, 9, 3, 1, 0, 0, 0], [1, 4, 4, 0, 0, 0, 0]])
KEYS = {
    "neighbours": lambda: NeighbourKey(10, embedding=5, units=6),
    "context": lambda: NeighbourKey(10, embedding=5, units=6, neighbours=1, context=True),
    "lstm": lambda: LSTMKey(10, embedding=5, units=6),
}


@pytest.mark.parametrize("x", [CENTRED, STARTED])
def test_neighbours_are_found_in_any_alignment(x):
    assert neighbour_ids(x, 1).tolist() == [[4, 5], [3, 0], [0, 4]]
    assert neighbour_ids(x, 2).tolist() == [[3, 4, 5, 6], [9, 3, 0, 0], [0, 0, 4, 4]]
    assert neighbour_ids(x, 9)[0].tolist() == [0] * 7 + [3, 4, 5, 6, 7] + [0] * 6


@pytest.mark.parametrize("kind", KEYS)
def test_keys_depend_on_the_sentence_and_not_on_its_place(kind):
    torch.manual_seed(0)
    key = KEYS[kind]()
    keys = key(CENTRED)
    assert keys.shape == (3, 64)
    assert_close(key(STARTED), keys)
    assert_close(key(F.pad(CENTRED, (3, 1))), keys)
    assert_close(torch.cat([key(row[None]) for row in CENTRED]), keys)
    assert not torch.allclose(keys[0], keys[1])


def test_neighbours_further_away_do_not_matter():
    torch.manual_seed(0)
    key = KEYS["neighbours"]()
    other = CENTRED.clone()
    other[0, 6] = 9
    assert_close(key(other), key(CENTRED))


def test_context_adds_the_mean_of_the_other_known_words():
    torch.manual_seed(0)
    key, plain = KEYS["context"](), KEYS["neighbours"]()
    plain.neighbours, plain.layers, plain.embedding = key.neighbours, key.layers, key.embedding
    x = tensor([[3, 2, 4, 1, 5, 6, 0], [0, 0, 4, 1, 5, 0, 0]])  # 2 is unknown, 4 and 5 are the neighbours
    words = key.embedding.weight[[3, 6]].mean(0)
    assert_close(key(x) - plain(x), torch.stack([key.context(words), torch.zeros(64)]))


@pytest.mark.parametrize("x", [tensor([[3, 4, 5]]), tensor([[1, 4, 1]])])
def test_a_sentence_needs_one_blank(x):
    with pytest.raises(ValueError, match="exactly one blank"):
        KEYS["neighbours"]()(x)


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
@pytest.mark.parametrize(("preset", "base", "layers"), [("adalstm-1", LSTM, 1), ("adalstm-2", LSTM, 2)])
def test_presets_build_ada_lstm(preset, base, layers, conditioning):
    config = load_preset(f"{preset}-{conditioning}")
    model = build_learner(config, InputSpec((7,), 10))
    assert (type(model.base), len(model.base.layers), model.base.output.in_features) == (base, layers, 300)
    assert (config.data.name, config.train.learning_rate, model.log_scale) == ("penn-treebank", 0.001, None)
    assert isinstance(model.key_function, NeighbourKey)


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
def test_presets_build_lstm_and_ada_ffn(conditioning):
    config = load_preset(f"lstm-adaffn-{conditioning}", "plus")
    model = build_learner(config, InputSpec((7,), 10))
    assert isinstance(model.base, EncodedFFN)
    assert (model.base.encoder.lstm.num_layers, len(model.base.activations)) == (2, 2)
    assert (config.train.learning_rate, model.base.encoder.embedding.dropout.p) == (0.003, 0.5)


@pytest.mark.parametrize(
    ("preset", "spec"), [("adalstm-1-df", InputSpec((1, 28, 28))), ("adaffn-df", InputSpec((7,), 10))]
)
def test_sentences_and_images_are_not_confused(preset, spec):
    with pytest.raises(ValueError, match="does not read"):
        build_learner(load_preset(preset), spec)


def test_a_text_of_another_vocabulary_is_refused(tmp_path: Path):
    words = ("<pad>", "<blank>", "<unk>", "a", "b")
    about = {"vocabulary": describe_vocabulary(words)}
    run = TrainedRun(tmp_path, load_preset("adalstm-1-df"), torch.nn.Module(), {"about": about}, {}, [])
    check_vocabulary(run, Dataset("same", {}, words))
    for other in (words[:-1], (*words[:3], "b", "a"), None):
        with pytest.raises(ValueError, match="other words"):
            check_vocabulary(run, Dataset("other", {}, other))
