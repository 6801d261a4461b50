"""Published numbers: those of the paper's tables, and those of the baselines' own authors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from csn.presets import read_toml

AUTHORS = "authors"  # the section of numbers that are not the paper's
IN_NAMES = {"random": "", "all-inclusive": "-all"}  # how tasks are drawn, as the names of cells have it


@functools.cache
def _all() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("published.toml"))


def published() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """The paper's tables: data set -> preset -> tasks -> accuracy as printed."""
    return {data: presets for data, presets in _all().items() if data != AUTHORS}


def by_its_authors(data: str, preset: str, size: str) -> str:
    """The accuracy in a baseline's own paper, or ""."""
    return str(_all()[AUTHORS].get(data, {}).get(preset, {}).get(size, ""))


def size_in_names(size: str, sampling: str) -> str:
    """The size and sampling of tasks as published.toml names them: "5w1s-all"."""
    return size + IN_NAMES.get(sampling, f"-{sampling}")
