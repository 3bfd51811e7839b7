"""Days that are delivered again: what was damaged in the target comes right, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from importlib import import_module
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.deliveries import reconcile
from streaming.base.errors import ChangedDeclaration, RedeliveryError
from streaming.declare.delivery import Delivery
from streaming.deliveries.runtime import check_repeatable
from streaming.operations.redeliver import begin_anew, redeliver_days
from streaming.service.lease import take_lease
from streaming.service.overview import look
from streaming.service.status import ProcessStatus, QueryStatus
from streaming.sinks.files import JsonLines
from streaming.sinks.kafka import KafkaTopic
from streaming.sinks.postgres import Postgres
from streaming.views.corrections import correct
from tests.support.crash import Point, armed
from tests.support.delivering import Courier, by_id, ingested, pipeline, reading, readings
from tests.support.instants import NOW, at
from tests.support.postgres import rows, run

DAY_SECONDS = 86_400
FIRST_DAY, SECOND_DAY = at(0).date(), at(DAY_SECONDS).date()
_LEDGER, _POSTGRES = "streaming.deliveries.ledger:LedgerTable", "streaming.sinks.postgres_sink:PostgresSink"


def to_table(connection: str, batch: int = 2) -> Delivery:
    """Rows by id, of which the one with the latest time stands; few in a batch."""
    return Delivery("to_table", readings, Postgres("r", key=("id",), connection=connection), batch=batch)


def two_days(spark: SparkSession, lake: Lake) -> None:
    """Ids a to e on the first day, f and g on the second, and a again; the first day is in two batches of the log."""
    ingested(spark, lake, [reading(id_, number, number) for number, id_ in enumerate("abc")])
    second = [reading(id_, DAY_SECONDS + number, 10 + number) for number, id_ in enumerate("fga")]
    ingested(spark, lake, [*(reading(id_, 5, 5) for id_ in "de"), *second])


def table(connection: str) -> dict[str, int]:
    return dict(rows(connection, "select id, value from r order by 1"))


WHOLE = {"a": 12, "b": 1, "c": 2, "d": 5, "e": 5, "f": 10, "g": 11}


@pytest.mark.long
def test_a_damaged_day_comes_right_and_other_days_and_newer_rows_stay_as_they_are(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    two_days(spark, lake)
    courier = Courier(spark, lake, to_table(postgres))
    courier.deliver()
    assert table(postgres) == WHOLE
    sent = courier.runtime.standing().rows
    run(postgres, "update r set value = -1 where id in ('b', 'f')", "delete from r where id = 'd'")

    request = courier.runtime.ask_for_days([FIRST_DAY])
    assert courier.runtime.ask_for_days([FIRST_DAY]) == request, "it is asked for already"
    assert courier.deliver() == 3, "five rows, two in a batch"
    assert courier.runtime.has_answered(request)
    assert table(postgres) == WHOLE | {"f": -1}, "of a the newer row stays, and f is of another day"
    assert courier.runtime.standing().rows == sent

    courier.runtime.ask_for_days([FIRST_DAY, SECOND_DAY])
    courier.deliver()
    assert table(postgres) == WHOLE
    assert [finding.holds for finding in reconcile(spark, lake, courier.runtime.delivery)] == [True] * 3
    ingested(spark, lake, [reading("h", DAY_SECONDS + 9, 9)])
    assert (courier.deliver(), table(postgres)) == (1, WHOLE | {"h": 9})


class Ended(BaseException):
    """The process ends here; nothing that catches exceptions goes on."""


def end() -> None:
    raise Ended


INTERRUPTED = {
    "asked for, nothing planned": Point("", _LEDGER, "write", 1),
    "a batch planned, not sent": Point("", _POSTGRES, "deliver", 1),
    "rows sent, not committed": Point("", _POSTGRES, "advance", 2, after=True),
    "committed there, not noted here": Point("", _POSTGRES, "deliver", 1, after=True),
    "all batches there, the request not noted as done": Point("", _LEDGER, "write", 2),
}
"""In the order in which one request meets them: each attempt goes on where the one before it ended."""


@pytest.mark.long
def test_a_process_that_dies_anywhere_within_days_goes_on_where_it_was(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    """Batches of the target: each of the request is there once, as often as somebody dies."""
    two_days(spark, lake)
    delivery = to_table(postgres)
    Courier(spark, lake, delivery).deliver()
    before = rows(postgres, "select batch from tidemark_progress")[0][0]
    run(postgres, "update r set value = -1, _revision = 0")
    request = Courier(spark, lake, delivery).runtime.ask_for_days([FIRST_DAY, SECOND_DAY])
    for name, point in INTERRUPTED.items():
        with armed(point, end), pytest.raises(Ended):
            Courier(spark, lake, delivery).deliver()
        assert not Courier(spark, lake, delivery).runtime.has_answered(request), name
    last = Courier(spark, lake, delivery)
    last.deliver()
    assert last.runtime.has_answered(request)
    assert table(postgres) == WHOLE
    assert rows(postgres, "select batch from tidemark_progress")[0][0] == before + 4, "eight rows, two in a batch"


@pytest.mark.long
def test_results_of_a_day_or_of_all_are_told_again_and_what_vanished_is_deleted_again(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    delivery = Delivery(
        "to_table",
        by_id,
        Postgres("w", connection=postgres),
        "current",
        where="total <> 2",
        select=("id", "window_start", "total", "window_end"),
    )
    held = "select id, total, _revision from w order by window_start, id"
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 1, 1)], [reading("a", DAY_SECONDS + 1, 7)])
    ingested(spark, lake, [reading("a", 2, 1), reading("z", DAY_SECONDS * 2, 0)])
    courier = Courier(spark, lake, delivery)
    courier.deliver()
    correct(spark, lake, by_id, [FIRST_DAY], lambda: NOW)
    courier.deliver()
    whole = rows(postgres, held)
    assert [row[:2] for row in whole] == [("b", 1), ("a", 7)], "a's window of the first day sums to 2 by now"
    back = f"insert into w (id, window_start, window_end, total, _revision) values ('a', '{at(0)}', '{at(10)}', 1, 0)"
    run(postgres, "update w set total = -1", back)
    request = courier.runtime.ask_for_days([FIRST_DAY])
    assert (courier.deliver(), courier.runtime.has_answered(request)) == (1, True)
    after = rows(postgres, held)
    assert [row[:2] for row in after] == [("b", 1), ("a", -1)], "the second day is as it was left"
    assert after[0] == whole[0]

    run(postgres, "update w set total = -1", back)
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    everything = rows(postgres, held)
    assert [row[:2] for row in everything] == [("b", 1), ("a", 7)], "everything again is also what vanished"


@pytest.mark.long
def test_a_row_that_is_refused_again_keeps_its_place_and_what_is_dead_already_stays_so(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    two_days(spark, lake)
    run(postgres, "create table r (id text unique, at timestamptz, value bigint check (value <> 2), _revision bigint)")
    courier = Courier(spark, lake, to_table(postgres))
    courier.deliver()
    (dead,) = courier.runtime.dead_letters.pending(0, 9)
    run(postgres, "update r set value = 0 where id = 'e'", "alter table r add check (id <> 'e') not valid")
    courier.runtime.ask_for_days([FIRST_DAY])
    courier.deliver()
    letters = courier.runtime.dead_letters.pending(0, 9)
    assert letters[0] == dead
    assert [(each["payload"][:9], each["origin"]) for each in letters[1:]] == [('{"id":"e"', {"unit": 1, "row": 1})]
    run(postgres, "alter table r drop constraint r_id_check", "alter table r drop constraint r_value_check")
    courier.runtime.dead_letters.ask(0, 9)
    courier.deliver()
    assert (table(postgres), courier.runtime.dead_letters.count()) == (WHOLE, 0)


@pytest.mark.long
def test_beside_the_process_that_runs_the_pipeline_days_are_asked_for_and_delivered_by_that_one(
    spark: SparkSession, lake: Lake, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its name the room has the function.
    monkeypatch.setattr(import_module("streaming.operations.redeliver"), "_WAITS_FOR_PROCESS", 0.0)
    two_days(spark, lake)
    delivery = to_table(postgres)
    of = pipeline(delivery)
    running = Courier(spark, lake, delivery)
    running.deliver()
    run(postgres, "update r set value = -1 where id = 'b'")
    with take_lease(lake, of, "stream"):
        done = redeliver_days(spark, lake, of, delivery, [FIRST_DAY], now=lambda: NOW)
        assert (done.done, "stream" in done.holder) == (False, True)
        assert table(postgres)["b"] == -1
        assert (running.deliver(), table(postgres)) == (3, WHOLE)
    run(postgres, "update r set value = -1 where id = 'b'")
    assert redeliver_days(spark, lake, of, delivery, [FIRST_DAY], now=lambda: NOW).done
    assert table(postgres) == WHOLE


@pytest.mark.parametrize(
    ("to", "what", "key", "why"),
    [
        (JsonLines("out"), "rows", (), "JsonLines keeps every row that it gets.*such as Postgres"),
        (Postgres("r"), "rows", (), "Postgres has no key here.*declare a key"),
        (KafkaTopic("broker:9092", "t", key=("id",)), "rows", (), "an older one.*deliver what='current'"),
        (Postgres("r", key=("payload",)), "rejected", (), "rejected rows have no event day; `tidemark repair`"),
    ],
    ids=["files", "insert only", "topic", "rejected"],
)
def test_where_rows_would_be_there_twice_days_are_refused_with_what_can_be_done(
    to: Any, what: Any, key: tuple[str, ...], why: str
) -> None:
    delivery = Delivery("out", readings, to, what, key=key)
    with pytest.raises(RedeliveryError, match=why):
        check_repeatable(delivery)


@pytest.mark.long
def test_a_day_without_rows_and_a_delivery_that_is_paused_are_refused(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    delivery = to_table(postgres)
    courier = Courier(spark, lake, delivery)
    with pytest.raises(RedeliveryError, match="has not begun"):
        courier.runtime.ask_for_days([FIRST_DAY])
    two_days(spark, lake)
    courier.deliver()
    with pytest.raises(RedeliveryError, match=f"no row of 1999-12-31 .*from {FIRST_DAY} to {SECOND_DAY}"):
        courier.runtime.ask_for_days([FIRST_DAY, date(1999, 12, 31)])
    changed = Courier(spark, lake, replace(delivery, where="value > 1"))
    with pytest.raises(ChangedDeclaration, match="--go-on"):
        changed.runtime.ask_for_days([FIRST_DAY])
    changed.runtime.begin_anew(again=False)
    run(postgres, "update r set value = -1 where id in ('b', 'c')")
    changed.runtime.ask_for_days([FIRST_DAY])
    changed.deliver()
    assert table(postgres) == WHOLE | {"b": -1}, "by the declaration as it is now, b is not carried"


def test_a_delivery_is_not_told_how_to_go_on_while_another_process_sends_a_batch_of_it(
    spark: SparkSession, lake: Lake, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target may have taken the batch and not said so yet; it would come again in the next generation."""
    two_days(spark, lake)
    delivery = to_table(postgres)
    sending = Courier(spark, lake, delivery)
    assert sending.runtime.next_batch(spark) == 0
    module = import_module("streaming.operations.redeliver")
    monkeypatch.setattr(module, "_WAITS_FOR_PROCESS", 0.5)
    of = pipeline(delivery)
    with (
        take_lease(lake, of),
        pytest.raises(RedeliveryError, match=r"is sending a batch .* once it has ended\. Nothing"),
    ):
        begin_anew(spark, lake, of, delivery, again=False)
    assert sending.runtime.generation == 0

    # It may be told while that process has paused the delivery until somebody says what is meant.
    queries = {delivery.name: QueryStatus(paused="another declaration")}
    process = ProcessStatus(pid=1, started=NOW, at=NOW, passed=NOW, queries=queries)
    seen = look
    monkeypatch.setattr(module, "look", lambda *of: replace(seen(*of), process=process))
    with take_lease(lake, of):
        done = begin_anew(spark, lake, of, delivery, again=False)
    assert (done.done, Courier(spark, lake, delivery).runtime.generation) == (False, 1)
