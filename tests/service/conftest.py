"""One server for the tests that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

pytest.importorskip("fastapi", reason='the service needs its extra: pip install "csn[service]"')
pytest.importorskip("uvicorn", reason='the service needs its extra: pip install "csn[service]"')

import kit
from browser import open_page


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server with generous limits and no task in it."""
    with kit.client(tmp_path_factory.mktemp("service")) as made:
        yield made


@pytest.fixture
def page(browser, address):  # type: ignore[no-untyped-def]
    """The page at the address of the test's server, in the test's browser. It must not complain about anything."""
    opened = open_page(browser, address)
    yield opened
    assert opened.complaints == [], "the browser has nothing to complain about, such as a broken security policy"
    opened.context.close()
