"""Data sets by name, or from your own files. Importing this module loads neither torch nor any data."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from csn import registry
from csn.data.images.options import SIZE, BadFiles

if TYPE_CHECKING:
    from csn.data.fetch import Progress
    from csn.data.source import Dataset
    from csn.data.text.running import RunningText

TEXTS = (".txt", ".txt.gz")


@dataclass(frozen=True)
class LoadOptions:
    """How to load a data set.

    progress: called with the amount done and the total, in bytes of a download or in decoded files.
    image_size: pixels per side; None for the data set's own size.
    bad_files: "stop" at an image that cannot be used, or "skip" it.
    """

    progress: Progress | None = None
    image_size: int | None = None
    bad_files: BadFiles = "stop"

    def for_images(self) -> dict[str, Any]:
        """The options that readers of image files take."""
        return {"size": self.image_size, "bad_files": self.bad_files, "progress": self.progress}


@dataclass(frozen=True)
class Loader:
    """A function that is imported when it is called.

    function: "module:name".
    takes: which of the load options the function takes.
    options: further arguments of the function.
    """

    function: str
    takes: Literal["nothing", "progress", "images"] = "nothing"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, options: LoadOptions) -> Any:
        """Load."""
        arguments = {"nothing": {}, "progress": {"progress": options.progress}, "images": options.for_images()}
        return pkgutil.resolve_name(self.function)(**arguments[self.takes], **self.options)


@dataclass(frozen=True)
class DataEntry:
    """An entry of the table of data sets.

    about: a one-line description.
    load: loads the data set.
    text: loads the same data as running text for a language model; None if the data is not a text.
    resizable: whether its images can be loaded in any size.
    """

    about: str
    load: Callable[[LoadOptions], Dataset]
    text: Callable[[LoadOptions], RunningText] | None = None
    resizable: bool = False


def _penn_treebank(about: str, **options: Any) -> DataEntry:
    module = "csn.data.text.penn_treebank"
    return DataEntry(
        about,
        Loader(f"{module}:load_penn_treebank", "progress", options),
        Loader(f"{module}:penn_treebank_text", "progress", options),
    )


def _published(name: str, about: str) -> DataEntry:
    load = Loader("csn.data.images.published_splits:load_published", "images", {"name": name})
    return DataEntry(f"{about}; your own copy", load, resizable=True)


DATASETS: Mapping[str, DataEntry] = {
    "strokes": DataEntry(
        "characters drawn by random stroke programs; embedded, no download",
        Loader("csn.data.images.strokes:load_strokes"),
    ),
    "omniglot": DataEntry(
        "1623 handwritten characters, 1200 for training and 423 for testing at random (the paper's split)",
        Loader("csn.data.images.omniglot:load_omniglot", "progress"),
    ),
    "omniglot-background": DataEntry(
        "the same characters in the original split into background and evaluation alphabets",
        Loader("csn.data.images.omniglot:load_omniglot", "progress", {"protocol": "background"}),
    ),
    "toy-language": DataEntry(
        "sentences of a made-up language, one word blanked; embedded, no download",
        Loader("csn.data.text.toy_language:load_toy_language"),
        Loader("csn.data.text.toy_language:toy_text"),
    ),
    "king-james": DataEntry(
        "49,000 clauses of the King James Bible, one word blanked; comes with csn[text], no download",
        Loader("csn.data.text.files:load_king_james"),
        Loader("csn.data.text.files:king_james_text"),
    ),
    "penn-treebank": _penn_treebank(
        "49,000 sentences of the Wall Street Journal, one word blanked; the test words of Vinyals et al. (the paper's)",
    ),
    "penn-treebank-unread": _penn_treebank(
        "the same sentences; the language-model oracle has not read those for validation and test",
        held_out_from="more",
    ),
    "penn-treebank-masked": _penn_treebank(
        "the tasks of penn-treebank-unread with five times the training text, in which held-out words are unknown",
        held_out_from="more",
        training_text="masked",
    ),
    "mini-imagenet": DataEntry(
        "100 classes of 600 photographs, 84 x 84, in the split of Ravi and Larochelle (the paper's); your own copy",
        Loader("csn.data.images.mini_imagenet:load_mini_imagenet", "images"),
        resizable=True,
    ),
    "tiny-imagenet-fewshot": DataEntry(
        "a stand-in for Mini-ImageNet: 100 classes of 550 photographs, 64 x 64, of Tiny ImageNet; your own copy",
        Loader("csn.data.images.mini_imagenet:load_tiny_imagenet", "images"),
        resizable=True,
    ),
    "cifar-fs": _published("cifar-fs", "CIFAR-100, 32 x 32, in the split of Bertinetto et al. (64, 16 and 20 classes)"),
    "fc100": _published("fc100", "CIFAR-100, 32 x 32, split by superclass by Oreshkin et al. (60, 20 and 20 classes)"),
    "cub": _published("cub", "birds of CUB-200-2011 in the split of Chen et al. (100, 50 and 50 classes)"),
    "tiered-imagenet": _published(
        "tiered-imagenet", "ImageNet split by category by Ren et al. (351, 97 and 160 classes)"
    ),
}


def dataset_names() -> list[str]:
    """All data sets with a name: csn's own, and those of other packages."""
    return list(dict.fromkeys([*DATASETS, *registry.names("dataset")]))


def data_entry(name: str) -> DataEntry:
    """The entry of a known name, or an entry for the files of a path."""
    if registry.plugin("dataset", name, own=name in DATASETS) is not None:
        entry = registry.load("dataset", name)
        if not isinstance(entry, DataEntry):
            raise registry.PartError(f"data set {name!r} must be a DataEntry, got {entry!r}: correct its entry point")
        return entry
    if name in DATASETS:
        return DATASETS[name]
    if (path := as_path(name)) is None:
        raise ValueError(
            f"{registry.unknown('data set', name, dataset_names())}; or give a text file (.txt), or the path of a "
            f"folder, zip archive or CSV list of images"
        )
    return own_entry(path)


def as_path(name: str) -> Path | None:
    """The name as a path, or None if it does not look like a path."""
    if not name.strip():
        raise ValueError("the data set has an empty name: give a name of `csn data list`, or a path such as .")
    path = Path(name).expanduser()
    is_path = path.exists() or "/" in name or os.sep in name or name.endswith(TEXTS)
    return path.resolve() if is_path else None


def own_entry(path: Path) -> DataEntry:
    """The entry of a path: images in a folder, zip archive or CSV list, or a text with one sentence per line."""
    if path.name.endswith(TEXTS):
        module = "csn.data.text.files"
        return DataEntry(
            "your own text",
            Loader(f"{module}:load_text", options={"paths": path}),
            Loader(f"{module}:running_text_of", options={"paths": path}),
        )

    def load(options: LoadOptions) -> Dataset:
        from csn.data.images.folder import load_images
        from csn.data.images.streaming import is_archived, stream_images

        if is_archived(path):
            return stream_images(path, size=options.image_size or SIZE)
        return load_images(path, **options.for_images() | {"size": options.image_size or SIZE})

    return DataEntry("your own images", load, resizable=True)


def load_data(name: str, options: LoadOptions | None = None) -> Dataset:
    """A data set by name, or from the path of images or of a text (one sentence a line)."""
    options, entry = options or LoadOptions(), data_entry(name)
    if options.image_size is not None and not entry.resizable:
        raise ValueError(f"{name} has images of one size, got image size {options.image_size}: leave it out")
    return entry.load(options)


def load_running_text(name: str, options: LoadOptions | None = None) -> RunningText:
    """A text by name or path, for a language model."""
    text = data_entry(name).text
    if text is None:
        texts = ", ".join(other for other, entry in DATASETS.items() if entry.text)
        raise ValueError(f"a language model needs a text, and {name!r} is not a text: choose one of {texts}")
    return text(options or LoadOptions())
