"""What a data set that can be asked for is: one of a known name, or files of the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csn.data.fetch import Progress
from csn.data.images.folder import SIZE, BadFiles, load_images
from csn.data.source import Dataset
from csn.data.text.files import load_text, running_text_of
from csn.data.text.running import RunningText

TEXTS = (".txt", ".txt.gz")


@dataclass(frozen=True)
class LoadOptions:
    """How to load a data set.

    progress: called with what is done and what there is in all, of a download in bytes or of decoding in files.
    image_size: pixels on a side, None for the set's own. bad_files: what to do about images that cannot be used.
    """

    progress: Progress | None = None
    image_size: int | None = None
    bad_files: BadFiles = "stop"

    def for_images(self) -> dict[str, Any]:
        """The options that readers of image files take."""
        return {"size": self.image_size, "bad_files": self.bad_files, "progress": self.progress}


@dataclass(frozen=True)
class DataEntry:
    """A data set of a known name. text: for a language model. resizable: its images can be had in any size."""

    about: str
    load: Callable[[LoadOptions], Dataset]
    text: Callable[[LoadOptions], RunningText] | None = None
    resizable: bool = False


def as_path(name: str) -> Path | None:
    """The file or folder that a name is, if it looks like one."""
    path = Path(name).expanduser()
    is_path = path.exists() or "/" in name or os.sep in name or name.endswith(TEXTS)
    return path.resolve() if is_path else None


def own_entry(path: Path) -> DataEntry:
    """Images in a folder, a zip archive or a CSV list; or a text of one sentence a line, packed with gzip or not."""
    if path.name.endswith(TEXTS):
        return DataEntry("a text of your own", lambda _: load_text(path), lambda _: running_text_of(path))
    return DataEntry(
        "images of your own",
        lambda options: load_images(path, **options.for_images() | {"size": options.image_size or SIZE}),
        resizable=True,
    )
