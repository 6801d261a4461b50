"""The line between known and unknown drawings, for a model that brings none of its own."""

from __future__ import annotations

from csn.classifier import FewShotClassifier
from csn.data.strokes import load_strokes
from csn.unknown import calibrate_unknown

CHARACTERS, DRAWINGS, TASKS = 10, 6, 24


def default_threshold(classifier: FewShotClassifier) -> float | None:
    """A threshold that keeps 95 % of the known drawings of held-out generated characters; None without keys.

    A second of work when the server starts: characters come from the embedded generator's held-out alphabets.
    """
    opened = classifier.blank()
    if not hasattr(opened.learner_, "key_function") or opened.input_.shape != (1, 28, 28):
        return None
    data = load_strokes(alphabets=5, characters=CHARACTERS, drawings=DRAWINGS)
    return calibrate_unknown(opened.learner_, data, tasks=TASKS, device=classifier.device).threshold
