"""The layout of the changes of a stream with a key: `python -m benchmarks.changes_layout`, in a few minutes.

A year of orders comes day by day; then each batch has 1,000 updates of random orders of the year, so 2,000 signed rows.
The same rows are written by the platform's own writer into a table of one file a batch, which is how changes lie, and
into one that is partitioned by day. What a batch costs is set against what the rows of one day cost whoever corrects
it: before and after compaction, and after compaction in the order of the event time. No Spark is started.

With `--revisions` the rows are those of the log of what came, 1,000 a batch, which is read by batches and as a whole.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, Schema
from pyspark.sql import types as T

from streaming.base import BATCH, DAY, INGESTED_AT, ORIGIN, STAMP
from streaming.tables import FileIndex, TableAbout, delta

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_DAYS, _READ = 365, 20
_INSTANT = pa.timestamp("us", "UTC")
_COLUMNS = pa.schema(
    {
        "order_id": pa.string(),
        "version": pa.int64(),
        "at": _INSTANT,
        "country": pa.string(),
        "amount": pa.int64(),
        ORIGIN: pa.struct({"path": pa.string(), "line": pa.int64(), "change": pa.int32(), "identity": pa.string()}),
        BATCH: pa.int64(),
        INGESTED_AT: _INSTANT,
        STAMP: _INSTANT,
        DAY: pa.date32(),
    }
)
_TYPES = T.StructType.fromJson(json.loads(Schema.from_arrow(_COLUMNS).to_json()))


def batches(chance: Random, a_day: int, updates: int, *, signed: bool) -> Iterator[pa.Table]:
    """The orders of each day of a year, then `updates` times 1,000 of them as they become.

    Where rows are `signed`, also as they were.
    """
    told = ((1, -1), (2, 1)) if signed else ((2, 1),)
    placed = [
        _FIRST + timedelta(days=day, seconds=chance.random() * 86_400) for day in range(_DAYS) for _ in range(a_day)
    ]
    for day in range(_DAYS):
        yield _rows(day, [(number, placed[number], 1, 1) for number in range(day * a_day, (day + 1) * a_day)])
    for update in range(updates):
        changed = chance.sample(range(len(placed)), 1_000)
        rows = [(number, placed[number], version, sign) for number in changed for version, sign in told]
        yield _rows(_DAYS + update, rows)


def _rows(batch: int, signed: list[tuple[int, datetime, int, int]]) -> pa.Table:
    came = _FIRST + timedelta(days=batch)
    return pa.Table.from_pylist(
        [
            {
                "order_id": f"order-{number:08}",
                "version": version,
                "at": at,
                "country": ("DE", "FR", "NL")[number % 3],
                "amount": number % 9_973,
                ORIGIN: {"path": f"landing/{batch}.json", "line": place, "change": sign, "identity": f"{number:032x}"},
                BATCH: batch,
                INGESTED_AT: came,
                STAMP: came,
                DAY: at.date(),
            }
            for place, (number, at, version, sign) in enumerate(signed)
        ],
        _COLUMNS,
    )


def cpu(work: Callable[[], Any]) -> float:
    """The seconds of CPU that the work takes of this process, all threads."""
    before = time.process_time()
    work()
    return time.process_time() - before


class Layout:
    """A table of changes, partitioned by day or not."""

    def __init__(self, folder: Path, name: str, *, by_day: bool) -> None:
        self.name, self.uri = name, str(folder / name.replace(" ", "_"))
        about = TableAbout(bounded=("at", BATCH))
        by = (DAY,) if by_day else ()
        delta.create(self.uri, _TYPES, append_only=True, description=name, partition_by=by, about=about)
        self._table = delta.opened(self.uri)

    def append(self, rows: pa.Table) -> None:
        """Write and commit a batch."""
        delta.stage_rows(self.uri, rows, _TYPES, table=self._table, statistics=("at", BATCH)).commit({})

    def size(self) -> tuple[int, int]:
        """Files and bytes of the table."""
        sizes = DeltaTable(self.uri).get_add_actions(flatten=True)["size_bytes"].to_pylist()
        return len(sizes), sum(sizes)

    def read(self) -> None:
        """Read all rows."""
        DeltaTable(self.uri).to_pyarrow_dataset().to_table()

    def day_read(self, chance: Random) -> tuple[float, float]:
        """The files that are opened for a day in the mean, and the CPU to find and read its rows; the index is warm."""
        index, files, seconds = FileIndex(self.uri, "at"), 0, 0.0
        index.refresh()
        for _ in range(_READ):
            since = _FIRST + timedelta(days=chance.randrange(_DAYS))
            until = since + timedelta(days=1)

            def read(since: datetime = since, until: datetime = until) -> None:
                nonlocal files
                paths = [f"{self.uri}/{path}" for path in index.with_times(since, until, 10**9)]
                files += len(paths)
                at = ds.field("at")
                in_day = (at >= pa.scalar(since, _INSTANT)) & (at < pa.scalar(until, _INSTANT))
                ds.dataset(paths, format="parquet").to_table(filter=in_day)

            seconds += cpu(read)
        return files / _READ, seconds / _READ


def main(a_day: int, updates: int, *, signed: bool) -> None:
    """Measure both layouts and print a line for each state of them."""
    drawn = list(batches(Random(20260101), a_day, updates, signed=signed))
    with TemporaryDirectory() as folder:
        for name, by_day in (("a file a batch", False), ("by day", True)):
            measure(Layout(Path(folder), name, by_day=by_day), drawn, by_day=by_day)


def measure(layout: Layout, drawn: list[pa.Table], *, by_day: bool) -> None:
    """Write the batches, and compact the table."""
    for rows in drawn[:_DAYS]:
        layout.append(rows)
    (files_before, bytes_before), updates = layout.size(), len(drawn) - _DAYS
    writing = sum(cpu(partial(layout.append, rows)) for rows in drawn[_DAYS:])
    files, size = layout.size()
    print(
        f"{layout.name}: an update of 1,000 orders {(files - files_before) / updates:,.1f} files, "
        f"{(size - bytes_before) / updates / 1024:,.0f} KB, {writing / updates * 1000:,.0f} ms of CPU; "
        f"the table opened anew {cpu(partial(DeltaTable, layout.uri)) * 1000:,.0f} ms"
    )
    report(layout, "as it is written")
    print(f"  compacting {cpu(DeltaTable(layout.uri).optimize.compact):,.1f} s of CPU")
    report(layout, "compacted")
    if not by_day:
        in_order = partial(DeltaTable(layout.uri).optimize.z_order, ["at"])
        print(f"  in the order of the event time {cpu(in_order):,.1f} s of CPU")
        report(layout, "compacted in the order of the event time")


def report(layout: Layout, state: str) -> None:
    """Print what the rows of one day cost."""
    files, size = layout.size()
    opened, seconds = layout.day_read(Random(7))
    print(
        f"  {state}: {files:,} files, {size / 2**20:,.0f} MB; the rows of a day: {opened:,.1f} files, "
        f"{seconds * 1000:,.0f} ms of CPU; all rows: {cpu(layout.read) * 1000:,.0f} ms"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders-a-day", type=int, default=2_000)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--revisions", action="store_true")
    arguments = parser.parse_args()
    main(arguments.orders_a_day, arguments.updates, signed=not arguments.revisions)
