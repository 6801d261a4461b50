"""The service under load: requests per second, and latency as a ratio to the bare forward pass.

The server runs in its own process. Each client is a thread with its own connection and its own 5-way 1-shot task. It
sends one drawing after another to `predict`, as a PNG of 112 x 112 pixels. The floor is `learner.predict` for one query
on the same memory in this process, measured before and after the load. With one client, the ratio shows the cost of
HTTP, decoding, resizing, similarity, attention and JSON. More clients also wait for each other. Clients share the
machine with the server.

    python benchmarks/service.py [--model characters | --run RUN] [--clients 1 4 16] [--seconds 10] [--out FILE]
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from csn.classifier.classifier import FewShotClassifier
from csn.data.images.strokes import load_strokes
from csn.engine.checkpoint import write_atomically
from csn.engine.origin import origin
from csn.episode import Examples
from csn.experiments.records.files import json_bytes
from csn.service.app import create_app
from csn.service.limits import Limits
from csn.service.server import bind, server

WAY, SIDE = 5, 112


def serve(model: str, run: str | None, folder: str, pipe: Any) -> None:
    """The server's process: `csn demo` without its limit on the rate of requests."""
    torch.set_num_threads(1)
    limits = Limits(requests_per_second=0, workers=max(1, os.cpu_count() or 1), seconds=60)
    app = create_app(FewShotClassifier(model, run=run, unknown_threshold=0.5), Path(folder), limits=limits)
    with bind("127.0.0.1", 0) as listener:
        pipe.send(listener.getsockname()[1])
        server(app, limits).run(sockets=[listener])


def drawings() -> tuple[list[bytes], torch.Tensor]:
    """Two drawings of each of WAY characters, as PNG files and as (2 WAY, 1, 28, 28) inputs."""
    data = load_strokes(alphabets=5, characters=WAY, drawings=2).splits["test"].x[: 2 * WAY]
    files = []
    for ink in data[:, 0].numpy():
        file = io.BytesIO()
        Image.fromarray(255 - ink).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "PNG")
        files.append(file.getvalue())
    return files, data.float() / 255


def call(connection: http.client.HTTPConnection, method: str, path: str, body: bytes, kind: str) -> dict[str, Any]:
    """One request on an open connection."""
    connection.request(method, path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
    found: dict[str, Any] = json.loads(content)
    return found


def client(port: int, files: list[bytes], start: threading.Barrier, seconds: float, times: list[float]) -> None:
    """Teach a task, wait for the others, then ask until the time is over."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    task = call(connection, "POST", "/api/tasks", b"{}", "application/json")["id"]
    for number, file in enumerate(files[::2]):
        call(connection, "POST", f"/api/tasks/{task}/examples?label={number}", file, "image/png")
    start.wait()
    until, i = time.perf_counter() + seconds, 0
    while (before := time.perf_counter()) < until:
        call(connection, "POST", f"/api/tasks/{task}/predict", files[1 + 2 * (i % WAY)], "image/png")
        times.append(time.perf_counter() - before)
        i += 1
    connection.close()


def load(port: int, files: list[bytes], clients: int, seconds: float) -> tuple[float, np.ndarray]:
    """Requests per second and the latency of each request, of some clients at once."""
    times: list[list[float]] = [[] for _ in range(clients)]
    start = threading.Barrier(clients)
    threads = [threading.Thread(target=client, args=(port, files, start, seconds, own)) for own in times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = np.concatenate([np.array(own) for own in times])
    return len(every) / seconds, every


def bare(classifier: FewShotClassifier, x: torch.Tensor, repeats: int = 100) -> float:
    """Seconds of one forward pass: the prediction phase for one query of a 5-way 1-shot task."""
    learner = classifier.blank().learner_
    with torch.no_grad():
        memory = learner.describe(Examples(x[None, ::2], torch.arange(WAY)[None]))
        times = []
        for i in range(repeats):
            before = time.perf_counter()
            learner.predict(x[None, 1 + 2 * (i % WAY)][None], memory)
            times.append(time.perf_counter() - before)
    return statistics.median(times[repeats // 5 :])


def main() -> None:
    """Measure and print a table; with --out also a JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="characters")
    parser.add_argument("--run")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    classifier = FewShotClassifier(options.model, run=options.run)
    files, x = drawings()
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        process = spawn.Process(target=serve, args=(options.model, options.run, folder, theirs))
        process.start()
        port = ours.recv()
        try:
            for clients in options.clients:
                floor = [bare(classifier, x)]
                rate, times = load(port, files, clients, options.seconds)
                floor.append(bare(classifier, x))
                rows.append({"clients": clients, "requests_per_second": rate, "bare_ms": 1000 * statistics.mean(floor)})
                for share in (50, 95, 99):
                    latency = float(np.percentile(times, share))
                    rows[-1] |= {f"p{share}_ms": 1000 * latency, f"p{share}_ratio": latency / statistics.mean(floor)}
        finally:
            process.terminate()
            process.join()
    table = Table(
        "clients", "requests / s", "bare pass, ms", "p50", "p95", "p99", title="latency as a ratio to the bare pass"
    )
    for row in rows:
        ratios = (f"{row[f'p{share}_ratio']:.1f}x" for share in (50, 95, 99))
        table.add_row(str(row["clients"]), f"{row['requests_per_second']:.0f}", f"{row['bare_ms']:.2f}", *ratios)
    Console().print(table)
    if options.out:
        result = {"benchmark": "service", "seconds": options.seconds, "rows": rows, **origin("benchmarks/service.py")}
        write_atomically(options.out, json_bytes(result))


if __name__ == "__main__":
    main()
