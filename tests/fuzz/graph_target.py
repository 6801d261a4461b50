"""Sentences of word numbers as a target: what adaLSTM and its form for export answer must be equal.

The graph itself takes as long to trace as ten thousand of these answers, so the form that is traced is asked.
"""

from __future__ import annotations

import contextlib
import functools
import json
import zlib

import torch
from places import in_file
from torch import Tensor, nn

from csn.building import build
from csn.classifier.inputs import prepare
from csn.core.model import CSN
from csn.engine.models import describe_vocabulary, read_vocabulary
from csn.episode import Examples
from csn.export.graphs import EpisodeGraph
from csn.export.sentences import padded
from csn.learner import InputSpec
from csn.networks.lstm import LSTMOptions

WAY, STEPS, MOST = 4, 9, 12  # outputs; steps of a sentence; sentences of a task
WORDS = ("<pad>", "<blank>", "<unk>", *(f"w{number}" for number in range(29)))
KINDS = [(key, until) for key in ("neighbours", "context", "network") for until in ("end", "blank")]


@functools.cache
def _learner(kind: int) -> tuple[CSN, EpisodeGraph]:
    """A small adaLSTM as after some training, and its form for export."""
    key, until = KINDS[kind]
    torch.manual_seed(kind)
    network = LSTMOptions(units=5, embedding=4, layers=2, until=until)
    made = build("csn", reads=InputSpec((0,), len(WORDS)), way=WAY, network=network, key=key, temperature=10.0)
    assert isinstance(made, CSN)
    for module in made.modules():
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=0.3)
    return made.eval(), EpisodeGraph(padded(made.eval()))


def read(content: bytes) -> None:
    """As a list of words, as sentences, and as numbers."""
    with contextlib.suppress(ValueError):
        words = read_vocabulary(in_file(content, "vocabulary.json"), {"vocabulary": describe_vocabulary(WORDS)})
        assert words == WORDS
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    with contextlib.suppress(ValueError):
        _compare(prepare(lines[:MOST], InputSpec((STEPS,), WORDS)), content)
    numbers = [byte - 128 if byte >= 128 else byte % len(WORDS) for byte in content[: MOST * STEPS]]
    if len(numbers) >= 2 * STEPS:
        rows = torch.tensor(numbers[: len(numbers) // STEPS * STEPS]).view(-1, STEPS)
        with contextlib.suppress(ValueError):
            _compare(rows, content)
        rows[rows == 1] = 2
        rows[:, content[0] % STEPS] = 1
        _compare(rows, content)


@torch.no_grad()
def _compare(x: Tensor, content: bytes) -> None:
    """Compare the answers to the second half of some sentences after the first half was learned."""
    draw = zlib.crc32(content)
    learner, graph = _learner(draw % len(KINDS))
    n = len(x) // 2
    if not n:
        return
    labels = torch.tensor([(draw >> (2 * i)) % WAY for i in range(n - 1)] + [1 + draw % (WAY - 1)])
    way = int(labels.max()) + 1
    memory = learner.describe(Examples(x[None, :n], labels[None]), way)  # refuses sentences without a blank
    expected = learner.predict(x[None, n:], memory)[0]
    torch.testing.assert_close(graph(x[:n], labels, x[n:])[:, :way], expected, atol=1e-4, rtol=1e-4)


def seeds() -> list[bytes]:
    """Sentences, lists of words, and numbers."""
    sentences = "w1 <blank> w2\nw3 w4 <blank>\n<blank>\nfoo <blank> \u05e9\u05dc\n"
    return [sentences.encode(), (sentences * 3).encode(), json.dumps(WORDS).encode(), bytes(range(3, 12)) * MOST]
