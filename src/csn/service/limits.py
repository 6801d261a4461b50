"""The limits of one server. A test reaches every one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one server.

    body_bytes: size of a body that is a picture or a task file.
    json_bytes: size of any other body.
    held_bytes: size of the bodies of all requests together.
    side: pixels on a side of a drawing.
    pixels: pixels of a drawing in total.
    photo_side: pixels on a side of a photograph.
    photo_pixels: pixels of a photograph in total.
    characters: length of a sentence.
    examples: examples of one task.
    classes: classes of one task.
    tasks: tasks of the server.
    label: characters of a label.
    name: characters of a task's name.
    requests_per_second: requests per client address; 0 for any number.
    burst: requests that a client may send at once after a pause.
    clients: client addresses whose rate is tracked.
    seconds: time for one request.
    workers: computations at the same time.
    waiting: requests that may wait for a worker.
    connections: open connections.
    connections_per_address: open connections of one address.
    header_seconds: time until the headers of a request have arrived.
    live: tasks kept in memory. Others are read from disk when they are next used.
    undos: changes of a task that can be undone.
    moderated: drawings of a classroom that wait for the teacher.
    moderated_per_address: those of one phone.
    """

    body_bytes: int = 8_000_000
    json_bytes: int = 1_000_000
    held_bytes: int = 200_000_000
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
    moderated: int = 100
    moderated_per_address: int = 20
    undos: int = 100
