"""Random tasks to time a step on, and the peak memory of a process that takes two."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from csn.engine.steps import Step
from csn.episode import Episode, Examples
from csn.networks.sentences import BLANK

QUERIES = 5  # per class
IMAGE = (1, 28, 28)  # Omniglot's
WORDS, VOCABULARY, SENTENCE_TASKS = 25, 1000, 8  # words of a sentence, words in all, tasks a step


def random_episode(way: int, shot: int, image: tuple[int, int, int] = IMAGE, tasks: int = 1) -> Episode:
    """Noise, by default of Omniglot's shape. The time does not depend on the contents of images."""

    def examples(per_class: int) -> Examples:
        labels = _labels(tasks, way, per_class)
        return Examples(torch.rand(*labels.shape, *image), labels)

    return Episode(examples(shot), examples(QUERIES), way)


def random_sentences(way: int, shot: int, words: int = WORDS, tasks: int = SENTENCE_TASKS) -> Episode:
    """Random words around a blank in the middle; every sentence fills the window."""

    def examples(per_class: int) -> Examples:
        labels = _labels(tasks, way, per_class)
        x = torch.randint(3, VOCABULARY, (*labels.shape, words))
        x[..., words // 2] = BLANK
        return Examples(x, labels)

    return Episode(examples(shot), examples(QUERIES), way)


def _labels(tasks: int, way: int, per_class: int) -> Tensor:
    """(tasks, way * per_class), class by class."""
    return torch.arange(way).repeat_interleave(per_class).expand(tasks, -1)


class Peak(NamedTuple):
    """The peak memory of a process in MB, and the part of it that the steps added."""

    process: int
    added: int


def peak_of(step: Step) -> Peak:
    """Peak memory of this process over two steps. In a fresh process, it belongs to the steps alone."""
    with contextlib.suppress(OSError):  # Linux: count the peak from here on, without the memory of imports
        Path("/proc/self/clear_refs").write_text("5")
    before = _peak_memory()
    step()
    step()
    after = _peak_memory()
    return Peak(after, after - before)


def _peak_memory() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage would count the parent's memory at the start of this process
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) >> 10
    import resource  # Windows does not have it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10)
