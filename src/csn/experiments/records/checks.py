"""Checks of what a result file must contain before it is used. Each problem says what was expected."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any

from csn.core.memory import Attention
from csn.experiments.records.protocol import SOURCES

TRAINED = "trained"
LEARNERS = (TRAINED, "untrained", "nearest neighbour")  # in the order of tables
LARGEST = 1e300  # JSON has larger numbers, and none of them is a result
_NUMBER = (int, float)
# What a result file must say of its tasks and its training, and what it may say.
_NEEDED: dict[str, dict[str, Any]] = {
    "evaluation": {"data": str, "way": int, "shot": int, "tasks": int},
    "trained": {"tasks": int, "seconds": _NUMBER, "seconds_in_all": _NUMBER, "validation": _NUMBER}
    | {"validation_curve": list, "commit": str, "command": str},
    "summary": {TRAINED: dict},
    "accuracies": {TRAINED: list},
    "config": {},
}
_POSSIBLE: dict[str, dict[str, Any]] = {
    "evaluation": {"split": str, "sampling": str, "attention": str, "fingerprint": str, "queries": int, "seed": int},
    "trained": {"run": str, "checkpoint_sha256": str, "perplexity": _NUMBER},
}
_CHOICES = {"sampling": tuple(SOURCES), "attention": typing.get_args(Attention)}


def problem_of_result(content: Mapping[str, Any]) -> str:
    """What is wrong with the contents of a result file, or "" if it can be used."""
    for part, needed in _NEEDED.items():
        if not isinstance(content.get(part, {}), dict):
            return f"has no object of names and values as {part!r}"
        said = content.get(part, {})
        if wrong := [name for name, kind in needed.items() if not _is(said.get(name), kind)]:
            return f"does not say {', '.join(wrong)} in {part!r}"
        possible = _POSSIBLE.get(part, {})
        if wrong := [name for name, kind in possible.items() if name in said and not _is(said[name], kind)]:
            return f"must have {_words(possible[wrong[0]])} as {wrong[0]} in {part!r}"
    for name, choices in _CHOICES.items():
        if content["evaluation"].get(name, choices[0]) not in choices:
            return (
                f"has {content['evaluation'][name]!r} as {name} in 'evaluation', where {' or '.join(choices)} belongs"
            )
    if not isinstance(content.get("command"), str):
        return "does not say the command that made it"
    if not all(_numbers(pair, 2) for pair in content["trained"]["validation_curve"]):
        return "has no pairs of tasks and accuracy in its 'validation_curve'"
    earlier = content["trained"].get("earlier", [])  # the beginnings of a training that was lengthened
    if not isinstance(earlier, list) or not all(isinstance(p, dict) and _is(p.get("commit"), str) for p in earlier):
        return "has no list of commits as 'earlier' in 'trained'"
    return _problem_of_accuracies(content["summary"], content["accuracies"], content["evaluation"]["tasks"])


def _problem_of_accuracies(summary: Mapping[str, Any], accuracies: Mapping[str, Any], tasks: int) -> str:
    if other := sorted({*summary, *accuracies} - set(LEARNERS)):
        return f"is of {', '.join(other)}, where only {', '.join(LEARNERS)} can be"
    if alone := sorted(summary.keys() ^ accuracies.keys()):
        return f"does not have both a summary and accuracies of {', '.join(alone)}"
    for learner, stated in summary.items():
        if not isinstance(stated, dict) or not _numbers([stated.get("accuracy"), stated.get("interval")]):
            return f"does not say accuracy and interval of {learner} in 'summary'"
        if not _numbers(list(stated.values())):
            return f"has a value of {learner} in 'summary' that is not a number"
        if not isinstance(accuracies[learner], list) or not _numbers(accuracies[learner]):
            return f"has no list of numbers as accuracies of {learner}"
        if len(accuracies[learner]) != tasks:
            return f"states {tasks} tasks, but has {len(accuracies[learner])} accuracies of {learner}"
    return ""


def _numbers(values: Any, count: int | None = None) -> bool:
    """Whether these are numbers and, if `count` is given, that many."""
    if not isinstance(values, Sequence) or (count is not None and len(values) != count):
        return False
    return all(_is(value, _NUMBER) for value in values)


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind. A number must be finite, and True and False are not numbers."""
    if isinstance(value, int | float):
        return isinstance(value, kind) and not isinstance(value, bool) and abs(value) < LARGEST
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    return {str: "text", int: "a whole number"}.get(kind, "a number")
