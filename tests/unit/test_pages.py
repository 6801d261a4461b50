"""The pages lead somewhere: names can be imported, files and options are there, code blocks run."""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
import re
from pathlib import Path

import pytest

import csn
from csn import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
}
GROUPS = {f"csn.{kind}s" for kind in registry.PARTS}  # of entry points
NAMES = sorted({name for page in PAGES.values() for name in re.findall(r"`(csn(?:\.\w+)+)`", page)} - GROUPS)
SECTIONS = ("learner", "network", "key", "data", "pretrain", "train", "model", "naming")
OPTIONS = sorted(
    {
        (page, option)
        for page, text in PAGES.items()
        for option in re.findall(rf"(?:--set |`)((?:{'|'.join(SECTIONS)})\.(?!(?:csv|zip|py)\b)[a-z_]+)[ =`]", text)
    }
)


@functools.cache
def sections() -> dict[str, set[str]]:
    """Every option of every part, by its section."""
    known = {
        section: {field.name for field in dataclasses.fields(getattr(csn.Config(), section))}
        for section in ("data", "pretrain", "train")
    }
    for kind in ("learner", "network", "key"):
        options = [dataclasses.fields(registry.load(kind, name)) for name in registry.names(kind)]
        known[kind] = {"name", *(field.name for fields in options for field in fields)}
    return known


def test_the_paper_map_names_what_it_should() -> None:
    assert {"csn.core.neurons.shifted_activation", "csn.experiments.timing.floor"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_to_code(name: str) -> None:
    assert pkgutil.resolve_name(name) is not None, f"{name} is not there"


@pytest.mark.parametrize(("page", "option"), OPTIONS)
def test_an_option_that_a_page_names_is_there(page: str, option: str) -> None:
    section, _, name = option.partition(".")
    assert name in sections().get(section, set()), f"{page} names {option}, which no part has"


def test_files_that_pages_name_are_there() -> None:
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for page, text in PAGES.items():
        assert set(re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)`", text)) <= there, page
        for path in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", text):
            assert (ROOT / path).exists(), f"{page} names {path}"
        for path in re.findall(r"`(csn/[\w/]+\.py)`", text):
            assert (ROOT / "src" / path).exists(), f"{page} names {path}"


def test_contributing_names_every_folder_of_the_source_and_no_other() -> None:
    rows = re.findall(r"^\| (`.+?) \|", PAGES["CONTRIBUTING.md"], re.M)
    named = {name for row in rows for name in re.findall(r"`([\w.]+/?)`", row)}
    folders = {f"{path.parent.name}/" for path in (ROOT / "src" / "csn").glob("*/__init__.py")}
    assert {name for name in named if name.endswith("/")} == folders
    assert all((ROOT / "src" / "csn" / name).exists() for name in named)


def test_the_readmes_code_of_a_learner_runs() -> None:
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", PAGES["README.md"], re.S) if "csn.build" in code)
    names: dict[str, object] = {}
    exec(block, names)
    assert names["logits"].shape == (4, 25, 5)
    assert isinstance(names["learner"], csn.CSN)


def test_the_readmes_code_of_a_classifier_has_names_that_there_are() -> None:
    pytest.importorskip("sklearn")
    blocks = [code for code in re.findall(r"```python\n(.*?)```", PAGES["README.md"], re.S) if "Classifier" in code]
    for method in re.findall(r"^classifier\.(\w+)\(", "".join(blocks), re.M):
        assert callable(getattr(csn.FewShotClassifier, method))
