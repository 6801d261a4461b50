"""What is attacked: functions of the package that read what strangers send. Each may refuse with a ValueError.

Anything else that comes out (another exception, a signal, a minute of silence) is a crash, and its input becomes a
file of `seeds/<target>/`, which every later run starts with.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import pickle
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import edits
import graph_target
import numpy as np
import page_target
import sentence_targets
import service_target
from picture_seeds import archives, pictures, tars
from places import folder, in_file, small_classifier

from csn.building import build_learner
from csn.classifier.inputs import open_image
from csn.cli.inputs import labelled, unlabelled
from csn.config import config_from_json, load_preset, merge
from csn.data.images.decode import decode
from csn.data.images.files import list_images, read_csv
from csn.data.images.mini_imagenet import _checked
from csn.data.images.plain_pickle import read_plain_pickle
from csn.data.images.streaming import stream_images
from csn.data.text.files import read_sentences
from csn.engine.checkpoint import load_checkpoint
from csn.engine.run import open_model
from csn.experiments.records.files import FORMAT, results_in
from csn.learner import InputSpec

SEEDS = Path(__file__).parent / "seeds"


@dataclass(frozen=True)
class Target:
    """What is attacked.

    read: takes bytes as they came.
    seeds: inputs to start from.
    variants: further inputs that follow from one.
    elsewhere: nanoseconds of the processor that were used outside this process.
    missing: why it cannot be attacked here, or None.
    is_guided: whether it has Python code of csn, which a fuzzer can be guided by.
    """

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    variants: Callable[[bytes], Iterator[bytes]] = lambda content: iter(())
    elsewhere: Callable[[], int] = lambda: 0
    missing: Callable[[], str | None] = lambda: None
    is_guided: bool = True

    def attack(self, content: bytes) -> None:
        """Read an input and its variants."""
        for variant in (content, *self.variants(content)):
            with contextlib.suppress(ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.read(variant)


def seeds_of(name: str) -> list[bytes]:
    """The made seeds of a target, and every input that once was a crash."""
    found = sorted(path for path in (SEEDS / name).glob("*") if path.is_file())
    return [*TARGETS[name].seeds(), *(path.read_bytes() for path in found)]


def _pickle(content: bytes) -> None:
    path = in_file(content, "set.pkl")
    _checked(path, read_plain_pickle(path))


@functools.cache
def _pickles() -> list[bytes]:
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    plain = {"image_data": images, "class_dict": {"n1": [0], "n2": np.array([1])}}
    other = OrderedDict(image_data=np.asfortranarray(images), class_dict=OrderedDict(a=[np.int64(0), np.int64(1)]))
    return [pickle.dumps(some, protocol=protocol) for some in (plain, other) for protocol in (0, 2, 3, 4, 5)]


def _task(content: bytes) -> None:
    classifier = small_classifier().blank()
    path = in_file(content, "task.csn")
    classifier.restore(path)
    classifier.predict_proba(classifier.inputs_[:1])


@functools.cache
def _tasks() -> list[bytes]:
    path = folder() / "seed.csn"
    rows = np.zeros((3, 28, 28), dtype=np.uint8)
    rows[0, 5:9], rows[1, :, 5:9], rows[2, 20:, 20:] = 255, 255, 255
    found = []
    for labels in (["a", "b", "a"], [1, 2, 3], [True, 0.5, "x"]):
        classifier = small_classifier().blank()
        classifier.partial_fit(rows, labels)
        classifier.save(path)
        found.append(path.read_bytes())
    return found


def _restructured(seeds: Callable[[], list[bytes]], content: bytes) -> Iterator[bytes]:
    """The input with a right checksum, if it is a checkpoint at all; and a seed with changed contents, signed too."""
    if (parts := edits.unpacked(content)) is not None:
        yield edits.signed(*parts)
    random = Random(zlib.crc32(content))
    tensors, about = edits.unpacked(random.choice(seeds())) or ({}, {})
    for _ in range(random.choice([0, 1, 1, 2])):
        about = edits.changed_json(about, random)
    for _ in range(random.choice([0, 0, 1])):
        tensors = edits.reshaped(tensors, random)
    with contextlib.suppress(UnicodeEncodeError):
        yield edits.signed(tensors, about)


@functools.cache
def _checkpoints() -> list[bytes]:
    small = {"network": {"filters": 2}, "key": {"size": 4}}
    found = []
    for name in ("adacnn-df", "adacnn-gradient", "matching"):
        config = load_preset(name)
        config = merge(config, {k: v for k, v in small.items() if getattr(config, k) is not None})
        learner = build_learner(config, InputSpec((1, 28, 28)))
        tensors = {f"model.{key}": tensor.contiguous() for key, tensor in learner.state_dict().items()}
        about = {"config": config.as_dict(), "input": [1, 28, 28]}
        found.append(edits.signed(tensors, {"about": about, "tasks": 10, "validation": 0.5}))
    return found


def _checkpoint(content: bytes) -> None:
    load_checkpoint(in_file(content, "best.safetensors"))


def _model(content: bytes) -> None:
    open_model(in_file(content, "best.safetensors"))


@functools.cache
def _results() -> list[bytes]:
    """As `csn evaluate` writes them, of two tasks."""
    made = {
        "command": "csn",
        "commit": "0" * 40,
        "date": "2026-01-01T00:00:00+00:00",
        "machine": {"cpu": "x", "cores": 2},
    }
    trained = {"tasks": 10, "seconds": 1.0, "seconds_in_all": 2.0, "validation": 0.5, "validation_curve": [[5, 0.4]]}
    results = []
    for name in ("characters", "adalstm-2-df"):
        content = {
            "format": FORMAT,
            "summary": {"trained": {"accuracy": 0.5, "interval": 0.1}},
            "evaluation": {"data": "strokes", "split": "test", "way": 5, "shot": 1, "tasks": 2, "formed": "random"},
            "config": load_preset(name).as_dict(),
            "trained": made | trained | {"earlier": [{"commit": "0" * 40}]},
            **made,
            "seconds": 1.0,
            "accuracies": {"trained": [0.4, 0.6]},
        }
        results.append(json.dumps(content).encode())
    return results


def _result(content: bytes) -> None:
    for result in results_in(in_file(content, "result.json")):
        assert result.place == (*result.place[:4], result.name, result.seed)
        assert result.published is not None


def _json_variants(seeds: Callable[[], list[bytes]], content: bytes) -> Iterator[bytes]:
    random = Random(zlib.crc32(content))
    value = json.loads(random.choice(seeds()))
    for _ in range(random.choice([1, 1, 2, 3])):
        value = edits.changed_json(value, random)
    yield json.dumps(value).encode()


@functools.cache
def _configs() -> list[bytes]:
    names = ("adacnn-df", "adaresnet-gradient", "adalstm-2-df", "maml", "snail", "lstm-lm")
    return [load_preset(name).to_json().encode() for name in names]


def _picture(content: bytes) -> None:
    """Every door for pictures; one that refuses does not keep the next from trying."""
    from csn.service.errors import ServiceError
    from csn.service.images import from_png, picture
    from csn.service.limits import Limits

    with contextlib.suppress(ValueError, OSError, SyntaxError):  # its caller takes whatever a damaged file raises
        decode(content, 16)
    with contextlib.suppress(ValueError):
        open_image(in_file(content, "picture"))
    with contextlib.suppress(ServiceError):
        picture(from_png(content, Limits(pixels=300_000)))


def _png_variants(content: bytes) -> Iterator[bytes]:
    if content[:4] == b"\x89PNG":
        yield edits.with_checksums(content)


def _csv(content: bytes) -> None:
    read_csv(content, "list.csv", by_split=True)
    read_csv(content, "train.csv", split="train")


def _archive(content: bytes) -> None:
    list_images(in_file(content, "set.zip"))


def _shards(content: bytes) -> None:
    for split in stream_images(in_file(content, "set.tar"), size=8).splits.values():
        for row in range(min(2, len(split.places))):
            split.at(np.array([row]))


def _table(content: bytes) -> None:
    """What `csn adapt` learns from: vectors with their labels, and tables of sentences or numbers."""
    labels = in_file(b"a\nb\nc\n", "labels.txt")
    with contextlib.suppress(ValueError):
        labelled(in_file(content, "vectors.npy"), "none", labels)
    for kind in ("text", "none"):
        with contextlib.suppress(ValueError):
            labelled(in_file(content, "table.csv"), kind, None)
    unlabelled([str(in_file(content, "lines.txt"))], "text")


@functools.cache
def _tables() -> list[bytes]:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 4), dtype=np.float32))
    return [file.getvalue(), b"text,label\na quick fox,x\n", b"a,b,label\n1,2.5,x\n-3,1e3,y\n"]


def _text(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_sentences(in_file(content, "text.txt"))
    read_sentences(in_file(content, "text.txt.gz"))


@functools.cache
def _texts() -> list[bytes]:
    import gzip

    plain = "the quick <unk> fox\nüber den Fluß \u2028 und\n\n".encode()
    return [plain, b"\xef\xbb\xbf" + plain, plain.replace(b"\n", b"\r\n"), gzip.compress(plain)]


csv.field_size_limit(131_072)  # Python's own default, which another test may have raised

TARGETS = {
    "pickle": Target(_pickle, _pickles),
    "task_file": Target(_task, _tasks, functools.partial(_restructured, _tasks)),
    "checkpoint": Target(_checkpoint, _checkpoints, functools.partial(_restructured, _checkpoints)),
    "model": Target(_model, _checkpoints, functools.partial(_restructured, _checkpoints)),
    "result_file": Target(_result, _results, functools.partial(_json_variants, _results)),
    "config": Target(
        lambda content: config_from_json(content.decode("utf-8")), _configs, functools.partial(_json_variants, _configs)
    ),
    "picture": Target(_picture, pictures, _png_variants),
    "csv": Target(
        _csv, lambda: [b"file,label,split\na.png,x,train\nb.png,y,test\n", b"filename;label\n", b"image,class\n"]
    ),
    "archive": Target(_archive, archives),
    "shards": Target(_shards, tars),
    "table": Target(_table, _tables),
    "text": Target(_text, _texts),
    "json_body": Target(
        service_target.drawings, service_target.seeds, functools.partial(_json_variants, service_target.seeds)
    ),
    "exported_sentence": Target(graph_target.read, graph_target.seeds),
    "sentence": Target(sentence_targets.read, sentence_targets.seeds, missing=sentence_targets.missing),
    "sentence_body": Target(
        service_target.sentences,
        service_target.sentence_seeds,
        functools.partial(_json_variants, service_target.sentence_seeds),
        missing=sentence_targets.missing,
    ),
    "page_task_file": Target(
        page_target.read,
        _tasks,
        functools.partial(page_target.variants, _tasks),
        page_target.elsewhere,
        page_target.missing,
        is_guided=False,
    ),
}
