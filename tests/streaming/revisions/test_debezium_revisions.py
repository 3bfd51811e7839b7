"""Change events of databases as revisions: what the envelopes say is enough, but for the key."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Debezium,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError
from streaming.log import read_log
from streaming.operations import RowChoice, retract
from streaming.revisions.steps import rows_now
from tests.support.instants import NOW, at, ms
from tests.support.runs import run

ROWS = Stream(
    name="accounts",
    source=Files("landing/accounts"),
    format=Debezium(Json("id bigint not null, owner string, notes string, at_ms bigint")),
    derived={"at": "timestamp_millis(at_ms)", "length": "length(notes)"},
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
)
BY_MINUTE = Windowed("by_minute", ROWS, Tumbling("1 minute"), {"accounts": agg.count()})
PIPELINE = Pipeline(ROWS, (BY_MINUTE,))
UNAVAILABLE = "__debezium_unavailable_value"


def envelope(
    op: str, lsn: int, seconds: float, before: dict[str, Any] | None, after: dict[str, Any] | None, **source: Any
) -> dict[str, Any]:
    told = {"connector": "postgresql", "lsn": lsn, "ts_ms": ms(at(seconds)), "db": "bank", "table": "accounts"}
    return {"before": before, "after": after, "op": op, "ts_ms": ms(at(seconds)), "source": {**told, **source}}


def row(number: int, owner: str | None, notes: str | None, seconds: float = 5) -> dict[str, Any]:
    return {"id": number, "owner": owner, "notes": notes, "at_ms": ms(at(seconds))}


def stands(spark: SparkSession, lake: Lake, stream: Stream = ROWS) -> list[tuple[Any, ...]]:
    return [tuple(each) for each in rows_now(spark, lake, stream).select("id", "owner", "notes", "length").collect()]


@pytest.mark.long
def test_a_large_value_that_was_not_sent_is_the_one_that_stands(spark: SparkSession, lake: Lake) -> None:
    """
    lsn 10  c  1 ann  a long text       20  u  1 bea  (notes unchanged)       30  u  1 eve  (notes unchanged)
    lsn 40  d  1                        50  c  1 ann  (notes not sent)
    """
    run(spark, lake, PIPELINE, [envelope("c", 10, 5, None, row(1, "ann", "a long text"))])
    run(
        spark,
        lake,
        PIPELINE,
        [
            envelope("u", 20, 6, None, row(1, "bea", UNAVAILABLE)),
            envelope("u", 30, 7, None, row(1, "eve", UNAVAILABLE)),
        ],
    )
    assert stands(spark, lake) == [(1, "eve", "a long text", 11)]
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []
    run(spark, lake, PIPELINE, [envelope("d", 40, 8, {"id": 1}, None)])
    run(spark, lake, PIPELINE, [envelope("c", 50, 9, None, row(1, "ann", UNAVAILABLE))])
    assert stands(spark, lake) == [(1, "ann", None, None)]
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []


def test_a_snapshot_that_is_read_again_beside_live_changes_changes_nothing_that_is_newer(
    spark: SparkSession, lake: Lake
) -> None:
    """
    live                      snapshot, of the table as it was at 20      the connector dies
    lsn 10  c  1 ann
    lsn 30  u  1 eve
                              lsn 20  r  1 ann                            older than what stands
                              lsn 20  r  2 bob                            nobody has told of it before
                                                                          10 and 30 come again
    """
    live = [envelope("c", 10, 5, None, row(1, "ann", "x")), envelope("u", 30, 6, None, row(1, "eve", "y"))]
    run(spark, lake, PIPELINE, live)
    # The snapshot saw the table as it was at 20, and reads a row that nobody has told before.
    again = [
        envelope("r", 20, 9, None, row(1, "ann", "x"), snapshot="incremental"),
        envelope("r", 20, 9, None, row(2, "bob", "z"), snapshot="incremental"),
    ]
    run(spark, lake, PIPELINE, again)
    # The connector has died, and sends what it had sent.
    run(spark, lake, PIPELINE, live)
    assert stands(spark, lake) == [(1, "eve", "y", 1), (2, "bob", "z", 1)]
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []


@pytest.mark.long
def test_a_tombstone_is_no_defect_and_no_revision_and_a_delete_needs_the_key_alone(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [envelope("c", 10, 5, None, row(1, "ann", "x"))])
    run(spark, lake, PIPELINE, [envelope("d", 20, 6, {"id": 1}, None), {"schema": None, "payload": None}])
    log = read_log(spark, lake, ROWS.revisions).where("_origin is not null")
    assert log.where("_rejected is not null").select("_rejected").collect() == []
    assert stands(spark, lake) == []
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []


@pytest.mark.long
def test_a_truncation_is_told_and_what_stood_before_it_is_taken_back_by_hand(spark: SparkSession, lake: Lake) -> None:
    """
    batch 0   lsn 10  c  1 ann
    batch 1   lsn 20  t             told as a rejected row: ann stands
              lsn 30  c  2 bob
    ann is taken back               bob stands
    """
    run(spark, lake, PIPELINE, [envelope("c", 10, 5, None, row(1, "ann", "x"))])
    run(spark, lake, PIPELINE, [envelope("t", 20, 6, None, None), envelope("c", 30, 7, None, row(2, "bob", "y"))])
    (rejected,) = read_log(spark, lake, ROWS.revisions).where("_rejected is not null").collect()
    assert rejected["_rejected"] == ["debezium: op t is no change of a row (c, r, u, d)"]
    assert [each[1] for each in stands(spark, lake)] == ["ann", "bob"]
    retract(spark, lake, PIPELINE, ROWS, RowChoice("_batch < 1"), "truncated", "ada", lambda: NOW)
    assert [each[1] for each in stands(spark, lake)] == ["bob"]
    # The key comes again, as a row of the table as it is now.
    run(spark, lake, PIPELINE, [envelope("c", 40, 8, None, row(1, "eve", "z"))])
    assert [each[1] for each in stands(spark, lake)] == ["eve", "bob"]
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"connector": "postgresql", "lsn": 9}, {"connector": "postgresql", "lsn": 10}),
        (
            {"connector": "mysql", "file": "binlog.000002", "pos": 900, "row": 1},
            {"connector": "mysql", "file": "binlog.000003", "pos": 4, "row": 0},
        ),
        (
            {"connector": "mysql", "file": "binlog.000003", "pos": 4, "row": 0},
            {"connector": "mysql", "file": "binlog.000003", "pos": 4, "row": 1},
        ),
        (
            {"connector": "sqlserver", "commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ab8:0002"},
            {"connector": "sqlserver", "commit_lsn": "00000027:00000ad8:0002", "change_lsn": "00000027:00000ac0:0001"},
        ),
        (
            {"connector": "sqlserver", "commit_lsn": "00000027:00000ac0:0002", "snapshot": "true"},
            {"connector": "sqlserver", "commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ab8:0002"},
        ),
        ({"connector": "mysql", "file": "b.999999", "pos": 9}, {"connector": "mysql", "file": "b.1000000", "pos": 4}),
        (
            {"connector": "db2", "commit_lsn": "0:1:2", "change_lsn": "0:1:1", "ts_ms": 5},
            {"connector": "db2", "commit_lsn": "0:1:2", "change_lsn": "0:1:2", "ts_ms": 5},
        ),
        ({"connector": "mongodb", "ts_ms": 1, "ord": 1}, {"connector": "mongodb", "ts_ms": 1, "ord": 2}),
    ],
    ids=[
        "postgresql",
        "mysql",
        "a statement of mysql",
        "sqlserver",
        "a snapshot of sqlserver",
        "files of mysql",
        "db2",
        "mongodb",
    ],
)
def test_a_change_has_its_place_in_the_log_of_its_database(
    spark: SparkSession, older: dict[str, Any], newer: dict[str, Any]
) -> None:
    sequence = ROWS.sequence
    texts = spark.createDataFrame([(json.dumps(older), json.dumps(newer))], "older string, newer string")
    first, second = (f"({sequence})".replace("change_source", name) for name in ("older", "newer"))
    found = texts.selectExpr(f"{first} < {second}", f"{second} < {first}").first()
    assert found is not None and tuple(found) == (True, False)


@pytest.mark.sampled
@pytest.mark.parametrize("condition", ["length(notes) > 0", "length > 0", "twice > 0"])
def test_a_rule_about_a_value_that_was_not_sent_keeps_no_change_from_the_log(
    spark: SparkSession, lake: Lake, condition: str
) -> None:
    derived = {**ROWS.derived, "twice": "2 * length"}
    stream = replace(ROWS, derived=derived, rules=(Rule("has_notes", condition),))
    pipeline = Pipeline(stream, (replace(BY_MINUTE, of=stream),))
    run(spark, lake, pipeline, [envelope("c", 10, 5, None, row(1, "ann", "x"))])
    run(spark, lake, pipeline, [envelope("u", 20, 5, None, row(1, "bea", UNAVAILABLE))])
    run(spark, lake, pipeline, [envelope("u", 30, 5, None, row(1, "eve", None))])
    assert stands(spark, lake, stream) == [(1, "bea", "x", 1)]


def test_a_column_that_is_made_of_a_value_that_may_not_be_sent_and_others_is_refused() -> None:
    with pytest.raises(DeclarationError, match="made of notes and owner"):
        replace(ROWS, derived={**ROWS.derived, "both": "concat(owner, notes)"})


def test_a_connector_that_tells_no_order_needs_a_sequence(spark: SparkSession, lake: Lake) -> None:
    change = envelope("c", 10, 5, None, row(1, "ann", "x"), connector="spanner")
    run(spark, lake, PIPELINE, [change])
    (rejected,) = read_log(spark, lake, ROWS.revisions).where("_rejected is not null").collect()
    assert rejected["_rejected"][0].startswith("sequence: ")


@pytest.mark.long
def test_a_change_without_its_place_is_rejected_and_told(spark: SparkSession, lake: Lake) -> None:
    lost = envelope("c", 10, 5, None, row(1, "ann", "x"))
    del lost["source"]["lsn"]
    run(spark, lake, PIPELINE, [lost, envelope("c", 11, 5, None, row(2, "bob", "y"))])
    (rejected,) = read_log(spark, lake, ROWS.revisions).where("_rejected is not null").collect()
    assert rejected["_rejected"][0].startswith("sequence: ")
    assert stands(spark, lake) == [(2, "bob", "y", 1)]
