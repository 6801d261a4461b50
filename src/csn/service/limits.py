"""What one server allows. Every number is a limit that a test runs into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """bytes: of one request; examples and classes: of one task; seconds: of one request.

    requests_per_second (0: any number) is per address of a client, which may send `burst` of them at once after a
    pause. workers: computations at the same time; waiting: how many more may wait for one. live: tasks kept in memory,
    the others are read from disk again when they are next asked for. undos: changes of a task that can be taken back.
    json_bytes: of a body that is neither a picture nor a task file. header_seconds: for the headers of a request.
    photo_side, photo_pixels: of a photograph; side, pixels: of a drawing; characters: of a sentence.
    """

    body_bytes: int = 8_000_000
    json_bytes: int = 1_000_000
    side: int = 4096
    pixels: int = 4_000_000
    photo_side: int = 10_000
    photo_pixels: int = 32_000_000
    characters: int = 10_000
    examples: int = 500
    classes: int = 100
    tasks: int = 1000
    label: int = 60
    name: int = 80
    requests_per_second: float = 50.0
    burst: int = 200
    clients: int = 4096
    seconds: float = 10.0
    workers: int = 2
    waiting: int = 64
    connections: int = 256
    connections_per_address: int = 100
    header_seconds: float = 10.0
    live: int = 128
    undos: int = 100
