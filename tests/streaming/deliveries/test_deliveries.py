"""Rows of every kind of table on their way to a target: all of them, once, in order, in batches that stay as cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.deliveries import audit_delivery
from streaming.base.errors import ChangedDeclaration, FencedError, ProgressError, RedeliveryError, SinkError
from streaming.declare.delivery import Delivery
from streaming.operations.rebuild import rebuild
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres
from streaming.sinks.printing import Console
from streaming.sinks.rest import Rest
from streaming.views.corrections import correct
from tests.support.delivering import Courier, by_id, drained, ingested, pipeline, reading, readings, visits
from tests.support.http_server import HttpServer, http_server
from tests.support.instants import NOW, at
from tests.support.postgres import rows, run

OUT = JsonLines("out", by="none")
everything = Delivery("everything", readings, OUT, select=("id", "value"))


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as started:
        yield started


def delivered(lake: Lake) -> list[list[dict[str, Any]]]:
    """The rows of each file below `out`, in the order of the files' names."""
    paths = sorted(path for path in Path(lake.root, "out").rglob("*.json") if path.parent.name != "_delivered")
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def values(lake: Lake) -> list[list[int]]:
    return [[row["value"] for row in rows] for rows in delivered(lake)]


@pytest.mark.long
def test_valid_rows_arrive_in_the_order_of_the_log_whatever_the_size_of_a_batch(
    spark: SparkSession, lake: Lake
) -> None:
    ingested(spark, lake, [reading("a", 1, 0), reading("a", 2, 1), "broken"], [reading("b", 3, 2)])
    ingested(spark, lake, [reading("b", 0, 3), reading("b", 4, 4), reading("c", 4, 5)])
    assert Courier(spark, lake, replace(everything, batch=4)).deliver() == 2
    assert values(lake) == [[0, 1, 2, 3], [4, 5]]
    ingested(spark, lake, [reading("b", 5, 6)])
    again = Courier(spark, lake, replace(everything, batch=2))
    assert (again.deliver(), again.deliver()) == (1, 0)
    assert values(lake) == [[0, 1, 2, 3], [4, 5], [6]]
    standing = again.runtime.standing()
    assert (standing.delivered, standing.rows, standing.dead, standing.behind) == (2, 7, 0, 0)


@pytest.mark.long
def test_rejected_and_late_rows_first_results_and_late_pairs_are_delivered_as_well(
    spark: SparkSession, lake: Lake
) -> None:
    ingested(spark, lake, [reading("a", 1, 10), reading("a", 18, 20)], [reading("a", 2, 7), "broken"])
    ingested(spark, lake, [reading("a", 40, 30)])

    def arrived(delivery: Delivery) -> list[dict[str, Any]]:
        Courier(spark, lake, delivery).deliver()
        return [row for rows in delivered(lake) for row in rows]

    def to(folder: str) -> JsonLines:
        return JsonLines(f"out/{folder}", by="none")

    (rejected,) = arrived(Delivery("refuse", readings, to("1"), "rejected"))
    assert (rejected["payload"], rejected["batch"]) == ("broken", 1)
    assert rejected["origin"]["position"] == 1
    assert arrived(Delivery("late_rows", readings, to("2"), "late", select=("value",)))[1:] == [{"value": 7}]
    pairs = arrived(
        Delivery("late_pairs", by_id, to("3"), "late", select={"v": "value", "to": "unix_seconds(window_end)"})
    )
    assert pairs[2:] == [{"v": 7, "to": int(at(10).timestamp())}]
    first = arrived(Delivery("results", by_id, to("4"), where="total > 10"))
    assert [(row["total"], row["window_end"]) for row in first[3:]] == [(20, at(20).isoformat().replace("+00:00", "Z"))]


@pytest.mark.long
def test_x1_full_batches_go_at_once_and_the_rest_by_timer(spark: SparkSession, lake: Lake, server: HttpServer) -> None:
    """700, 700 and 1100 rows come, then silence: 1000, 1000, and 500 once they have waited for five seconds."""
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    courier = Courier(spark, lake, post)
    sizes = []
    for first, come in ((0, 700), (700, 700), (1400, 1100)):
        ingested(spark, lake, [reading("a", 1, first + number) for number in range(come)])
        courier.deliver()
        sizes.append([len(posted.rows) for posted in server.posted])
    assert sizes == [[], [1000], [1000, 1000]]
    assert courier.wait(4.9).deliver() == 0
    assert courier.wait(0.1).deliver() == 1
    assert [len(posted.rows) for posted in server.posted] == [1000, 1000, 500]
    assert [row["value"] for row in server.rows()] == list(range(2500))
    assert [posted.key for posted in server.posted] == [f"readings/post/0/{number}" for number in range(3)]


def test_x1_a_batch_that_was_cut_is_the_same_when_it_is_sent_again(
    spark: SparkSession, lake: Lake, server: HttpServer
) -> None:
    """The process dies after the POST, before it noted that; more rows have come when another one goes on."""
    post = Delivery("post", readings, Rest(server.url, batch=3), select=("value",))
    ingested(spark, lake, [reading("a", 1, value) for value in range(4)])
    first = Courier(spark, lake, post)
    first.deliver()
    assert first.runtime.next_batch(spark, all_of_it=True) == 1
    server.answer = lambda posted: 503
    with pytest.raises(SinkError):
        first.runtime.deliver(spark)
    ingested(spark, lake, [reading("a", 1, 4), reading("a", 1, 5)])
    server.answer = lambda posted: 200
    Courier(spark, lake, post).deliver(all_of_it=True)
    assert [(posted.key[-1], [row["value"] for row in posted.rows]) for posted in server.posted] == [
        *(("0", [0, 1, 2]), ("1", [3]), ("1", [3]), ("2", [4, 5]))
    ]


def test_x2_the_rest_is_flushed_at_the_end_of_input(spark: SparkSession, lake: Lake, server: HttpServer) -> None:
    """Sums of three, 1 to 7: a drain takes no more input, so the seventh goes as well."""
    post = Delivery("post", readings, Rest(server.url, batch=3, flush="1 hour"), select=("value",))
    drained(spark, lake, post, [reading("a", second, second) for second in range(1, 8)])
    assert [sum(row["value"] for row in posted.rows) for posted in server.posted] == [6, 15, 7]


@pytest.mark.long
def test_a_target_that_is_away_fails_no_drain_and_the_next_one_goes_on(
    spark: SparkSession, lake: Lake, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.service.delivering._PATIENCE", 0.1)
    server.answer = lambda posted: 500
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    first = drained(spark, lake, post, [reading("a", 1, 1)])
    assert "answers 500" in first.waiting["post"]
    assert first.queries["by_id"].batches == 1
    server.answer = lambda posted: 200
    second = drained(spark, lake, post, [reading("a", 2, 2)])
    assert second.waiting == {}
    assert [[row["value"] for row in posted.rows] for posted in server.taken] == [[1], [2]]


@pytest.mark.long
def test_a_delivery_whose_target_was_never_there_is_audited_as_one_that_has_not_begun(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.service.delivering._PATIENCE", 0.1)
    delivery = Delivery("told", by_id, Postgres("t", connection="host=127.0.0.1 port=1"), what="current")
    assert list(drained(spark, lake, delivery, [reading("a", 1, 1), reading("a", 60, 2)]).waiting) == ["told"]
    assert [finding.compared for finding in audit_delivery(spark, lake, delivery)] == ["nothing is delivered yet"]


def test_x3_exactly_once_though_the_process_dies_between_the_transaction_and_its_note(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    delivery = Delivery("rows_out", readings, Postgres("r", connection=postgres), select=("id", "value"))
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)])
    courier = Courier(spark, lake, delivery)
    courier.runtime.next_batch(spark)
    before = courier.runtime.ledger.read()
    courier.runtime.deliver(spark)
    after = courier.runtime.ledger.read()
    assert before is not None and after is not None
    courier.runtime.ledger.write(after, before)

    again = Courier(spark, lake, delivery)
    assert again.deliver() == 1
    assert again.runtime.ledger.read() == after
    assert rows(postgres, "select id, value from r order by 1") == [("a", 1), ("b", 2)]


@pytest.mark.long
def test_a_database_that_was_restored_and_one_that_is_another_lakes_are_refused(
    spark: SparkSession, lake: Lake, postgres: str, tmp_path: Path
) -> None:
    delivery = Delivery("rows_out", readings, Postgres("r", connection=postgres), select=("value",))
    ingested(spark, lake, [reading("a", 1, 1)])
    Courier(spark, lake, delivery).deliver()
    other = Lake(str(tmp_path / "other"))
    ingested(spark, other, [reading("a", 1, 2)])
    with pytest.raises(ProgressError, match="has progress of another delivery that is called 'readings/rows_out' too"):
        Courier(spark, other, delivery).deliver()
    run(postgres, "delete from tidemark_progress")
    ingested(spark, lake, [reading("a", 1, 3)])
    with pytest.raises(ProgressError, match="got there up to batch -1, and the lake that it is at batch 0"):
        Courier(spark, lake, delivery).deliver()
    assert rows(postgres, "select value from r") == [(1,)]


def test_a_process_that_slept_while_another_delivered_is_refused(spark: SparkSession, lake: Lake) -> None:
    ingested(spark, lake, [reading("a", 1, 1)])
    slept = Courier(spark, lake, everything)
    slept.runtime.next_batch(spark)
    Courier(spark, lake, everything).deliver()
    with pytest.raises(FencedError, match="another process has taken over"):
        slept.runtime.deliver(spark)
    assert values(lake) == [[1]]


@pytest.mark.long
def test_dead_letters_keep_payload_error_place_and_attempt_and_arrive_once_after_a_fix(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    run(postgres, "create table r (id varchar(3), value bigint constraint small check (value < 100))")
    delivery = Delivery("out", readings, Postgres("r", connection=postgres), select=("id", "value"))
    batches = [[reading("a", 1, 1), reading("far", 2, 100), reading("b", 3, 2)], [reading("longer", 4, 3)]]
    ingested(spark, lake, *batches)
    courier = Courier(spark, lake, delivery)
    courier.deliver()

    def dead() -> list[tuple[Any, ...]]:
        letters = courier.runtime.dead_letters.pending(0, 10)
        return [
            (json.loads(each["payload"])["id"], each["attempt"], each["origin"], each["error"][:12]) for each in letters
        ]

    assert dead() == [
        ("far", 1, {"unit": 0, "row": 1}, "CheckViolati"),
        ("longer", 1, {"unit": 1, "row": 0}, "StringDataRi"),
    ]
    assert courier.runtime.standing().dead == 2

    run(postgres, "alter table r drop constraint small")
    courier.runtime.dead_letters.ask(0, courier.runtime.standing().delivered)
    assert courier.deliver() == 1
    assert dead() == [("longer", 2, {"unit": 1, "row": 0}, "StringDataRi")]
    # The other way to fix: another selection.
    fixed = replace(delivery, select={"id": "left(id, 3)", "value": "value"})
    courier = Courier(spark, lake, fixed)
    courier.runtime.dead_letters.ask(0, courier.runtime.standing().delivered)
    assert (courier.deliver(), dead()) == (1, [])
    ingested(spark, lake, [reading("c", 5, 4)])
    assert courier.deliver() == 1
    assert rows(postgres, "select * from r order by value") == [("a", 1), ("b", 2), ("lon", 3), ("c", 4), ("far", 100)]

    def broken() -> list[int]:
        return [finding.broken for finding in audit_delivery(spark, lake, fixed)]

    assert broken() == [0, 0]
    run(postgres, "delete from r where value = 1")
    assert broken() == [0, 1]


def test_a_batch_that_is_repeated_replaces_its_dead_letters(
    spark: SparkSession, lake: Lake, server: HttpServer
) -> None:
    """The server refuses two rows and goes away before it took the rest; later it refuses one of them only."""
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    ingested(spark, lake, [reading("a", 1, value) for value in range(4)])
    courier = Courier(spark, lake, post)
    courier.runtime.next_batch(spark, all_of_it=True)
    server.answer = lambda posted: 422 if {0, 1} & {row["value"] for row in posted.rows} else 200
    put_aside = courier.runtime.dead_letters.put_aside

    def dies(*args: Any) -> None:
        put_aside(*args)
        raise KeyboardInterrupt

    courier.runtime.dead_letters.put_aside = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        courier.runtime.deliver(spark)
    assert courier.runtime.dead_letters.count() == 2
    server.answer = lambda posted: 422 if {1} & {row["value"] for row in posted.rows} else 200
    again = Courier(spark, lake, post)
    again.deliver()
    assert [json.loads(row["payload"]) for row in again.runtime.dead_letters.pending(0, 0)] == [{"value": 1}]


@pytest.mark.long
def test_another_condition_is_refused_until_it_is_said_what_is_meant(spark: SparkSession, lake: Lake) -> None:
    ingested(spark, lake, [reading("a", 1, 1), reading("a", 2, 2)])
    Courier(spark, lake, everything).deliver()
    other = replace(everything, where="value > 1")
    courier = Courier(spark, lake, other)
    with pytest.raises(ChangedDeclaration, match=r"where was nothing and is value > 1.* --go-on"):
        courier.deliver()
    courier.runtime.begin_anew(again=False)
    ingested(spark, lake, [reading("a", 3, 0), reading("a", 4, 3)])
    courier.deliver()
    assert values(lake) == [[1, 2], [3]]
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    assert values(lake) == [[1, 2], [3], [2, 3]]
    findings = list(audit_delivery(spark, lake, other))
    assert [(finding.checked, finding.broken) for finding in findings] == [(2, 0), (5, 0)]


def test_a_delivery_begins_anew_with_all_rows_also_while_its_target_is_away(spark: SparkSession, lake: Lake) -> None:
    away = Postgres("r", connection="host=127.0.0.1 port=1 connect_timeout=2")
    courier = Courier(spark, lake, Delivery("rows_out", readings, away, select=("value",)))
    ingested(spark, lake, [reading("a", 1, 1)])
    assert courier.runtime.next_batch(spark) == 0
    with pytest.raises(SinkError):
        courier.runtime.begin_anew(again=False)
    assert courier.runtime.begin_anew(again=True).generation == 1


@pytest.mark.long
def test_a_delivery_that_begins_anew_reads_old_batches_in_pieces_as_at_first(spark: SparkSession, lake: Lake) -> None:
    ingested(spark, lake, *([reading("a", second, second)] for second in range(1, 5)))
    outbox = Courier(spark, lake, everything).runtime.outbox
    assert (outbox.end(0), outbox.piece(0, 4, 2), outbox.piece(2, 4, 2)) == (4, 2, 4)
    assert (outbox.end(4), outbox.end(0), outbox.piece(0, 4, 2)) == (4, 4, 2)


@pytest.mark.long
def test_a_delivery_of_other_rows_is_not_let_go_on_where_it_was(spark: SparkSession, lake: Lake, postgres: str) -> None:
    """Revisions of what is current are small numbers, those of first results ends of windows in microseconds."""
    ingested(spark, lake, [reading("a", 1, 1)], [reading("a", 40, 2)])
    results = Delivery("results", by_id, OUT, "first", select=(*by_id.identity, "total"))
    to_table = Postgres("totals", key=("id", "window_start"), connection=postgres)
    keyed = replace(results, name="keyed", to=to_table)
    for delivery in (results, keyed):
        Courier(spark, lake, delivery).deliver()
        courier = Courier(spark, lake, replace(delivery, what="current"))
        with pytest.raises(ChangedDeclaration, match=r"what was first and is current.* and with a target of its own"):
            courier.deliver()
        with pytest.raises(RedeliveryError, match=r"Their places say nothing .* a target of its own"):
            courier.runtime.begin_anew(again=False)
    with pytest.raises(RedeliveryError, match="nor their revisions"):
        Courier(spark, lake, replace(keyed, what="current")).runtime.begin_anew(again=True)
    assert Courier(spark, lake, keyed).deliver() == 0
    of_log = Courier(spark, lake, replace(results, of=readings, what="rows", select=("id", "value")))
    with pytest.raises(RedeliveryError, match="of was by_id and is readings"):
        of_log.runtime.begin_anew(again=False)
    of_log.runtime.begin_anew(again=True)
    of_log.deliver()
    assert delivered(lake)[-1] == [{"id": "a", "value": 1}, {"id": "a", "value": 2}]


@pytest.mark.long
def test_a_view_that_was_built_anew_is_refused_until_it_is_said_what_is_meant(spark: SparkSession, lake: Lake) -> None:
    first = Delivery("results", by_id, OUT, select=("total",))
    ingested(spark, lake, [reading("a", 1, 10), reading("a", 18, 20)])
    Courier(spark, lake, first).deliver()
    rebuild(spark, lake, pipeline(), by_id, now=lambda: NOW)
    courier = Courier(spark, lake, first)
    with pytest.raises(ChangedDeclaration, match=r"from generation 0 of 'by_id', which was built anew .* generation 1"):
        courier.deliver()
    courier.runtime.begin_anew(again=False)
    ingested(spark, lake, [reading("a", 29, 30)])
    courier.deliver()
    assert [[row["total"] for row in rows] for rows in delivered(lake)] == [[10], [20]]


@pytest.mark.long
def test_what_is_current_arrives_as_upserts_with_revision_and_reason_and_what_vanished_as_deletes(
    spark: SparkSession, lake: Lake
) -> None:
    """Visits a@0 and a@12 are apart, until a@6 comes late and makes them one."""
    current = Delivery("visits_out", visits, OUT, "current", select=("id", "window_start", "window_end", "readings"))
    ingested(spark, lake, [reading("a", 0)], [reading("a", 12)], [reading("a", 60)])
    courier = Courier(spark, lake, current)
    courier.deliver()
    ingested(spark, lake, [reading("a", 6)])
    assert courier.deliver() == 0
    correct(spark, lake, visits, [date(2026, 1, 1)], lambda: NOW)
    courier.deliver()
    changes = [
        [
            (row["_change"], row["_reason"], row["_revision"], row["readings"], row["window_start"][17:19])
            for row in rows
        ]
        for rows in delivered(lake)
    ]
    assert changes[0] == [("upsert", "first", 0, 1, "00"), ("upsert", "first", 0, 1, "12")]
    assert sorted(changes[1], key=str) == [
        ("delete", "correction", changes[1][0][2], None, "00"),
        ("delete", "correction", changes[1][0][2], None, "12"),
        ("upsert", "correction", changes[1][0][2], 3, "00"),
    ]
    ingested(spark, lake, [reading("b", 61), reading("b", 80)])
    few = replace(current, name="few", to=JsonLines("few", by="none"), where="readings < 2")
    Courier(spark, lake, few).deliver()
    ingested(spark, lake, [reading("b", 62)])
    correct(spark, lake, visits, [date(2026, 1, 1)], lambda: NOW)
    Courier(spark, lake, few).deliver()
    names = sorted(Path(lake.root, "few").glob("*.json"))
    first, then = ([json.loads(line) for line in name.read_text().splitlines()] for name in names)
    assert [(row["id"], row["_change"]) for row in first] == [("a", "upsert"), ("b", "upsert")]
    assert [(row["id"], row["_change"]) for row in then] == [("b", "delete")]


@pytest.mark.long
def test_x14_one_product_in_three_stores_of_which_one_is_away(
    spark: SparkSession, lake: Lake, postgres: str, server: HttpServer
) -> None:
    """Versions 1, 3 and 2 of a product: every store that keeps keys ends at 3, and the one that was away catches up."""
    stores = {
        name: Courier(
            spark, lake, Delivery(name, readings, Postgres(f"shop.{name}", ("id",), postgres), select=("id", "value"))
        )
        for name in ("cache", "search")
    }
    post = Courier(spark, lake, Delivery("feed", readings, Rest(server.url, flush=None), select=("value",)))
    run(postgres, "create schema shop", "create table shop.search (id text primary key, value bigint)")
    ingested(spark, lake, [reading("product", 1, 1)], [reading("product", 3, 3)], [reading("product", 2, 2)])
    stores["cache"].deliver()
    post.deliver()
    with pytest.raises(SinkError, match="has no column '_revision'"):
        stores["search"].deliver()
    assert rows(postgres, "select value from shop.search") == []
    run(postgres, 'alter table shop.search add column "_revision" bigint')
    stores["search"].deliver()
    assert rows(postgres, "select c.value, s.value from shop.cache c join shop.search s using (id)") == [(3, 3)]
    assert [row["value"] for row in server.rows()] == [1, 3, 2]


def test_x6_what_was_sent_and_not_recorded_is_sent_twice_and_recorded_once(
    spark: SparkSession, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Delivery("lines", readings, Console(), select=("value",))
    ingested(spark, lake, [reading("a", 1, 1)])
    courier = Courier(spark, lake, lines)
    courier.runtime.next_batch(spark)
    before = courier.runtime.ledger.read()
    courier.runtime.deliver(spark)
    after = courier.runtime.ledger.read()
    assert before is not None and after is not None
    courier.runtime.ledger.write(after, before)
    again = Courier(spark, lake, lines)
    assert (again.deliver(), again.deliver()) == (1, 0)
    assert capsys.readouterr().out == 'lines 0> {"value":1}\n' * 2
    assert again.runtime.standing().rows == 1
