"""FewShotClassifier: csn with scikit-learn's interface. Learning adds examples, forgetting deletes them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data
from torch import Tensor

from csn.allocator import keep_freed_memory
from csn.classifier import saved
from csn.classifier.answering import (
    answered,
    as_columns,
    explanations,
    in_order,
    left,
    probabilities,
    warn_of_photographs,
)
from csn.classifier.encoders.encoder import Progress
from csn.classifier.explanation import Explanation
from csn.classifier.inputs import Prepared
from csn.classifier.labels import as_labels, names_for
from csn.classifier.opening import embeds, open_source
from csn.classifier.remembered import Remembered
from csn.classifier.sources import Memory
from csn.classifier.sources import Source as Opened
from csn.classifier.state import Remembering
from csn.classifier.taskfile import read_task, write_task
from csn.classifier.unknown import threshold_of
from csn.data.source import as_input
from csn.learner import FewShotLearner

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FewShotClassifier(ClassifierMixin, Remembering):
    """Learns classes from a few examples each, with no training.

    Any number of threads may read while others learn or forget: each answer comes from one state of the memory.
    `fit` sets `classes_`, `labels_` (one label per remembered example) and, if X was a table, `n_features_in_`.

    Args:
        model: Name of the packaged weights for drawings.
        encoder: "drawings" (these weights), "text" (sentences), "photos", your own encoder (a callable, a torch module,
            an `Encoder`, or an object with `.encode` or `.transform`), or None if X already holds vectors.
        run: Folder of a trained run to use instead of an encoder. Its learner answers by itself.
        learner: A learner to use instead of an encoder. It is copied and answers by itself.
        head: What answers from the encoder's vectors: "csn", "centroid" or "logistic". None means "csn" with an
            encoder, and "learner" (the learner's own layers) with a run or learner.
        unknown_threshold: `predict` answers None for an input whose `similarity` is below this threshold. A number,
            "own" (found on the task's own examples), "calibrated" (shipped with the encoder), or None to answer always.
        cache: Whether to keep embeddings and look them up by the content of an input.
        batch_size: Number of inputs per call of the encoder.
        progress: Called with the number of inputs encoded so far and the total number.
        device: Device of the learner or encoder.
    """

    def __init__(
        self,
        model: str = "characters",
        *,
        encoder: Any = "drawings",
        run: str | os.PathLike[str] | None = None,
        learner: FewShotLearner[Any] | None = None,
        head: Literal["csn", "centroid", "logistic", "learner"] | None = None,
        unknown_threshold: float | Literal["own", "calibrated"] | None = None,
        cache: bool = True,
        batch_size: int = 64,
        progress: Progress | None = None,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.encoder = encoder
        self.run = run
        self.learner = learner
        self.head = head
        self.unknown_threshold = unknown_threshold
        self.cache = cache
        self.batch_size = batch_size
        self.progress = progress
        self.device = device

    def fit(self, X: Any, y: Any, names: Any = None) -> FewShotClassifier:
        """Forget everything, then learn these examples.

        Args:
            X: The examples.
            y: One label per example.
            names: One name per example, which `explain` shows. By default, files are named by their paths.
        """
        keep_freed_memory()
        source = open_source(self)
        memory = self._extended(source, source.empty(), X, y, names, reset=True)
        self._remember(source, memory)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, names: Any = None) -> FewShotClassifier:
        """Learn more examples of old or new classes. The result equals one `fit` on all examples in this order.

        Args:
            X: The examples.
            y: One label per example.
            classes: Ignored. Other classifiers of scikit-learn must know all classes in advance.
            names: One name per example, as in `fit`.
        """
        if not hasattr(self, "memory_"):
            return self.fit(X, y, names)
        source = self._opened
        self._changed(lambda memory: self._extended(source, memory, X, y, names))
        return self

    def forget(self, label: Hashable = None, *, indices: int | Iterable[int] | None = None) -> FewShotClassifier:
        """Forget a class, or the remembered examples at some indices of `labels_`. Give one of the two.

        Afterwards, predictions equal those of a classifier that never saw these examples, bit for bit. The other
        examples keep their order, and their indices move up.
        """
        if (label is None) == (indices is None):
            self._memory(empty=True)
            raise ValueError("forget takes either a label or indices=, got " + ("both" if indices else "neither"))
        chosen = None if indices is None else [indices] if isinstance(indices, int) else list(indices)
        self._memory(empty=True)
        self._changed(lambda memory: memory.kept(left(memory, label, chosen)))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(m,) labels. With an `unknown_threshold`, an object array that holds None for each unknown input."""
        memory, prepared = self._queries(X)
        return answered(memory, prepared, self._opened.queries(prepared.inputs), threshold_of(self, memory))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(m, classes) probabilities in the order of `classes_`. They ignore `unknown_threshold`."""
        memory, prepared = self._queries(X)
        return probabilities(memory, self._opened.queries(prepared.inputs))

    def decision_function(self, X: Any) -> np.ndarray:
        """(m, classes) log probabilities in the order of `classes_`. With two classes, (m,) log odds of the second."""
        memory, prepared = self._queries(X)
        logs = in_order(memory, memory.log_probabilities(self._opened.queries(prepared.inputs)).numpy())
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy. The answer None counts as wrong."""
        answers = self.predict(X)
        right = [answer == label for answer, label in zip(answers.tolist(), as_labels(y, len(answers)), strict=True)]
        return float(np.average(right, weights=sample_weight))

    def threshold(self) -> float | None:
        """`unknown_threshold` as a number, or None if every input is answered."""
        return threshold_of(self, getattr(self, "memory_", None))

    def similarity(self, X: Any) -> np.ndarray:
        """(m,) how well each input fits its best class. `unknown_threshold` applies to it.

        The cosine to the mean key of that class plus a share of the head's shift, less a share of the mean over the
        other classes. For a learner that answers by itself, it comes from its keys in the same way.
        """
        memory, prepared = self._queries(X)
        return memory.similarity(self._opened.queries(prepared.inputs)).numpy()

    def explain(self, X: Any, *, sources: bool = True) -> list[Explanation]:
        """For each input: the answer, and the remembered examples with their influence on it.

        A learner that answers by itself reports attention (eq. 3), taken from the last match of a tournament. Logistic
        regression reports no examples.

        Args:
            X: The inputs.
            sources: Whether to report the examples. Without them, the answer takes less time.
        """
        memory, prepared = self._queries(X)
        queries = self._opened.queries(prepared.inputs)
        return explanations(memory, prepared, queries, threshold_of(self, memory), sources=sources)

    def explain_figure(self, X: Any, *, title: str = "") -> Figure:
        """A picture of `explain` for drawings: one row per input, with the examples that decided the answer."""
        from csn.plots.episodes import explanation_figure

        prepared = self._queries(X)[1].inputs
        rows = [
            (
                "unknown" if found.label is None else str(found.label),
                max(found.probabilities.values()),
                [(source.index, str(source.label), source.weight) for source in found.sources],
            )
            for found in self.explain(X)
        ]
        return explanation_figure(as_input(prepared), as_input(self.inputs_), rows, title=title)

    def answers(self, X: Any, frame: Literal["pandas", "polars"] = "pandas") -> Any:
        """A data frame with one row per input: its label, and the example with the most influence."""
        if frame not in ("pandas", "polars"):
            raise ValueError(f"frame is 'pandas' or 'polars', got {frame!r}")
        memory, prepared = self._queries(X)
        queries = self._opened.queries(prepared.inputs)
        columns = as_columns(memory, prepared, queries, threshold_of(self, memory))
        return importlib.import_module(frame).DataFrame(columns)

    def kneighbors(
        self, X: Any, n_neighbors: int = 5, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """(m, n_neighbors) cosine distances to the nearest remembered examples, and their indices in `labels_`."""
        memory, prepared = self._queries(X)
        if isinstance(memory, Remembered):
            raise ValueError('a learner that answers by itself has no neighbours: use head="csn"')
        cosines, indices = memory.nearest(self._opened.queries(prepared.inputs), n_neighbors)
        return (1 - cosines, indices) if return_distance else indices

    @available_if(embeds)  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> np.ndarray:
        """(m, d) the embeddings of X."""
        _, prepared = self._queries(X, empty=True)
        return self._opened.embedded(prepared.inputs).numpy()

    @available_if(embeds)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any) -> np.ndarray:
        """Learn the examples, then return their embeddings."""
        return self.fit(X, y).transform(X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is remembered to one small file (docs/task_format.md). It holds no weights."""
        write_task(Path(path), saved.task_of(self, self._memory(), self._opened))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        run: str | os.PathLike[str] | None = None,
        learner: FewShotLearner[Any] | None = None,
        encoder: Any = "drawings",
        device: str = "cpu",
    ) -> FewShotClassifier:
        """A saved classifier. If it was made with your own run, learner or encoder, give the same one again."""
        task = read_task(Path(path))
        loaded = cls(**saved.parameters(path, task, run, learner, encoder), device=device)
        source = open_source(loaded)
        if saved.is_older(source, task) and isinstance(loaded.unknown_threshold, float | int):
            loaded.unknown_threshold = "calibrated"  # the saved number was chosen for the keys of the older weights
        loaded._remember_saved(source, saved.memory_of(path, source, task))
        return loaded

    def blank(self) -> FewShotClassifier:
        """A classifier that remembers nothing yet and shares this one's model. The model is opened only once."""
        if not hasattr(self, "_source"):
            self._source = open_source(self)
        other = type(self)(**self.get_params(deep=False))
        other._source, other.memory_ = self._source, self._source.empty()
        return other

    def recall(
        self, inputs: Tensor, labels: Iterable[Hashable], names: Iterable[str | None] | None = None
    ) -> FewShotClassifier:
        """Add examples in the form of `inputs_`, without preparing them. Each is described when it is first needed.

        Args:
            inputs: (n, *input) as in `inputs_`. With an encoder, its vectors (n, d).
            labels: One label per example.
            names: One name per example, or None.
        """
        new_labels, source = list(labels), self._opened
        called = [None] * len(new_labels) if names is None else list(names)
        self._changed(lambda memory: source.extended(memory, inputs, new_labels, called, now=False))
        return self

    def restore(self, path: str | os.PathLike[str]) -> FewShotClassifier:
        """Replace the memory with that of a task file, which was made with this classifier's model."""
        source = self._opened
        self._remember_saved(source, saved.memory_of(path, source, read_task(Path(path))))
        return self

    def _extended(self, source: Opened, memory: Memory, X: Any, y: Any, names: Any, *, reset: bool = False) -> Memory:
        """A memory with more examples. If they cannot be learned, nothing changes."""
        prepared = self._prepared(source, X, reset=reset)
        labels = as_labels(y, len(prepared.inputs))
        if prepared.foreign.any():
            warn_of_photographs(int(prepared.foreign.sum()), len(labels), "learned anyway")
        return source.extended(memory, prepared.inputs, labels, names_for(names, X, len(labels)))

    def _prepared(self, source: Opened, X: Any, *, reset: bool = False) -> Prepared:
        return source.prepared(X, lambda table: validate_data(self, table, reset=reset, dtype="numeric"))

    def _queries(self, X: Any, *, empty: bool = False) -> tuple[Memory, Prepared]:
        """One state of the memory, and the prepared queries."""
        memory = self._memory(empty=empty)
        prepared = self._prepared(self._opened, X)
        if prepared.foreign.any() and self.unknown_threshold is None:
            warn_of_photographs(int(prepared.foreign.sum()), len(prepared.foreign), "answered anyway")
        return memory, prepared
