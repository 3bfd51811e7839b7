"""The `progress` table of a stream: one row per batch and query."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import pyarrow as pa
from deltalake import write_deltalake

from streaming.lake import Lake, Named
from streaming.service.measures import Measure
from streaming.tables import attempts, delta, storage

_WRITTEN_EVERY = timedelta(seconds=30)
_log = logging.getLogger("tidemark")
_INSTANT = pa.timestamp("us", "UTC")

SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("batch", pa.int64()),
        ("started", _INSTANT),
        ("ended", _INSTANT),
        ("seconds", pa.float64()),
        ("rows", pa.int64()),
        ("number", pa.int64()),
        ("rejected", pa.int64()),
        ("late", pa.int64()),
        ("watermark", _INSTANT),
        ("latency_p50", pa.float64()),
        ("latency_p95", pa.float64()),
        ("latency_p99", pa.float64()),
        ("state_rows", pa.int64()),
        ("state_bytes", pa.int64()),
        ("_day", pa.date32()),
    ]
)
"""Columns as in `Measure`; seconds, bytes, UTC instants. Partitioned by `_day`, the date on which the batch ended."""


class ProgressTable:
    """Appends measures to the table, many in one commit; only the stream process writes it."""

    def __init__(self, lake: Lake, pipeline: Named, now: Callable[[], datetime]) -> None:
        self._uri = lake.progress(pipeline)
        self._name = pipeline.name
        self._now = now
        self._pending: list[Measure] = []
        self._written = now()

    def add(self, measures: list[Measure]) -> None:
        """Take note of batches that ended; written at the latest half a minute later, or by `flush`."""
        self._pending += measures
        if self._now() - self._written >= _WRITTEN_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what is pending; what cannot be written now is written the next time."""
        self._written = self._now()
        if not self._pending:
            return
        try:
            write_deltalake(
                storage.location(self._uri),
                pa.Table.from_pylist([_row(measure) for measure in self._pending], SCHEMA),
                mode="append",
                partition_by=["_day"],
                configuration=delta.CONFIGURATION,
            )
        except Exception as error:
            # What is said about a stream is no reason for it to end.
            _log.warning("%s: its progress could not be written (%s)", self._name, error)
        else:
            self._pending = []


def read_progress(lake: Lake, pipeline: Named, since: datetime) -> list[Measure]:
    """The batches that ended at `since` or later, in the order in which they ended; none where there is no table."""
    table = delta.open_table(lake.progress(pipeline))
    if table is None:
        return []
    rows = delta.contents(table, [("_day", ">=", since.date()), ("ended", ">=", since)])
    return [_measure(row) for row in rows.sort_by("ended").to_pylist()]


def forget_progress(lake: Lake, pipeline: Named, before: datetime) -> None:
    """Take the rows of all days before the one of `before` out of the table; does nothing where there are none."""
    table = delta.open_table(lake.progress(pipeline))
    if table is None:
        return
    # Whole partitions, of days that nothing is appended to any more; and no commit where there is none.
    day = before.date().isoformat()
    if any(partition["_day"] < day for partition in table.partitions()):
        for attempt in attempts(table):
            with attempt:
                table.delete(f"_day < '{day}'")


def _row(measure: Measure) -> dict[str, object]:
    p50, p95, p99 = measure.latency or (None, None, None)
    return {
        **{name: getattr(measure, name) for name in SCHEMA.names if hasattr(measure, name)},
        "latency_p50": p50,
        "latency_p95": p95,
        "latency_p99": p99,
        "_day": measure.ended.date(),
    }


def _measure(row: dict[str, object]) -> Measure:
    known = {name: value for name, value in row.items() if name in Measure.__dataclass_fields__}
    percentiles = (row["latency_p50"], row["latency_p95"], row["latency_p99"])
    return Measure(**known, latency=None if None in percentiles else percentiles)  # type: ignore[arg-type]
