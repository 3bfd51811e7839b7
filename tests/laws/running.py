"""Runs a feed through the engine and reads back, as plain Python values, everything the laws speak of."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streaming import Lake, Pipeline, Windowed, correct, drain, plan
from streaming.corrections import read_corrections
from streaming.late import late_pairs
from streaming.log import Batch, batches, read_log, rejected
from streaming.views import current, read_first
from tests.laws.oracle import Identity, Timeline, micros
from tests.laws.readings import AGGREGATES, NOW, VIEWS, pipeline
from tests.laws.strategies import Feed
from tests.support.feeds import land

_DRAINED_IN_SECONDS = 60


@dataclass(frozen=True)
class LogRow:
    """A row of the log as it is stored; `line` is its place among the rows of its file."""

    file: str | None
    line: int | None
    raw: bytes | None
    key: str | None
    at: int | None
    value: int | None
    unit: str | None
    rejected: tuple[str, ...] | None
    batch: int
    stamp: int | None
    day: date | None

    @property
    def is_heartbeat(self) -> bool:
        """Whether it has only a stamp."""
        return self.file is None

    @property
    def labels(self) -> tuple[str, ...]:
        """The reasons as the oracle names them."""
        return reason_labels(self.rejected)


def reason_labels(rejected: Sequence[str] | None) -> tuple[str, ...]:
    """Reasons of the log as the oracle names them: `json`, `type: <column>` or the rule's name."""
    return tuple(text.split(" is ")[0] if text.startswith("type:") else text.split(":")[0] for text in rejected or ())


@dataclass
class ViewTables:
    """A view's results, each a list so that a result given twice shows."""

    first: list[tuple[Identity, tuple[Any, ...]]] = field(default_factory=list)
    corrections: list[tuple[Identity, tuple[Any, ...]]] = field(default_factory=list)
    current: list[tuple[Identity, tuple[Any, ...]]] = field(default_factory=list)
    late: list[tuple[Any, ...]] = field(default_factory=list)
    backlog: dict[date, int] = field(default_factory=dict)


@dataclass
class Tables:
    """A lake, read back."""

    log: list[LogRow] = field(default_factory=list)
    rejected: list[tuple[str, int]] = field(default_factory=list)
    views: dict[str, ViewTables] = field(default_factory=dict)


Stored = dict[str, list[str]]
"""Rows of every table as text, sorted, without when they were written and how far a correction had looked."""


@dataclass
class Ran:
    """A feed, what the oracle says must come of it, and what came of it, once and after every step was repeated."""

    feed: Feed
    expected: Timeline
    lake: Lake
    pipeline: Pipeline
    tables: Tables
    commits: list[Batch]
    native_drops: dict[str, int]
    backlogs: list[dict[str, dict[date, int]]]
    expected_backlogs: list[dict[str, dict[date, int]]]
    stored: Stored
    stored_again: Stored
    backlog_afterwards: dict[str, dict[date, int]]


def run(spark: SparkSession, lake: Lake, feed: Feed) -> Ran:
    """Each drain and its corrections in turn, reading back at the end; then every step once more, and read again."""
    declared = pipeline(feed.files_per_batch)
    expected = Timeline(micros(NOW), VIEWS)
    backlogs: list[dict[str, dict[date, int]]] = []
    expected_backlogs: list[dict[str, dict[date, int]]] = []
    corrected: dict[str, dict[date, int]] = {view.name: {} for view in VIEWS}
    with counted_drops(spark) as drops:
        for number, files in enumerate(feed.drains):
            is_last = number == len(feed.drains) - 1
            ends = feed.ends_between or is_last
            names = [land(lake.landing(declared.stream), lines).name for lines in files]
            drain(spark, lake, declared, end_of_input=ends, now=lambda: NOW)
            _expect(expected, list(zip(names, files, strict=True)), feed.files_per_batch, ends)
            backlogs.append(_backlog(spark, lake, declared))
            late = {view.name: expected.late_days(view) for view in VIEWS}
            expected_backlogs.append(
                {
                    name: {day: pairs for day, pairs in days.items() if corrected[name].get(day) != pairs}
                    for name, days in late.items()
                }
            )
            corrected = late
            _correct(spark, lake, declared, backlogs[-1])
        tables = read_back(spark, lake, declared)
        stored = _stored(lake, declared)
        commits = batches(lake, declared.stream)[::-1]
        drain(spark, lake, declared, end_of_input=True, now=lambda: NOW)
        afterwards = _backlog(spark, lake, declared)
        _correct(spark, lake, declared, {view.name: list(expected.late_days(view)) for view in VIEWS})
    return Ran(
        feed,
        expected,
        lake,
        declared,
        tables,
        commits,
        drops,
        backlogs,
        expected_backlogs,
        stored,
        _stored(lake, declared),
        afterwards,
    )


def current_of(spark: SparkSession, lake: Lake, declared: Pipeline, files: Sequence[Sequence[bytes]]) -> Tables:
    """What one drain to the end of input and its corrections make of the files."""
    for lines in files:
        land(lake.landing(declared.stream), lines)
    drain(spark, lake, declared, end_of_input=True, now=lambda: NOW)
    _correct(spark, lake, declared, _backlog(spark, lake, declared))
    return read_back(spark, lake, declared)


def _expect(expected: Timeline, files: list[tuple[str, tuple[bytes, ...]]], per_batch: int, ends: bool) -> None:
    for start in range(0, len(files), per_batch):
        expected.batch(files[start : start + per_batch])
    expected.settle()
    if ends:
        expected.end_of_input()


def _backlog(spark: SparkSession, lake: Lake, declared: Pipeline) -> dict[str, dict[date, int]]:
    return {view.name: {entry.day: entry.late_pairs for entry in plan(spark, lake, view)} for view in declared.views}


def _correct(
    spark: SparkSession, lake: Lake, declared: Pipeline, days: Mapping[str, Sequence[date] | Mapping[date, int]]
) -> None:
    for view in declared.views:
        correct(spark, lake, view, days[view.name], now=lambda: NOW)


def read_back(spark: SparkSession, lake: Lake, declared: Pipeline) -> Tables:
    """Tables by delta-rs, reads over the log by Spark."""
    log = read_log(spark, lake, declared.stream)
    stored = _arrow(lake.log(declared.stream))
    lines = _line_numbers(stored)
    tables = Tables(log=_log_rows(stored, lines))
    tables.rejected = [lines[row["path"], row["position"]] for row in rejected(log).select("_origin.*").collect()]
    for view in declared.views:
        results = ViewTables(first=_results(_arrow(lake.first(view)), view))
        corrections = read_corrections(spark, lake, view)
        if corrections is not None:
            results.corrections = _results(_arrow(lake.corrections(view)), view, "_late_rows")
        results.current = _results(current(read_first(spark, lake, view), corrections, view).toArrow(), view)
        bounds = (F.unix_micros(bound).alias(bound) for bound in ("window_start", "window_end"))
        results.late = [
            (*lines[row["path"], row["position"]], row["window_start"], row["window_end"])
            for row in late_pairs(log, view).select("_origin.*", *bounds).collect()
        ]
        tables.views[view.name] = results
    return tables


def _stored(lake: Lake, declared: Pipeline) -> Stored:
    uris = {"log": lake.log(declared.stream)}
    for view in declared.views:
        uris |= {view.name: lake.first(view), f"{view.name}_corrections": lake.corrections(view)}
    return {name: _texts(_arrow(uri)) for name, uri in uris.items() if DeltaTable.is_deltatable(uri)}


def _texts(table: pa.Table) -> list[str]:
    told = [name for name in table.column_names if name not in ("_written_at", "_corrected_at", "_through_batch")]
    return sorted(repr(sorted(row.items())) for row in table.select(told).to_pylist())


def _line_numbers(log: pa.Table) -> dict[tuple[str, int], tuple[str, int]]:
    """File name and line number for each path and position: positions rise from line to line, with gaps."""
    positions: dict[str, list[int]] = {}
    for origin in log["_origin"].to_pylist():
        if origin is not None:
            positions.setdefault(origin["path"], []).append(origin["position"])
    return {
        (path, position): (PurePosixPath(path).name, line)
        for path, found in positions.items()
        for line, position in enumerate(sorted(found))
    }


def _arrow(uri: str) -> pa.Table:
    return DeltaTable(uri).to_pyarrow_table()


def _micros(table: pa.Table, column: str) -> list[int | None]:
    return table[column].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()


def _log_rows(table: pa.Table, lines: Mapping[tuple[str, int], tuple[str, int]]) -> list[LogRow]:
    places = [
        (None, None) if origin is None else lines[origin["path"], origin["position"]]
        for origin in table["_origin"].to_pylist()
    ]
    columns = [
        *(table[name].to_pylist() for name in ("_raw", "key")),
        _micros(table, "at"),
        *(table[name].to_pylist() for name in ("value", "unit")),
        [None if reasons is None else tuple(reasons) for reasons in table["_rejected"].to_pylist()],
        table["_batch"].to_pylist(),
        _micros(table, "_watermark"),
        table["_day"].to_pylist(),
    ]
    return [LogRow(*place, *values) for place, *values in zip(places, *columns, strict=True)]


def _results(table: pa.Table, view: Windowed, *extra: str) -> list[tuple[Identity, tuple[Any, ...]]]:
    identity = [
        *(table[key].to_pylist() for key in view.by),
        _micros(table, "window_start"),
        _micros(table, "window_end"),
    ]
    values = [table[name].to_pylist() for name in (*AGGREGATES, *extra)]
    return list(zip(zip(*identity, strict=True), zip(*values, strict=True), strict=True))


class _Drops(StreamingQueryListener):
    """Adds up what Spark's own operators dropped, told by their progress; knows when all that was told."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}
        self._running: set[str] = set()
        self._told = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._told:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        name = progress.name or ""
        dropped = sum(operator.numRowsDroppedByWatermark or 0 for operator in progress.stateOperators)
        self.dropped[name] = self.dropped.get(name, 0) + dropped

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._told:
            self._running.discard(str(event.runId))
            self._told.notify_all()

    def await_all(self) -> None:
        """Wait for the last word of every query that began."""
        with self._told:
            assert self._told.wait_for(lambda: not self._running, _DRAINED_IN_SECONDS), "a query never ended"


@contextmanager
def counted_drops(spark: SparkSession) -> Iterator[dict[str, int]]:
    """Rows dropped natively per query while the body runs; complete once it is left."""
    listener = _Drops()
    spark.streams.addListener(listener)
    try:
        yield listener.dropped
        listener.await_all()
    finally:
        spark.streams.removeListener(listener)
