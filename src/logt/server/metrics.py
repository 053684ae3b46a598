"""Metrics of the server, in the Prometheus text format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""


def milliseconds_since(start: float) -> float:
    """Return the time since `start`, a value of `time.perf_counter`."""
    return round(1000 * (time.perf_counter() - start), 3)


ShardMetrics = Callable[[], Iterable[tuple[str, str, list[tuple[str, float]]]]]


class _ShardCollector(Collector):
    def __init__(self, read: ShardMetrics):
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for name, description, values in self._read():
            family = GaugeMetricFamily(name, description, labels=["shard"])
            for shard, value in values:
                family.add_metric([shard], value)
            yield family


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

    def add_by_shard(self, read: ShardMetrics) -> None:
        """Register gauges with a label for the shard; `read` yields their names, descriptions and values."""
        self._registry.register(_ShardCollector(read))

    def render(self) -> bytes:
        return generate_latest(self._registry)
