"""Metrics by OTLP: what a collector decodes are the numbers that Prometheus scrapes, and totals never fall."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from streaming import Lake
from streaming.base.release import RELEASE
from streaming.service.lease import take_lease
from streaming.service.metrics import INSTRUMENTS, StreamCollector
from streaming.service.otlp import OtlpMetrics, _Measured
from streaming.service.overview import look
from streaming.service.status import PROCESS, SUPERVISOR, ControlFolder, SupervisorStatus
from tests.streaming.service.test_metrics import RUNNING
from tests.support.collector import Collector, Series, collecting, only_grows
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline
from tests.support.waiting import until


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """One to which this process sends ten times a second."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        yield collector


def write(lake: Lake, rejected: int = 4) -> None:
    """A stream that runs, as its processes tell of it."""
    control = ControlFolder(lake, pipeline)
    assert RUNNING.process is not None
    supervisor = SupervisorStatus(
        state="running", since=at(0), supervisor=1, host=socket.gethostname(), process=1, restarts=2
    )
    control.write(SUPERVISOR, supervisor)
    control.write(PROCESS, RUNNING.process.model_copy(update={"rejected": rejected}))


def scraped(lake: Lake) -> dict[Series, float]:
    """What Prometheus would get at the same instant."""
    registry = CollectorRegistry()
    registry.register(StreamCollector(lambda: [look(lake, pipeline)], lambda: at(70)))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_collector_gets_the_names_labels_and_numbers_that_prometheus_scrapes(
    lake: Lake, collector: Collector
) -> None:
    write(lake)
    sending = OtlpMetrics(lake, pipeline, lambda: at(70))
    with take_lease(lake, pipeline, "stream"):
        sending.begin()
        # The first export may come before the last of the instruments is made.
        until(lambda: bool(collector.exports) and collector.values() == scraped(lake), "all of them sent")
        assert len(collector.values()) > 30
        sending.close()
    for name, metric in collector.metrics().items():
        assert only_grows(metric) == name.endswith("_total"), name
        assert (metric.unit, metric.description) == (INSTRUMENTS[name].unit, INSTRUMENTS[name].meaning)
    told = collector.resource()
    assert (told["service.name"], told["service.version"]) == ("tidemark", RELEASE)
    assert told["service.instance.id"] == f"{socket.gethostname()}:beats"


def test_a_total_goes_on_where_a_new_process_counts_from_nothing(lake: Lake, collector: Collector) -> None:
    rejected = ("tidemark_stream_rejected_rows_total", frozenset({("pipeline", "beats")}))

    def newest() -> float | None:
        return collector.values().get(rejected) if collector.exports else None

    sending = OtlpMetrics(lake, pipeline, lambda: at(70))
    with take_lease(lake, pipeline, "stream"):
        write(lake, rejected=4)
        sending.begin()
        until(lambda: newest() == 4, "told of the first process")
        write(lake, rejected=1)
        until(lambda: newest() == 5, "added")
        write(lake, rejected=3)
        until(lambda: newest() == 7, "counted on")
        sending.close()
    values = [collector.values(number)[rejected] for number in range(len(collector.exports))]
    assert values == sorted(values)


def test_rows_of_a_process_are_added_though_the_next_one_has_overtaken_it_before_an_export() -> None:
    assert RUNNING.process is not None
    (receiver,) = RUNNING.receivers
    restarted = RUNNING.process.model_copy(update={"started": at(30), "rejected": 5})
    received_anew = receiver.model_copy(update={"pid": 3, "rows": 14})
    looks = [
        RUNNING,
        replace(RUNNING, process=None),
        replace(RUNNING, process=restarted, restarts=3),
        replace(RUNNING, process=restarted, restarts=3, receivers=(received_anew,)),
    ]
    measured = _Measured(lambda: looks.pop(0), lambda: at(70))
    told = []
    while looks:
        measured.look_again()
        names = ("stream_rejected_rows", "receiver_rows", "stream_restarts")
        told.append([value for name in names for _, value in measured.of(f"tidemark_{name}_total")])
    assert told == [[4, 12, 2], [12, 2], [9, 12, 3], [9, 26, 3]]


def test_the_last_export_is_of_the_state_at_the_end(
    lake: Lake, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    up = ("tidemark_stream_up", frozenset({("pipeline", "beats")}))
    sending = OtlpMetrics(lake, pipeline)
    with take_lease(lake, pipeline, "stream"):
        write(lake)
        sending.begin()
        sending._provider.force_flush()
        assert collector.values()[up] == 1
        ControlFolder(lake, pipeline).remove(SUPERVISOR)
        sending.close()
    assert collector.values()[up] == 0


def test_the_environment_says_how_the_service_is_called(
    lake: Lake, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "acme-streams")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    sending = OtlpMetrics(lake, pipeline)
    sending.begin()
    until(lambda: collector.exports, "sent")
    sending.close()
    assert collector.resource()["service.name"] == "acme-streams"
    assert collector.resource()["deployment.environment"] == "test"


def test_a_collector_that_is_away_holds_up_no_end(lake: Lake, collector: Collector) -> None:
    collector.status = 503
    sending = OtlpMetrics(lake, pipeline)
    sending.begin()
    ended = threading.Thread(target=sending.close, daemon=True)
    ended.start()
    ended.join(20)
    assert not ended.is_alive() and collector.exports == []


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("OTEL_SDK_DISABLED", "true", ""),
        ("OTEL_METRICS_EXPORTER", "none", ""),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "", ""),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "the protocol is 'grpc', and only 'http/protobuf' is spoken"),
    ],
)
def test_nothing_is_sent_where_the_environment_does_not_ask_for_it(
    variable: str,
    value: str,
    says: str,
    lake: Lake,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(variable, value)
    sending = OtlpMetrics(lake, pipeline)
    sending.begin()
    assert sending._provider is None
    assert says in caplog.text and bool(says) == bool(caplog.text)


def test_a_missing_package_is_named_and_ends_nothing(
    lake: Lake, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streaming.base.extras._is_there", lambda package: package != "opentelemetry.sdk")
    sending = OtlpMetrics(lake, pipeline)
    sending.begin()
    sending.close()
    assert "pip install 'tidemark-lakehouse[otel]'" in caplog.text
