"""SetFit-style fine-tuning: its pairs, and that it brings sentences of a class together."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from test_encoders import needs_text

from csn.classifier.encoders.text import SentenceEncoder

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import finetuning


@needs_text
def test_it_pairs_every_sentence_and_brings_those_of_a_class_together():
    rng, y = np.random.default_rng(0), np.array([0, 0, 1, 1])
    pairs = finetuning.pairs_of(y, rng)
    assert len(pairs) == 4 * 2 * finetuning.PAIRS
    assert all((y[i] == y[j]) == bool(same) and i != j for i, j, same in pairs)
    texts = ["book a flight", "the sea is blue", "what is my balance", "a green apple"]
    before, after = SentenceEncoder()(texts), finetuning.fine_tuned(texts, y, rng)(texts)

    def apart(v):
        v = torch.from_numpy(v)
        return float(v[0] @ v[1] + v[2] @ v[3] - v[0] @ v[2] - v[1] @ v[3])

    assert apart(after) > apart(before) + 0.2
