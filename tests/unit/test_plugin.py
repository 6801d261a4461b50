"""Parts of other packages: the example is trained, evaluated, reported and adapted; what can go wrong is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import csn
from csn import registry
from csn.cli.main import main
from csn.config import Config, config_from_json, load_preset, merge
from csn.data.registry import load_data

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package as pip would: its metadata and its modules are on the path."""
    before = set(sys.modules)

    def put(name: str, entry_points: dict[str, dict[str, str]], modules: Path | None = None, **code: str) -> Path:
        site = tmp_path / "site" / name
        metadata = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        lines = [
            line
            for group, entries in entry_points.items()
            for line in (f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items()))
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for module, text in code.items():
            (site / f"{module}.py").write_text(text)
        for folder in (site, modules):
            if folder is not None:
                monkeypatch.syspath_prepend(folder)
        registry._plugins.cache_clear()
        return metadata

    yield put
    monkeypatch.undo()
    for name in set(sys.modules) - before:
        if not name.startswith(("csn.", "torch", "numpy", "matplotlib", "sklearn", "PIL", "scipy")):
            del sys.modules[name]
    registry._plugins.cache_clear()


@pytest.fixture
def example(install: Install) -> Path:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return install(project["name"], project["entry-points"], EXAMPLE)


def train(*words: str) -> Path:
    """A short run of the example's preset, into ./run."""
    small = ["train.validation_tasks=4", "train.validate_every=8", "network.units=16"]
    options = [word for option in small for word in ("--set", option)]
    command = ["train", "transformer-df", "--tasks", "8", "--out", "run", "--threads", "1"]
    assert main([*command, *options, *words]) == 0
    return Path("run")


def test_the_examples_preset_is_trained_evaluated_reported_and_adapted(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "list"]) == main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert "transformer-df       a small Transformer" in listed
    assert "glyphs               100 random glyphs" in listed

    run = train()
    stored = json.loads((run / "config.json").read_text())["network"]
    assert stored == {"name": "transformer", "package": "csn-transformer 0.1.0", "patch": 7, "units": 16}
    assert main(["evaluate", "run", "--tasks", "4", "--threads", "1"]) == 0
    (result,) = run.glob("result-*.json")
    assert json.loads(result.read_text())["evaluation"]["data"] == "glyphs"
    assert main(["report", "run"]) == 0
    assert (run / "report" / "report.md").exists()

    glyphs = load_data("glyphs").splits["test"]
    x, y = glyphs.x[:40].numpy(), np.repeat(["one", "two"], 20)
    classifier = csn.FewShotClassifier(run=run).fit(x[[0, 1, 20, 21]], y[[0, 1, 20, 21]])
    assert set(classifier.predict(x)) <= {"one", "two"}
    assert type(classifier.learner_.base).__name__ == "Transformer"


def test_the_examples_network_learns():
    """Its glyphs are told apart after a few hundred tasks; chance is 20 %."""
    import torch

    sys.path.insert(0, str(EXAMPLE))
    try:
        from csn_transformer.glyphs import ENTRY
        from csn_transformer.transformer import TransformerOptions
    finally:
        sys.path.remove(str(EXAMPLE))
    from csn.data.registry import LoadOptions

    torch.manual_seed(0)
    source = csn.EpisodeSource(ENTRY.load(LoadOptions()), "train", way=5, shot=1, queries=2, seed=0)
    learner = csn.build(reads=(1, 28, 28), way=5, network=TransformerOptions(units=16), temperature=10.0)
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-3)
    for step in range(60):
        optimizer.zero_grad()
        learner(source.batch(8 * step, 8)).loss.backward()
        optimizer.step()
    episode = source.batch(10_000, 40)
    with torch.no_grad():
        accuracy = (learner.eval()(episode).logits.argmax(-1) == episode.query.y).double().mean()
    assert accuracy > 0.5


def test_a_learner_of_another_package_takes_csns_own_parts(example):
    config = merge(load_preset("prototypical"), {"learner": {"name": "manhattan"}, "network": {"filters": 4}})
    learner = csn.build(config.learner, reads=(1, 28, 28), way=3, network=config.network)
    episode = csn.EpisodeSource(load_data("glyphs"), "val", way=3, shot=2, queries=1, seed=0).batch(0, 2)
    assert learner(episode).logits.shape == (2, 3, 3)
    assert config_from_json(config.to_json()) == config


def test_a_run_whose_part_is_not_installed_names_its_package(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = train()
    with monkeypatch.context() as without:
        without.setattr(sys, "path", [folder for folder in sys.path if "site" not in Path(folder).parts[-2:]])
        registry._plugins.cache_clear()
        message = "network 'transformer' comes with csn-transformer 0.1.0, which is not installed: install that package"
        with pytest.raises(registry.PartError, match=message):
            csn.load_run(run)
        assert main(["evaluate", "run"]) == 2
        assert message in capsys.readouterr().err
    registry._plugins.cache_clear()
    assert csn.load_run(run).config.network.name == "transformer"


def test_a_package_that_fails_to_import_is_named_and_the_others_go_on(example, install, capsys):
    entries = {"csn.networks": {"broken": "broken:Options"}, "csn.datasets": {"spoilt": "broken:ENTRY"}}
    install("csn-broken", entries, broken="raise RuntimeError('no such chip')")
    message = r"'broken' of csn-broken 0.1.0 could not be imported \(RuntimeError: no such chip\): repair or uninstall"
    with pytest.raises(registry.PartError, match=message):
        merge(Config(), {"network": {"name": "broken"}})
    assert merge(Config(), {"network": {"name": "transformer"}}).network.units == 64
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert "spoilt" in listed
    assert "no such chip" in listed
    assert "omniglot" in listed
    assert "glyphs" in listed


@pytest.mark.parametrize(("name", "first"), [("transformer", "csn-transformer 0.1.0"), ("resnet", "csn")])
def test_two_packages_with_one_name_are_both_named(example, install, name, first):
    install("csn-other", {"csn.networks": {name: "elsewhere:Options"}})
    message = rf"'{name}' comes with more than one package \((?=.*{first})(?=.*csn-other 0.1.0).*\): uninstall all but"
    with pytest.raises(registry.PartError, match=message):
        merge(Config(), {"network": {"name": name}})
    assert merge(Config(), {"network": {"name": "ffn"}}).network.units == 128


def test_presets_of_one_name_and_without_a_file_are_refused_and_the_others_listed(example, install, capsys):
    install("csn-twice", {"csn.presets": {"maml": "twice", "nowhere": "no_such_package"}}, twice="")
    site = Path(sys.path[0])
    (site / "twice.py").unlink()
    (site / "twice").mkdir()
    (site / "twice" / "__init__.py").touch()
    (site / "twice" / "maml.toml").write_text("about = 'another'\n")
    with pytest.raises(registry.PartError, match=r"'maml' comes with more than one package \(csn, csn-twice 0.1.0"):
        load_preset("maml")
    with pytest.raises(registry.PartError, match=r"preset 'nowhere' of csn-twice 0.1.0 cannot be read: .*nowhere.toml"):
        load_preset("nowhere")
    assert main(["train", "list"]) == 0
    listed = capsys.readouterr().out
    assert "more than one package" in listed
    assert "adacnn-df" in listed


@pytest.mark.parametrize("value", ["json:dumps", "csn.learner:FewShotLearner", "csn.networks.cnn:CNNOptions"])
def test_what_is_no_part_is_refused_before_it_is_called(install, value):
    install("csn-odd", {"csn.networks": {"odd": value}})
    with pytest.raises(
        registry.PartError,
        match=r"network 'odd' must be a dataclass derived from NetworkOptions .*: correct its entry point",
    ):
        merge(Config(), {"network": {"name": "odd"}})


def test_options_of_another_part_are_refused_with_the_nearest_name(example):
    config = load_preset("transformer-df")
    with pytest.raises(ValueError, match=r"'unit': did you mean 'units'\? It has patch, units"):
        merge(config, {"network": {"unit": 3}})
    with pytest.raises(ValueError, match=r"has no option 'conditioning'.*There is a learner\.conditioning"):
        merge(config, {"network": {"conditioning": "df"}})
    with pytest.raises(ValueError, match=r"network 'cnn' has no option 'heads'"):
        merge(load_preset("adacnn-df"), {"network": {"heads": 8}})
