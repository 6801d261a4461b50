"""`csn train list` and `csn data list`. They load neither torch nor any part: names come from tables."""

from __future__ import annotations

from csn.data.registry import data_entry, dataset_names
from csn.presets import preset_about, preset_names
from csn.registry import PartError


def presets() -> int:
    """Every preset in a line."""
    for name in preset_names():
        try:
            about = preset_about(name)
        except PartError as error:  # of another package: the others are listed all the same
            about = f"({error})"
        print(f"{name:20} {about}")
    return 0


def datasets() -> int:
    """Every data set in a line."""
    for name in dataset_names():
        try:
            about = data_entry(name).about
        except PartError as error:
            about = f"({error})"
        print(f"{name:20} {about}")
    return 0
