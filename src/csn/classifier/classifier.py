"""FewShotClassifier: scikit-learn's face of a learner. Learning is describing examples, forgetting is deleting rows."""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError('FewShotClassifier needs scikit-learn 1.6 or later: pip install "csn[sklearn]"') from error

from csn.allocator import keep_freed_memory
from csn.classifier.explanation import Explanation, Source
from csn.classifier.inputs import as_input, is_table, prepare
from csn.classifier.labels import as_labels, class_array
from csn.classifier.pretrained import INK, fingerprint, open_folder, open_shipped, own, shipped_threshold
from csn.classifier.remembered import Remembered
from csn.classifier.taskfile import TaskFile, read_task, readable, same_form, write_task
from csn.learner import FewShotLearner, InputSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FewShotClassifier(ClassifierMixin, BaseEstimator):
    """Learns classes from a few examples each, one forward pass per example, with no training.

    model: weights that come with the package. run: instead, the folder of a trained run. learner: instead, any learner
    (it is copied). unknown_threshold: `predict` answers None for an input whose best `similarity` to what is
    remembered is lower: a number (`calibrate_unknown` finds one), or "calibrated" for the one that came with the
    package's weights. device: where the learner runs.

    X may be arrays, tensors, pictures or file paths (see `csn.classifier.inputs`), labels anything hashable. With more
    classes than the learner has outputs they hold a tournament (see remembered.py). After `fit`: `classes_`,
    `labels_` (of every remembered example), `learner_`, and `n_features_in_` where X was two-dimensional.
    """

    def __init__(
        self,
        model: str = "characters",
        *,
        run: str | os.PathLike[str] | None = None,
        learner: FewShotLearner[Any] | None = None,
        unknown_threshold: float | Literal["calibrated"] | None = None,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.run = run
        self.learner = learner
        self.unknown_threshold = unknown_threshold
        self.device = device

    def fit(self, X: Any, y: Any) -> FewShotClassifier:
        """Forget everything, then learn these examples."""
        keep_freed_memory()
        learner, spec = self._open()
        prepared, spec = self._prepared(X, spec, learner, reset=True)
        labels = as_labels(y, len(prepared))
        remembered = Remembered(learner)
        remembered.add(prepared, labels)
        self.learner_, self.input_, self.remembered_ = learner, spec, remembered
        self._set_classes()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> FewShotClassifier:
        """Learn more examples, of old or new classes; the same as having had them all in `fit`, in this order.

        classes: accepted and not needed, scikit-learn's other classifiers must know them in advance.
        """
        if not hasattr(self, "remembered_"):
            return self.fit(X, y)
        prepared, _ = self._prepared(X, self.input_, self.learner_)
        self.remembered_.add(prepared, as_labels(y, len(prepared)))
        self._set_classes()
        return self

    def forget(self, label: Hashable = None, *, indices: int | Iterable[int] | None = None) -> FewShotClassifier:
        """Forget a class, or the remembered examples at some indices (of `labels_`); give one of the two.

        Afterwards predictions are, to the bit, those of a classifier that never saw them. The other examples keep their
        order, and their indices close up.
        """
        remembered = self._remembered(empty=True)
        if (label is None) == (indices is None):
            raise ValueError("forget takes either a label or indices=, got " + ("both" if indices else "neither"))
        if indices is None:
            gone = {i for i, other in enumerate(remembered.labels) if other == label}
            if not gone:
                raise ValueError(f"no remembered example has the label {readable(label)}: see classes_")
        else:
            chosen = np.atleast_1d(np.asarray(indices if isinstance(indices, int) else list(indices)))
            if chosen.size and (
                chosen.dtype.kind not in "iu" or int(chosen.min()) < 0 or int(chosen.max()) >= len(remembered)
            ):
                raise ValueError(f"indices must be whole numbers in [0, {len(remembered)}), got {chosen.tolist()}")
            gone = {int(i) for i in chosen}
        remembered.keep(i for i in range(len(remembered)) if i not in gone)
        self._set_classes()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(m,) labels; with an `unknown_threshold`, an object array with None for what is like nothing remembered."""
        prepared = self._queries(X)
        labels = self.classes_[self._probabilities(prepared).argmax(1)]
        if (threshold := self.threshold()) is None:
            return labels
        known = self.remembered_.similarity(prepared).cpu().numpy() >= threshold
        answers = np.full(len(labels), None, dtype=object)
        answers[known] = labels[known]
        return answers

    def predict_proba(self, X: Any) -> np.ndarray:
        """(m, classes) probabilities in the order of `classes_`; they do not know of unknown inputs."""
        return self._probabilities(self._queries(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers; None is a wrong one."""
        answers = self.predict(X)
        right = [answer == label for answer, label in zip(answers.tolist(), as_labels(y, len(answers)), strict=True)]
        return float(np.average(right, weights=sample_weight))

    def threshold(self) -> float | None:
        """`unknown_threshold` as a number; None to answer always."""
        if isinstance(self.unknown_threshold, str):
            if self.unknown_threshold != "calibrated" or self.run is not None or self.learner is not None:
                raise ValueError(
                    f"unknown_threshold is a number, or 'calibrated' with weights of the package, got "
                    f"{self.unknown_threshold!r}: find one with csn.classifier.thresholds.calibrate_unknown"
                )
            return shipped_threshold(self.model)
        return self.unknown_threshold

    def similarity(self, X: Any) -> np.ndarray:
        """(m,) the best cosine between the key of each input and a remembered key: what `unknown_threshold` cuts."""
        return self.remembered_.similarity(self._queries(X)).cpu().numpy()

    def explain(self, X: Any) -> list[Explanation]:
        """Of each input: the answer and the remembered examples it came from, with their attention (eq. 3).

        With more classes than outputs, the examples of the last match.
        """
        prepared = self._queries(X)
        attention, similarity = self.remembered_.attention(prepared), self.remembered_.similarity(prepared).tolist()
        found, threshold = [], self.threshold()
        for row, weights, cosine in zip(self._probabilities(prepared), attention, similarity, strict=True):
            known = threshold is None or cosine >= threshold
            names = self.classes_.tolist()
            sources = [Source(i, self.remembered_.labels[i], weight) for i, weight in weights.items()]
            found.append(
                Explanation(
                    names[int(row.argmax())] if known else None,
                    dict(zip(names, row.tolist(), strict=True)),
                    cosine,
                    tuple(sorted(sources, key=lambda source: -source.weight)),
                )
            )
        return found

    def explain_figure(self, X: Any, *, title: str = "") -> Figure:
        """A picture of `explain`: a row per input, with the remembered examples that it was recognised by."""
        from csn.plots.episodes import explanation_figure

        prepared = self._queries(X)
        rows = [
            (
                "unknown" if found.label is None else str(found.label),
                max(found.probabilities.values()),
                [(source.index, str(source.label), source.weight) for source in found.sources],
            )
            for found in self.explain(X)
        ]
        examples = as_input(torch.stack(self.remembered_.inputs))
        return explanation_figure(as_input(prepared), examples, rows, title=title)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is remembered as one small file (docs/task_format.md); the learner's weights are not in it."""
        remembered = self._remembered()
        about = {
            "model": None if self.run is not None or self.learner is not None else self.model,
            "made_with": "learner" if self.learner is not None else "run" if self.run is not None else "model",
            "fingerprint": fingerprint(self.learner_),
            "way": self.learner_.way,
            "input": list(self.input_.shape),
            "unknown_threshold": self.threshold(),
        }
        inputs = torch.stack(remembered.inputs)
        write_task(Path(path), TaskFile(inputs, list(remembered.labels), remembered.first_rows(), about))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        run: str | os.PathLike[str] | None = None,
        learner: FewShotLearner[Any] | None = None,
        device: str = "cpu",
    ) -> FewShotClassifier:
        """A classifier as it was saved. A task made with a run or learner of your own needs the same one again."""
        task = read_task(Path(path))
        name, threshold = task.about.get("model"), task.about.get("unknown_threshold")
        if name is None and run is None and learner is None:
            raise ValueError(f"{path} was made with a model of your own: give the same run= or learner= again")
        if threshold is not None and not isinstance(threshold, float | int):
            raise ValueError(f"{path} does not hold a whole task: its unknown_threshold is {threshold!r}")
        loaded = cls(
            name if isinstance(name, str) else "characters",
            run=run,
            learner=learner,
            unknown_threshold=threshold,
            device=device,
        )
        loaded._restore(path, *loaded._open(), task)
        return loaded

    def blank(self) -> FewShotClassifier:
        """A classifier that remembers nothing yet and shares this one's model, which is opened once for all of them."""
        if not hasattr(self, "learner_"):
            self.learner_, spec = self._open()
            self.input_ = spec or INK
        other = copy.copy(self)
        other.remembered_ = Remembered(self.learner_)
        other._set_classes()
        return other

    def recall(self, inputs: Tensor, labels: Iterable[Hashable]) -> FewShotClassifier:
        """Add examples in the form of `inputs_`, as they are; each is described when it is first needed."""
        names = list(labels)
        self._remembered(empty=True).restore(inputs, names, [{} for _ in names])
        self._set_classes()
        return self

    def restore(self, path: str | os.PathLike[str]) -> FewShotClassifier:
        """Remember what a task file made with this very (opened) model holds, and nothing else."""
        self._restore(path, self.learner_, self.input_, read_task(Path(path)))
        return self

    def _restore(self, path: Any, learner: FewShotLearner[Any], spec: InputSpec | None, task: TaskFile) -> None:
        """Take over a task if it was made with these weights; its shapes are checked against the model's own."""
        if fingerprint(learner) != task.about.get("fingerprint"):
            raise ValueError(f"{path} was made with other weights than these: give the run or learner it was made with")
        inputs, given = task.inputs, task.about.get("input")
        if not isinstance(given, list) or not all(type(size) is int for size in given):
            raise ValueError(f"{path} does not hold a whole task: its input shape is {given!r}")
        wanted = tuple(given)
        spec = spec or InputSpec(wanted)
        remembered = Remembered(learner)
        kept = torch.uint8 if spec.is_image else torch.int64 if spec.vocabulary is not None else remembered.dtype
        if wanted != spec.shape or inputs.dtype != kept or (spec.vocabulary is None and inputs.shape[1:] != wanted):
            raise ValueError(f"{path} does not fit its model: inputs are {tuple(inputs.shape[1:])} {inputs.dtype}")
        if spec.vocabulary is not None:
            inputs = prepare(inputs, spec)
        rows = [{int(row.labels[0, 0]): row.to(remembered.device)} for row in task.rows]
        remembered.restore(inputs, task.labels, rows or [{} for _ in task.labels])
        slots = [remembered.order.index(label) % learner.way for label in task.labels]
        if task.about.get("way") != learner.way or (rows and [next(iter(row)) for row in rows] != slots):
            raise ValueError(f"{path} does not fit its labels: rows are written for other outputs")
        if rows and not same_form(task.rows[0], remembered._described(inputs[0], 0)[0].to("cpu")):
            raise ValueError(f"{path} does not fit its model: its memory has another form")
        self.learner_, self.input_, self.remembered_ = learner, spec, remembered
        if len(spec.shape) == 1 and spec.vocabulary is None:
            self.n_features_in_ = spec.shape[0]
        self._set_classes()

    @property
    def labels_(self) -> np.ndarray:
        """(n,) the label of every remembered example."""
        labels = self._remembered(empty=True).labels
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array

    @property
    def inputs_(self) -> Tensor:
        """(n, *input) every remembered example as the learner takes it; images are bytes, ink is 255."""
        inputs = self._remembered(empty=True).inputs
        return torch.stack(inputs) if inputs else torch.empty(0, *self.input_.shape, dtype=torch.uint8)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "remembered_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags

    def _open(self) -> tuple[FewShotLearner[Any], InputSpec | None]:
        """The learner on its device, and what it takes (None: to be seen from the examples)."""
        if self.run is not None and self.learner is not None:
            raise ValueError("a classifier has one model: give run= or learner=, not both")
        learner: FewShotLearner[Any]
        spec: InputSpec | None
        if self.learner is not None:
            learner, spec = own(self.learner)
        elif self.run is not None:
            learner, spec = open_folder(Path(self.run))
        else:
            learner, spec = open_shipped(self.model)
        return learner.to(self.device), spec

    def _prepared(
        self, X: Any, spec: InputSpec | None, learner: FewShotLearner[Any], *, reset: bool = False
    ) -> tuple[Tensor, InputSpec]:
        """Examples as the learner takes them, and its specification."""
        if hasattr(X, "__array__") and not hasattr(X, "shape") and not hasattr(X, "getbands"):
            X = np.asarray(X)
        if spec is None:
            spec = InputSpec((np.shape(X)[1],)) if not isinstance(X, Tensor) and is_table(X) else INK
        if spec.vocabulary is None and not isinstance(X, Tensor) and (len(spec.shape) == 1 or is_table(X)):
            X = validate_data(self, X, reset=reset, dtype="numeric")
        dtype = next((parameter.dtype for parameter in learner.parameters()), torch.get_default_dtype())
        return prepare(X, spec, dtype), spec

    def _queries(self, X: Any) -> Tensor:
        self._remembered()
        return self._prepared(X, self.input_, self.learner_)[0]

    def _remembered(self, *, empty: bool = False) -> Remembered:
        """What is remembered, or NotFittedError."""
        check_is_fitted(self)
        if not len(self.remembered_) and not empty:
            raise NotFittedError("every example was forgotten: learn some with fit or partial_fit first")
        return self.remembered_

    def _probabilities(self, prepared: Tensor) -> np.ndarray:
        """(m, classes) in the order of `classes_`."""
        probabilities = self.remembered_.log_probabilities(prepared).exp()
        number = {label: c for c, label in enumerate(self.remembered_.order)}
        return probabilities[:, [number[label] for label in self.classes_.tolist()]].numpy()

    def _set_classes(self) -> None:
        self.classes_ = class_array(self.remembered_.labels)
