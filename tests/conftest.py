"""Fixtures of every test: a cache folder of the session's own, and the real data where they exist."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def _data_folder() -> Path | None:
    """`CSN_DATA`, or `../shared/data` beside the repository."""
    for folder in (os.environ.get("CSN_DATA"), _BESIDE):
        if folder and Path(folder).is_dir():
            return Path(folder).resolve()
    return None


torch.set_num_threads(1)  # workers side by side share the cores; more threads each would only wait for one another

_FOLDER = _data_folder()  # before the tests take CSN_DATA away


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's cache, and none sees real data without asking for `real_data`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CSN_DATA", raising=False)
        patch.setenv("CSN_UNCOMMITTED", "1")  # tests write result files while the package is being changed
        yield


@pytest.fixture
def float64() -> Iterator[None]:
    """Everything built inside the test has double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data, which CSN_DATA names during the test; without one the test is skipped."""
    if _FOLDER is None:
        pytest.skip("no real data: set CSN_DATA to a folder that holds them, or put them in ../shared/data")
    monkeypatch.setenv("CSN_DATA", str(_FOLDER))
    return _FOLDER
