"""Golden tests of sources."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor, pipeline
from docs.examples.late_counts import readings as stream
from streaming import Files, Pipeline, log
from streaming.lake.lake import Lake
from streaming.sources import SourceComparison
from tests.support.feeds import land, readings
from tests.support.instants import T0, at
from tests.support.runs import run, tuples
from tidemark.testing import line


def compared(spark: SparkSession, lake: Lake) -> SourceComparison:
    return stream.source.compare(spark, lake, log.read_log(spark, lake, stream))


def test_s7_a_file_is_read_once_whatever_its_age_and_a_later_change_of_it_is_reported(
    spark: SparkSession, lake: Lake
) -> None:
    def findings() -> list[tuple[str, str]]:
        return [(change.kind, Path(change.name).name) for change in compared(spark, lake).changes]

    landing = stream.source.location(lake)
    f1 = land(landing, readings("a@1, a@2"), name="f1 ü.json")
    run(spark, lake, pipeline)
    assert findings() == []

    f2 = land(landing, readings("a@3"), name="f2.json", modified=T0 - timedelta(days=30))
    for hidden in (".f3.json", "_f4.json"):
        (Path(landing) / hidden).write_bytes(line(readings("x@3")[0]))
    assert findings() == [("waiting", "f2.json")]
    run(spark, lake, pipeline)
    f2.unlink()  # it is in the log, so it may go

    with f1.open("ab") as appended:
        appended.write(line(readings("a@4")[0]) + b"\n")
    again = run(spark, lake, pipeline)

    assert "log" not in again.queries
    rows = log.valid(log.read_log(spark, lake, stream))
    assert tuples(rows, "id", "event_time") == [("a", at(1)), ("a", at(2)), ("a", at(3))]
    assert findings() == [("changed", "f1 ü.json")]
    (change,) = compared(spark, lake).changes
    assert "f1 ü.json" in change.text and "under a new name" in change.text


def test_files_of_every_visible_folder_are_read_and_of_no_hidden_one(spark: SparkSession, lake: Lake) -> None:
    landing, checkpoint = Path(stream.source.location(lake)), lake.checkpoint(stream, log.QUERY)
    visible = ("east/a.json", "west/2026/a.json", "day=2026-01-01/a.json", "_day=2026-01-01/a.json", "_a=b.json")
    hidden = ("_done/a.json", ".partial/a.json", "east/_done/a.json", "a.json._COPYING_", ".a=b.json")
    for name in visible + hidden:
        folder, _, file = f"/{name}".rpartition("/")
        land(f"{landing}{folder}", readings("a@1" if name in visible else "x@1"), name=file)
    backlog = stream.source.backlog(lake, checkpoint)
    assert backlog({}).items == len(visible)

    run(spark, lake, pipeline)

    rows = log.valid(log.read_log(spark, lake, stream))
    assert tuples(rows, "id") == [("a",)] * len(visible)
    paths = {unquote(row.path).partition("/landing/readings/")[2] for row in rows.select("_origin.path").collect()}
    assert paths == set(visible)
    assert (backlog({}).items, compared(spark, lake)) == (0, SourceComparison(len(visible), "files"))


def test_o10_a_backlog_comes_in_batches_of_bounded_bytes_and_a_file_above_the_bound_comes_alone(
    spark: SparkSession, lake: Lake
) -> None:
    one_row = len(line(readings("a@1=1")[0])) + 1
    bounded = replace(stream, source=Files(cast(Files, stream.source).path, bytes_per_batch=2 * one_row))
    files = ("a@1=1", "a@2=2", "b@3=3", "a@4=4, a@5=5, a@6=6", "b@7=7", "b@8=8, b@9=9")
    run(spark, lake, Pipeline(bounded, (replace(count_by_sensor, of=bounded),)), *map(readings, files))
    rows = [batch.summary.rows for batch in reversed(log.read_batches(lake, bounded)) if batch.cause == "source"]
    assert rows == [2, 1, 3, 1, 2]
