"""Counts and times in the Prometheus text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Requests by method, route and status, and their durations. Only the event loop uses it."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[method, route, status] += 1
        counts = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        for i, bound in enumerate((*BUCKETS, float("inf"))):
            counts[i] += seconds <= bound
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, tasks: int, examples: int, busy: int, done: Counter[tuple[str, str]]) -> str:
        """All metrics as text, including the server's numbers of tasks and examples."""
        lines = [
            *_head("csn_tasks", "gauge", "tasks kept"),
            f"csn_tasks {tasks}",
            *_head("csn_examples", "gauge", "examples remembered in all tasks"),
            f"csn_examples {examples}",
            *_head("csn_busy", "gauge", "requests being computed or waiting for a worker"),
            f"csn_busy {busy}",
            *_head("csn_inputs_total", "counter", "drawings, photographs and sentences by what was done with them"),
            *(
                f'csn_inputs_total{{kind="{kind}",outcome="{name}"}} {count}'
                for (kind, name), count in sorted(done.items())
            ),
            *_head("csn_requests_total", "counter", "requests by method, route and status"),
            *(
                f'csn_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
                for (method, route, status), count in sorted(self.requests.items())
            ),
            *_head("csn_request_seconds", "histogram", "time from the first byte to the last"),
        ]
        for route, counts in sorted(self._buckets.items()):
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                lines.append(f'csn_request_seconds_bucket{{route="{route}",le="{bound}"}} {count}')
            lines.append(f'csn_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
            lines.append(f'csn_request_seconds_count{{route="{route}"}} {counts[-1]}')
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> Iterable[str]:
    return (f"# HELP {name} {about}", f"# TYPE {name} {kind}")
