"""Runs a feed through the engine and reads back, as plain Python values, everything the laws speak of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import PurePosixPath
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import Lake, Pipeline, Windowed, correct, drain, plan
from streaming.log.batches import Batch, read_batches
from streaming.log.read import read_log, rejected
from streaming.views.corrections import current_results, read_corrections
from streaming.views.results import duplicates, late_pairs, read_first
from streaming.views.updates import read_updates
from tests.laws.readings import NOW, pipeline, timeline
from tests.laws.strategies import Feed
from tests.laws.timeline import Results, Timeline, View
from tests.support.feeds import land

T = TypeVar("T")


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
    """A view's results; `copies` counts, per result, the rows that `distinct` leaves out."""

    first: Results = field(default_factory=Counter)
    updates: Results = field(default_factory=Counter)
    corrections: Results = field(default_factory=Counter)
    current: Results = field(default_factory=Counter)
    late: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    copies: Counter[tuple[Any, ...]] = field(default_factory=Counter)


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
    """A feed, what the oracle says must come of it, and what came of it, once and after every step was repeated.

    `backlogs` and `opens` are of the views, after each drain.
    """

    feed: Feed
    lake: Lake
    pipeline: Pipeline
    expected: Timeline
    backlogs: list[dict[str, dict[date, int]]] = field(default_factory=list)
    expected_backlogs: list[dict[str, dict[date, int]]] = field(default_factory=list)
    opens: list[dict[str, Results]] = field(default_factory=list)
    expected_opens: list[dict[str, Results]] = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)
    commits: list[Batch] = field(default_factory=list)
    stored: Stored = field(default_factory=dict)
    stored_again: Stored = field(default_factory=dict)
    backlog_afterwards: dict[str, dict[date, int]] = field(default_factory=dict)


def run(spark: SparkSession, lake: Lake, feed: Feed, views: Sequence[View], *, again: bool) -> Ran:
    """Each drain and its corrections in turn, read back at the end; then, if `again`, every step once more."""
    declared = pipeline(feed.files_per_batch, keep_raw=feed.keep_raw)
    of_views = Pipeline(declared.stream, tuple(declared.view(view.name) for view in views))
    ran = Ran(feed, lake, of_views, timeline(tuple(views)))
    for number, files in enumerate(feed.drains):
        ends = feed.ends_between or number == len(feed.drains) - 1
        names = [land(ran.pipeline.stream.source.location(lake), lines).name for lines in files]
        drain(spark, lake, ran.pipeline, end_of_input=ends, now=lambda: NOW)
        _expect(ran.expected, list(zip(names, files, strict=True)), feed.files_per_batch, ends)
        ran.opens.append(
            {view.name: _results(_arrow(lake.open(view)), view) for view in ran.pipeline.views if view.early}
        )
        ran.expected_opens.append({view.name: ran.expected.open(view) for view in views if view.early})
        ran.backlogs.append(_backlog(spark, lake, ran.pipeline))
        ran.expected_backlogs.append({view.name: ran.expected.backlog(view) for view in views})
        _correct(spark, lake, ran.pipeline, ran.backlogs[-1])
        for view in views:
            ran.expected.correct(view, ran.backlogs[-1][view.name])
    ran.tables = read_back(spark, lake, ran.pipeline)
    ran.commits = read_batches(lake, ran.pipeline.stream)[::-1]
    if again:
        ran.stored = _stored(lake, ran.pipeline)
        drain(spark, lake, ran.pipeline, end_of_input=True, now=lambda: NOW)
        ran.backlog_afterwards = _backlog(spark, lake, ran.pipeline)
        _correct(spark, lake, ran.pipeline, ran.backlogs[-1])
        ran.stored_again = _stored(lake, ran.pipeline)
    return ran


def _expect(expected: Timeline, files: list[tuple[str, tuple[bytes, ...]]], per_batch: int, ends: bool) -> None:
    for start in range(0, len(files), per_batch):
        expected.batch(files[start : start + per_batch])
    if ends:
        expected.end_of_input()


def _of_each(views: Iterable[Windowed], do: Callable[[Windowed], T]) -> dict[str, T]:
    # In parallel, because most of a tiny Spark job is planning in the driver, which uses one core.
    with ThreadPoolExecutor(4) as threads:
        return {view.name: done for view, done in zip(views, threads.map(do, views), strict=True)}


def _backlog(spark: SparkSession, lake: Lake, declared: Pipeline) -> dict[str, dict[date, int]]:
    return _of_each(declared.views, lambda view: {entry.day: entry.late_pairs for entry in plan(spark, lake, view)})


def _correct(spark: SparkSession, lake: Lake, declared: Pipeline, days: Mapping[str, Mapping[date, int]]) -> None:
    views = [view for view in declared.views if days[view.name]]
    _of_each(views, lambda view: correct(spark, lake, view, days[view.name], now=lambda: NOW))


def read_back(spark: SparkSession, lake: Lake, declared: Pipeline) -> Tables:
    """Tables by delta-rs, reads over the log by Spark."""
    log = read_log(spark, lake, declared.stream)
    stored = _arrow(lake.log(declared.stream))
    lines = _line_numbers(stored)
    tables = Tables(log=_log_rows(stored, lines))
    tables.rejected = [lines[row["path"], row["position"]] for row in rejected(log).select("_origin.*").collect()]

    def read(view: Windowed) -> ViewTables:
        results = ViewTables(first=_results(_arrow(lake.first(view)), view))
        corrections, updates = read_corrections(spark, lake, view), read_updates(spark, lake, view)
        if corrections is not None:
            results.corrections = _results(_arrow(lake.corrections(view)), view, "_late_rows", "_retracted")
        if updates is not None:
            results.updates = _results(_arrow(lake.updates(view)), view, "_batch")
        shown = current_results(read_first(spark, lake, view), corrections, view, updates)
        results.current = _results(shown.toArrow(), view)
        bounds = [F.unix_micros(bound).alias(bound) for bound in ("window_start", "window_end")]
        late = late_pairs(log, view).select("_origin.*", *bounds).collect()
        results.late = Counter(
            (*lines[row["path"], row["position"]], row["window_start"], row["window_end"]) for row in late
        )
        if view.distinct:
            results.copies = Counter(map(tuple, duplicates(log, view).select(*view.by, *bounds).collect()))
        return results

    tables.views = _of_each(declared.views, read)
    return tables


def _stored(lake: Lake, declared: Pipeline) -> Stored:
    uris = {"log": lake.log(declared.stream)}
    for view in declared.views:
        uris |= {uri: uri for uri in (lake.first(view), lake.updates(view), lake.corrections(view), lake.open(view))}
    return {name: _texts(_arrow(uri)) for name, uri in uris.items() if DeltaTable.is_deltatable(uri)}


def _texts(table: pa.Table) -> list[str]:
    compared = [name for name in table.column_names if name not in ("_written_at", "_corrected_at", "_through_batch")]
    return sorted(repr(sorted(row.items())) for row in table.select(compared).to_pylist())


def _line_numbers(log: pa.Table) -> dict[tuple[str, int], tuple[str, int]]:
    """File name and line number for each path and position: positions rise from line to line, with gaps."""
    positions: dict[str, list[int]] = {}
    for origin in log["_origin"].to_pylist():
        if origin is not None:
            positions.setdefault(origin["path"], []).append(origin["position"])
    return {
        (path, position): (PurePosixPath(path).name, line)
        for path, in_file in positions.items()
        for line, position in enumerate(sorted(in_file))
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


def _results(table: pa.Table, view: Windowed, *extra: str) -> Results:
    identity = [
        *(table[key].to_pylist() for key in view.by),
        _micros(table, "window_start"),
        _micros(table, "window_end"),
    ]
    values = [table[name].to_pylist() for name in (*view.values, *extra)]
    return Counter(zip(zip(*identity, strict=True), zip(*values, strict=True), strict=True))
