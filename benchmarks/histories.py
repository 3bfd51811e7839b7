"""The cost of a history beside `MERGE`: `python -m benchmarks.histories`.

One warm process follows batches of changes of random customers, of whom there are a million. Each batch is in the log
before; then the CPU of the history's step, with what is published of it, is set against that of Spark's `MERGE` of the
same rows of the log into a Delta table: of the newest row of a key (SCD1), and of its intervals (SCD2, by the union of
the rows to be closed with those to be added). The CPU is that of the process and all that it has started; bytes are
those of the data files that were written. All steps count together, as those that put files together cost more.

Neither side pays for the ingest, which both need, nor for the step from revisions to changes of the stream itself,
which a stream with a key takes whoever follows it. What these cost is printed beside; it is not part of the ratio.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.contenders import session
from benchmarks.demands import Demand, begin, conclude, console
from benchmarks.warm_steps import Cost, cost_of, follow, land_day
from streaming import (
    BoundedOutOfOrderness,
    Files,
    History,
    Json,
    Lake,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
)
from streaming.log import read_log, valid
from streaming.operators import runtime_of

_COLUMNS = ("id", "version", "at", "segment", "city", "balance")


def main() -> None:
    """Measure; exit 1 where a history costs more than half of a merge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=7)
    arguments, folder = begin(parser, "bench")
    demands = [_compared(folder / f"kind{kind}", kind, arguments) for kind in (1, 2)]
    conclude(folder / "histories.md", demands)


def _compared(folder: Path, kind: int, arguments: argparse.Namespace) -> Demand:
    customers = Stream(
        name="customers",
        source=Files(str(folder / "landing")),
        format=Json("id bigint, version bigint, at timestamp, segment string, city string, balance decimal(12, 2)"),
        event_time="at",
        clock=BoundedOutOfOrderness("1 hour", max_ahead="400 days"),
        key=("id",),
        sequence="version",
    )
    history = History("history", customers, kind=1 if kind == 1 else 2)
    by_day = Windowed("by_day", customers, Tumbling("1 day"), {"customers": agg.count()})
    lake, log = Lake(str(folder / "lake")), Pipeline(customers, (by_day,))
    drawn, target = Random(kind), str(folder / "merged")
    runtime = runtime_of(history, lake)
    drained, ours, theirs = list[Cost](), list[Cost](), list[Cost]()
    for number in range(arguments.times + 2):
        keys = range(arguments.keys) if number == 0 else drawn.sample(range(arguments.keys), arguments.changes)
        land_day(folder / "landing", number, _changes(number, keys, drawn), drawn)
        drained.append(cost_of(partial(drain, session(), lake, log), folder / "lake/customers"))
        ours.append(cost_of(partial(follow, lake, runtime), folder / "lake/customers"))
        theirs.append(cost_of(partial(_merge, lake, customers, number, kind, target), folder / "merged"))
        told = ", ".join(f"{of[-1].cpu:.2f}" for of in (drained, ours, theirs))
        console.print(f"kind {kind}, batch {number}: CPU seconds of ingest, history, MERGE: {told}", highlight=False)
    # The first batch has every key, and the second warms up what the others do.
    for what, of in (("ingest and changes of the stream", drained), ("history", ours), ("MERGE", theirs)):
        seconds, written = (statistics.mean(values) for values in zip(*of[2:], strict=True))
        console.print(f"kind {kind}, {what}: {seconds:.2f} s of CPU and {written / 1e6:.1f} MB a step")
    name = f"CPU of a history of kind {kind} vs MERGE, {arguments.keys:,} keys, {arguments.changes:,} changes a step"
    return at_most(name, Ratio(*([sum(each.cpu for each in of[2:])] for of in (ours, theirs))), 0.5)


def _changes(number: int, keys: Iterable[int], drawn: Random) -> Iterator[dict[str, object]]:
    for key in keys:
        row = {"id": key, "version": number, "segment": f"s{drawn.randrange(9)}"}
        yield {**row, "city": f"c{drawn.randrange(900)}", "balance": drawn.randrange(10**6)}


def _merge(lake: Lake, customers: Stream, number: int, kind: int, target: str) -> None:
    """Merge a batch of the log into the table of Spark's users."""
    came = valid(read_log(session(), lake, customers.revisions)).where(F.col("_batch") == number)
    (_merge_rows if kind == 1 else _merge_intervals)(came.select(*_COLUMNS), target)


def _merge_rows(rows: DataFrame, target: str) -> None:
    """SCD1: the newest row of each key."""
    if not Path(target).exists():
        rows.write.format("delta").save(target)
        return
    merged = DeltaTable.forPath(session(), target).alias("t").merge(rows.alias("s"), "t.id = s.id")
    merged.whenMatchedUpdateAll("s.version > t.version").whenNotMatchedInsertAll().execute()


def _merge_intervals(rows: DataFrame, target: str) -> None:
    """SCD2: the open interval of each key is closed, and a new one begins."""
    whole = rows.withColumns({"valid_from": F.col("at"), "valid_to": F.lit(None).cast("timestamp")})
    if not Path(target).exists():
        whole.write.format("delta").save(target)
        return
    closing = whole.withColumn("_key", F.col("id"))
    adding = whole.withColumn("_key", F.lit(None).cast("bigint"))
    table = DeltaTable.forPath(session(), target).alias("t")
    values: dict[str, str | Column] = {name: f"s.{name}" for name in whole.columns}
    merged = table.merge(closing.unionByName(adding).alias("s"), "t.id = s._key and t.valid_to is null")
    (
        merged.whenMatchedUpdate("s.version > t.version", {"valid_to": "s.valid_from"})
        .whenNotMatchedInsert("s._key is null", values)
        .execute()
    )


if __name__ == "__main__":
    main()
