"""Presets: TOML files of options, from csn and from other packages. Reading them loads neither torch nor any part."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

from csn import registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def preset_names() -> list[str]:
    """All presets: csn's own, and those of other packages."""
    return sorted({*_own(), *registry.plugin_names("preset")})


def preset_about(name: str) -> str:
    """A preset's one-line description."""
    return str(read_preset(name).get("about", ""))


def read_preset(name: str) -> dict[str, Any]:
    """A preset's description and recipes, as its file states them."""
    entry = registry.plugin("preset", name, own=name in _own())
    if entry is None and name not in _own():
        raise ValueError(registry.unknown("preset", name, preset_names()))
    path = _own()[name] if entry is None else _of_package(entry.module, name)
    try:
        return read_toml(path)
    except (OSError, ValueError) as error:
        owner = registry.package_of("preset", name) or "csn"
        raise registry.PartError(f"preset {name!r} of {owner} cannot be read: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


@functools.cache
def _own() -> dict[str, Path]:
    return {path.stem: path for path in Path(__file__).parent.glob("*.toml")}


def _of_package(package: str, name: str) -> Path:
    """NAME.toml in a package, which is not imported."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    folders = [] if found is None else found.submodule_search_locations or []
    return next((Path(folder) / f"{name}.toml" for folder in folders), Path(package, f"{name}.toml"))
