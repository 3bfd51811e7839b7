"""A collector of OpenTelemetry that remembers the metrics it is sent, by OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint

Series = tuple[str, frozenset[tuple[str, str]]]
"""A metric with its labels."""


@dataclass
class Collector:
    """`exports` are all requests that came, the oldest first; `status` is what they are answered with."""

    url: str
    status: int = 200
    exports: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def metrics(self, number: int = -1) -> dict[str, Metric]:
        """The metrics of one export, by name."""
        scopes = [scope for resource in self.exports[number].resource_metrics for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def values(self, number: int = -1) -> dict[Series, float]:
        """The numbers of one export."""
        return {
            (name, frozenset((label.key, label.value.string_value) for label in point.attributes)): point.as_double
            for name, metric in self.metrics(number).items()
            for point in points(metric)
        }

    def resource(self) -> dict[str, str]:
        """The attributes of whoever sent the newest export."""
        (resource,) = self.exports[-1].resource_metrics
        return {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}


def points(metric: Metric) -> list[NumberDataPoint]:
    """The numbers of a gauge or a sum."""
    return list(metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points)


def only_grows(metric: Metric) -> bool:
    """True if the metric is a monotonic sum since a start, which is a counter."""
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    return metric.HasField("sum") and metric.sum.is_monotonic and metric.sum.aggregation_temporality == cumulative


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port, in threads of this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/metrics" and collector.status == 200:
                collector.exports.append(ExportMetricsServiceRequest.FromString(body))
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Silence."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{listening.server_address[1]}")
    threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield collector
    finally:
        listening.shutdown()
        listening.server_close()
