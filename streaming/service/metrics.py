"""Streams as Prometheus metrics: names are stable, and a pipeline that does not run says so instead of vanishing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.service.overview import Overview
from streaming.sources import backlog_numbers

METRICS = {
    "tidemark_stream_up": "1 while the stream process runs, 0 otherwise.",
    "tidemark_stream_restarts": "Restarts after a failure since the supervisor was started.",
    "tidemark_stream_input_rows_per_second": "Rows taken in, over the last two minutes.",
    "tidemark_stream_processing_rows_per_second": "Rows per second in which a batch ran, over the last two minutes.",
    "tidemark_stream_rejected_rows": "Rows rejected since the process was started.",
    "tidemark_stream_late_pairs": "Late pairs of row and window since the process was started.",
    "tidemark_stream_watermark_seconds": "The watermark, in seconds since the epoch.",
    "tidemark_stream_watermark_lag_seconds": "From the watermark to now.",
    "tidemark_stream_watermark_skew_seconds": "How far apart the watermarks of streams are that are joined, at most.",
    "tidemark_stream_backlog_files": "Files that wait in the source, where it holds files.",
    "tidemark_stream_backlog_rows": "Rows that wait in the source, where it counts them.",
    "tidemark_stream_backlog_bytes": "Bytes that wait in the source.",
    "tidemark_stream_catch_up_seconds": "Until nothing waits in the source, as long as that shrinks.",
    "tidemark_stream_latency_seconds": "From source to Delta, by quantile, over the last two minutes.",
    "tidemark_stream_memory_bytes": "Resident memory of the stream's processes.",
    "tidemark_query_paused": "1 while an operator or a delivery is paused and the others go on, 0 otherwise.",
    "tidemark_query_behind_batches": "Batches of its logs that an operator has not followed yet.",
    "tidemark_query_watermark_lag_seconds": "From the watermark of its logs, as far as an operator follows, to now.",
    "tidemark_query_batch_seconds": "How long the last batch took.",
    "tidemark_query_rows": "Rows written since the process was started.",
    "tidemark_query_state_rows": "Keys in state.",
    "tidemark_query_state_bytes": "Memory of the state.",
    "tidemark_receiver_up": "1 while the receiver is connected to its source, 0 otherwise.",
    "tidemark_receiver_rows": "Rows received since the receiver was started.",
    "tidemark_receiver_unlanded_rows": "Rows received that are in no file of the landing folder yet.",
    "tidemark_receiver_refused_rows": "Rows refused as too large since the receiver was started.",
}
"""Every metric and its meaning. Labels: `pipeline`, and `query`, `receiver` or `quantile` where the name says so."""

_QUANTILES = ("0.5", "0.95", "0.99")


class StreamCollector(Collector):
    """Reads the streams anew at each scrape."""

    def __init__(self, streams: Callable[[], Sequence[Overview]], now: Callable[[], datetime]) -> None:
        self._streams = streams
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """One family per metric of `METRICS`, with a sample for each stream that has it."""
        families: dict[str, GaugeMetricFamily] = {}
        for overview in self._streams():
            for name, labels, value in samples(overview, self._now()):
                family = families.setdefault(name, GaugeMetricFamily(name, METRICS[name], labels=list(labels)))
                family.add_metric(list(labels.values()), float(value))
        return families.values()


def samples(overview: Overview, now: datetime) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of everything that a stream has."""
    pipeline, process = {"pipeline": overview.pipeline.name}, overview.process
    yield "tidemark_stream_up", pipeline, overview.state == "running"
    yield "tidemark_stream_restarts", pipeline, overview.restarts
    for receiver in overview.receivers:
        of_receiver = {**pipeline, "receiver": receiver.name}
        yield "tidemark_receiver_up", of_receiver, receiver.state == "receiving"
        yield "tidemark_receiver_rows", of_receiver, receiver.rows
        yield "tidemark_receiver_unlanded_rows", of_receiver, receiver.unlanded
        yield "tidemark_receiver_refused_rows", of_receiver, receiver.refused
    if process is None:
        return
    values = {
        "input_rows_per_second": process.input_rate,
        "processing_rows_per_second": process.processing_rate,
        "rejected_rows": process.rejected,
        "late_pairs": process.late,
        "watermark_seconds": None if process.watermark is None else process.watermark.timestamp(),
        "watermark_lag_seconds": overview.lag(now),
        "watermark_skew_seconds": None if overview.skew is None else overview.skew.by.total_seconds(),
        **backlog_numbers(process.backlog),
        "catch_up_seconds": process.catch_up_seconds,
        "memory_bytes": process.memory_bytes,
    }
    for name, value in values.items():
        if value is not None:
            yield f"tidemark_stream_{name}", pipeline, value
    for quantile, seconds in zip(_QUANTILES, process.latency or (), strict=False):
        yield "tidemark_stream_latency_seconds", {**pipeline, "quantile": quantile}, seconds
    for query, status in process.queries.items():
        of_query = {
            "paused": status.paused is not None,
            "behind_batches": status.behind,
            "watermark_lag_seconds": None if status.watermark is None else (now - status.watermark).total_seconds(),
            "batch_seconds": status.last_seconds,
            "rows": status.rows,
            "state_rows": status.state_rows,
            "state_bytes": status.state_bytes,
        }
        for name, value in of_query.items():
            if value is not None:
                yield f"tidemark_query_{name}", {**pipeline, "query": query}, value
