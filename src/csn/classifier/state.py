"""The state of a classifier: one memory, always replaced as a whole, so any number of threads may read it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import TransformerTags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from csn.classifier import saved
from csn.classifier.labels import class_array, object_array
from csn.classifier.opening import embeds, open_source
from csn.classifier.parameters import Parameters
from csn.classifier.pretrained import INK
from csn.classifier.sources import LearnerSource, Memory, Stripped, stripped
from csn.classifier.sources import Source as Opened

_WRITING = threading.RLock()  # held only while one memory replaces another, never while examples are described


class Remembering(BaseEstimator):
    """The memory of a classifier, and its model, which is opened when it is first needed."""

    memory_: Memory
    _source: Opened

    @property
    def classes_(self) -> np.ndarray:
        """The distinct labels: sorted if all are numbers or all are strings, else in order of first appearance."""
        return class_array(self._memory(empty=True).labels)

    @property
    def labels_(self) -> np.ndarray:
        """(n,) the labels of the remembered examples."""
        return object_array(self._memory(empty=True).labels)

    @property
    def inputs_(self) -> Tensor:
        """(n, *input) the remembered examples as the learner takes them: images as bytes, 255 for ink.

        An encoder's inputs are not kept, so this raises AttributeError for them.
        """
        memory, spec = self._memory(empty=True), self.input_
        if spec is None or (len(memory) and not memory.inputs):
            raise AttributeError("an encoder's inputs are not kept, only their keys are: see transform")
        return torch.stack(memory.inputs) if len(memory) else torch.empty(0, *spec.shape, dtype=torch.uint8)

    @property
    def learner_(self) -> Any:
        """The learner that answers or makes the keys, or None if an encoder makes them."""
        return self._opened.learner

    @property
    def fingerprint_(self) -> str:
        """The fingerprint of the learner or encoder with its weights, as task files store it."""
        return self._opened.fingerprint

    @property
    def input_(self) -> Any:
        """The `InputSpec` of that learner, or None if an encoder makes the keys."""
        source = self._opened
        return (source.spec or INK) if isinstance(source, LearnerSource) else None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "memory_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags = TransformerTags() if embeds(cast(Parameters, self)) else None
        return tags

    def __getstate__(self) -> Any:
        """The state without the weights and without what follows from the examples. Both are restored when needed."""
        state = dict(super().__getstate__())
        state.pop("_source", None)
        if "memory_" in state:
            state["memory_"] = stripped(state["memory_"])
        return state

    @property
    def _opened(self) -> Opened:
        """The source of answers. After unpickling it is opened again."""
        if not hasattr(self, "_source"):
            check_is_fitted(self)
            source = open_source(cast(Parameters, self))
            with _WRITING:
                if not hasattr(self, "_source"):
                    memory: Any = self.memory_
                    if isinstance(memory, Stripped):
                        self.memory_ = source.adopted(memory)
                    self._source = source
        return self._source

    def _remember(self, source: Opened, memory: Memory) -> None:
        """Replace the model and the memory."""
        with _WRITING:
            self._source, self.memory_ = source, memory

    def _changed(self, change: Callable[[Memory], Memory]) -> None:
        """Replace the memory with a changed one in one step. Start over if another thread replaced it meanwhile."""
        self._opened  # noqa: B018 (relinks a memory that was unpickled)
        while True:
            before = self.memory_
            after = change(before)
            with _WRITING:
                if self.memory_ is before:
                    self.memory_ = after
                    return

    def _remember_saved(self, source: Opened, memory: Memory) -> None:
        """Replace the memory with that of a file, and set the number of features that a table must have."""
        self._remember(source, memory)
        if (width := saved.width(source, memory)) is not None:
            self.n_features_in_ = width

    def _memory(self, *, empty: bool = False) -> Memory:
        """The memory, or NotFittedError if there is none."""
        check_is_fitted(self)
        self._opened  # noqa: B018 (relinks a memory that was unpickled)
        memory = self.memory_
        if not len(memory) and not empty:
            raise NotFittedError("every example was forgotten: learn some with fit or partial_fit first")
        return memory
