"""The model behind a classifier: a learner, or an encoder and a head. It prepares X for the classifier's memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from csn.classifier.collect import as_list, photographs, refuse_texts, texts
from csn.classifier.encoders.encoder import Encoder, Progress
from csn.classifier.heads import Head
from csn.classifier.inputs import Prepared, is_table, prepare_checked
from csn.classifier.keyed import KeyMemory
from csn.classifier.pretrained import INK, fingerprint
from csn.classifier.remembered import QUERIES_PER_CALL, Remembered
from csn.data.source import as_input
from csn.learner import FewShotLearner, InputSpec

Memory = Remembered | KeyMemory


@dataclass(frozen=True)
class Stripped:
    """The part of a memory that is pickled. Everything else follows from it.

    labels: one label per example.
    names: one name per example, or None.
    keys: (n, d), or None.
    inputs: (n, *input), or None.
    """

    labels: tuple[Hashable, ...]
    names: tuple[str | None, ...]
    keys: np.ndarray | None
    inputs: np.ndarray | None

    def __len__(self) -> int:
        return len(self.labels)


def stripped(memory: Memory | Stripped) -> Stripped:
    """The part of a memory that is pickled."""
    if isinstance(memory, Stripped):
        return memory
    inputs = torch.stack(memory.inputs).numpy() if memory.inputs else None
    keys = memory.keys.numpy() if isinstance(memory, KeyMemory) else None
    return Stripped(memory.labels, memory.names, keys, inputs)


class Checks(Protocol):
    """scikit-learn's check of a table, which also counts and names its features."""

    def __call__(self, X: Any) -> np.ndarray:
        """The checked table (n, features)."""


class LearnerSource:
    """A learner that answers by itself. A CSN shifts its own layers; many classes play a tournament."""

    kind = "learner"

    def __init__(self, learner: FewShotLearner[Any], spec: InputSpec | None) -> None:
        self.learner, self.spec = learner, spec

    @cached_property
    def fingerprint(self) -> str:
        """What names the learner in task files. It is computed when it is first needed: it reads every weight."""
        return fingerprint(self.learner)

    def prepared(self, X: Any, check: Checks) -> Prepared:
        """X as the learner takes it. A learner without an input spec adopts the shape of the first X."""
        if hasattr(X, "__array__") and not hasattr(X, "shape") and not hasattr(X, "getbands"):
            X = np.asarray(X)
        if hasattr(X, "to_list") or (hasattr(X, "columns") and len(X.columns) == 1):
            X = as_list(X)
        spec = self.spec
        if spec is None:
            spec = InputSpec((np.shape(X)[1],)) if not isinstance(X, Tensor) and is_table(X) else INK
        if spec.vocabulary is None:
            refuse_texts(X)
            if not isinstance(X, Tensor) and (len(spec.shape) == 1 or is_table(X)):
                X = check(X)
        dtype = next((parameter.dtype for parameter in self.learner.parameters()), torch.get_default_dtype())
        found = prepare_checked(X, spec, dtype)
        self.spec = spec
        return found

    def empty(self) -> Memory:
        """An empty memory."""
        return Remembered(self.learner)

    def adopted(self, memory: Any) -> Memory:
        """An unpickled memory, connected to this learner again."""
        inputs, labels = torch.from_numpy(memory.inputs), memory.labels
        return self.extended(self.empty(), inputs, labels, memory.names, now=False)

    def extended(
        self, memory: Any, inputs: Tensor, labels: Sequence[Hashable], names: Sequence[str | None], *, now: bool = True
    ) -> Memory:
        """A memory with more examples.

        Args:
            memory: The memory so far.
            inputs: (n, *input) as prepared.
            labels: One label per example.
            names: One name per example, or None.
            now: Whether to describe the examples at once. Otherwise each is described when it is first needed.
        """
        if now:
            return memory.added(inputs, labels, names)
        return memory.restored(inputs, labels, names, [{} for _ in labels])

    def queries(self, inputs: Tensor) -> Tensor:
        """What the memory answers."""
        return inputs

    @torch.no_grad()
    def embedded(self, inputs: Tensor) -> Tensor:
        """The learner's keys: (n, *input) -> (n, d)."""
        learner = self.learner
        parts = as_input(inputs, next(learner.parameters()).dtype).split(QUERIES_PER_CALL)
        device = next(learner.parameters()).device
        keys = [learner.embed(part.to(device)) for part in parts]
        if any(key is None for key in keys):
            raise ValueError(f"{type(learner).__name__} has no keys: use head=None")
        return torch.cat([key.cpu() for key in keys if key is not None])


class KeySource(LearnerSource):
    """A learner's keys with a head of csn on top. Any number of classes is answered without a tournament."""

    kind = "keys"

    def __init__(self, learner: FewShotLearner[Any], spec: InputSpec | None, head: Head) -> None:
        super().__init__(learner, spec)
        if learner.embedding_network is None:
            raise ValueError(f"{type(learner).__name__} has no key function for a head to read: leave head out")
        self.head = head

    def empty(self) -> Memory:
        """An empty memory."""
        return KeyMemory(self.head, embed=self.embedded)

    def adopted(self, memory: Any) -> Memory:
        """An unpickled memory, connected to this learner again."""
        inputs, empty = torch.from_numpy(memory.inputs), KeyMemory(self.head, embed=self.embedded)
        return empty.added(list(torch.from_numpy(memory.keys)), memory.labels, memory.names, list(inputs))

    def extended(
        self, memory: Any, inputs: Tensor, labels: Sequence[Hashable], names: Sequence[str | None], *, now: bool = True
    ) -> Memory:
        """A memory with more examples. Each key is computed alone because a batch may differ in the last bit."""
        keys = [self.embedded(x[None])[0] if now else None for x in inputs]
        return memory.added(keys, labels, names, list(inputs))

    def queries(self, inputs: Tensor) -> Tensor:
        """The keys of the queries."""
        return self.embedded(inputs)


class EncoderSource:
    """An encoder (or None if X holds vectors) and a head on its vectors. The inputs themselves are not kept."""

    learner = None
    spec = None

    def __init__(self, encoder: Encoder | None, head: Head, batch_size: int, cache: bool, progress: Progress | None):
        self.encoder, self.head = encoder, head
        self.batch_size, self.cache, self.progress = batch_size, cache, progress
        self.kind = "vectors" if encoder is None else encoder.kind
        self.fingerprint = "vectors" if encoder is None else encoder.fingerprint
        self.size: int | None = None if encoder is None else getattr(encoder.call, "size", None)

    def prepared(self, X: Any, check: Checks) -> Prepared:
        """The embeddings of X."""
        if self.encoder is None:
            X = np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "shape") else X
            refuse_texts(X)
            if not hasattr(X, "columns") and len(np.shape(X)) > 2 and np.shape(X)[-1] != 0:
                raise ValueError(
                    f"Expected 2D array (Found array with dim {len(np.shape(X))}): vectors are (n, d), got "
                    f'{tuple(np.shape(X))}. Use encoder="photos" or "drawings" for pictures'
                )
            table = check(X)
            made = torch.from_numpy(np.array(table, dtype=np.float32 if table.dtype == np.float32 else np.float64))
            if not bool(torch.isfinite(made.norm(dim=-1)).all()):
                raise ValueError("X holds vectors whose length is too large for their precision: scale them down")
        else:
            items = {"text": texts, "photos": photographs, "any": as_list}[self.encoder.kind](X)
            if not items:
                raise ValueError("no examples: expected at least one input, got an empty list")
            made = self.encoder(items, self.batch_size, self.cache, self.progress)
        return Prepared(made, np.zeros(len(made), dtype=bool))

    def empty(self) -> Memory:
        """An empty memory."""
        return KeyMemory(self.head)

    def adopted(self, memory: Any) -> Memory:
        """An unpickled memory, connected to this head again."""
        return KeyMemory(self.head, list(torch.from_numpy(memory.keys)), memory.labels, memory.names)

    def extended(
        self, memory: Any, inputs: Tensor, labels: Sequence[Hashable], names: Sequence[str | None], *, now: bool = True
    ) -> Memory:
        """A memory with more examples."""
        if len(memory) and inputs.shape[1] != memory.keys.shape[1]:
            raise ValueError(f"the encoder gives {inputs.shape[1]} numbers, earlier ones had {memory.keys.shape[1]}")
        like = memory.keys if len(memory) else inputs
        return memory.added(list(inputs.to(like.dtype)), labels, names)

    def queries(self, inputs: Tensor) -> Tensor:
        """What the memory answers."""
        return inputs

    def embedded(self, inputs: Tensor) -> Tensor:
        """The embeddings, unchanged."""
        return inputs


Source = LearnerSource | EncoderSource
