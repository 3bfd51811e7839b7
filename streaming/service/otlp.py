"""Metrics of a running stream by OTLP: the instruments that Prometheus scrapes, sent by whoever supervises it.

OpenTelemetry's own variables say where to: `OTEL_EXPORTER_OTLP_ENDPOINT`, or `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, and
how often: `OTEL_METRIC_EXPORT_INTERVAL`, in milliseconds. Without an endpoint nothing is sent or loaded.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from streaming.base import RELEASE, MissingExtra, needs, utc_now
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.service.metrics import INSTRUMENTS, Instrument, samples
from streaming.service.overview import Overview, look

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"
_SENT_WITHIN = 3.0
_OF_ONE_EXPORT = 0.5

_log = logging.getLogger("tidemark")


class OtlpMetrics:
    """Sends everything that is measured of a pipeline, again and again, in a thread of OpenTelemetry's SDK.

    Nothing waits for it: a collector that is away is told of in the log, by the SDK. It does nothing where no endpoint
    is set, or the SDK is not installed, which is said.
    """

    def __init__(self, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now) -> None:
        self._pipeline = pipeline
        self._measured = _Measured(partial(look, lake, pipeline), now)
        self._provider: Any = None

    def begin(self) -> None:
        """Go on sending until `close`."""
        if not _is_configured():
            return
        try:
            self._provider = _provider(self._pipeline, self._measured)
        # Whatever the SDK has against a variable: metrics must not end what they tell of.
        except Exception as error:
            _log.warning("no metrics are sent by OTLP: %s: %s", type(error).__name__, error)

    def close(self) -> None:
        """Send once more what is measured now, within a few seconds, and nothing any more."""
        if self._provider is not None:
            self._measured.look_again()
            self._provider.shutdown(timeout_millis=_SENT_WITHIN * 1_000)
            self._provider = None


class _Measured:
    """The samples of one look at a pipeline, by metric; all instruments of one export are told of the same look.

    A counter never falls: what it counts since begins anew with each process, and is added to what was there before.
    """

    def __init__(self, look: Callable[[], Overview], now: Callable[[], datetime]) -> None:
        self._look = look
        self._now = now
        self._looked_at = -_OF_ONE_EXPORT
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        self._newest: dict[tuple[str, ...], tuple[float, object]] = {}
        self._before: dict[tuple[str, ...], float] = {}
        self._one_at_a_time = Lock()

    def of(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of a metric as of now."""
        with self._one_at_a_time:
            if monotonic() - self._looked_at >= _OF_ONE_EXPORT:
                self._samples = {}
                overview = self._look()
                for metric, labels, value in samples(overview, self._now()):
                    told = value
                    if INSTRUMENTS[metric].kind == "counter":
                        told = self._grown(metric, labels, value, _counted_by(overview, metric, labels))
                    self._samples.setdefault(metric, []).append((labels, told))
                self._looked_at = monotonic()
            return self._samples.get(name, [])

    def look_again(self) -> None:
        """The next sample is of a look of its own, however short ago the last one was."""
        with self._one_at_a_time:
            self._looked_at = -_OF_ONE_EXPORT

    def _grown(self, name: str, labels: Mapping[str, str], value: float, by: object) -> float:
        key = (name, *labels.values())
        newest, counted_by = self._newest.get(key, (0.0, by))
        if by != counted_by or value < newest:
            self._before[key] = self._before.get(key, 0.0) + newest
        self._newest[key] = value, by
        return self._before.get(key, 0.0) + value


def _counted_by(overview: Overview, name: str, labels: Mapping[str, str]) -> object:
    """The process that has counted a sample: a receiver, by its number, or that of the stream, by its start.

    None stands for the supervisor, which counts restarts, and lives as long as what is told.
    """
    if "receiver" in labels:
        return next(receiver.pid for receiver in overview.receivers if receiver.name == labels["receiver"])
    is_of_supervisor = name == "tidemark_stream_restarts_total"
    return None if is_of_supervisor or overview.process is None else overview.process.started


def _is_configured() -> bool:
    """True where metrics are to go to an endpoint by what is spoken here, and by a package that is installed."""
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = os.environ.get("OTEL_METRICS_EXPORTER", "otlp").split(",")
    if disabled or "otlp" not in exporters or not any(os.environ.get(name) for name in _ENDPOINTS):
        return False
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        _log.warning(
            "no metrics are sent by OTLP: the protocol is %r, and only %r is spoken; set %s to it, and the port of the "
            "collector for that, as a rule 4318, in %s",
            protocol,
            _SPOKEN,
            *(names[0] for names in (_PROTOCOLS, _ENDPOINTS)),
        )
        return False
    try:
        needs("opentelemetry.sdk", "metrics by OTLP, for which an endpoint is set,")
    except MissingExtra as missing:
        # The variables may be meant for other programs of this machine.
        _log.warning("no metrics are sent by OTLP: %s", missing)
        return False
    return True


def _provider(pipeline: Pipeline, measured: _Measured) -> Any:
    """A provider that exports all instruments; what the environment says of the service wins."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    of = {
        "service.name": "tidemark",
        "service.version": RELEASE,
        "service.instance.id": f"{socket.gethostname()}:{pipeline.name}",
    }
    resource = Resource(of).merge(OTELResourceDetector().detect())
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("tidemark", RELEASE)
    for instrument in INSTRUMENTS.values():
        create = meter.create_observable_counter if instrument.kind == "counter" else meter.create_observable_gauge
        create(instrument.name, [partial(_observed, measured, instrument)], instrument.unit, instrument.meaning)
    return provider


def _observed(measured: _Measured, instrument: Instrument, _: CallbackOptions) -> Iterator[Observation]:
    from opentelemetry.metrics import Observation

    for labels, value in measured.of(instrument.name):
        yield Observation(value, labels)
