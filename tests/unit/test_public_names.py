"""`import csn`: its public names, what it costs, and that they are enough for networks of one's own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import csn
from csn.cli.main import COMMANDS


def modules_after(*code: str) -> set[str]:
    """What a fresh interpreter has imported after some statements."""
    program = "; ".join(["import sys", *code, "print(' '.join(sys.modules), file=sys.stderr)"])
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def test_every_public_name_leads_to_something_of_that_name():
    for name in csn.__all__:
        found = getattr(csn, name)
        assert found.__name__ == {"load_run": "open_run"}.get(name, name)
    assert set(csn.__all__) <= set(dir(csn))
    with pytest.raises(AttributeError, match=r"no attribute 'Learner'.*FewShotLearner"):
        csn.Learner  # noqa: B018


def test_the_names_that_type_checkers_see_are_those_that_there_are():
    tree = ast.parse(Path(csn.__file__).read_text(encoding="utf-8"))
    seen = [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.If)
        for line in node.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    ]
    assert sorted(seen) == sorted(csn.__all__) == sorted(csn._PLACES)


def test_importing_csn_imports_next_to_nothing():
    new = modules_after("import csn") - modules_after()
    assert {name for name in new if name.startswith("csn")} == {"csn"}
    assert not {"torch", "numpy", "rich", "importlib.metadata", "pathlib"} & new


FAST = [["--help"], ["train", "list"], ["data", "list"], *([command, "--help"] for command in COMMANDS)]


@pytest.mark.parametrize("arguments", FAST, ids=" ".join)
def test_help_and_lists_load_neither_torch_nor_any_part(arguments):
    call = f"from csn.cli.main import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
    run = modules_after(f"exec({call!r})")
    assert not {"torch", "numpy", "rich", "matplotlib", "sklearn"} & run
    assert not {name for name in run if name.startswith(("csn.core", "csn.networks", "csn.engine"))}


@pytest.mark.parametrize("arguments", FAST, ids=" ".join)
def test_help_and_lists_take_less_than_three_tenths_of_a_second(arguments):
    before = os.times()
    run = subprocess.run([sys.executable, "-m", "csn", *arguments], check=True, capture_output=True, text=True)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    assert processor < 0.3
    assert len(run.stdout.splitlines()) > 4


def test_importing_csn_takes_less_than_fifty_milliseconds():
    program = "import time; before = time.process_time(); import csn; print(time.process_time() - before)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 0.05


_PREDICT = """
import sys, torch
drawn = []
def noted(draw):
    def wrapper(self, *args, **options):
        drawn.extend([draw.__name__] if self.device.type != "meta" else [])
        return draw(self, *args, **options)
    return wrapper
for name in ("normal_", "uniform_"):
    setattr(torch.Tensor, name, noted(getattr(torch.Tensor, name)))
from csn.cli.main import main
assert main(["predict", "task.csn", "drawing.png", "--threads", "1"]) == 0
assert not drawn, drawn
print(*sys.modules, file=sys.stderr)
"""


def test_csn_predict_imports_no_training_and_initialises_no_weights(tmp_path):
    drawings = (np.random.default_rng(0).random((2, 28, 28)) < 0.2).astype(np.float32)
    csn.FewShotClassifier().fit(drawings, ["a", "b"]).save(tmp_path / "task.csn")
    Image.fromarray((255 * (1 - drawings[0])).astype(np.uint8)).save(tmp_path / "drawing.png")
    run = subprocess.run([sys.executable, "-c", _PREDICT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "drawing.png" in run.stdout
    modules = set(run.stderr.split())
    assert "csn.networks.resnet" in modules  # the key function of the shipped weights
    unwanted = {"csn.engine.run", "csn.engine.train", "csn.networks.lstm", "csn.plots", "csn.experiments", "matplotlib"}
    assert not unwanted & modules


class OneLayer(csn.BaseLearner):
    """A base learner of one's own whose only adapted layer is its output."""

    def __init__(self, inputs: int, way: int) -> None:
        super().__init__()
        self.way, self.activations, self.shift_rule = way, (), "squashed"
        self.output = nn.Linear(inputs, way)

    def check_input(self, x: Tensor) -> None:
        assert x.shape[1:] == (self.output.in_features,)

    def stem(self, x: Tensor) -> Tensor:
        return x

    def head(self, features: Tensor, shifts: tuple[Tensor | None, ...] | None = None) -> csn.BaseOutput:
        a = self.output(features)
        return csn.BaseOutput(a if shifts is None or shifts[0] is None else a + shifts[0], (a,))


def tasks(way: int = 3) -> csn.Episode:
    """Four tasks of classes that stand far apart."""
    y = torch.arange(way).repeat(4, 2)
    x = 3 * torch.eye(6)[y] + 0.1 * torch.randn(4, 2 * way, 6)
    return csn.Episode(csn.Examples(x, y), csn.Examples(x.flip(1), y.flip(1)), way)


@pytest.mark.parametrize("conditioning", ["df", "gradient"])
def test_a_learner_of_ones_own_networks_is_built_trained_and_used_by_public_names(conditioning):
    torch.manual_seed(0)
    learner = csn.build(
        "csn", reads=(6,), way=3, network=OneLayer(6, 3), key=nn.Linear(6, 4), conditioning=conditioning
    )
    assert isinstance(learner, csn.CSN)
    assert isinstance(learner, csn.FewShotLearner)
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        learner(tasks()).loss.backward()
        optimizer.step()
    classifier = csn.FewShotClassifier(learner=learner).fit(3 * np.eye(6)[:3], ["a", "b", "c"])
    assert classifier.predict(3 * np.eye(6)[[2, 0, 1]]).tolist() == ["c", "a", "b"]


def test_a_baseline_over_a_network_of_ones_own():
    learner = csn.build("prototypical", reads=(6,), way=3, key=nn.Linear(6, 4))
    assert learner(tasks()).logits.shape == (4, 6, 3)
    with pytest.raises(ValueError, match="must know the size of the key function's outputs: give key_size"):
        csn.build("matching", reads=(6,), way=3, key=nn.Linear(6, 4))
    assert csn.build("matching", reads=(6,), way=3, key=nn.Linear(6, 4), key_size=4).embedding.out_features == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": OneLayer(6, 3)}, "your own base learner needs a key function: give key"),
        ({"network": "cnnn"}, "unknown network 'cnnn': did you mean 'cnn'"),
        ({"temprature": 1.0}, "learner 'csn' has no option 'temprature': did you mean 'temperature'"),
        ({"way": 1}, "way >= 2"),
        ({"learner": "nearest", "network": "cnn"}, "learner 'nearest' takes no network: leave it out"),
        ({"learner": "maml", "key": "network"}, "learner 'maml' takes no key: leave it out"),
        ({"learner": "maml", "network": OneLayer(6, 3)}, "cannot use an existing one: name an architecture"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        csn.build(**{"reads": (6,), "way": 3, **options})
