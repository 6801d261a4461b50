"""Finding, downloading and caching, against a server of the test's own on 127.0.0.1."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from csn.data import fetch as module
from csn.data.fetch import DownloadError, cache_dir, cached_array, data_dir, fetch, find

BODY = bytes(range(256)) * 1200  # 307,200 bytes
SHA256 = hashlib.sha256(BODY).hexdigest()
NAME = "set/raw.bin"


class Server(ThreadingHTTPServer):
    """Sends BODY; the list `script` says what to do with the next requests: a status, or how many bytes to send."""

    daemon_threads = False  # server_close waits for them: no thread outlives its test

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges = True
        self.script: list[tuple[str, int]] = []
        self.asked: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/raw.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        what, number = self.server.script.pop(0) if self.server.script else ("send", len(BODY))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        status = number if what == "status" else 416 if start >= len(BODY) else 206 if start else 200
        self.send_response(status)
        if status >= 400:
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_header("Content-Length", str(len(BODY) - start))
        self.end_headers()
        self.wfile.write(BODY[start : start + number])

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_data_dir_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="CSN_DATA is not set"):
        data_dir()
    monkeypatch.setenv("CSN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"CSN_DATA must name a folder, got '.*nowhere'"):
        data_dir()
    with pytest.raises(ValueError, match="CSN_DATA must name a folder"):
        find(NAME)  # a mistyped folder is an error, not a reason to download
    monkeypatch.setenv("CSN_DATA", str(tmp_path))
    assert data_dir() == tmp_path


def test_cache_dir_goes_by_its_variable_then_by_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSN_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("CSN_CACHE")
    assert cache_dir() == tmp_path / "xdg" / "csn"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the XDG specification says to ignore
    assert cache_dir() == tmp_path / "home" / ".cache" / "csn"
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_csn_data_is_taken_as_it_is(
    server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / NAME).write_bytes(b"packed differently")
    monkeypatch.setenv("CSN_DATA", str(tmp_path))
    assert fetch(NAME, server.url, SHA256) == tmp_path / NAME
    assert server.asked == []
    assert not cache.exists()


def test_download_is_verified_kept_and_silent(server: Server, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    path = fetch(NAME, server.url, SHA256, progress=lambda done, total: seen.append((done, total)))
    assert path == cache / "raw" / NAME
    assert path.read_bytes() == BODY
    assert seen[-1] == (307200, 307200)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    md5 = hashlib.md5(BODY).hexdigest()
    assert fetch(NAME, server.url, f"md5:{md5}") == path
    assert server.asked == [None]  # the second call found it
    assert files(cache) == [f"raw/{NAME}"]
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("pooch").level != logging.WARNING


def test_a_broken_connection_goes_on_within_a_call(server: Server, cache: Path) -> None:
    server.script = [("send", 100_000), ("send", 50_000)]
    assert fetch(NAME, server.url, SHA256).read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert files(cache) == [f"raw/{NAME}"]


def test_a_broken_download_goes_on_in_the_next_call(server: Server, cache: Path) -> None:
    server.script = [("send", 100_000), ("status", 503)]
    with pytest.raises(DownloadError, match="503"):
        fetch(NAME, server.url, SHA256)
    assert files(cache) == [f"raw/{NAME}.part"]
    totals: list[int] = []
    assert fetch(NAME, server.url, SHA256, progress=lambda _, total: totals.append(total)).read_bytes() == BODY
    assert server.asked[2:] == ["bytes=100000-"]
    assert set(totals) == {307200}
    assert files(cache) == [f"raw/{NAME}"]


def test_a_server_without_ranges_sends_all_again_and_never_loops(server: Server, cache: Path) -> None:
    server.ranges = False
    server.script = [("send", 1000), ("send", 1000)]
    with pytest.raises(DownloadError, match="ended after 1000 of 307200 bytes"):
        fetch(NAME, server.url, SHA256)
    assert fetch(NAME, server.url, SHA256).read_bytes() == BODY


def test_a_rest_that_is_too_long_is_thrown_away(server: Server, cache: Path) -> None:
    part = cache / "raw" / f"{NAME}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY + b"more")
    assert fetch(NAME, server.url, SHA256).read_bytes() == BODY
    assert server.asked == ["bytes=307204-", None]


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server: Server, cache: Path) -> None:
    with pytest.raises(ValueError, match="did not send the expected file") as caught:
        fetch(NAME, server.url, "0" * 64)
    assert SHA256 in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert files(cache) == []


def test_a_spoiled_beginning_is_refused_and_the_next_call_succeeds(server: Server, cache: Path) -> None:
    part = cache / "raw" / f"{NAME}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    with pytest.raises(DownloadError, match="did not send the expected file"):
        fetch(NAME, server.url, SHA256)
    assert fetch(NAME, server.url, SHA256).read_bytes() == BODY


def test_offline_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/raw.bin"
        with pytest.raises(OSError, match="cannot download") as caught:
            fetch(NAME, url, SHA256)
    assert isinstance(caught.value, ValueError)
    for part in (url, str(cache / "raw" / NAME), "CSN_DATA", "refused"):
        assert part in str(caught.value)
    assert files(cache) == []


def test_missing_pooch_names_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r'needs pooch: .* pip install "csn\[data\]"'):
        fetch(NAME, "http://127.0.0.1:9/", SHA256)


def test_two_threads_fetch_one_file_once(server: Server, cache: Path) -> None:
    threads = [threading.Thread(target=fetch, args=(NAME, server.url, SHA256)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked == [None]
    assert (cache / "raw" / NAME).read_bytes() == BODY


RECORDS = np.array([("a", [1, 2]), ("b", [3, 4])], dtype=[("name", "U4"), ("x", "u1", (2,))])


def never() -> np.ndarray:
    raise AssertionError("built although it was stored")


def test_an_array_is_built_once(cache: Path) -> None:
    for array in (cached_array("key", lambda: RECORDS), cached_array("key", never)):
        assert array.dtype == RECORDS.dtype
        np.testing.assert_array_equal(array, RECORDS)
    assert files(cache) == ["arrays/key.npy"]
    np.testing.assert_array_equal(np.load(cache / "arrays/key.npy"), RECORDS)  # still an ordinary .npy


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "not an array"])
def test_a_damaged_array_is_built_again(cache: Path, damage: str) -> None:
    cached_array("key", lambda: RECORDS)
    path = cache / "arrays" / "key.npy"
    stored = path.read_bytes()
    flipped = stored[:-40] + bytes([stored[-40] ^ 1]) + stored[-39:]
    path.write_bytes({"empty": b"", "cut": stored[:-5], "flipped": flipped, "not an array": b"<html>" * 20}[damage])
    other = np.arange(3)
    np.testing.assert_array_equal(cached_array("key", lambda: other), other)  # `other`: so it was built, not read
    np.testing.assert_array_equal(cached_array("key", never), other)


def test_nothing_pickled_is_stored_and_no_temporary_file_stays(cache: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cached_array("key", lambda: np.array([{}], dtype=object))
    assert files(cache) == []


def test_a_killed_write_leaves_the_old_array(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="no space left.*CSN_CACHE"):
        np.testing.assert_array_equal(cached_array("key", lambda: RECORDS), RECORDS)
    assert files(cache) == []


@pytest.mark.parametrize("key", ["", "../key", "a/b", "a b"])
def test_a_key_is_no_path(key: str) -> None:
    with pytest.raises(ValueError, match="cache key"):
        cached_array(key, never)
