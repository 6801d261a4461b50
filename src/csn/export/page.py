"""One HTML file that learns drawings: the page of `csn demo` with the network inside it and no server.

The front end is that of the service (csn.service.page). Its `api.js`, which asks the server, is replaced by one that
runs the learner's programs (csn.export.program) in the browser and keeps tasks in the browser's storage.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csn import __version__
from csn.classifier.keyed import FEW_CLASSES, OTHERS
from csn.classifier.neurons import activities
from csn.classifier.saved import SCORE
from csn.core.base_learner import BaseOutput
from csn.core.conditioning import DirectFeedback, write
from csn.core.model import CSN
from csn.core.repeated import HeadOptions
from csn.engine.checkpoint import write_atomically
from csn.export.app import write_app
from csn.export.graphs import exportable
from csn.export.program import Weights, compiled
from csn.learner import FewShotLearner

HALF_BYTES = 1_600_000  # weights up to this size are stored in half precision, larger ones in 8 bits each
WORK = 1e8  # most multiplications of all passes over the examples: a fraction of a second after each change
OWN = ("api.js", "engine.js", "familiar.js", "learner.js", "taskfile.js")
NOT_FRONT = ("api.js", "docs.js")  # scripts of the service that need a server


class KeyGraph(nn.Module):
    """(1, *input) -> key (1, d)."""

    def __init__(self, learner: CSN) -> None:
        super().__init__()
        self.key_function = learner.embedding_network

    def forward(self, x: Tensor) -> Tensor:
        """The key function f."""
        key: Tensor = self.key_function(x)
        return key


class ValuesGraph(nn.Module):
    """One support example (1, *input) and its label as one-hot (1, C) -> values (1, ...) of every layer."""

    def __init__(self, learner: CSN) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, x: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        """Eqs. 2 and 7 at the learner's full way."""
        learner, conditioning = self.learner, self.learner.conditioning
        assert isinstance(conditioning, DirectFeedback)
        output = learner.base.head(learner.base.stem(x))
        infos = conditioning.layers(output, (output.logits.softmax(-1) - label).unsqueeze(0), learner.base.activations)
        shifted = list(itertools.compress(infos, learner.shifted))
        return tuple(layer.dense().squeeze(0) for layer in write(shifted, learner.memory_function))


class AnswerGraph(nn.Module):
    """A query (1, *input) and shifts (1, ...) of every layer -> logits (1, C)."""

    def __init__(self, learner: CSN) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, x: Tensor, *shifts: Tensor) -> Tensor:
        """Eq. 1 in every shifted layer."""
        return self._output(x, shifts)[0].logits

    def _output(self, x: Tensor, shifts: tuple[Tensor, ...]) -> tuple[BaseOutput, tuple[Tensor | None, ...]]:
        remaining, base = iter(shifts), self.learner.base
        betas = tuple(next(remaining) if shifted else None for shifted in self.learner.shifted)
        return base.head(base.stem(x), betas), betas


class NeuronsGraph(AnswerGraph):
    """A query and shifts -> logits (1, C), then the activations of every adapted hidden layer."""

    def forward(self, x: Tensor, *shifts: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The logits, and the activations of eq. 1."""
        output, betas = self._output(x, shifts)
        return (output.logits, *activities(self.learner.base, output, betas))


def export_page(
    learner: FewShotLearner[Any],
    file: Path,
    *,
    name: str,
    thresholds: Mapping[int, float],
    about: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Write a page that learns drawings without a server.

    Args:
        learner: A CSN with direct feedback that reads drawings (1, 28, 28).
        file: The file to write if it ends in `.html`. Otherwise a folder for a web app that a browser can install.
        name: Name of the weights.
        thresholds: By examples per class, the similarity below which a drawing is unknown. Empty to answer always.
        about: The facts about the learner that task files store: model, made_with, fingerprint.
        samples: Sample alphabets, each with `name` and `drawings`. A drawing has `label` and `ink`, (28 * 28) bytes.

    Returns:
        The files.
    """
    model = page_model(learner)
    rounded = {str(shots): round(threshold, 4) for shots, threshold in thresholds.items()}
    model |= {"name": name, "thresholds": rounded, "version": __version__, "samples": _samples(samples)}
    model["similarity"] = {"others": OTHERS, "few_classes": FEW_CLASSES, "work": WORK, **asdict(HeadOptions())}
    facts = {**about, "kind": "csn-task", "task_version": 1, "csn": __version__, "unknown_score": SCORE}
    facts |= {"way": model["way"], "input": model["input"]}
    model["about"] = {key: json.dumps(value) for key, value in facts.items()}
    page = _html(model)
    if file.suffix not in (".html", ".htm"):
        return write_app(page, file)
    write_atomically(file, page.encode())
    return [file]


def page_model(learner: FewShotLearner[Any]) -> dict[str, Any]:
    """The learner as programs and weights. Raises ValueError if a page cannot run it."""
    model = exportable(learner)
    if not isinstance(model.conditioning, DirectFeedback):
        raise ValueError("a page has no backward pass: export a learner with direct feedback (learner.conditioning=df)")
    shape = model.input_spec.shape if model.input_spec else ()
    if tuple(shape) != (1, 28, 28):
        raise ValueError(f"a page takes drawings of (1, 28, 28), this learner reads {tuple(shape)}: train on drawings")
    if model.attention != "soft":
        raise ValueError("a page reads its memory with soft attention: export a run with learner.attention=soft")
    training = model.training
    model.eval()
    try:
        x, label = torch.rand(1, *shape), torch.eye(model.way)[:1]
        values = [value.detach() for value in ValuesGraph(model)(x, label)]
        programs = {
            "key": compiled(KeyGraph(model), (x,)),
            "values": compiled(ValuesGraph(model), (x, label)),
            "answer": compiled(AnswerGraph(model), (x, *values)),
            "neurons": compiled(NeuronsGraph(model), (x, *values)),
        }
    finally:
        model.train(training)
    for bits in (16, 8):
        weights = Weights(bits)
        described = {key: program.as_json(weights) for key, program in programs.items()}
        if len(content := weights.content()) <= HALF_BYTES:
            break
    return {
        "programs": described,
        "weights": base64.b64encode(content).decode(),
        "described": weights.described,
        "way": model.way,
        "input": list(shape),
        "scale": 1.0 if model.log_scale is None else float(model.log_scale.detach().exp()),
    }


def _samples(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": sample["name"],
            "drawings": [
                {"label": drawing["label"], "ink": base64.b64encode(bytes(drawing["ink"])).decode()}
                for drawing in sample["drawings"]
            ],
        }
        for sample in samples
    ]


def _html(model: Mapping[str, Any]) -> str:
    """The service's page with everything in it."""
    front, own = resources.files("csn.service") / "page", resources.files("csn.export") / "web"
    scripts = {
        script.name: script.read_text(encoding="utf-8")
        for script in sorted(front.iterdir(), key=lambda script: script.name)
        if script.name.endswith(".js") and script.name not in NOT_FRONT
    }
    scripts |= {name: (own / name).read_text(encoding="utf-8") for name in OWN}
    # Modules import each other by bare names, because a module in a data URL has no path.
    named = {name: re.sub(r'from "\./([a-z]+\.js)"', r'from "csn/\1"', text) for name, text in scripts.items()}
    imports = {f"csn/{name}": _data_url("text/javascript", text) for name, text in named.items()}
    icon = _data_url("image/svg+xml", (front / "icon.svg").read_text(encoding="utf-8"))
    # "<" is escaped so that no text inside can close the element.
    data = json.dumps(dict(model)).replace("<", "\\u003c")
    page = (front / "index.html").read_text(encoding="utf-8")
    imported = json.dumps({"imports": imports})
    replaced = {
        '<link rel="stylesheet" href="/page/style.css">': "<style>"
        + (front / "style.css").read_text(encoding="utf-8")
        + "</style>",
        '<script type="module" src="/page/main.js"></script>': f'<script type="importmap">{imported}'
        f'</script>\n  <script type="application/json" id="model">{data}</script>\n'
        '  <script type="module">import "csn/main.js";</script>',
        'For programs: <a href="/docs">the HTTP API</a>. ': "",
        "kept on this server": "kept in this browser",
    }
    for old, new in replaced.items():
        if old not in page:
            raise RuntimeError(f"the service's page has no {old!r} any more")
        page = page.replace(old, new)
    return page.replace("/page/icon.svg", icon)


def _data_url(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"
