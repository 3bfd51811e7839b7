"""Streams as metrics: names are stable, and a pipeline that does not run says so instead of vanishing.

Each metric is declared once, in `INSTRUMENTS`; Prometheus, OTLP, the boards and `tidemark metrics --json` go by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.service.alerts import evaluate
from streaming.service.overview import Overview
from streaming.service.query_errors import ingest_query
from streaming.sources import backlog_numbers


@dataclass(frozen=True)
class Instrument:
    """A metric: its meaning, the names of its labels, and its unit as UCUM has it (`s`, `By`), empty for a number.

    A `counter` only grows, until what it counts since begins anew; its name ends in `_total`.
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ("pipeline",)
    unit: Literal["", "s", "By"] = ""

    @property
    def kind(self) -> Literal["counter", "gauge"]:
        """As the name says."""
        return "counter" if self.name.endswith("_total") else "gauge"


_OF_QUERY, _OF_RECEIVER, _OF_TABLE = ("pipeline", "query"), ("pipeline", "receiver"), ("pipeline", "table")
_OF_RULE = ("pipeline", "query", "rule")

_DECLARED = (
    Instrument("tidemark_stream_up", "1 while the stream process runs, 0 otherwise."),
    Instrument("tidemark_stream_restarts_total", "Restarts after a failure since the supervisor was started."),
    Instrument("tidemark_stream_input_rows_per_second", "Rows taken in, over the last two minutes."),
    Instrument(
        "tidemark_stream_processing_rows_per_second", "Rows per second in which a batch ran, over the last two minutes."
    ),
    Instrument("tidemark_stream_rejected_rows_total", "Rows rejected since the process was started."),
    Instrument("tidemark_stream_late_pairs_total", "Late pairs of row and window since the process was started."),
    Instrument("tidemark_stream_watermark_seconds", "The watermark, in seconds since the epoch.", unit="s"),
    Instrument("tidemark_stream_watermark_lag_seconds", "From the watermark to now.", unit="s"),
    Instrument(
        "tidemark_stream_watermark_skew_seconds",
        "How far apart the watermarks of streams are that are joined, at most.",
        unit="s",
    ),
    Instrument("tidemark_stream_backlog_files", "Files that wait in the source, where it holds files."),
    Instrument("tidemark_stream_backlog_rows", "Rows that wait in the source, where it counts them."),
    Instrument("tidemark_stream_backlog_bytes", "Bytes that wait in the source.", unit="By"),
    Instrument(
        "tidemark_stream_catch_up_seconds", "Until nothing waits in the source, as long as that shrinks.", unit="s"
    ),
    Instrument(
        "tidemark_stream_latency_seconds",
        "From source to Delta, by quantile, over the last two minutes.",
        ("pipeline", "quantile"),
        "s",
    ),
    Instrument("tidemark_stream_memory_bytes", "Resident memory of the stream's processes.", unit="By"),
    Instrument(
        "tidemark_stream_alert",
        "1 while the alert is raised, 0 while all is well, by the limits of the pipeline.",
        ("pipeline", "alert"),
    ),
    Instrument(
        "tidemark_freshness_values",
        "Values that `fresh_within` asks for one by one and that are not retired.",
        _OF_TABLE,
    ),
    Instrument("tidemark_freshness_late_values", "Of these, values whose newest row is too old.", _OF_TABLE),
    Instrument(
        "tidemark_freshness_oldest_seconds",
        "From the newest row of the late value that is furthest behind to now; without one there is no sample.",
        _OF_TABLE,
        "s",
    ),
    Instrument(
        "tidemark_query_paused",
        "1 while an operator or a delivery is paused and the others go on, 0 otherwise.",
        _OF_QUERY,
    ),
    Instrument("tidemark_query_waiting", "1 while a delivery waits for its target, 0 otherwise.", _OF_QUERY),
    Instrument(
        "tidemark_query_behind_batches", "Batches of its logs that an operator has not followed yet.", _OF_QUERY
    ),
    Instrument(
        "tidemark_query_watermark_lag_seconds",
        "From the watermark of its logs, as far as an operator follows, to now.",
        _OF_QUERY,
        "s",
    ),
    Instrument("tidemark_query_batch_seconds", "How long the last batch took.", _OF_QUERY, "s"),
    Instrument("tidemark_query_batches_total", "Batches or steps since the process was started.", _OF_QUERY),
    Instrument("tidemark_query_rows_total", "Rows written since the process was started.", _OF_QUERY),
    Instrument("tidemark_query_rejected_rows_total", "Of these, rows that came to a log as rejected ones.", _OF_QUERY),
    Instrument(
        "tidemark_rule_rejected_rows_total",
        "Reasons against rejected rows, by rule or by a reason of the platform's own such as event_time, since the "
        "process was started.",
        _OF_RULE,
    ),
    Instrument(
        "tidemark_rule_warned_rows_total",
        "Valid rows that break a rule which only warns, since the process was started.",
        _OF_RULE,
    ),
    Instrument(
        "tidemark_query_failures_total", "Rows without an answer of a lookup since the process was started.", _OF_QUERY
    ),
    Instrument("tidemark_query_state_rows", "Keys in state.", _OF_QUERY),
    Instrument("tidemark_query_state_bytes", "Memory of the state.", _OF_QUERY, "By"),
    Instrument("tidemark_receiver_up", "1 while the receiver is connected to its source, 0 otherwise.", _OF_RECEIVER),
    Instrument("tidemark_receiver_rows_total", "Rows received since the receiver was started.", _OF_RECEIVER),
    Instrument(
        "tidemark_receiver_unlanded_rows", "Rows received that are in no file of the landing folder yet.", _OF_RECEIVER
    ),
    Instrument(
        "tidemark_receiver_refused_rows_total",
        "Rows refused since the receiver was started, as too large or cut off.",
        _OF_RECEIVER,
    ),
    Instrument(
        "tidemark_receiver_losses_total",
        "Times that the source had lost rows which it was to keep, since the receiver was started.",
        _OF_RECEIVER,
    ),
)

INSTRUMENTS: Mapping[str, Instrument] = {each.name: each for each in _DECLARED}
"""Every metric, by its name."""

_QUANTILES = ("0.5", "0.95", "0.99")

Sample = tuple[str, dict[str, str], float]
"""The name of a metric, its labels, and its value."""


class StreamCollector(Collector):
    """Reads the streams anew at each scrape."""

    def __init__(self, streams: Callable[[], Sequence[Overview]], now: Callable[[], datetime]) -> None:
        self._streams = streams
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """One family per metric of `INSTRUMENTS`, with a sample for each stream that has it."""
        now = self._now()
        return families((sample for each in self._streams() for sample in samples(each, now)), INSTRUMENTS)


def families(measured: Iterable[Sample], instruments: Mapping[str, Instrument]) -> Iterable[Metric]:
    """Samples as Prometheus has them: one family for each metric."""
    by_name: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for name, labels, value in measured:
        if name not in by_name:
            instrument = instruments[name]
            family = CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily
            by_name[name] = family(name, instrument.meaning, labels=instrument.labels)
        by_name[name].add_metric([*labels.values()], value)
    return by_name.values()


def samples(overview: Overview, now: datetime) -> Iterator[Sample]:
    """Everything that is measured of a stream, each sample with the labels of its instrument, in their order."""
    for name, label, value in _measured(overview, now):
        if value is not None:
            # A metric of the whole pipeline has no second label.
            yield name, dict(zip(INSTRUMENTS[name].labels, (overview.pipeline.name, label), strict=False)), float(value)
    for query, status in ({} if overview.process is None else overview.process.queries).items():
        by_rule = {"rejected": status.reasons, "warned": status.warned}
        for outcome, rule, rows in ((each, *entry) for each, counts in by_rule.items() for entry in counts.items()):
            labels = {"pipeline": overview.pipeline.name, "query": query, "rule": rule}
            yield f"tidemark_rule_{outcome}_rows_total", labels, float(rows)


def _measured(overview: Overview, now: datetime) -> Iterator[tuple[str, str, float | None]]:
    """The name of a metric, the value of the label that it has beside `pipeline`, and its value; None for none."""
    yield "tidemark_stream_up", "", overview.state == "running"
    yield "tidemark_stream_restarts_total", "", overview.restarts
    for alert in evaluate(overview, overview.pipeline.limits, now):
        yield "tidemark_stream_alert", alert.name, not alert.passed
    for receiver in overview.receivers:
        of_receiver = {
            "up": receiver.state == "receiving",
            # A counter never falls.
            "rows_total": receiver.rows + receiver.discarded,
            "unlanded_rows": receiver.unlanded,
            "refused_rows_total": receiver.refused,
            "losses_total": receiver.losses,
        }
        for name, value in of_receiver.items():
            yield f"tidemark_receiver_{name}", receiver.name, value
    process = overview.process
    if process is None:
        return
    values = {
        "input_rows_per_second": process.input_rate,
        "processing_rows_per_second": process.processing_rate,
        "rejected_rows_total": process.rejected,
        "late_pairs_total": process.late,
        "watermark_seconds": None if process.watermark is None else process.watermark.timestamp(),
        "watermark_lag_seconds": overview.lag(now),
        "watermark_skew_seconds": None if overview.skew is None else overview.skew.by.total_seconds(),
        **backlog_numbers(process.backlog),
        "catch_up_seconds": process.catch_up_seconds,
        "memory_bytes": process.memory_bytes,
    }
    for name, measured in values.items():
        yield f"tidemark_stream_{name}", "", measured
    for quantile, seconds in zip(_QUANTILES, process.latency or (), strict=False):
        yield "tidemark_stream_latency_seconds", quantile, seconds
    for table, asked in process.values.items():
        yield "tidemark_freshness_values", table, asked.known
        yield "tidemark_freshness_late_values", table, asked.late
        oldest = min((late.newest for late in asked.named), default=None)
        yield "tidemark_freshness_oldest_seconds", table, None if oldest is None else (now - oldest).total_seconds()
    ingested = {ingest_query(overview.pipeline, stream) for stream in overview.pipeline.streams}
    for query, status in process.queries.items():
        of_query = {
            "paused": status.paused is not None,
            "waiting": status.waiting is not None,
            "behind_batches": status.behind,
            "watermark_lag_seconds": None if status.watermark is None else (now - status.watermark).total_seconds(),
            "batch_seconds": status.last_seconds,
            "batches_total": status.batches,
            "rows_total": status.rows,
            "rejected_rows_total": status.rejected if query in ingested else None,
            "failures_total": status.failures,
            "state_rows": status.state_rows,
            "state_bytes": status.state_bytes,
        }
        for name, of in of_query.items():
            yield f"tidemark_query_{name}", query, of
