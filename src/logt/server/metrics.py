"""Metrics of the server, in the Prometheus text format."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""


def milliseconds_since(start: float) -> float:
    """Return the time since `start`, a value of `time.perf_counter`."""
    return round(1000 * (time.perf_counter() - start), 3)


class ServerMetrics:
    """Request counts and latencies, and gauges that are read when the metrics are scraped."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "logt_requests_total", "HTTP requests.", ("method", "route", "status"), registry=self._registry
        )
        self._latency = Histogram(
            "logt_request_seconds", "HTTP request latency.", ("route",), registry=self._registry, buckets=BUCKETS
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def add_gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        Gauge(name, description, registry=self._registry).set_function(read)

    def add_collector(self, collector: Collector) -> None:
        self._registry.register(collector)

    def render(self) -> bytes:
        return generate_latest(self._registry)
