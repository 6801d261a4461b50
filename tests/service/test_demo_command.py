"""`csn demo`: an address, or a message that says what is missing."""

from __future__ import annotations

import builtins
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import kit
import pytest
import torch

from csn.building import build_learner
from csn.cli.demo import default_folder
from csn.cli.main import main
from csn.config import load_preset, merge
from csn.engine.checkpoint import save_checkpoint
from csn.learner import InputSpec
from csn.service.server import address, bind, local_address, phones_address
from csn.service.unknowns import default_threshold


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run that was never trained."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    config = merge(load_preset("adacnn-df", "plus"), {"network": {"filters": 4}})
    torch.manual_seed(0)
    learner = build_learner(config, InputSpec((1, 28, 28)))
    tensors = {f"model.{name}": tensor for name, tensor in learner.state_dict().items()}
    about = {"config": config.as_dict(), "input": [1, 28, 28]}
    save_checkpoint(folder / "best.safetensors", tensors, {"about": about})
    return folder


def test_the_command_prints_its_address_serves_and_stops_at_ctrl_c(run, tmp_path):
    command = [
        sys.executable,
        "-m",
        "csn",
        "demo",
        "--port",
        "0",
        "--run",
        str(run),
        "--data-dir",
        str(tmp_path),
    ]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    process = subprocess.Popen([*command, "--token", "t0ken"], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+)/#token=t0ken", process.stdout.readline())
        assert found is not None
        with httpx.Client(base_url=found[1], headers={"Authorization": "Bearer t0ken"}, timeout=60) as http:
            about = http.get("/api/about").json()
            assert (about["model"], about["way"]) == ("tiny", 20)
            assert 0 < about["unknown_threshold"] < 1
            kit.new_task(http, o=kit.circle())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert (tmp_path / "tasks.sqlite").exists()


def test_a_port_in_use_is_named(run, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["demo", "--port", str(port), "--run", str(run), "--data-dir", str(tmp_path)]) == 2
    assert f"port {port} is in use: choose another with --port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "0 to 65535"),
        (["--host", "no.such.host.invalid"], "is not an address of this machine"),
        (["--host", "192.0.2.1", "--port", "0"], "cannot be used"),
        (["--token", "naïve", "--port", "0"], "printable ASCII"),
        (["--run", "nowhere", "--port", "0"], "nowhere"),
        (["--model", "runes", "--port", "0"], "no weights named 'runes'"),
    ],
)
def test_what_cannot_be_served_is_said(arguments, message, tmp_path, capsys):
    assert main(["demo", "--data-dir", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_extra_is_named(monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("csn.service"):
            raise ImportError("No module named 'fastapi'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["demo"]) == 2
    assert 'pip install "csn[service]"' in capsys.readouterr().err


def test_drawings_are_kept_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "csn" / "demo"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_folder() == Path.home() / ".local" / "share" / "csn" / "demo"


def test_the_address_is_one_that_a_browser_understands():
    for host, expected in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")):
        with bind(host, 0) as listener:
            assert address(listener) == f"http://{expected}:{listener.getsockname()[1]}"


def test_a_threshold_is_found_for_a_model_that_brings_none():
    threshold = default_threshold(kit.classifier())
    assert threshold is not None
    assert 0 < threshold < 1


def test_a_class_says_who_can_reach_it(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("csn.service.server.local_address", lambda: "127.0.0.2")  # of this machine, and not the default
    served = {}

    class Stopped:
        def run(self, sockets):
            served["host"] = sockets[0].getsockname()[0]

    monkeypatch.setattr("csn.service.server.server", lambda app, limits: Stopped())

    def command(name, *more):  # nothing closes the storage of a server that does not run
        return ["demo", "--port", "0", "--run", str(run), "--data-dir", str(tmp_path / name), *more]

    assert main(command("class", "--classroom", "--token", "t0ken")) == 0
    assert served == {"host": "127.0.0.2"}
    said = capsys.readouterr().out
    assert re.search(r"csn demo: http://127\.0\.0\.2:\d+/#token=t0ken ", said)
    assert re.search(r"Phones open http://127\.0\.0\.2:\d+/#token=[a-z0-9]{8} ", said)
    assert "Every machine in the network of 127.0.0.2 can reach this server." in said
    assert main(command("alone")) == 0
    assert served == {"host": "127.0.0.1"}, "without a class nobody else can reach it"
    assert "Phones" not in capsys.readouterr().out
    assert main(command("here", "--classroom", "--host", "127.0.0.1")) == 0
    assert "Only this machine can reach it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "message"),
    [(None, "in no network"), ("127.0.0.1", "in no network"), ("8.8.8.8", "no address of a local")],
)
def test_a_class_stays_in_the_local_network(found, message, monkeypatch):
    class Probe(socket.socket):
        def connect(self, address):
            if found is None:
                raise OSError("no route")

        def getsockname(self):
            return found, 1

    monkeypatch.setattr(socket, "socket", Probe)
    with pytest.raises(ValueError, match=message):
        local_address()
    Probe.getsockname = lambda self: ("192.168.1.5", 1)
    if found is not None:
        assert local_address() == "192.168.1.5"


def test_phones_find_a_server_that_listens_everywhere(monkeypatch):
    monkeypatch.setattr("csn.service.server.local_address", lambda: "192.168.1.5")
    with bind("0.0.0.0", 0) as listener:
        assert phones_address(listener) == f"http://192.168.1.5:{listener.getsockname()[1]}"
    with bind("127.0.0.1", 0) as listener:
        assert phones_address(listener) == address(listener)
