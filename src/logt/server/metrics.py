"""Metrics of the server, in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""


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
        """Count one request and its latency."""
        self._requests.labels(method, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def add_gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Register a gauge; `read` returns its current value."""
        Gauge(name, description, registry=self._registry).set_function(read)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
