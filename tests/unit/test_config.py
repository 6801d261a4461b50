"""Configuration: presets, changes by name, JSON and back."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csn.building import build, build_learner
from csn.config import (
    RECIPES,
    Config,
    config_from_json,
    load_preset,
    merge,
    parse_option,
)
from csn.core.parts import NetworkKey
from csn.learner import InputSpec
from csn.networks.cnn import CNNOptions
from csn.networks.resnet import ResNetOptions
from csn.presets import preset_about, preset_names, read_preset

ALL = [
    (name, recipe) for name in preset_names() for recipe in RECIPES if recipe != "best" or recipe in read_preset(name)
]


def small(config: Config) -> Config:
    """The same parts with little to initialise."""
    sizes = {"filters": 8, "width": 0.1, "units": 8, "guard": False}
    return dataclasses.replace(
        config,
        **{
            kind: dataclasses.replace(part, **{name: sizes[name] for name in sizes if name in vars(part)})
            for kind, part in (("learner", config.learner), ("network", config.network))
            if part is not None
        },
    )


@pytest.mark.parametrize(("name", "recipe"), ALL)
def test_every_preset_loads_names_itself_and_builds(name, recipe):
    config = load_preset(name, recipe)
    assert (config.preset, config.recipe) == (name, recipe)
    if not config.reads_sentences:
        assert build_learner(small(config), InputSpec((1, 28, 28))).way == config.data.way
    assert len(preset_about(name)) > 10
    assert "\n" not in preset_about(name)


@pytest.mark.parametrize("conditioning", ["gradient", "df"])
@pytest.mark.parametrize(("row", "layers"), [("adalstm-1", 1), ("adalstm-2", 2), ("lstm-adaffn", 2)])
def test_the_papers_language_presets_are_there_and_build(row, layers, conditioning):
    config = load_preset(f"{row}-{conditioning}")
    assert (config.network.units, config.network.layers, config.learner.conditioning) == (300, layers, conditioning)
    assert config.data.name == "penn-treebank"
    sizes = {"network": {"units": 200, "embedding": 8}, "learner": {"guard": False}}  # the paper's with 3 shots
    base = build_learner(merge(config, sizes), InputSpec((41,), 50)).base
    assert len(base.activations) == (2 if row == "lstm-adaffn" else layers)  # adapted hidden layers
    assert (base.encoder.lstm.num_layers if row == "lstm-adaffn" else len(base.layers)) == layers


def test_the_papers_adacnn_presets_are_there():
    assert {"adacnn-gradient", "adacnn-df"} <= set(preset_names())


def test_plus_is_written_as_its_differences_from_paper():
    paper, plus = load_preset("adacnn-df"), load_preset("adacnn-df", "plus")
    assert paper.learner.temperature is None
    assert plus.learner.temperature == 10.0
    assert (plus.learner.conditioning, plus.network.filters) == (paper.learner.conditioning, paper.network.filters)
    assert plus.train.clip == paper.train.clip == 10.0


def test_unknown_names_are_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"unknown preset 'adacnn-dff': did you mean 'adacnn-df'.*maml"):
        load_preset("adacnn-dff")
    with pytest.raises(ValueError, match=r"unknown preset.*adacnn-df"):
        load_preset("../config")
    with pytest.raises(ValueError, match=r"unknown recipe 'bset'.*paper, plus"):
        load_preset("adacnn-df", "bset")
    with pytest.raises(ValueError, match=r"network 'cnn' has no option 'filter': did you mean 'filters'\?"):
        merge(Config(), {"network": {"filter": 3}})
    with pytest.raises(ValueError, match=r"unknown section of options 'netwrok': did you mean 'network'\?.*train"):
        merge(Config(), {"netwrok": {}})
    with pytest.raises(ValueError, match=r"unknown network 'resent': did you mean 'resnet'\?.*cnn.*lstm-ffn"):
        merge(Config(), {"network": {"name": "resent"}})


@pytest.mark.parametrize(
    ("section", "name", "value", "wanted"),
    [
        ("network", "filters", "many", "a whole number"),
        ("network", "filters", 3.5, "a whole number"),
        ("network", "filters", True, "a whole number"),
        ("network", "norm", "layer", "none or batch or group"),
        ("network", "name", 3, "the name of a network"),
        ("learner", "guard", 1, "true or false"),
        ("network", "dropout", 0.3, "3 numbers"),
        ("network", "dropout", [0.3, 0.3], "3 numbers"),
        ("network", "dropout", ["x", 0.3, 0.3], "3 numbers"),
        ("network", "dropout", [None, 0.3, 0.3], "3 numbers"),
        ("train", "learning_rate", "fast", "a number"),
        ("train", "learning_rate", True, "a number"),
        ("train", "clip", "no", "a number or null"),
        ("train", "seed", None, "a whole number"),
        ("data", "name", 3, "text"),
    ],
)
def test_values_of_the_wrong_type_are_refused(section, name, value, wanted):
    with pytest.raises(ValueError, match=rf"(?s){name}.*{wanted}|{wanted}.*{name}"):
        merge(Config(), {section: {name: value}})


def test_a_section_must_be_a_table():
    for section in ("network", "train"):
        with pytest.raises(ValueError, match=f"'{section}' is a section of options: give names and values, got 3"):
            merge(Config(), {section: 3})


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        ("units", {"network": ResNetOptions(units=0)}),
        ("filters", {"network": CNNOptions(filters=0)}),
        ("size", {"key": NetworkKey(size=0)}),
        ("units", {"learner": "mann", "units": 0}),
    ],
)
def test_layers_of_no_neurons_are_refused_by_option(option, parts):
    with pytest.raises(ValueError, match=rf"{option} must be 1 or more, got 0"):
        build(reads=(1, 28, 28), way=5, **parts)


def test_values_take_the_type_of_their_field():
    config = merge(Config(), {"train": {"learning_rate": 1, "clip": None}, "network": {"dropout": [0, 0.5, 1]}})
    assert type(config.train.learning_rate) is float
    assert config.train.clip is None
    assert config.network.dropout == (0.0, 0.5, 1.0)
    assert all(type(rate) is float for rate in config.network.dropout)


def test_merge_changes_only_what_it_is_told_and_not_the_original():
    before = Config()
    after = merge(before, {"train": {"seed": 5}})
    assert after.train == dataclasses.replace(before.train, seed=5)
    assert (after.learner, after.network, after.data) == (before.learner, before.network, before.data)
    assert before == Config()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.learning_rate=0.01", {"train": {"learning_rate": 0.01}}),
        ("network.norm=batch", {"network": {"norm": "batch"}}),
        ("learner.temperature=null", {"learner": {"temperature": None}}),
        ("network.dropout=[0, 0.1, 0.2]", {"network": {"dropout": [0, 0.1, 0.2]}}),
        ("learner.guard=false", {"learner": {"guard": False}}),
        (" data.name = omniglot ", {"data": {"name": "omniglot"}}),
        ("data.name=a=b", {"data": {"name": "a=b"}}),
    ],
)
def test_parse_option_by_hand(text, expected):
    assert parse_option(text) == expected


@pytest.mark.parametrize("text", ["seed=3", "train.seed", "train", "", "=3"])
def test_what_is_no_option_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"SECTION\.NAME=VALUE"):
        parse_option(text)


def test_best_is_a_recipe_of_its_own_and_only_of_some_presets():
    best = load_preset("prototypical", "best")
    assert best.train.schedule == "cosine"
    assert best.pretrain.classifier == "cosine"
    with pytest.raises(ValueError, match=r"preset 'snail' has no recipe 'best': choose one of .*prototypical"):
        load_preset("snail", "best")


@pytest.mark.parametrize(("name", "recipe"), ALL)
def test_json_round_trip_of_every_preset(name, recipe):
    config = load_preset(name, recipe)
    assert config_from_json(config.to_json()) == config


@settings(max_examples=30, deadline=None)
@given(
    rate=st.floats(1e-9, 1e3),
    dropout=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    clip=st.none() | st.floats(0.1, 100),
    seed=st.integers(0, 2**60),
)
def test_json_round_trip_of_any_numbers(rate, dropout, clip, seed):
    changes = {"train": {"learning_rate": rate, "clip": clip, "seed": seed}, "network": {"dropout": dropout}}
    config = merge(Config(), changes)
    assert config_from_json(config.to_json()) == config
    assert (config.train.learning_rate, config.train.seed) == (rate, seed)


def test_configuration_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().network.filters = 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a configuration is a JSON object"),
        ('"adacnn-df"', "a configuration is a JSON object"),
        ('{"train": []}', "'train' is a section of options: give names and values"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_configuration_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        config_from_json(text)


def test_a_recipe_extends_another_and_changes_the_rest():
    plus, best = load_preset("adalstm-1-df", "plus"), load_preset("adalstm-1-df", "best")
    assert best.key is not None
    assert best.key.name == "words"
    assert (best.train, best.pretrain, best.network) == (plus.train, plus.pretrain, plus.network)


@pytest.mark.parametrize("option", [{"train": {"learning_rate": 10**400}}, {"train": {"learning_rate": -(10**400)}}])
def test_a_number_that_no_float_can_hold_is_refused(option):
    with pytest.raises(ValueError, match=r"option 'train.learning_rate' takes a number"):
        config_from_json(json.dumps(option))
