"""From an application to a listening server."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from csn.service.connections import protocol
from csn.service.limits import Limits


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at an address. Raises ValueError if it cannot. Port 0 picks a free port."""
    if not 0 <= port <= 65535:
        raise ValueError(f"a port is a number from 0 to 65535, got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ValueError(
            f"{host} is not an address of this machine ({error.strerror}): try --host 127.0.0.1"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ValueError(
                f"port {port} is in use: choose another with --port, or --port 0 for a free one"
            ) from error
        if error.errno == errno.EACCES:
            raise ValueError(f"port {port} needs administrator rights: choose one above 1023 with --port") from error
        raise ValueError(f"{host} port {port} cannot be used ({error.strerror}): try another --host") from error
    return listener


def address(listener: socket.socket) -> str:
    """The address for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def phones_address(listener: socket.socket) -> str:
    """Where a phone in the same network finds it."""
    host, port = listener.getsockname()[:2]
    return f"http://{local_address()}:{port}" if host in ("0.0.0.0", "::") else address(listener)


def local_address() -> str:
    """This machine's address in its local network, or a ValueError."""
    found = None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("10.255.255.255", 9))  # sends nothing: it asks which address would be used
        found = probe.getsockname()[0]
    if found is None or ip_address(found).is_loopback:
        raise ValueError("this machine is in no network that phones could be in: connect it to one, or give --host")
    if not ip_address(found).is_private:
        remedy = "name it with --host if all the world may reach the class"
        raise ValueError(f"{found} is no address of a local network: {remedy}")
    return found


def server(app: FastAPI, limits: Limits | None = None) -> uvicorn.Server:
    """A server. Start it with `.run(sockets=[...])`."""
    limits = limits or Limits()
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=protocol(limits),  # refuses connections itself, instead of uvicorn
        ws="none",
        timeout_keep_alive=10,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)
