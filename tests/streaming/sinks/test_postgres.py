"""Rows into a real Postgres: once, in order of their revisions, and what it refuses put aside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.postgres import Postgres
from streaming.sinks.sink import CHANGE, REASON, REVISION, Delivered, NumberedBatch, RefusedRow
from tests.streaming.sinks.contract import LAWS, TRANSACTIONAL_LAWS, Arrivals, deliver
from tests.support.postgres import rows, run

REFUSED = -1


@pytest.mark.parametrize("law", [*LAWS, *TRANSACTIONAL_LAWS], ids=lambda law: law.__name__)
def test_postgres_keeps_the_contract_of_targets(law: Callable[[Arrivals], None], lake: Lake, postgres: str) -> None:
    run(postgres, "create table numbers (number bigint check (number >= 0))")
    target = Postgres("numbers", connection=postgres)
    law(Arrivals(target, lake, lambda: [row[0] for row in rows(postgres, "select number from numbers")], REFUSED))


def send(target: Postgres, number: int, *given: dict[str, Any], changes: bool = False) -> list[RefusedRow]:
    """Deliver rows as one batch."""
    sink = target.connect(Lake("/nowhere"), Delivered("shop/all", key=target.key, changes=changes))
    return deliver(sink, NumberedBatch("shop/all", 0, number, pa.Table.from_pylist(list(given))))


def reading(sensor: str, temp: float, seconds: float) -> dict[str, Any]:
    return {"sensor": sensor, "temp": temp, REVISION: int(seconds * 1_000_000)}


def test_x3_the_newest_row_of_a_key_stays_whatever_comes_later(postgres: str) -> None:
    run(postgres, "create table temperatures (sensor varchar(16) primary key, temp double precision, _revision bigint)")
    target = Postgres("temperatures", key=("sensor",), connection=postgres)
    sample = (reading("a", 10, 1), reading("a", 20, 2), reading("b", 5, 1))
    for number in (0, 1):
        assert send(target, number, *sample) == []
        assert rows(postgres, "select sensor, temp from temperatures order by 1") == [("a", 20.0), ("b", 5.0)]
    send(target, 2, reading("a", 99, 1.5))
    assert rows(postgres, "select temp from temperatures where sensor = 'a'") == [(20.0,)]
    send(target, 3, reading("a", 30, 2))
    assert rows(postgres, "select temp from temperatures where sensor = 'a'") == [(30.0,)], "the same time, later"


def test_x3_a_key_of_two_columns(postgres: str) -> None:
    target = Postgres("averages", key=("sensor", "minute"), connection=postgres)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    given = [
        {"sensor": "a", "minute": at, "temp": temp, REVISION: revision} for revision, temp in enumerate((1.0, 2.0))
    ]
    send(target, 0, *given)
    assert rows(postgres, "select sensor, minute, temp, _revision from averages") == [("a", at, 2.0, 1)]


def change(key: str, value: int | None, revision: int, reason: str = "first") -> dict[str, Any]:
    kind = "delete" if value is None else "upsert"
    return {"key": key, "value": value, REVISION: revision, CHANGE: kind, REASON: reason}


def test_changes_are_upserts_and_deletes_and_none_goes_back_behind_a_newer_one(postgres: str) -> None:
    target = Postgres("counts", key=("key",), connection=postgres)
    send(target, 0, change("a", 1, 0), change("b", 2, 0), change("c", 3, 0), changes=True)
    send(target, 1, change("a", 10, 1, "correction"), change("b", None, 1), changes=True)
    send(target, 2, change("a", 5, 0), change("c", None, 0), change("c", 4, 2, "update"), changes=True)
    records = rows(postgres, "select key, value, _revision, _reason from counts order by 1")
    assert records == [("a", 10, 1, "correction"), ("c", 4, 2, "update")]


def test_a_key_that_is_null_is_a_key_like_others(postgres: str) -> None:
    target = Postgres("counts", key=("key",), connection=postgres)
    nobody = change("x", 2, 0) | {"key": None}
    send(target, 0, change("a", 1, 0), nobody, changes=True)
    send(target, 1, nobody | {"value": 3, REVISION: 1}, changes=True)
    assert rows(postgres, "select key, value from counts order by 2") == [("a", 1), (None, 3)]
    send(target, 2, change("a", 1, 1), nobody | {CHANGE: "delete", REVISION: 2}, changes=True)
    assert rows(postgres, "select key, value from counts") == [("a", 1)]


def test_a_table_is_created_with_the_types_of_what_is_delivered(postgres: str) -> None:
    row = {
        "text": "é",
        "count": 1,
        "share": 0.5,
        "yes": True,
        "instant": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "day": date(2026, 1, 1),
        "price": Decimal("1.10"),
        "bytes": b"\x00\xff",
        "list": [{"a": 1}],
        REVISION: 0,
    }
    run(postgres, "create schema shop")
    send(Postgres("shop.all_types", connection=postgres), 0, row)
    query = "select column_name, data_type from information_schema.columns where table_name = 'all_types'"
    assert dict(rows(postgres, query)) == {
        "text": "text",
        "count": "bigint",
        "share": "double precision",
        "yes": "boolean",
        "instant": "timestamp with time zone",
        "day": "date",
        "price": "numeric",
        "bytes": "bytea",
        "list": "jsonb",
    }
    (record,) = rows(postgres, "select * from shop.all_types")
    assert list(record) == [row[name] for name in row if name != REVISION]
    assert rows(postgres, "select delivery, batch, rows from shop.tidemark_progress") == [("shop/all", 0, 1)]


def test_no_text_and_no_number_is_changed_on_its_way(postgres: str) -> None:
    texts = ["".join(each) for length in range(4) for each in product("\\tnN.x\t\n\r\"'é𝄞", repeat=length)]
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), 1 / 3]
    smallest, greatest = -(2**63), 2**63 - 1
    given = [
        {
            "place": place,
            "text": text,
            "nested": [{"text": text}, None],
            "number": numbers[place % len(numbers)],
            "whole": (smallest, greatest, None)[place % 3],
            "price": Decimal(place).scaleb(-9),
            "at": datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=place * 300, microseconds=place),
            REVISION: 0,
        }
        for place, text in enumerate(texts)
    ]
    assert send(Postgres("t", connection=postgres), 0, *given) == []
    names = [name for name in given[0] if name != REVISION]
    records = rows(postgres, f"select {', '.join(names)} from t order by place")
    assert records == [tuple(row[name] for name in names) for row in given]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\x00b", 'invalid byte sequence for encoding "UTF8": 0x00'),
        ("far too long for it", "value too long for type character varying"),
        (None, "null value in column"),
        ("taken", "duplicate key value violates unique constraint"),
    ],
)
def test_a_row_that_the_table_cannot_hold_is_put_aside_and_the_others_arrive(
    value: str | None, reason: str, postgres: str
) -> None:
    run(postgres, "create table names (name varchar(8) not null unique)", "insert into names values ('taken')")
    given = [{"name": name, REVISION: 0} for name in ("b", "c", value, "d", "e")]
    refused = send(Postgres("names", connection=postgres), 0, *given)
    assert [row.position for row in refused] == [2]
    assert reason in refused[0].error
    assert rows(postgres, "select name from names order by 1") == [("b",), ("c",), ("d",), ("e",), ("taken",)]


def test_bytes_that_are_no_utf8_arrive_as_they_are_or_as_what_a_table_of_text_makes_of_them(postgres: str) -> None:
    damaged = b"caf\xe9\x00"
    run(postgres, "create table texts (payload text)")
    for number, table in enumerate(("bytes", "texts")):
        assert send(Postgres(table, connection=postgres), number, {"payload": damaged, REVISION: 0}) == []
    assert rows(postgres, "select payload from bytes") == [(damaged,)]
    assert rows(postgres, "select payload from texts") == [(f"\\x{damaged.hex()}",)]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            "create table t (other text)",
            "table 't' has no column 'name'; add it with `alter table t add column \"name\"",
        ),
        ("create table t (name jsonb[])", "Give the table the columns and types that are delivered"),
        ("create table t (name text); create role reader; alter table t owner to reader", None),
    ],
)
def test_a_table_that_does_not_fit_is_waited_for_and_told(table: str, reason: str | None, postgres: str) -> None:
    run(postgres, table)
    target = Postgres("t", connection=postgres)
    if reason is None:
        run(postgres, "create role writer login", "grant usage, create on schema public to writer")
        target = Postgres("t", connection=postgres.replace("user=postgres", "user=writer"))
        reason = "permission denied for table t. Grant the right"
    with pytest.raises(SinkError) as error:
        send(target, 0, {"name": "a", REVISION: 0})
    assert reason in str(error.value)
    run(postgres, "drop table t")
    assert send(Postgres("t", connection=postgres), 0, {"name": "a", REVISION: 0}) == []


def test_a_table_that_was_dropped_is_not_made_anew_without_the_rows_that_were_in_it(postgres: str) -> None:
    target = Postgres("t", key=("name",), connection=postgres)
    given = [{"name": name, REVISION: number} for number, name in enumerate("abc")]
    send(target, 0, given[0])
    run(postgres, "alter table t rename to elsewhere")
    with pytest.raises(
        SinkError, match=r"table 't' is not there any more, .*Restore it .*or `tidemark redeliver` with `--"
    ):
        send(target, 1, given[1])
    assert rows(postgres, "select to_regclass('t')") == [(None,)]
    run(postgres, "alter table elsewhere rename to t")
    assert send(target, 1, given[1]) == []
    assert rows(postgres, "select name from t order by 1") == [("a",), ("b",)]
    run(postgres, "drop table t")
    sink = target.connect(Lake("/nowhere"), Delivered("shop/all", key=target.key))
    deliver(sink, NumberedBatch("shop/all", 1, 0, pa.Table.from_pylist(given)))
    assert rows(postgres, "select name from t order by 1") == [("a",), ("b",), ("c",)], "a generation begins anew"


def test_a_table_that_is_altered_between_two_batches_of_a_connection_takes_the_next_one(postgres: str) -> None:
    """Often enough for the client to prepare what it asks again and again."""
    sink = Postgres("t", key=("name",), connection=postgres).connect(
        Lake("/nowhere"), Delivered("shop/all", key=("name",))
    )
    for number in range(8):
        batch = NumberedBatch("shop/all", 0, number, pa.table({"name": [str(number)], REVISION: [number]}))
        sink.deliver(batch, lambda refused: None)
        run(postgres, f"alter table t add column more_{number} int default 7")
    sink.close()
    assert rows(postgres, "select count(*), count(more_0) from t") == [(8, 8)]


def test_who_may_not_create_tables_delivers_to_one_that_is_there(postgres: str) -> None:
    run(postgres, "create role seller login", "create table t (name text)", "grant select, insert on t to seller")
    send(Postgres("t", connection=postgres), 0, {"name": "a", REVISION: 0})
    run(postgres, "grant select, insert, update on tidemark_progress to seller")
    assert (
        send(Postgres("t", connection=postgres.replace("user=postgres", "user=seller")), 1, {"name": "b", REVISION: 1})
        == []
    )
    assert rows(postgres, "select name from t order by 1") == [("a",), ("b",)]


def test_a_database_without_room_is_waited_for_and_no_row_is_taken_for_a_bad_one(postgres: str) -> None:
    """The server itself says so, in a trigger: a disk is not filled for it."""
    target, row = Postgres("t", connection=postgres), {"name": "a", REVISION: 0}
    send(target, 0, row)
    run(
        postgres,
        "create function no_room() returns trigger language plpgsql as "
        "$$ begin raise 'could not extend file' using errcode = 'disk_full'; end $$",
        "create trigger no_room before insert on t for each statement execute function no_room()",
    )
    with pytest.raises(SinkError, match=r"could not extend file\. Make room on the server; the batch is sent again"):
        send(target, 1, row)
    assert rows(postgres, "select count(*) from t") == [(1,)]
    run(postgres, "drop trigger no_room on t")
    assert send(target, 1, row) == []
    assert rows(postgres, "select count(*) from t") == [(2,)]


def test_a_key_that_is_not_unique_in_the_table_is_told(postgres: str) -> None:
    run(postgres, "create table t (name text, _revision bigint)")
    with pytest.raises(SinkError, match=r"no unique or exclusion constraint matching.*Give the table a unique index"):
        send(Postgres("t", key=("name",), connection=postgres), 0, {"name": "a", REVISION: 0})


def test_a_server_that_is_away_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    target = Postgres("t", connection="host=127.0.0.1 port=1 user=etl dbname=shop")
    with pytest.raises(SinkError, match=r"^127\.0\.0\.1/shop: t: .*refused") as error:
        send(target, 0, {"name": "a", REVISION: 0})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "connection", ["password=hunter2 host=db", "postgresql://me:hunter2@db/shop", "host=db hunter2"]
)
def test_a_password_in_the_declaration_is_refused_and_not_repeated(connection: str) -> None:
    with pytest.raises(DeclarationError) as error:
        Postgres("t", connection=connection)
    assert "hunter2" not in str(error.value)


def test_a_process_that_was_stopped_in_a_transaction_holds_nobody_up_for_ever_and_cannot_deliver_any_more(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zombie has sent its rows when it is stopped; another takes over once the server has let go of it."""
    monkeypatch.setattr("streaming.sinks.postgres_sink._WAITS_FOR_LOCKS", "100ms")
    target = Postgres("t", connection=postgres)
    send(target, 0, {"name": "0", REVISION: 0})
    zombie, other = (target.connect(Lake("/nowhere"), Delivered("shop/all")) for _ in range(2))
    batch = NumberedBatch("shop/all", 0, 1, pa.table({"name": ["1"], REVISION: [1]}))
    end = "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"

    def stopped(refused: object) -> None:
        with pytest.raises(SinkError, match="lock timeout"):
            other.deliver(batch, lambda refused: None)
        run(postgres, f"{end} and datname = current_database()")
        other.deliver(batch, lambda refused: None)

    with pytest.raises(SinkError):
        zombie.deliver(batch, stopped)
    zombie.deliver(batch, lambda refused: None)
    assert rows(postgres, "select name from t order by 1") == [("0",), ("1",)]


def test_a_connection_that_is_lost_between_two_batches_is_made_again(postgres: str) -> None:
    target = Postgres("t", connection=postgres)
    sink = target.connect(Lake("/nowhere"), Delivered("shop/all"))
    first, second = (
        NumberedBatch("shop/all", 0, number, pa.table({"name": [str(number)], REVISION: [number]})) for number in (0, 1)
    )
    sink.deliver(first, lambda refused: None)
    others = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
    run(postgres, f"{others} and datname = current_database()")
    with pytest.raises(SinkError):
        sink.deliver(second, lambda refused: None)
    sink.deliver(second, lambda refused: None)
    assert rows(postgres, "select name from t order by 1") == [("0",), ("1",)]
