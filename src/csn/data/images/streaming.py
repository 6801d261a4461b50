"""Image sets that are larger than memory and disk cache: images are read and decoded when a task asks for them.

A task is a function of (seed, i), so the images of later steps are known, and threads decode them while the loop
computes. Memory holds only the images of the next steps, whatever the size of the set. The set may be anything that
csn.data.images.files lists, or tar archives with files `KEY.jpg` and their classes in `KEY.cls`, as WebDataset writes
them. Without `KEY.cls`, a file's folder is its class.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csn.data.images.decode import MAX_BYTES, Place, decode, read_bytes, reason
from csn.data.images.files import SPLIT_SEED, ImageFile, list_images, split_classes
from csn.data.images.folder import LEAST_IMAGES
from csn.data.images.options import SIZE, TYPES
from csn.data.source import SPLITS, ClassExamples, Dataset, EpisodeSource, as_input
from csn.data.varied import VariedSource
from csn.episode import Episode

AHEAD = 3  # steps that are decoded in advance
WORKERS = 4  # threads that decode; pillow lets other threads run meanwhile


class Part(NamedTuple):
    """A file in a tar archive: the archive, the offset of its bytes, and their number."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True)
class StreamedExamples(ClassExamples):
    """Images that are decoded when they are needed. x has their shape and type, but not their contents.

    places: where each image is.
    size: pixels per side.
    pool: the threads that decode.
    """

    places: Sequence[Place | Part] = ()
    size: int = SIZE
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS), compare=False, repr=False)

    def at(self, rows: Tensor | np.ndarray) -> Tensor:
        """Examples of these rows, of any shape: (..., *input), as networks take them; each is decoded once."""
        wanted = np.asarray(rows)
        unique, back = np.unique(wanted, return_inverse=True)
        images = torch.from_numpy(np.stack(list(self.pool.map(self._decoded, unique.tolist()))))
        return as_input(images[torch.from_numpy(back.reshape(wanted.shape))])

    def _decoded(self, row: int) -> np.ndarray:
        place = self.places[row]
        try:
            return decode(_content(place), self.size)[0]
        except Exception as error:  # damaged files make pillow raise almost anything
            where = place.path if isinstance(place, Part) or place.member is None else f"{place.path}/{place.member}"
            raise ValueError(f"{where}: {reason(error)}; correct it, or leave it out of the set") from error

    @property
    def fingerprint(self) -> str:
        """sha256 of names and places. Reading every image would take as long as training on all of them."""
        digest = hashlib.sha256(str([self.names, self.counts.tolist(), self.size]).encode())
        for place in self.places:
            digest.update(str(place._replace(path=Path(place.path).name)).encode(errors="surrogateescape"))
        return digest.hexdigest()


def _content(place: Place | Part) -> bytes:
    if isinstance(place, Place):
        return read_bytes(place)
    if place.length > MAX_BYTES:
        raise ValueError(f"{place.length:,} bytes are too many for an image, at most {MAX_BYTES:,} are read")
    handle = os.open(place.path, os.O_RDONLY)
    try:
        return os.pread(handle, place.length, place.offset)
    finally:
        os.close(handle)


def stream_images(path: Path, *, size: int = SIZE, seed: int = SPLIT_SEED) -> Dataset:
    """A data set of the images at `path`, of which none is read before a task asks for it."""
    if size < 8 or size > 1024:
        raise ValueError(f"images can be resized to a side of 8 to 1024 pixels, got {size}")
    images = _of_archives(_archives(path), seed) if is_archived(path) else _of_listing(path, seed)
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="decode")
    splits = {}
    for split in SPLITS:
        own = [image for image in images if image.split == split]
        counts = Counter(image.label for image in own)
        if not counts or min(counts.values()) < LEAST_IMAGES:
            raise ValueError(f"split {split!r} of {path.name} needs classes of {LEAST_IMAGES} images or more each")
        x = torch.empty((len(own), 3, size, size), dtype=torch.uint8, device="meta")
        places = [image.place for image in own]
        splits[split] = StreamedExamples(
            x, np.array(list(counts.values())), tuple(counts), places=places, size=size, pool=pool
        )
    return Dataset(path.name, splits)


def is_archived(path: Path) -> bool:
    """Whether a path is a tar archive, or a folder of them."""
    return bool(_archives(path))


def _archives(path: Path) -> list[Path]:
    return sorted(path.glob("*.tar")) if path.is_dir() else [path] * (path.suffix == ".tar")


class _Image(NamedTuple):
    place: Place | Part
    label: str
    split: str


def _of_listing(path: Path, seed: int) -> list[_Image]:
    listing = list_images(path, seed=seed)
    if listing.problems:
        raise ValueError(f"{path.name}: {listing.problems[0].where}: {listing.problems[0].why}; correct it first")
    return [_image(image) for image in listing.images]


def _image(image: ImageFile) -> _Image:
    return _Image(image.place, image.label, image.split)


def _of_archives(archives: Sequence[Path], seed: int) -> list[_Image]:
    """Images of tar archives, sorted by class; classes come from `KEY.cls`, or from folders."""
    found: list[tuple[str, str, Part]] = []
    for path in archives:
        try:
            with tarfile.open(path, "r:") as archive:
                found += _of_archive(path, archive)
        except Exception as error:  # damaged archives make tarfile raise almost anything
            raise ValueError(f"{path} cannot be read as a tar archive ({reason(error)}): take another copy") from error
    split_of = split_classes({label for label, _, _ in found}, archives[0].parent, seed)
    found.sort(key=lambda each: each[:2])
    return [_Image(part, label, split_of[label]) for label, _, part in found]


def _of_archive(path: Path, archive: tarfile.TarFile) -> list[tuple[str, str, Part]]:
    """Class, name and place of the images of an archive."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in archive:
        if member.size < 0:  # the next header would be one that was read already, again and again
            raise tarfile.ReadError(f"{member.name} has a negative size")
        if member.isfile():
            members[member.name] = member
    if _block(path, archive.offset).strip(b"\0"):  # tarfile takes a damaged header for the end
        raise tarfile.ReadError(f"the header at byte {archive.offset:,} is damaged")
    found = []
    for name, member in members.items():
        stem, _, suffix = name.rpartition(".")
        if f".{suffix.lower()}" in TYPES:
            said = members.get(f"{stem}.cls")
            label = _label(archive, said) if said else name.rpartition("/")[0].rpartition("/")[2]
            found.append((label, f"{path.name}/{name}", Part(str(path), member.offset_data, member.size)))
    return found


def _block(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(tarfile.BLOCKSIZE)


def _label(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    handle = archive.extractfile(member)
    assert handle is not None
    return handle.read(1000).decode().strip()


class AheadSource:
    """Batches of a source, made by a thread some steps before the loop asks for them."""

    def __init__(self, source: EpisodeSource | VariedSource, ahead: int = AHEAD) -> None:
        self.source, self.ahead = source, ahead
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._waiting: deque[tuple[tuple[Any, ...], Future[Episode]]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def batch(self, first: int, tasks: int, part: slice = slice(None)) -> Episode:
        """The batch of the source. Later batches are assumed to have the same number of tasks."""
        wanted = (first, tasks, part.start, part.stop)
        while self._waiting and self._waiting[0][0] != wanted:
            self._waiting.popleft()[1].cancel()  # training did not ask for this batch next
        if not self._waiting:
            self._ask(first, tasks, part)
        _, found = self._waiting.popleft()
        start = self._waiting[-1][0][0] + tasks if self._waiting else first + tasks
        for later in range(start, first + (self.ahead + 1) * tasks, tasks):
            self._ask(later, tasks, part)
        return found.result()

    def _ask(self, first: int, tasks: int, part: slice) -> None:
        key = (first, tasks, part.start, part.stop)
        self._waiting.append((key, self._thread.submit(self.source.batch, first, tasks, part)))
