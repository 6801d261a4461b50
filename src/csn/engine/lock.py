"""A lock that allows one training in a folder. Two trainings would spoil each other's checkpoints and log."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class FolderLock:
    """Keeps other processes from training in a folder as long as this object lives. It leaves no file there."""

    def __init__(self, folder: Path) -> None:
        self.handle = os.open(folder, os.O_RDONLY)
        weakref.finalize(self, os.close, self.handle)  # this also unlocks


# A process may lock a folder again while its own earlier trainer still exists, e.g. to resume.
_HELD: weakref.WeakValueDictionary[Path, FolderLock] = weakref.WeakValueDictionary()


def lock_folder(folder: Path) -> FolderLock | None:
    """Lock a folder, which is created if it is missing. Raises ValueError if another process holds the lock.

    Windows cannot open folders, so there is no lock there. A warning says so, and the result is None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        message = f"Windows has no lock for {folder}: make sure that no other process trains in it"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    path = folder.resolve()
    if (lock := _HELD.get(path)) is None:
        lock = FolderLock(path)
        try:
            fcntl.flock(lock.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder} is being trained by another process: wait for it or stop it") from None
        except OSError:  # a file system without locks
            pass
        _HELD[path] = lock
    return lock
