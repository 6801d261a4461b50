"""`csn train list` and `csn data list`. They load neither torch nor any part: the names come from tables."""

from __future__ import annotations

from csn.data.registry import data_entry, dataset_names
from csn.presets import preset_about, preset_names
from csn.registry import PartError


def presets() -> int:
    """Print one line per preset."""
    for name in preset_names():
        try:
            about = preset_about(name)
        except PartError as error:  # a broken part of another package must not hide the others
            about = f"({error})"
        print(f"{name:20} {about}")
    return 0


def datasets() -> int:
    """Print one line per data set."""
    for name in dataset_names():
        try:
            about = data_entry(name).about
        except PartError as error:
            about = f"({error})"
        print(f"{name:20} {about}")
    return 0
