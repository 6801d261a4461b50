"""Requests that follow the API's own description, and ones that do not.

    python tests/service/api_attack.py --cases 10000 [--minutes 60]

Every answer must be one that the description knows, and none a failure of the server but a 503 that says it is busy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from kit import UNHURRIED, circle, client, cross, new_task
from schemathesis.checks import CHECKS
from schemathesis.transport.serialization import serialize_binary

WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
DELIBERATE = ("busy", "too_slow")


@schemathesis.serializer("application/x-csn-task")
def _as_it_is(context: Any, value: Any) -> bytes:
    """A body of a type that schemathesis does not know."""
    return serialize_binary(value)


def attack(folder: Path, cases: int, number: int, minutes: float = math.inf) -> Counter[str]:
    """At least so many cases if the time allows, shared by all operations; how often each status was the answer."""
    statuses: Counter[str] = Counter()
    until = time.monotonic() + 60 * minutes
    with client(folder, limits=UNHURRIED) as http:
        schema = schemathesis.openapi.from_url(f"{http.base_url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        each = min(100, -(-cases // (2 * len(operations))))
        while statuses.total() < cases and time.monotonic() < until:  # some operations have few different cases
            for operation in operations:
                if time.monotonic() > until:
                    break
                for mode in schemathesis.GenerationMode:
                    task = new_task(http, o=circle(), x=cross())  # one that this operation may change
                    with contextlib.suppress(Unsatisfiable):  # nothing about it can be wrong
                        _attack_one(operation, mode, each, number, task.rpartition("/")[2], statuses)
                    http.delete(task)
            for made in http.get("/api/tasks").json():
                http.delete(f"/api/tasks/{made['id']}")
            number += 1
    return statuses


def _attack_one(operation: Any, mode: Any, cases: int, number: int, task: str, statuses: Counter[str]) -> None:
    checks = CHECKS.get_by_names(WANTED)

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def one(case: Any, known: bool) -> None:
        if known and "task" in (case.path_parameters or {}):
            case.path_parameters["task"] = task  # a made-up one is never there
        answer = case.call(timeout=60)
        statuses[str(answer.status_code)] += 1
        if answer.status_code == 503 and answer.json()["error"]["code"] in DELIBERATE:
            return
        case.validate_response(answer, checks=checks)

    one()


def main() -> None:
    """The whole attack, printed and kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further operation is attacked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given_arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        statuses = attack(Path(folder), given_arguments.cases, given_arguments.seed, given_arguments.minutes)
    minutes = round((time.monotonic() - started) / 60, 1)
    found = {"cases": statuses.total(), "minutes": minutes, "statuses": dict(sorted(statuses.items()))}
    print(json.dumps(found))
    if given_arguments.out:
        given_arguments.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
