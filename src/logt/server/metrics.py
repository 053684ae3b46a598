"""Counts and times of requests, written as Prometheus reads them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends of the bins of the latency histogram, in seconds."""


class Meters:
    """How many requests each route had, how they ended and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._bins: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[method, route, status] += 1
            self._bins.setdefault(route, [0] * (len(BOUNDS) + 1))[bisect_left(BOUNDS, seconds)] += 1
            self._seconds[route] += seconds

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """All meters, and gauges given as name -> (help, value)."""
        lines = []
        for name, (about, value) in gauges.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value:.17g}"]
        with self._lock:
            lines += ["# HELP logt_requests_total Requests answered.", "# TYPE logt_requests_total counter"]
            for (method, route, status), number in sorted(self._requests.items()):
                labels = f'method="{_escaped(method)}",route="{_escaped(route)}",status="{status}"'
                lines.append(f"logt_requests_total{{{labels}}} {number}")
            lines += ["# HELP logt_request_seconds Time to answer.", "# TYPE logt_request_seconds histogram"]
            for route, bins in sorted(self._bins.items()):
                lines += self._histogram(route, bins)
        return "\n".join(lines) + "\n"

    def _histogram(self, route: str, bins: list[int]) -> list[str]:
        label, total, lines = f'route="{_escaped(route)}"', 0, []
        for bound, number in zip((*BOUNDS, float("inf")), bins, strict=True):
            total += number
            end = "+Inf" if bound == float("inf") else f"{bound:g}"
            lines.append(f'logt_request_seconds_bucket{{{label},le="{end}"}} {total}')
        lines.append(f"logt_request_seconds_sum{{{label}}} {self._seconds[route]:.6f}")
        return [*lines, f"logt_request_seconds_count{{{label}}} {total}"]


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
