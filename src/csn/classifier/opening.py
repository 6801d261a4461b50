"""Open the model that a classifier's parameters name: a learner, or an encoder and a head."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from csn.classifier.encoders.encoder import open_encoder
from csn.classifier.heads import HEADS, make_head
from csn.classifier.parameters import Parameters
from csn.classifier.pretrained import open_folder, open_shipped, own
from csn.classifier.sources import EncoderSource, KeySource, LearnerSource, Source
from csn.learner import FewShotLearner, InputSpec


def open_source(classifier: Parameters) -> Source:
    """The source of answers, or a ValueError about parameters that contradict each other."""
    named_head = classifier.head
    if named_head not in (*HEADS, "learner", None):
        raise ValueError(f"unknown head {named_head!r}: choose one of {', '.join((*HEADS, 'learner'))}, or None")
    own_model = classifier.run is not None or classifier.learner is not None
    if classifier.run is not None and classifier.learner is not None:
        raise ValueError("a classifier has one model: give run= or learner=, not both")
    drawings = isinstance(classifier.encoder, str) and classifier.encoder == "drawings"
    if own_model and not drawings:
        raise ValueError("a classifier has one model: give run= or learner=, or encoder=, not both")
    if own_model or drawings:
        head = named_head or ("learner" if own_model else "csn")
        learner, spec = _learner(classifier)
        return LearnerSource(learner, spec) if head == "learner" else KeySource(learner, spec, make_head(head))
    if named_head == "learner":
        raise ValueError("an encoder has no layers to shift: choose head csn, centroid or logistic")
    if type(classifier.batch_size) is not int or classifier.batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {classifier.batch_size!r}")
    encoder = None if classifier.encoder is None else open_encoder(classifier.encoder, classifier.device)
    head_of = make_head(named_head or "csn", None if encoder is None else encoder.head)
    return EncoderSource(encoder, head_of, classifier.batch_size, classifier.cache, classifier.progress)


def embeds(classifier: Parameters) -> bool:
    """Whether the classifier can compute embeddings."""
    return classifier.learner is None or classifier.learner.embedding_network is not None


def _learner(classifier: Parameters) -> tuple[FewShotLearner[Any], InputSpec | None]:
    """The learner on its device, and its input spec, or None if only the examples can tell it."""
    if classifier.learner is not None:
        learner, spec = own(classifier.learner)
        return learner.to(classifier.device), spec
    if classifier.run is not None:
        learner, spec = open_folder(Path(classifier.run))
        return learner.to(classifier.device), spec
    return _shipped(classifier.model, classifier.device)


@lru_cache(maxsize=4)
def _shipped(model: str, device: str) -> tuple[FewShotLearner[Any], InputSpec]:
    """A packaged model, opened once per process. All classifiers can share it because a learner keeps no state."""
    learner, spec = open_shipped(model)
    return learner.to(device), spec
