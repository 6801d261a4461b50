"""Presets: TOML files of options, csn's own and those of other packages. Reading them loads no part and no torch."""

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
    """Every preset: csn's own, and those of other packages."""
    return sorted({*_own(), *registry.plugin_modules("preset")})


def preset_about(name: str) -> str:
    """A preset's one-line description."""
    return str(read_preset(name).get("about", ""))


def read_preset(name: str) -> dict[str, Any]:
    """A preset's description and recipes as its file has them."""
    paths = [path for path in (_own().get(name), *_of_plugins(name)) if path is not None]
    if not paths:
        raise ValueError(registry.unknown("preset", name, preset_names()))
    if len(paths) > 1:
        raise registry.PartError(f"preset {name!r} comes with more than one package ({', '.join(map(str, paths))})")
    try:
        return tomllib.loads(paths[0].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise registry.PartError(f"preset {name!r} is damaged, repair {paths[0]}: {error}") from error


@functools.cache
def _own() -> dict[str, Path]:
    return {path.stem: path for path in Path(__file__).parent.glob("*.toml")}


def _of_plugins(name: str) -> list[Path]:
    """NAME.toml in the package that an entry point names; the package itself is not imported."""
    paths = []
    for module in registry.plugin_modules("preset").get(name, ()):
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        folders = [] if found is None else found.submodule_search_locations or []
        paths += [Path(folder) / f"{name}.toml" for folder in folders]
    return paths
