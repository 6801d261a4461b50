"""What the tests of the service share: drawings, a model that needs no training, a server in a thread."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor, nn

from csn.building import build
from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.encoder import Encoder
from csn.core.model import CSN
from csn.core.parts import NetworkKey
from csn.networks.cnn import CNNOptions
from csn.service.app import create_app
from csn.service.limits import Limits
from csn.service.server import address, bind, server

Strokes = list[list[tuple[float, float]]]
PNG = {"Content-Type": "image/png"}
WORDS = ("fly", "plane", "ticket", "money", "balance", "account")
UNHURRIED = Limits(requests_per_second=0, seconds=60)


def circle(shift: float = 0.0) -> Strokes:
    return [[(0.5 + shift + 0.3 * math.cos(t / 5), 0.5 + 0.3 * math.sin(t / 5)) for t in range(33)]]


def cross(shift: float = 0.0) -> Strokes:
    return [[(0.2 + shift, 0.2), (0.8, 0.8)], [(0.8, 0.2 + shift), (0.2, 0.8)]]


def wave(shift: float = 0.0) -> Strokes:
    return [[(0.15 + 0.7 * t / 40, 0.5 + 0.14 * math.sin(t / 40 * (13 + 20 * shift))) for t in range(41)]]


def picture(strokes: Strokes, side: int = 112) -> Image.Image:
    """Black lines on white paper."""
    image = Image.new("L", (side, side), 255)
    for stroke in strokes:
        ImageDraw.Draw(image).line([(side * x, side * y) for x, y in stroke], fill=0, width=max(1, side // 28))
    return image


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def drawing(strokes: Strokes) -> bytes:
    return png(picture(strokes))


class Blurred(nn.Module):
    """A key function that needs no training: the drawing out of focus, less its mean."""

    def forward(self, x: Tensor) -> Tensor:
        small = F.avg_pool2d(x, 6, stride=3, padding=2).flatten(1)
        return small - small.mean(1, keepdim=True)


@cache
def learner(way: int = 5) -> CSN:
    """Recognises by attention alone: what the output layer itself would say is zero, shifts decide."""
    torch.manual_seed(0)
    network, key = CNNOptions(filters=4), NetworkKey(size=8)
    made = build("csn", reads=(1, 28, 28), way=way, network=network, key=key, temperature=30.0).eval()
    assert isinstance(made, CSN)
    made.key_function = Blurred()
    nn.init.zeros_(made.base.output.weight)
    return made


def classifier() -> FewShotClassifier:
    return FewShotClassifier(learner=learner(), unknown_threshold=0.7)


def words(sentences: list[str]) -> np.ndarray:
    """An encoder of sentences that needs no package: the words it knows."""
    return np.array([[0.01, *(float(word in sentence) for word in WORDS)] for sentence in sentences])


def colours(photographs: list[np.ndarray]) -> np.ndarray:
    """One of photographs: their mean colour."""
    return np.array([photograph[..., :3].mean((0, 1)) for photograph in photographs])


def encoders(threshold: float = 0.3) -> dict[str, FewShotClassifier]:
    """Classifiers for tasks of photographs and of sentences."""
    made = {"photos": Encoder(colours, kind="photos", fingerprint="colours")}
    made["text"] = Encoder(words, kind="text", fingerprint="words")
    return {
        kind: FewShotClassifier(encoder=encoder, unknown_threshold=threshold, cache=False)
        for kind, encoder in made.items()
    }


def photo(colour: tuple[int, int, int], size: tuple[int, int] = (40, 30), kind: str = "JPEG") -> bytes:
    """A photograph of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


@contextmanager
def serving(folder: Path, port: int = 0, model: FewShotClassifier | None = None, **options: Any) -> Iterator[str]:
    """A server in a thread; its address."""
    options.setdefault("limits", UNHURRIED)
    app = create_app(model or classifier(), folder, **options)
    listener = bind("127.0.0.1", port)
    running = server(app, options["limits"])
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.01)
        yield address(listener)
    finally:
        running.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def client(folder: Path, **options: Any) -> Iterator[httpx.Client]:
    """A client of a server of its own."""
    with serving(folder, **options) as base, httpx.Client(base_url=base, timeout=120) as http:
        yield http


def new_task(http: httpx.Client, **examples: Strokes) -> str:
    """A task that has learned these; its address."""
    task = f"/api/tasks/{http.post('/api/tasks', json={'name': 'test'}).json()['id']}"
    for label, strokes in examples.items():
        answer = http.post(f"{task}/examples", params={"label": label}, content=drawing(strokes), headers=PNG)
        assert answer.status_code == 201, answer.text
    return task


def ask(http: httpx.Client, task: str, strokes: Strokes, what: str = "explain") -> dict[str, Any]:
    answer = http.post(f"{task}/{what}", content=drawing(strokes), headers=PNG)
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an answer that must be an error in the one form."""
    body = answer.json()
    assert body.keys() == {"error"}, body
    assert body["error"].keys() == {"code", "message", "remedy"}, body
    assert all(isinstance(text, str) and text for text in body["error"].values()), body
    return answer.status_code, body["error"]["code"]
