"""For the tests of a project: feeds drawn as timelines, taken through a pipeline on real Spark, read as plain rows.

The fixtures `tidemark_spark` (one session for all tests) and `tidemark_lake` (an empty lake for each) come with the
package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from streaming import Lake, Pipeline, Stream, drain
from streaming.base import Reading, instant_of, python_values, utc_now
from streaming.declare import Operator
from streaming.operators import frame, plan_corrections, runtime_of
from streaming.service.drain import Drained
from tidemark.played import Moment as Moment
from tidemark.played import Played as Played
from tidemark.player import play as play

Payload = Mapping[str, Any] | str | bytes
"""A line of a file: a mapping becomes JSON, text and bytes are written as they are."""

Rows = list[tuple[Any, ...]]

_FIRST_FILE = datetime(2026, 1, 1, tzinfo=UTC)


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return Row(*names)(*values)


_PLAIN = Reading(instant=instant_of, struct=_row)


def timeline(
    drawn: str, start: datetime, *, key: str = "id", time: str = "at", value: str = "value"
) -> list[dict[str, Any]]:
    """Payloads in the notation `a@1, b@3.5=20`: key, seconds after `start`, and a number where there is one.

    They have the fields `key`, `time` (ISO 8601) and `value` (null where none is drawn).
    """
    rows = []
    for entry in drawn.split(","):
        name, _, rest = entry.strip().partition("@")
        seconds, _, number = rest.partition("=")
        at = start + timedelta(seconds=float(seconds))
        rows.append({key: name, time: at.isoformat(), value: float(number) if number else None})
    return rows


def line(payload: Payload) -> bytes:
    """The bytes of one line."""
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()


def land(
    folder: str | Path, payloads: Iterable[Payload], *, name: str | None = None, modified: datetime | None = None
) -> Path:
    """Land one batch as one file: written under a hidden name, then renamed, and later than every file before it."""
    landing = Path(folder)
    landing.mkdir(parents=True, exist_ok=True)
    there = [entry.stat().st_mtime for entry in landing.iterdir()]
    target = landing / (name or f"{len(there):04}.json")
    hidden = target.with_name(f".{target.name}")
    hidden.write_bytes(b"".join(line(payload) + b"\n" for payload in payloads))
    # Spark takes files in order of modification time.
    later = max([_FIRST_FILE.timestamp(), *there]) + timedelta(seconds=1).total_seconds()
    stamp = later if modified is None else modified.timestamp()
    os.utime(hidden, (stamp, stamp))
    hidden.rename(target)
    return target


def land_all(lake: Lake, stream: Stream, *batches: Iterable[Payload]) -> list[Path]:
    """Land each batch as a file of the stream's landing folder."""
    return [land(stream.source.location(lake), batch) for batch in batches]


def run(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *batches: Iterable[Payload],
    end_of_input: bool = False,
    now: Callable[[], datetime] = utc_now,
) -> Drained:
    """Land the batches in the first stream's folder, each a file, and take what is there through the pipeline.

    Files that are there together are one batch, unless the source says otherwise (`files_per_batch`), so call it once
    for each batch whose stamp matters. With `end_of_input` the windows still open are closed.
    """
    land_all(lake, pipeline.stream, *batches)
    return drain(spark, lake, pipeline, end_of_input=end_of_input, now=now)


def correct(spark: SparkSession, lake: Lake, view: Operator, now: Callable[[], datetime] = utc_now) -> list[str]:
    """Correct every day of a view, or of a join, that waits for it; returns these days."""
    days = [pending.day for pending in plan_corrections(spark, lake, view)]
    if days:
        runtime_of(view, lake).correct(spark, days, now)
    return [day.isoformat() for day in days]


def read(spark: SparkSession, lake: Lake, view: Operator, what: str = "current", *columns: str) -> Rows:
    """Plain rows, sorted, of what `tidemark show` shows of a view (`first`, `late`, `corrections`, `current`, ...)."""
    return rows(frame(spark, lake, view, what), *columns)


def rows(frame: DataFrame, *columns: str) -> Rows:
    """The rows as plain tuples of `columns` (all by default), sorted; nulls come first.

    Instants are datetimes in UTC and structs `Row`s, at every depth; decimals have all their digits. Years before 1 and
    beyond 9999, which Python's datetimes and dates do not have, are there as `FarInstant` and `FarDate`.
    """
    collected = (frame.select(*columns) if columns else frame).toArrow()
    if not collected.num_columns:
        return [()] * collected.num_rows
    plain = list(zip(*(python_values(column, _PLAIN) for column in collected.columns), strict=True))
    return sorted(plain, key=lambda row: [(value is not None, str(value)) for value in row])
