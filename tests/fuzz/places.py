"""Where targets write what they read, and the small classifier that some of them attack."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from csn.building import build_learner
from csn.classifier.classifier import FewShotClassifier
from csn.config import load_preset, merge
from csn.learner import InputSpec


@functools.cache
def folder() -> Path:
    """A folder in memory where there is one: a disk needs milliseconds to shorten a file."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = tempfile.mkdtemp(prefix="csn-fuzz-", dir=os.environ.get("TMPDIR", memory))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def in_file(content: bytes, name: str) -> Path:
    path = folder() / name
    path.write_bytes(content)
    return path


@functools.cache
def small_classifier() -> FewShotClassifier:
    """A small learner of the user's own."""
    config = merge(load_preset("adacnn-df"), {"network": {"filters": 2}, "key": {"size": 4}})
    return FewShotClassifier(learner=build_learner(config, InputSpec((1, 28, 28))).eval()).blank()
