"""Imports point one way (DESIGN 1): a module imports its own layer or an earlier one, never a later one.

Inside the layer of the mechanism there is an order too: learners know the parts, the parts do not know the learners.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import csn

ROOT = Path(csn.__file__).parent

LAYERS: list[set[str]] = [
    {"csn", "csn.episode", "csn.learner", "csn.registry"},
    {"csn.core"},
    {"csn.networks", "csn.baselines"},
    {"csn.data"},
    {"csn.presets", "csn.config", "csn.building", "csn.allocator", "csn.printable"},
    {"csn.engine"},
    {"csn.plots"},
    {"csn.experiments"},
    {"csn.classifier"},
    {"csn.export"},
    {"csn.service"},
    {"csn.cli", "csn.__main__"},
]


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["csn", *path.relative_to(ROOT).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer(module: str) -> int:
    """The layer of a module or of the package it is in; the longest known name decides."""
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        name = ".".join(parts[:length])
        for number, names in enumerate(LAYERS):
            if name in names:
                return number
    if module == "csn":
        return 0
    raise LookupError(f"{module} has no place in LAYERS: give it one")


def imports(module: str, path: Path) -> set[str]:
    """Names of csn that a file imports anywhere in it, inside functions too; `from csn import x` is csn.x."""
    names: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*up, *([origin] if origin else [])])
            names.add(origin)
            names |= {f"{origin}.{alias.name}" for alias in node.names if f"{origin}.{alias.name}" in modules()}
    if module == "csn":  # its public names are imported when they are used: see tests/unit/test_public_names.py
        return set()
    return {name for name in names if name.split(".")[0] == "csn" and name != "csn"}


MODULES = modules()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_no_later_layer(module):
    own = layer(module)
    for name in imports(module, MODULES[module]):
        assert layer(name) <= own, f"{module} (layer {own}) imports {name} (layer {layer(name)})"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_below_the_engine_knows_progress_bars_processes_or_the_command_line(module):
    if layer(module) >= layer("csn.engine"):
        return
    if layer(module) in (layer("csn.data"), layer("csn.config")):  # they read files
        banned = {"rich", "argparse", "multiprocessing", "subprocess"}
    else:
        banned = {"rich", "argparse", "multiprocessing", "subprocess", "pathlib", "os", "json", "tomllib", "io"}
    roots = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.split(".")[0])
    assert not roots & banned


def test_the_service_learns_and_recognises_through_the_classifier_alone():
    """And through parts of it: pictures to show, thresholds, shifts; apart from it, the generator of samples."""
    allowed = {
        "csn.classifier.classifier",
        "csn.classifier.explanation",
        "csn.classifier.inputs",
        "csn.classifier.neurons",
        "csn.classifier.unknown",
        "csn.data.images.modes",
        "csn.data.images.strokes",
        "csn.classifier.pretrained",
        "csn.classifier.taskfile",
        "csn.classifier.thresholds",
        "csn.learner",
    }
    for module, path in MODULES.items():
        if module.startswith("csn.service"):
            used = {name for name in imports(module, path) if not name.startswith("csn.service")}
            assert used <= allowed, f"{module} imports {used - allowed}"


def test_there_are_no_import_cycles():
    graph = {module: imports(module, path) & MODULES.keys() for module, path in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for name in graph[module]:
                visit(name, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_test_sees_imports(tmp_path):
    file = tmp_path / "source.py"
    file.write_text("def f():\n    from csn.engine import train\nimport csn.cli.main\nfrom ..core.model import CSN\n")
    assert imports("csn.data.source", file) == {"csn.engine", "csn.engine.train", "csn.cli.main", "csn.core.model"}


def test_the_command_line_answers_without_torch():
    """`csn --help` is quick: main.py imports the commands, and torch with them, only when they are asked for."""
    top = ast.parse((ROOT / "cli" / "main.py").read_text(encoding="utf-8")).body
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
    assert {name for name in names if name.startswith(("csn", "torch"))} == {"csn", "csn.printable"}
    assert imports("csn.printable", ROOT / "printable.py") == set()
