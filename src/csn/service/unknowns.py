"""The threshold between known and unknown drawings: shipped with the model, or found when the server starts."""

from __future__ import annotations

from typing import Literal

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.thresholds import calibrate_on_tasks
from csn.data.images.strokes import load_strokes

CHARACTERS, DRAWINGS, TASKS = 10, 6, 24


def default_threshold(classifier: FewShotClassifier) -> float | Literal["calibrated"] | None:
    """The word "calibrated" for packaged weights. For other models, a threshold that keeps 95 % of known drawings.

    Finding it takes a second when the server starts. It uses held-out alphabets of the embedded generator. The result
    is None for a model without keys.
    """
    if classifier.run is None and classifier.learner is None:
        return "calibrated"
    opened = classifier.blank()
    if not opened.learner_.attends or opened.input_.shape != (1, 28, 28):
        return None
    data = load_strokes(alphabets=5, characters=CHARACTERS, drawings=DRAWINGS)
    return calibrate_on_tasks(opened.learner_, data, tasks=TASKS, device=classifier.device).threshold
