"""The commit in a file is that of the code which made it."""

import subprocess
from pathlib import Path

import pytest

import csn
from csn.engine.origin import check_committed, commit


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a package and results beside it, all committed."""
    for name in ("package/__init__.py", "results/table.md"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("before")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "a")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_commit_is_that_of_the_repository(repository):
    assert commit(repository / "package") == git(repository, "rev-parse", "HEAD")


def test_new_results_do_not_make_the_code_dirty(repository):
    (repository / "results" / "table.md").write_text("after")
    (repository / "results" / "new.json").write_text("{}")
    assert not commit(repository / "package").endswith("-dirty")


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_changed_code_is_dirty(repository, name):
    (repository / "package" / name).write_text("after")
    assert commit(repository / "package") == git(repository, "rev-parse", "HEAD") + "-dirty"


def test_package_inside_the_repository_of_others_has_its_version(repository):
    installed = repository / "site-packages" / "csn"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit(installed) == f"csn {csn.__version__}"


def test_evidence_comes_from_committed_code(repository, monkeypatch):
    monkeypatch.delenv("CSN_UNCOMMITTED", raising=False)
    monkeypatch.setattr("csn.engine.origin.commit", lambda: commit(repository / "package"))
    check_committed("the result file x.json")
    (repository / "package" / "__init__.py").write_text("after")
    with pytest.raises(ValueError, match=r"must be made by committed code.*: commit or stash them"):
        check_committed("the result file x.json")
    monkeypatch.setenv("CSN_UNCOMMITTED", "1")
    check_committed("the result file x.json")
