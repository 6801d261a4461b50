"""Every kind of picture file through the API: learned as the picture it is, or refused with a reason."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from kit import PNG, client, error
from PIL import Image

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.encoder import Encoder
from csn.classifier.inputs import prepare, to_rgb
from csn.classifier.pretrained import INK
from picture_kinds import assert_scene, kinds, scene, truncated

KINDS, CUT = kinds(), truncated()
TYPES = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp"}


def colours(photographs):
    """An encoder that needs no package: the mean colour of what the real one would see."""
    return np.array([to_rgb(photograph, 8).mean((0, 1)) for photograph in photographs])


def ending(name: str) -> str:
    return name.rpartition(".")[2]


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    encoder = Encoder(colours, kind="photos", fingerprint="colours")
    photos = FewShotClassifier(encoder=encoder, unknown_threshold=0.3, cache=False)
    with client(tmp_path_factory.mktemp("files"), encoders={"photos": photos}) as made:
        yield made


@pytest.fixture(scope="module", params=["photos", "drawings"])
def task(request, http):
    made = http.post("/api/tasks", json={"name": "t", "kind": request.param}).json()
    return request.param, f"/api/tasks/{made['id']}"


def learned(http, task: str, name: str, content: bytes):
    headers = {"Content-Type": TYPES.get(ending(name), "image/png")}
    return http.post(f"{task}/examples", params={"label": "x"}, content=content, headers=headers)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_learned_as_its_picture_or_refused(http, task, name):
    kind, address = task
    answer = learned(http, address, name, KINDS[name].content)
    if ending(name) not in (TYPES if kind == "photos" else ("png",)):
        status, code = error(answer)
        assert (status, code) in ((415, "wrong_type"), (422, "unusable_image"))
        assert "PNG" in answer.json()["error"]["message"] or "image/png" in answer.json()["error"]["message"]
        return
    assert answer.status_code == 201, answer.text
    shown = Image.open(io.BytesIO(base64.b64decode(answer.json()["example"]["picture"].partition(",")[2])))
    if kind == "photos":
        assert_scene(np.asarray(shown), KINDS[name].ink, left=1 / 6, width=2 / 3)
    else:
        found, expected = (prepare([picture], INK)[0, 0] for picture in (shown, scene()))
        assert ((found > 80) == (expected > 80)).float().mean() > 0.97


@pytest.mark.parametrize("name", CUT)
def test_a_truncated_file_is_refused_and_nothing_is_learned(http, task, name):
    _, address = task
    before = http.get(address).json()["examples"]
    answer = learned(http, address, name, CUT[name])
    assert error(answer) in ((415, "wrong_type"), (422, "unusable_image"))
    body = {"image": base64.b64encode(CUT[name]).decode(), "label": "x"}
    assert error(http.post(f"{address}/examples", json=body)) == (422, "unusable_image")
    assert error(http.post(f"{address}/predict", content=CUT[name], headers=PNG)) == (422, "unusable_image")
    assert http.get(address).json()["examples"] == before
