"""The origin of a file: the command, the code, the date and the machine that made it."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import csn


def origin(program: str = "csn") -> dict[str, Any]:
    """The origin of a file: command, commit, date and machine."""
    return {
        "command": f"{program} {shlex.join(sys.argv[1:])}",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
    }


def commit(package: Path = Path(csn.__file__).parent) -> str:
    """The commit of the running code, or the version of csn if it is not in a repository.

    "-dirty" is appended if the package has uncommitted changes.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=package, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # fails for a copy inside another repository
        # Only the package counts: results and pages change while a table is made, and the code is still as committed.
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return f"csn {csn.__version__}"


def check_committed(what: str) -> None:
    """Raise ValueError if the package has uncommitted changes: nobody could reproduce a number made by such code.

    The environment variable CSN_UNCOMMITTED turns this check off, for tests of code that is being changed.
    """
    if commit().endswith("-dirty") and not os.environ.get("CSN_UNCOMMITTED"):
        raise ValueError(
            f"{what} must be made by committed code, but the package has uncommitted changes: commit or "
            f"stash them (git status -- {Path(csn.__file__).parent})"
        )


def describe_machine() -> dict[str, Any]:
    """The entries of a result file about the machine and the versions."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "csn": csn.__version__,
    }
