"""Where a file comes from: what made it, of which code, when and on what machine."""

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
    """What made a file: command, commit, date, machine."""
    return {
        "command": f"{program} {shlex.join(sys.argv[1:])}",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
    }


def commit(package: Path = Path(csn.__file__).parent) -> str:
    """The commit this code was run from, "-dirty" if the package was changed since; its version if it is of none."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=package, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a copy below another project's repository is not of that
        # The package alone: results and pages change while a table is made, and what ran is still what was committed.
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return f"csn {csn.__version__}"


def check_committed(what: str) -> None:
    """Raise ValueError where the package has uncommitted changes: nobody could make a number of such code again.

    The environment variable CSN_UNCOMMITTED lets it pass, for tests of a package that is being changed.
    """
    if commit().endswith("-dirty") and not os.environ.get("CSN_UNCOMMITTED"):
        raise ValueError(
            f"{what} is evidence only of code that others can have, and the package has uncommitted changes: commit or "
            f"stash them (git status -- {Path(csn.__file__).parent})"
        )


def describe_machine() -> dict[str, Any]:
    """What a result file says of the machine and versions."""
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
