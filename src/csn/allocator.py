"""Keep large blocks of memory. Otherwise glibc returns the memory of every layer and requests it again."""

from __future__ import annotations

import ctypes
import functools
import os
import platform

SWITCH = "CSN_KEEP_MEMORY"
_KEPT = 2**30  # bytes
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc reuse large blocks, once for the process; whether it does so from now on.

    Training loops and classifiers call it as they start. The process then keeps up to a gigabyte that it has freed.
    The environment variable CSN_KEEP_MEMORY=0 leaves the allocator alone, and elsewhere than on Linux with glibc
    nothing happens.
    """
    wish = os.environ.get(SWITCH, "1")
    if wish not in ("0", "1"):
        raise ValueError(f"{SWITCH} is 1 to keep freed memory or 0 to leave the allocator alone, got {wish!r}")
    if wish == "0" or platform.system() != "Linux":
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return all(libc.mallopt(option, _KEPT) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))
    except (OSError, AttributeError):
        return False  # another libc
