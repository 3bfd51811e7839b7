"""Golden tests of enrichment: ordered and unordered lookups, failures aside, slow keys, freshness, in shared runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_assets.events.metadata import position_metadata
from streaming import (
    BlockingPostgresLookup,
    BoundedOutOfOrderness,
    Delivery,
    Enriched,
    Files,
    Json,
    Pipeline,
    Postgres,
    PostgresLookup,
    Stream,
    Table,
)
from streaming.audit.laws import audit
from streaming.base.errors import OperatorError
from streaming.declare.operator import Operator
from streaming.lake.lake import Lake
from streaming.log.read import read_log
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.service.drain import drain
from tests.support import lookups
from tests.support import postgres as postgres_server
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples
from tests.support.tally import Tally
from tests.support.waiting import until

QUERY = "select room from sensor_locations where sensor = %(sensor)s"
UNKNOWN = {"room": "UNKNOWN ROOM"}


def stream(name: str, columns: str) -> Stream:
    return Stream(
        name=name,
        source=Files(f"landing/{name}", files_per_batch=1),
        format=Json(f"at timestamp not null, {columns}"),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds"),
    )


readings = stream("readings", "sensor string, n bigint")
users = stream("users", "user string")
envelopes = stream("envelopes", "event_id string, n bigint, notes string")

ordered = Enriched("ordered", readings, lookups.after_a_while, {"square": "bigint"}, select=("n",))
unordered = Enriched(
    "unordered", readings, lookups.after_a_while, {"square": "bigint"}, select=("n",), order="as they come"
)
updated = Enriched("updated", users, lookups.business_call, {"message": "string"}, timeout="100 milliseconds")


def rows(spark: SparkSession, lake: Lake, of: Operator, *columns: str, side: str = "current") -> list[tuple[Any, ...]]:
    """In the order of the log."""
    return [tuple(row) for row in runtime_of(of, lake).readable[side](spark).select(*columns).collect()]


class Asked:
    """What a drain of all applications has left: its lake, its database, and its pipeline."""

    def __init__(self, spark: SparkSession, lake: Lake, database: str) -> None:
        self.spark, self.lake, self.database = spark, lake, database
        postgres_server.run(
            database,
            "create table sensor_locations (sensor varchar(16) primary key, room varchar(16))",
            "insert into sensor_locations values ('s1', 'room_1')",
        )
        lookup, blocking = PostgresLookup(database, QUERY), BlockingPostgresLookup(database, QUERY)
        self.rooms = Enriched("rooms", readings, lookup, {"room": "string"}, default=UNKNOWN, timeout="5 seconds")
        self.blocking = Enriched(
            "blocking", readings, blocking, {"room": "string"}, default=UNKNOWN, timeout="5 seconds", capacity=1
        )
        self.cached = Enriched(
            "cached", readings, lookup, {"room": "string"}, ("sensor",), ("sensor",), "5 seconds", cache="1 hour"
        )
        alerts = Delivery("alerts", updated, Postgres("alerts", ("user",), database), output="failed")
        self.pipeline = Pipeline(
            name="lookups",
            streams=(readings, users),
            operators=(self.rooms, self.blocking, self.cached, ordered, unordered, updated),
            deliveries=(alerts,),
        )
        sensors = [{"at": at(n).isoformat(), "sensor": name, "n": n} for n, name in enumerate(("s1", "s2", "s1"))]
        land_all(lake, readings, sensors)
        land_all(lake, users, [{"at": at(n).isoformat(), "user": f"u{n}"} for n in (1, 2, 3)])
        self.drain()

    def drain(self) -> None:
        drain(self.spark, self.lake, self.pipeline, now=lambda: NOW)


@pytest.fixture(scope="module")
def asked(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, postgres_running: postgres_server.Server
) -> Asked:
    return Asked(spark, Lake(str(tmp_path_factory.mktemp("asked") / "lake")), postgres_running.database())


def test_a1_ordered_lookup_keeps_the_order_of_the_input_and_has_a_default(spark: SparkSession, asked: Asked) -> None:
    golden = [("s1", "room_1"), ("s2", "UNKNOWN ROOM"), ("s1", "room_1")]
    for lookup in (asked.rooms, asked.blocking):
        assert rows(spark, asked.lake, lookup, "sensor", "room") == golden
        answers = rows(spark, asked.lake, lookup, "_asked_at", "_attempt", "_cached", "_error", "_version")
        assert [row[1:] for row in answers] == [(1, False, None, 1)] * 3
    assert tuples(runtime_of(asked.rooms, asked.lake).readable["current"](spark), "_at") == [(at(n),) for n in range(3)]


def test_a2_unordered_lookup_gives_the_same_rows_as_an_ordered_one(spark: SparkSession, asked: Asked) -> None:
    golden = [(0, 0), (1, 1), (2, 4)]
    assert rows(spark, asked.lake, ordered, "n", "square") == golden
    assert sorted(rows(spark, asked.lake, unordered, "n", "square")) == golden


def test_a3_failures_go_aside_and_each_is_alerted_once_while_the_stream_goes_on(
    spark: SparkSession, asked: Asked
) -> None:
    assert rows(spark, asked.lake, updated, "user", "message") == [("u1", "updated u1")]
    failed = rows(spark, asked.lake, updated, "user", "kind", "error", "attempts", side="failed")
    assert failed == [
        ("u2", "error", "ValueError: u2 is blocked", 1),
        ("u3", "timeout", "TimeoutError: no answer within 0.1 s", 1),
    ]
    alerts = postgres_server.rows(asked.database, 'select "user", kind from alerts order by 1')
    assert alerts == [("u2", "error"), ("u3", "timeout")]
    assert rows(spark, asked.lake, updated, "user", side="pending") == []


def test_d5_a_failure_travels_with_its_event_and_is_in_no_other_table(spark: SparkSession, asked: Asked) -> None:
    failed = runtime_of(updated, asked.lake).readable["failed"](spark)
    assert tuples(failed, "user", "at", "_at", "_origin.position", "_version") == [
        ("u2", at(2), at(2), 1, 1),
        ("u3", at(3), at(3), 2, 1),
    ]
    assert all(finding.holds for finding in audit(spark, asked.lake, Pipeline(users, (updated,))))


@pytest.mark.long
def test_a6_what_was_answered_stays_though_the_table_changes_and_each_row_tells_its_freshness(
    spark: SparkSession, asked: Asked
) -> None:
    before = rows(spark, asked.lake, asked.rooms, "*")
    postgres_server.run(asked.database, "update sensor_locations set room = 'room_9'")
    asked.drain()
    assert rows(spark, asked.lake, asked.rooms, "*") == before
    land_all(asked.lake, readings, [{"at": at(9).isoformat(), "sensor": "s1", "n": 3}])
    asked.drain()
    assert rows(spark, asked.lake, asked.rooms, "room", "_batch")[3:] == [("room_9", 1)]
    fresh = tuples(runtime_of(asked.rooms, asked.lake).readable["current"](spark), "_asked_at", "_answered_at")
    assert fresh == [(NOW, NOW)] * 4
    with pytest.raises(OperatorError, match="'rooms' cannot be built anew: its answers were given once"):
        rebuild(spark, asked.lake, asked.pipeline, asked.rooms)


@pytest.fixture(scope="module")
def rules(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Path]]:
    """A log of a hundred envelopes, of which the one with the id `I` keeps its rule busy for ever."""
    folder = tmp_path_factory.mktemp("rules")
    lake, notes = Lake(str(folder / "lake")), folder / "pid"
    ids = ["I", *(f"e{n}" for n in range(1, 100))]
    events = [{"at": at(n).isoformat(), "event_id": id_, "n": n, "notes": str(notes)} for n, id_ in enumerate(ids)]
    run(spark, lake, Pipeline(envelopes, (Tally("tally", (envelopes,)),)), events)
    yield lake, notes


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_a5_a_slow_key_waits_and_holds_up_no_other(spark: SparkSession, rules: tuple[Lake, Path]) -> None:
    lake, notes = rules
    doubled = {"doubled": "bigint"}
    slow = Enriched("slow", envelopes, lookups.rule, doubled, timeout="1 hour", capacity=2, order="as they come")
    with closing(runtime_of(slow, lake)) as runtime:
        for step in runtime.steps(spark, lambda: NOW):
            written = step.run()
            if written.state_rows == 1:
                break
        assert len(rows(spark, lake, slow, "event_id")) == 99
        assert rows(spark, lake, slow, "event_id", "_attempts", side="pending") == [("I", 1)]
        assert runtime.waiting() == position_metadata(lake, slow)["waiting_rows"] == 1
        assert _is_alive(int(notes.read_text()))
    until(lambda: not _is_alive(int(notes.read_text())), "killed")
    assert all(finding.holds for finding in audit(spark, lake, Pipeline(envelopes, (slow,))))


@pytest.mark.long
def test_r5_one_rule_for_all_ids_loses_only_the_one_that_takes_too_long(
    spark: SparkSession, rules: tuple[Lake, Path]
) -> None:
    lake, notes = rules
    limited = Enriched("limited", envelopes, lookups.rule, {"doubled": "bigint"}, timeout="2 seconds", capacity=2)
    with closing(runtime_of(limited, lake)) as runtime:
        written = [step.run() for step in runtime.steps(spark, lambda: NOW)]
        # In the order of the log the first row holds back those behind it, so that none overtakes the clock.
        before_it_failed = [each.rows for each in takewhile(lambda each: not each.failures, written)]
        assert before_it_failed and not any(before_it_failed)
        doubled = rows(spark, lake, limited, "event_id", "doubled")
        assert doubled == [(f"e{n}", 2 * n) for n in range(1, 100)]
        assert rows(spark, lake, limited, "event_id", "kind", side="failed") == [("I", "timeout")]
        assert not _is_alive(int(notes.read_text()))


@pytest.mark.long
def test_an_enriched_stream_is_followed_by_another(spark: SparkSession, asked: Asked) -> None:
    located = Stream(
        name="located",
        source=Table(asked.rooms),
        format=Json("sensor string, room string, at timestamp"),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds"),
    )
    failures = Stream(
        name="failures",
        source=Table(updated, side="failed"),
        format=Json("user string, kind string, at timestamp"),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds"),
    )
    tally = Tally("tally", (located, failures))
    followers = Pipeline(name="followers", streams=(located, failures), operators=(tally,))
    drain(spark, asked.lake, followers, now=lambda: NOW)
    rooms = runtime_of(asked.rooms, asked.lake).readable["current"](spark)
    assert tuples(read_log(spark, asked.lake, located), "sensor", "room") == tuples(rooms, "sensor", "room")
    assert tuples(read_log(spark, asked.lake, failures), "user", "kind") == [("u2", "error"), ("u3", "timeout")]
