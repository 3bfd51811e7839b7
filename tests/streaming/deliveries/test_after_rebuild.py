"""Deliveries of what was built anew by another declaration: they go on where they were, or say why they cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Delivery, Files, Joined, Json, JsonLines, Lake, Pipeline, Postgres, Stream, agg, drain
from streaming.audit.deliveries import reconcile
from streaming.base.errors import ChangedDeclaration, RedeliveryError, SinkError
from streaming.keyed.library.deduplicated import deduplicated
from streaming.operations.rebuild import rebuild
from tests.support.delivering import Courier, by_id, ingested, reading, readings
from tests.support.feeds import land_all
from tests.support.instants import NOW
from tests.support.postgres import rows, run
from tests.support.runs import run as drained

FILES = JsonLines("out", by="none")
with_most = replace(by_id, aggregates={**by_id.aggregates, "most": agg.mean("value")})


def delivered(lake: Lake) -> list[list[dict[str, Any]]]:
    """The rows of each file below `out`, in the order of the files' names."""
    paths = sorted(Path(lake.root, "out").glob("*.json"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def test_an_aggregate_that_was_added_is_told_of_all_that_is_current(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    sums = Delivery("sums", by_id, Postgres("sums", connection=postgres), "current")
    ingested(spark, lake, [reading("a", 1, 1), reading("a", 2, 3)], [reading("a", 30, 3)])
    Courier(spark, lake, sums).deliver()
    rebuild(spark, lake, Pipeline(readings, (with_most,)), with_most, now=lambda: NOW)
    wider = replace(sums, of=with_most)
    courier = Courier(spark, lake, wider)
    with pytest.raises(ChangedDeclaration):
        courier.deliver()
    courier.runtime.begin_anew(again=False)
    with pytest.raises(SinkError, match='alter table sums add column "most" double precision'):
        courier.deliver()
    run(postgres, 'alter table sums add column "most" double precision')
    courier.deliver()
    assert rows(postgres, "select id, total, most from sums order by 1") == [("a", 4, 2.0)]
    findings = list(reconcile(spark, lake, wider))
    assert all(finding.holds for finding in findings) and findings[-1].checked == 1


def widened(stream: Stream) -> Stream:
    return replace(stream, format=Json("id string, at timestamp, value bigint, city string"))


@pytest.mark.long
def test_another_type_of_an_aggregate_is_refused_with_what_can_be_done(spark: SparkSession, lake: Lake) -> None:
    sums = Delivery("sums", by_id, FILES, "current")
    ingested(spark, lake, [reading("a", 1, 1), reading("a", 2, 3)], [reading("a", 30, 3)])
    Courier(spark, lake, sums).deliver()
    halves = replace(by_id, aggregates={**by_id.aggregates, "total": agg.sum("value / 2")})
    rebuild(spark, lake, Pipeline(readings, (halves,)), halves, now=lambda: NOW)
    courier = Courier(spark, lake, replace(sums, of=halves))
    with pytest.raises(RedeliveryError, match=r"column 'total' was bigint and is double now.* under a new name"):
        courier.runtime.begin_anew(again=False)
    assert courier.runtime.generation == 0


once = deduplicated("once", readings, ("id",))
once_wide = deduplicated("once", widened(readings), ("id",))
once_out = Delivery("once_out", once, FILES)


def rebuilt_later(spark: SparkSession, lake: Lake) -> Courier:
    """A second batch comes that only the rebuilt function follows; returns who goes on delivering."""
    other = replace(by_id, of=widened(readings))
    drained(spark, lake, Pipeline(other.of, (other,)), [reading("a", 3) | {"city": "x"}, reading("c", 4)])
    rebuild(spark, lake, Pipeline(other.of, (once_wide,)), once_wide, now=lambda: NOW + timedelta(hours=1))
    return Courier(spark, lake, replace(once_out, of=once_wide))


@pytest.mark.long
def test_rows_of_a_keyed_function_that_were_delivered_do_not_come_again(spark: SparkSession, lake: Lake) -> None:
    pipeline = Pipeline(readings, (once,), deliveries=(once_out,))
    drained(spark, lake, pipeline, [reading("a", 1), reading("b", 2)])
    courier = rebuilt_later(spark, lake)
    courier.runtime.begin_anew(again=False)
    courier.deliver()
    drained(spark, lake, Pipeline(widened(readings), (once_wide,)), [reading("d", 5)])
    courier.deliver()
    assert [[row["id"] for row in rows] for rows in delivered(lake)] == [["a", "b"], ["c"], ["d"]]
    findings = list(reconcile(spark, lake, replace(once_out, of=once_wide)))
    assert all(finding.holds for finding in findings) and findings[-1].checked == 2


@pytest.mark.long
def test_where_not_all_was_delivered_nobody_can_tell_what_follows(spark: SparkSession, lake: Lake) -> None:
    drained(spark, lake, Pipeline(readings, (once,)), [reading("a", 1), reading("b", 2)])
    courier = Courier(spark, lake, replace(once_out, batch=1))
    courier.runtime.next_batch(spark)
    courier.runtime.deliver(spark)
    courier = rebuilt_later(spark, lake)
    with pytest.raises(RedeliveryError, match="not all rows of it had been delivered"):
        courier.runtime.begin_anew(again=False)
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    assert [[row["id"] for row in rows] for rows in delivered(lake)] == [["a"], ["a", "b", "c"]]


others = replace(readings, name="others", source=Files("landing/others"))


@pytest.mark.long
def test_pairs_of_steps_that_a_rebuild_has_numbered_anew_come_once(spark: SparkSession, lake: Lake) -> None:
    """Three steps are one after the rebuild; a pair that only this one has met follows, and nothing is lost."""
    select = {"one": "left_value", "other": "right_value"}
    met = Joined("met", readings, others, ("id",), ("-9 seconds", "9 seconds"), select=select)
    out = Delivery("met_out", met, FILES, select=("one", "other"))
    of = Pipeline(name="both", streams=(readings, others), operators=(met,), deliveries=(out,))
    for number in range(3):
        land_all(lake, readings, [reading("a", number, number)])
        land_all(lake, others, [reading("a" if number == 2 else "b", number, 10)])
        drain(spark, lake, of, now=lambda: NOW)
    land_all(lake, others, [reading("a", 4, 11)])
    drain(spark, lake, replace(of, operators=(replace(met, name="other"),), deliveries=()), now=lambda: NOW)
    closer = replace(met, between=("-3 seconds", "3 seconds"))
    rebuild(spark, lake, replace(of, operators=(closer,), deliveries=()), closer, now=lambda: NOW)
    courier = Courier(spark, lake, replace(out, of=closer))
    courier.runtime.begin_anew(again=False)
    courier.deliver()
    pairs = [sorted((row["one"], row["other"]) for row in rows) for rows in delivered(lake)]
    assert pairs == [[(0, 10), (1, 10), (2, 10)], [(1, 11), (2, 11)]]
