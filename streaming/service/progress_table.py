"""The `progress` table of a stream: one row per batch and query."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from streaming.base import pc
from streaming.lake import Lake, Named
from streaming.service.progress import Measure
from streaming.service.repeated import Repeated
from streaming.tables import attempts, delta

_WRITES_EVERY, _ENDS_WITHIN = 30.0, 10.0
_PENDING_AT_MOST = 10_000
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
        ("warned", pa.map_(pa.string(), pa.int64())),
        ("reasons", pa.map_(pa.string(), pa.int64())),
    ]
)
"""Columns as in `Measure`; seconds, bytes, UTC instants. Partitioned by `_day`, the date on which the batch ended."""


class ProgressTable:
    """Appends measures to the table, many in one commit; only the stream process writes it.

    It is written in a thread of its own, so that no batch and no report waits for the storage. While it cannot be
    written the newest measures are kept, up to a bound.
    """

    def __init__(self, lake: Lake, pipeline: Named) -> None:
        self._uri = lake.progress(pipeline)
        self._pending: list[Measure] = []
        self._changing = threading.Lock()
        self._writing = Repeated(f"{pipeline.name}: progress table", _WRITES_EVERY, self._write)

    def __enter__(self) -> ProgressTable:
        self._writing.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self._writing.end(_ENDS_WITHIN)

    def add(self, measures: list[Measure]) -> None:
        """Take note of batches that ended; written at the latest half a minute later, or at the end."""
        with self._changing:
            self._pending = [*self._pending, *measures][-_PENDING_AT_MOST:]

    def _write(self) -> None:
        with self._changing:
            measures, self._pending = self._pending, []
        if not measures:
            return
        try:
            write_deltalake(
                delta.opened_or_created(
                    self._uri, SCHEMA, description="The batches of a stream as they ended", partition_by=["_day"]
                ),
                pa.Table.from_pylist([_row(measure) for measure in measures], SCHEMA),
                mode="append",
                # A table of an older release lacks the columns that came since.
                schema_mode="merge",
            )
        except Exception:
            with self._changing:
                self._pending = [*measures, *self._pending][-_PENDING_AT_MOST:]
            raise


def read_progress(lake: Lake, pipeline: Named, since: datetime) -> list[Measure]:
    """The batches that ended at `since` or later, in the order in which they ended; none where there is no table."""
    table = delta.open_table(lake.progress(pipeline))
    if table is None:
        return []
    rows = delta.contents(table, [("_day", ">=", since.date()), ("ended", ">=", since)])
    return [_measure(row) for row in rows.sort_by("ended").to_pylist()]


def rows_by_hour(lake: Lake, pipeline: Named, query: str, since: datetime) -> dict[datetime, float]:
    """The rows that the `query` of a log took in, by the begin of the hour in which a batch ended, from `since` on.

    An hour without a batch is missing.
    """
    table = delta.open_table(lake.progress(pipeline))
    if table is None:
        return {}
    since_day = [("_day", ">=", since.date())]
    measures = delta.contents(table, since_day, ["query", "ended", "rows"])
    of_log = measures.filter(pc.and_(pc.equal(measures["query"], query), pc.greater_equal(measures["ended"], since)))
    hours = pa.table({"hour": pc.floor_temporal(of_log["ended"], unit="hour"), "rows": of_log["rows"]})
    sums = hours.group_by("hour").aggregate([("rows", "sum")])
    return dict(zip(sums["hour"].to_pylist(), map(float, sums["rows_sum"].to_pylist()), strict=True))


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


_BY_RULE = ("warned", "reasons")
"""The columns that count rows by rule."""


def _row(measure: Measure) -> dict[str, object]:
    p50, p95, p99 = measure.latency or (None, None, None)
    return {
        **{name: getattr(measure, name) for name in SCHEMA.names if hasattr(measure, name)},
        **{name: [*getattr(measure, name).items()] for name in _BY_RULE},
        "latency_p50": p50,
        "latency_p95": p95,
        "latency_p99": p99,
        "_day": measure.ended.date(),
    }


def _measure(row: dict[str, Any]) -> Measure:
    fields = {name: value for name, value in row.items() if name in Measure.__dataclass_fields__}
    fields |= {name: dict(row.get(name) or ()) for name in _BY_RULE}
    percentiles = (row["latency_p50"], row["latency_p95"], row["latency_p99"])
    return Measure(**fields, latency=None if None in percentiles else percentiles)
