"""FewShotClassifier: scikit-learn's face of csn. Learning is adding examples, forgetting is deleting them."""

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
    After `fit`: `classes_`, `labels_` (of every remembered example), and `n_features_in_` where X was a table.

    Parameters
    ----------
    model:
        Weights for drawings that come with the package.
    encoder:
        "drawings" (these weights), "text" (sentences), "photos", an encoder of one's own (a callable, a torch module,
        anything with `.encode` or `.transform`, an `Encoder`), or None where X are vectors.
    run:
        Instead, the folder of a trained run, which answers by itself.
    learner:
        Instead, any learner (it is copied), which answers by itself.
    head:
        What answers from the encoder's vectors: "csn", "centroid" or "logistic"; by default "csn", of a run or learner
        its own layers ("learner").
    unknown_threshold:
        `predict` answers None for an input whose best `similarity` to what is remembered is lower: a number, "own" for
        one found on the task's own examples, "calibrated" for the one that came with the encoder, or None.
    cache:
        Keep what an encoder has worked out, and look it up by the content of an input.
    batch_size:
        Inputs that an encoder is given at once.
    progress:
        Called with how many inputs are encoded and how many there are.
    device:
        Where the learner or encoder runs.
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
        """Forget everything, then learn these examples; names: what to call them (of files their paths)."""
        keep_freed_memory()
        source = open_source(self)
        memory = self._extended(source, source.empty(), X, y, names, reset=True)
        self._remember(source, memory)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, names: Any = None) -> FewShotClassifier:
        """Learn more examples, of old or new classes; the same as having had them all in `fit`, in this order.

        classes: accepted and not needed, scikit-learn's other classifiers must know them in advance.
        """
        if not hasattr(self, "memory_"):
            return self.fit(X, y, names)
        source = self._opened
        self._changed(lambda memory: self._extended(source, memory, X, y, names))
        return self

    def forget(self, label: Hashable = None, *, indices: int | Iterable[int] | None = None) -> FewShotClassifier:
        """Forget a class, or the remembered examples at some indices (of `labels_`); give one of the two.

        Afterwards predictions are, to the bit, those of a classifier that never saw them. The other examples keep their
        order, and their indices close up.
        """
        if (label is None) == (indices is None):
            self._memory(empty=True)
            raise ValueError("forget takes either a label or indices=, got " + ("both" if indices else "neither"))
        chosen = None if indices is None else [indices] if isinstance(indices, int) else list(indices)
        self._memory(empty=True)
        self._changed(lambda memory: memory.kept(left(memory, label, chosen)))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(m,) labels; with an `unknown_threshold`, an object array with None for what is like nothing remembered."""
        memory, prepared = self._queries(X)
        return answered(memory, prepared, self._opened.queries(prepared.inputs), threshold_of(self, memory))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(m, classes) probabilities in the order of `classes_`; they do not know of unknown inputs."""
        memory, prepared = self._queries(X)
        return probabilities(memory, self._opened.queries(prepared.inputs))

    def decision_function(self, X: Any) -> np.ndarray:
        """(m, classes) log probabilities in the order of `classes_`; of two classes, (m,) log odds of the second."""
        memory, prepared = self._queries(X)
        logs = in_order(memory, memory.log_probabilities(self._opened.queries(prepared.inputs)).numpy())
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers; None is a wrong one."""
        answers = self.predict(X)
        right = [answer == label for answer, label in zip(answers.tolist(), as_labels(y, len(answers)), strict=True)]
        return float(np.average(right, weights=sample_weight))

    def threshold(self) -> float | None:
        """`unknown_threshold` as a number; None to answer always."""
        return threshold_of(self, getattr(self, "memory_", None))

    def similarity(self, X: Any) -> np.ndarray:
        """(m,) the best cosine between each input's key and the mean key of a class: what `unknown_threshold` cuts.

        Of a learner that answers by itself: between the key and a remembered one.
        """
        memory, prepared = self._queries(X)
        return memory.similarity(self._opened.queries(prepared.inputs)).numpy()

    def explain(self, X: Any) -> list[Explanation]:
        """Of each input: the answer and the remembered examples it came from, by how far each pushed it.

        Of a learner that answers by itself: by their attention (eq. 3), in the last match of a tournament. A logistic
        regression does not tell.
        """
        memory, prepared = self._queries(X)
        return explanations(memory, prepared, self._opened.queries(prepared.inputs), threshold_of(self, memory))

    def explain_figure(self, X: Any, *, title: str = "") -> Figure:
        """A picture of `explain`, of drawings: a row per input, with the examples that it was recognised by."""
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
        """A data frame with a row for each input: its label, and the example that spoke most for it."""
        if frame not in ("pandas", "polars"):
            raise ValueError(f"frame is 'pandas' or 'polars', got {frame!r}")
        memory, prepared = self._queries(X)
        queries = self._opened.queries(prepared.inputs)
        columns = as_columns(memory, prepared, queries, threshold_of(self, memory))
        return importlib.import_module(frame).DataFrame(columns)

    def kneighbors(
        self, X: Any, n_neighbors: int = 5, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """(m, n_neighbors) the remembered examples most like each input, as indices of `labels_`, and 1 - cosine."""
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
        """The embeddings of what is learned."""
        return self.fit(X, y).transform(X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is remembered as one small file (docs/task_format.md); no weights are in it."""
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
        """A classifier as it was saved. A task made with a run, learner or encoder of your own needs the same again."""
        task = read_task(Path(path))
        loaded = cls(**saved.parameters(path, task, run, learner, encoder), device=device)
        source = open_source(loaded)
        if saved.is_older(source, task) and isinstance(loaded.unknown_threshold, float | int):
            loaded.unknown_threshold = "calibrated"  # a number was of the keys that are gone
        loaded._remember_saved(source, saved.memory_of(path, source, task))
        return loaded

    def blank(self) -> FewShotClassifier:
        """A classifier that remembers nothing yet and shares this one's model, which is opened once for all of them."""
        if not hasattr(self, "_source"):
            self._source = open_source(self)
        other = type(self)(**self.get_params(deep=False))
        other._source, other.memory_ = self._source, self._source.empty()
        return other

    def recall(
        self, inputs: Tensor, labels: Iterable[Hashable], names: Iterable[str | None] | None = None
    ) -> FewShotClassifier:
        """Add examples in the form of `inputs_`, as they are; each is described when it is first needed.

        Of an encoder, its vectors (n, d).
        """
        new_labels, source = list(labels), self._opened
        called = [None] * len(new_labels) if names is None else list(names)
        self._changed(lambda memory: source.extended(memory, inputs, new_labels, called, now=False))
        return self

    def restore(self, path: str | os.PathLike[str]) -> FewShotClassifier:
        """Remember what a task file made with this very (opened) model holds, and nothing else."""
        source = self._opened
        self._remember_saved(source, saved.memory_of(path, source, read_task(Path(path))))
        return self

    def _extended(self, source: Opened, memory: Memory, X: Any, y: Any, names: Any, *, reset: bool = False) -> Memory:
        """A memory with more examples; nothing is changed if they cannot be learned."""
        prepared = self._prepared(source, X, reset=reset)
        labels = as_labels(y, len(prepared.inputs))
        if prepared.foreign.any():
            warn_of_photographs(int(prepared.foreign.sum()), len(labels), "learned all the same")
        return source.extended(memory, prepared.inputs, labels, names_for(names, X, len(labels)))

    def _prepared(self, source: Opened, X: Any, *, reset: bool = False) -> Prepared:
        return source.prepared(X, lambda table: validate_data(self, table, reset=reset, dtype="numeric"))

    def _queries(self, X: Any, *, empty: bool = False) -> tuple[Memory, Prepared]:
        """One state of the memory, and what is asked of it."""
        memory = self._memory(empty=empty)
        prepared = self._prepared(self._opened, X)
        if prepared.foreign.any() and self.unknown_threshold is None:
            warn_of_photographs(int(prepared.foreign.sum()), len(prepared.foreign), "answered all the same")
        return memory, prepared
