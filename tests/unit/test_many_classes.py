"""A classifier of ten thousand classes: right answers, with a bounded number of operations and bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from csn.core.repeated import CSNHead, HeadOptions

CLASSES, SIZE = 10_000, 16
TEN_THOUSAND = f"""
import json, resource
import numpy as np
from torch.utils.flop_counter import FlopCounterMode
from csn.classifier.classifier import FewShotClassifier

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

X = np.random.default_rng(0).normal(size=({CLASSES}, {SIZE})).astype(np.float32)
FewShotClassifier(encoder=None).fit(X[:10], range(10)).explain(X[:3])
before, asked = peak(), [7, 4321, 9999]
with FlopCounterMode(display=False) as counted:
    classifier = FewShotClassifier(encoder=None).fit(X, np.arange({CLASSES}))
    answers = classifier.predict(X[asked] + 0.01).tolist()
    found = classifier.explain(X[asked])
print(json.dumps([answers, [one.label for one in found], counted.get_total_flops(), peak() - before]))
"""


def test_ten_thousand_classes_are_learned_with_few_operations_and_bounded_memory() -> None:
    done = subprocess.run([sys.executable, "-c", TEN_THOUSAND], capture_output=True, text=True, check=True)
    answers, labels, operations, memory = json.loads(done.stdout)
    assert answers == labels == [7, 4321, 9999]
    pairs = CLASSES * CLASSES
    assert operations < 20 * pairs * SIZE, "some products of all keys with all keys, none with all values"
    assert memory < 6 * 4 * pairs, "a few matrices of examples by classes at the same time"


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "way", "passes"), [(12, 3, 60), (200, 200, 60), (30, 5, 1), (30, 30, 2)])
def test_values_are_those_of_a_descent_that_takes_no_shortcut(
    n: int, way: int, passes: int, precision: torch.dtype
) -> None:
    """The descent as the module's docstring has it: every pass multiplies by V, the first one by V = 0."""
    keys, labels = torch.randn(n, 8, generator=torch.Generator().manual_seed(n)).to(precision), torch.arange(n) % way
    options = HeadOptions(passes=passes, centre=False)
    found = CSNHead(options).describe(keys, labels, way)
    unit, y = F.normalize(keys, dim=-1), F.one_hot(labels, way).to(precision)
    base = unit @ found.means.T
    for i in range(n):
        others = y[:, labels[i]].clone()
        others[i] = 0
        mean = others @ unit if others.any() else unit[i]
        base[i, labels[i]] = unit[i] @ F.normalize(mean, dim=0)
    kernel = (options.sharpness * (unit @ unit.T - 1)).exp()
    step = 1 / (kernel.sum(1).max() / 2 + options.decay)
    values = ahead = torch.zeros_like(base)
    for k in range(passes):
        error = (options.scale * base + kernel @ ahead).softmax(-1) - y
        new = ahead - step * (error + options.decay * ahead)
        ahead, values = new + k / (k + 3) * (new - values), new
    torch.testing.assert_close(found.values, values, atol=1e-6, rtol=1e-5)
