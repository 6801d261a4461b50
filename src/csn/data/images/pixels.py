"""The cache of decoded images: one memory-mapped array of bytes per set, decoded once by all cores.

It has two files under `arrays/` in the cache folder. The first is a list with a record per image file. Its key is made
from names, sizes and times of the files, so a second start reads no image. The second holds the pixels. Its key is made
from the contents of the files. The pixels are memory-mapped, so sets may be larger than memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np

from csn.data.fetch import Progress, cache_dir, cached_array
from csn.data.images.decode import RECORD, UNREAD, Place, close_archives, decode_rows

FORMAT = 2  # increase it whenever the same file would give other pixels
CHUNK = 128  # files that a process decodes at a time
MAX_PROCESSES = 16


class Decoded(NamedTuple):
    """pixels: (images, 3, size, size) uint8 of the readable images, in order. records: (files,) decode.RECORD."""

    pixels: np.ndarray
    records: np.ndarray

    @property
    def readable(self) -> np.ndarray:
        """Which files could be read, (files,) bool."""
        return self.records["why"] == b""


def decoded(places: Sequence[Place], stamps: Sequence[str], size: int, progress: Progress | None = None) -> Decoded:
    """Decode and resize images, or take them from the cache if the same files were decoded before.

    A file that the system could not read (no permission, a broken disk) is tried again the next time.

    Args:
        places: The places of the files.
        stamps: For each file, a text that changes with its content.
        size: Pixels per side.
        progress: Called with (files done, files in all).
    """
    if size < 8 or size > 1024:
        raise ValueError(f"images can be resized to a side of 8 to 1024 pixels, got {size}")
    described = "\n".join(f"{path}\t{member}\t{stamp}" for (path, member), stamp in zip(places, stamps, strict=True))
    digest = hashlib.sha256(described.encode(errors="surrogateescape")).hexdigest()  # names need not be UTF-8
    key = f"images-{size}-{FORMAT}-{digest[:32]}"
    decode = functools.partial(_decode, places, size, progress)
    records = cached_array(key, decode, final=_all_tried)
    if not _is_whole(_pixel_path(records, size), records, size):
        records = decode()  # the pixels were deleted, or never written
    return Decoded(mapped(_pixel_path(records, size), _readable(records), size), records)


def mapped(path: Path, rows: int, size: int) -> np.ndarray:
    """Map a file of pixels as (rows, 3, size, size). Changes in memory never reach the disk."""
    if rows == 0:
        return np.zeros((0, 3, size, size), dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="c", shape=(rows, 3, size, size))


@contextlib.contextmanager
def new_pixels(rows: int, size: int) -> Iterator[Path]:
    """A temporary file in the cache with room for `rows` images. It is deleted unless it was moved."""
    folder, length = cache_dir() / "arrays", rows * 3 * size * size
    path = folder / f"images.{os.getpid()}-{threading.get_ident()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < length:  # a full disk would kill a process that writes to mapped memory
            raise ValueError(
                f"{rows} images of {size} x {size} need {length >> 20:,} MB in {folder}, but {free >> 20:,} MB are "
                f"free: make room, or set CSN_CACHE to a folder on a larger disk"
            )
        with open(path, "wb") as file:
            file.truncate(length)
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error}): set CSN_CACHE to a writable folder") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def keep(temporary: Path, path: Path) -> None:
    """Move a finished file into its place, completely or not at all."""
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _decode(places: Sequence[Place], size: int, progress: Progress | None) -> np.ndarray:
    """Decode every file. Return the records; the pixels are written to the cache."""
    rows, done = len(places), 0
    records = np.zeros(rows, dtype=RECORD)
    with new_pixels(rows, size) as temporary:
        work = functools.partial(decode_rows, pixels=temporary, rows=rows, size=size)

        def take(part: np.ndarray) -> None:
            nonlocal done
            records[done : done + len(part)] = part
            done += len(part)
            if progress is not None:
                progress(done, rows)

        starts = range(0, rows, CHUNK)
        processes = min(_cores(), MAX_PROCESSES, len(starts) // 2)  # starting processes does not pay for few files
        if processes > 1:
            with contextlib.suppress(BrokenProcessPool), _pool(processes) as pool:
                for future in [pool.submit(work, places[start : start + CHUNK], start) for start in starts]:
                    take(future.result())
        while done < rows:  # also if no process can be started
            take(work(places[done : done + CHUNK], done))
        close_archives()
        _drop_unreadable(temporary, records, size)
        keep(temporary, _pixel_path(records, size))
    return records


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes. At the end, also by Ctrl-C, work that has not begun is dropped."""
    pool = ProcessPoolExecutor(processes)
    try:
        with warnings.catch_warnings():
            # Python warns of forking a process that has threads. The children do not run torch.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _drop_unreadable(path: Path, records: np.ndarray, size: int) -> None:
    """Move the readable rows to the front and cut off the rest."""
    kept = np.flatnonzero(records["why"] == b"")
    if len(kept) == len(records):
        return
    pixels = np.memmap(path, dtype=np.uint8, mode="r+", shape=(len(records), 3, size, size))
    for row, origin in enumerate(kept):
        if row != origin:
            pixels[row] = pixels[origin]
    pixels.flush()
    del pixels
    os.truncate(path, len(kept) * 3 * size * size)


def _readable(records: np.ndarray) -> int:
    return int((records["why"] == b"").sum())


def _all_tried(records: np.ndarray) -> bool:
    """Whether another try would give the same result."""
    return UNREAD not in records["digest"][records["why"] != b""].tolist()


def _pixel_path(records: np.ndarray, size: int) -> Path:
    """The file that holds the pixels of these contents in this order."""
    contents = records["digest"][records["why"] == b""].tobytes()
    return cache_dir() / "arrays" / f"pixels-{size}-{FORMAT}-{hashlib.sha256(contents).hexdigest()[:32]}.u8"


def _is_whole(path: Path, records: np.ndarray, size: int) -> bool:
    return path.exists() and path.stat().st_size == _readable(records) * 3 * size * size
