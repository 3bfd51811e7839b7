"""What a table of Postgres makes of values: the same value, whatever the zone of the server, or a dead letter."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import SinkError
from streaming.sinks.postgres import Postgres
from streaming.sinks.sink import CHANGE, REASON, REVISION, Delivered, NumberedBatch, RefusedRow
from tests.streaming.sinks.contract import deliver
from tests.support.postgres import rows, run
from tests.support.typed_values import as_python, read_text, selected, typed_rows

NOWHERE = Lake("/nowhere")


@pytest.fixture
def far(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database where nothing is as elsewhere: zone, order of dates, digits, and the zone of this process."""
    name = re.search("dbname=(.*)", postgres)[1]  # type: ignore[index]
    settings = {"timezone": "America/New_York", "datestyle": "SQL, DMY", "extra_float_digits": "-3"}
    settings |= {"intervalstyle": "sql_standard", "bytea_output": "escape"}
    run(postgres, *(f"alter database {name} set {setting} = '{value}'" for setting, value in settings.items()))
    monkeypatch.setenv("PGTZ", "Asia/Kathmandu")
    yield postgres


def sink_of(target: Postgres, *, changes: bool = False) -> Any:
    return target.connect(NOWHERE, Delivered("shop/all", key=target.key, changes=changes))


def send(target: Postgres, given: pa.Table, number: int = 0, *, changes: bool = False) -> list[RefusedRow]:
    return deliver(sink_of(target, changes=changes), NumberedBatch("shop/all", 0, number, given))


def table(**columns: Any) -> pa.Table:
    """Rows of the columns, each with a revision."""
    made = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    count = len(next(iter(made.values())))
    return pa.table({**made, REVISION: list(range(count))})


def texts(conninfo: str, query: str) -> list[tuple[str | None, ...]]:
    """What a query gives, as Postgres writes it, in UTC."""
    with psycopg.connect(conninfo) as connection:
        connection.execute("set timezone = 'UTC'; set datestyle = 'ISO'; set extra_float_digits = 1")
        connection.execute("set bytea_output = 'hex'; set intervalstyle = 'postgres'")
        with connection.cursor().copy(f"copy ({query}) to stdout") as copy:
            copy.set_types(["text"] * len(next(iter([query])).split(", ")))
            return [*copy.rows()]


def test_a_created_table_has_every_value_as_it_was_computed_and_the_audit_sees_a_change(far: str) -> None:
    given, target = typed_rows(), Postgres("t", connection=far)
    given = given.append_column("place", pa.array(range(given.num_rows)))
    assert send(target, given) == []
    names = selected(given).column_names
    read = [
        {
            name: None if text is None else _value(given.schema.field(name).type, text)
            for name, text in zip(names, row, strict=True)
        }
        for row in texts(far, f"select {', '.join(f'{name}::text' for name in names)} from t order by t.place")
    ]
    for there, expected in zip(read, as_python(given), strict=True):
        computed = {
            name: _in_jsonb(value) if isinstance(value, (dict, list)) else value for name, value in expected.items()
        }
        assert {name: (value, computed[name]) for name, value in there.items() if value != computed[name]} == {}

    assert sink_of(target).compare(0, [given]).differing == 0
    for place, name in enumerate(names):
        run(far, f"update t set {name} = null where ctid = (select max(ctid) from t where {name} is not null)")
        assert sink_of(target).compare(0, [given]).differing >= min(place, 1)


def _value(type_: pa.DataType, text: str) -> Any:
    if pa.types.is_binary(type_):
        return bytes.fromhex(text.removeprefix("\\x"))
    if pa.types.is_float32(type_):
        return struct.pack(">d", struct.unpack("<f", struct.pack("<f", float(text)))[0])
    if pa.types.is_duration(type_):
        return _interval(text)
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return datetime.fromisoformat(text.replace(" ", "T")).astimezone(UTC)
    return read_text(type_, text, json.loads)


def _in_jsonb(value: Any) -> Any:
    """With zero for negative zero, which numbers of `jsonb` do not know."""
    match value:
        case dict():
            return {name: _in_jsonb(each) for name, each in value.items()}
        case list():
            return [_in_jsonb(each) for each in value]
    return struct.pack(">d", 0.0) if value == struct.pack(">d", -0.0) else value


def _interval(text: str) -> timedelta:
    days, sign, clock = re.fullmatch(r"(?:(-?\d+) days? ?)?(-?)([\d:.]+)?", text).groups()  # type: ignore[union-attr]
    hours, minutes, seconds = (clock or "0:0:0").split(":")
    micros = (int(hours) * 3600 + int(minutes) * 60) * 1_000_000 + int(Decimal(seconds) * 1_000_000)
    return timedelta(days=int(days or 0)) + timedelta(microseconds=-micros if sign else micros)


def test_columns_without_a_zone_have_utc_whatever_zone_session_database_and_server_have(far: str) -> None:
    run(far, "create table t (at timestamp, day date, clock time, exact timestamptz, words text)")
    instants = [
        datetime(2026, 3, 2, 2, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2026, 7, 1, 3, 59, 59, 999_999, UTC),
    ]
    columns = {name: pa.array(instants, pa.timestamp("us", "UTC")) for name in ("at", "day", "clock", "exact", "words")}
    given, target = table(**columns), Postgres("t", connection=far)
    assert send(target, given) == []
    assert texts(far, "select at, day, clock, exact, words from t order by exact") == [
        ("0001-01-01 00:00:00", "0001-01-01", "00:00:00", "0001-01-01 00:00:00+00", "0001-01-01 00:00:00+00"),
        ("2026-03-02 02:00:00", "2026-03-02", "02:00:00", "2026-03-02 02:00:00+00", "2026-03-02 02:00:00+00"),
        (*("2026-07-01 03:59:59.999999", "2026-07-01", "03:59:59.999999"), *["2026-07-01 03:59:59.999999+00"] * 2),
    ]
    assert sink_of(target).compare(0, [given]).differing == 0
    for change in (
        "at = at - interval '5 hours'",
        "day = day - 1",
        "clock = '01:00'",
        "exact = exact + interval '1 us'",
    ):
        run(far, f"update t set {change} where extract(year from at) = 2026 and extract(month from at) = 3")
        comparison = sink_of(target).compare(0, [given])
        assert comparison.differing == 1, change


ONE_THIRD = Decimal("0.333333333333333333")


CASES: list[tuple[str, Any, str]] = [
        ("numeric(10,2)", pa.array([Decimal("1.010000"), Decimal("1.005001"), None], pa.decimal128(20, 6)), "101"),
        ("numeric(10,2)", [1.01, 1.005, 1e9], "100"),
        ("numeric(10,2)", pa.array([7, 10**9]), "10"),
        ("numeric", [0.1, 1 / 3, 5e-324, float("nan"), 1e22], "11111"),
        ("numeric(38,18)", pa.array([ONE_THIRD, Decimal(10**19)], pa.decimal128(38, 18)), "11"),
        ("integer", [1.0, 1.5, 2.5, -0.0, 3e9, float("nan")], "100100"),
        ("integer", pa.array([2**31 - 1, 2**31, None]), "101"),
        ("smallint", pa.array([Decimal("7.00"), Decimal("7.50")], pa.decimal128(10, 2)), "10"),
        ("bigint", [9007199254740992.0, 0.5], "10"),
        ("double precision", pa.array([2**53, 2**53 + 1, 2**63 - 1]), "100"),
        ("double precision", pa.array([Decimal("0.1"), ONE_THIRD], pa.decimal128(38, 18)), "10"),
        ("real", [0.5, 0.1, 1 / 3, 16777217.0, 1e300, float("inf"), float("nan")], "1100011"),
        ("real", pa.array([0.1, 1 / 3], pa.float32()), "11"),
        ("money", pa.array([Decimal("1.250"), Decimal("1.255")]), "10"),
        ("varchar(3)", ["abc", "abcd", "ab ", "abc ", None], "10101"),
        ("char(3)", ["abc", "ab", "ab "], "110"),
        ("varchar(3)", pa.array([123, 1234]), "10"),
        ("name", ["a" * 63, "a" * 64], "10"),
        ("timestamp(3)", pa.array([1000, 1001], pa.int64()).cast(pa.timestamp("us", "UTC")), "10"),
        ("timestamptz(0)", pa.array([10**6, 1], pa.int64()).cast(pa.timestamp("us", "UTC")), "10"),
        ("time(0)", pa.array([time(1), time(1, 0, 0, 5)]), "10"),
        ("interval(0)", pa.array([timedelta(seconds=1), timedelta(microseconds=5)]), "10"),
        ("bit(3)", ["101", "1011", "10"], "100"),
        ("varbit(3)", ["101", "1011"], "10"),
        ("numeric(5,1)[]", [[1.5, None], [1.25], []], "101"),
        ("real[]", [[0.1], [1 / 3]], "10"),
        ("integer[]", [[1], [3_000_000_000]], "10"),
        ("varchar(2)[]", [["ab"], ["abc"]], "10"),
        ("timestamp(3)[]", pa.array([[1000], [1001], []], pa.list_(pa.timestamp("us"))), "101"),
        ("date[]", [[date(2026, 1, 2)], [None]], "11"),
        ("integer[]", [[[1], [2]], [[]], []], "101"),
        ("text[]", [[["a"]], [[], []], [[None]]], "101"),
    ]  # fmt: skip
"""Types of columns, values for them, and which of these they hold (1) or would change (0)."""


def test_a_value_that_a_column_would_round_or_cut_is_put_aside(far: str) -> None:
    for number, (column, values, fits) in enumerate(CASES):
        run(far, f"create table t{number} (place int, value {column})")
        column_values = values if isinstance(values, pa.Array) else pa.array(values)
        given = table(place=list(range(len(column_values))), value=column_values)
        target = Postgres(f"t{number}", connection=far)
        refused = {row.position: row.error for row in send(target, given)}
        assert "".join("0" if place in refused else "1" for place in range(len(fits))) == fits, (column, refused)
        taken = given.take([place for place in range(len(fits)) if fits[place] == "1"])
        assert rows(far, f"select place from t{number} order by 1") == [
            (place,) for place in taken["place"].to_pylist()
        ]
        assert sink_of(target).compare(0, [taken]).differing == 0, column
        run(far, "delete from tidemark_progress")


def test_a_refused_value_is_told_with_its_column_and_type(postgres: str) -> None:
    run(postgres, "create table t (amt numeric(10,2), x integer)")
    (row,) = send(
        Postgres("t", connection=postgres), table(amt=pa.array([Decimal("1.005001")], pa.decimal128(20, 6)), x=[1.5])
    )
    assert row.error == (
        "column 'amt': 1.005001 would not be the same value in numeric(10,2); round or cut it in what is selected, or "
        "give the column a type that holds it."
    )


UUID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"


def test_columns_of_types_that_the_platform_does_not_have_are_cast_and_compared_by_them(far: str) -> None:
    run(
        far,
        "create type mood as enum ('ok', 'bad')",
        "create domain cents as numeric(10,2) check (value >= 0)",
        "create domain code as varchar(3)",
        "create table t (place int, id uuid, doc jsonb, raw json, mood mood, tags text[], counts bigint[], "
        "at interval, ip inet, mac macaddr, span int4range, price cents, code code, of_list jsonb[], words text, "
        "bits bytea)",
    )
    one = {
        "place": 0,
        "id": UUID,
        "doc": '{"a": [1, 9007199254740993.10]}',
        "raw": '{"b":1}',
        "mood": "ok",
        "tags": ["x", "", 'a"b', "a\\b", "null", None, "{,}"],
        "counts": [2**63 - 1, None],
        "at": "1 day 02:03:04",
        "ip": "10.0.0.1",
        "mac": "08:00:2b:01:02:03",
        "span": "[1,5)",
        "price": Decimal("1.10"),
        "code": "abc",
        "of_list": [{"a": [1]}, {"a": []}],
        "words": {"k": ["v"]},
        "bits": b"\x00\xff",
    }
    wrong: dict[str, Any] = {
        "id": "no uuid",
        "doc": "{",
        "raw": "{",
        "mood": "sad",
        "at": "soon",
        "ip": "here",
        "span": "5",
    }
    wrong |= {"price": Decimal("-1.00"), "code": "abcd"}
    nulls = dict.fromkeys(one) | {"place": 1}
    damaged = [one | {"place": place, name: value} for place, (name, value) in enumerate(wrong.items(), 2)]
    given, target = (
        pa.Table.from_pylist([{**row, REVISION: 0} for row in (one, nulls, *damaged)]),
        Postgres("t", connection=far),
    )
    refused = send(target, given)
    assert [row.position for row in refused] == list(range(2, 2 + len(wrong))), refused[0].error
    names = ", ".join(one)
    read = names.replace(" at,", " extract(epoch from at)::int,").replace("ip,", "host(ip),")
    first, second = rows(far, f"select {read} from t order by place")
    assert str(first[1]) == UUID.lower()
    doc, words = texts(far, "select doc, words from t where place = 0")[0]
    assert (doc, json.loads(words or "")) == ('{"a": [1, 9007199254740993.10]}', {"k": ["v"]})
    assert first[3:7] == ({"b": 1}, "ok", one["tags"], one["counts"])
    assert first[7] == 86_400 + 7_384
    assert (first[11], first[12], first[13], first[15]) == (Decimal("1.10"), "abc", one["of_list"], one["bits"])
    assert second == (1, *[None] * (len(one) - 1))
    assert sink_of(target).compare(0, [given.slice(0, 2)]).differing == 0
    run(far, "update t set tags[1] = 'y' where place = 0")
    assert sink_of(target).compare(0, [given.slice(0, 2)]).differing == 1


def test_a_key_is_compared_by_the_type_of_its_column(far: str) -> None:
    run(far, "create table t (id uuid unique, n bigint, _revision bigint)")
    target = Postgres("t", key=("id",), connection=far)
    columns = {"id": [UUID, UUID.lower()], "n": [1, 2]}
    assert send(target, table(**columns)) == []
    assert rows(far, "select n from t") == [(2,)]
    deleted = table(id=[UUID], n=[2]).set_column(2, REVISION, pa.array([5]))
    deleted = deleted.append_column(CHANGE, pa.array(["delete"])).append_column(REASON, pa.array(["update"]))
    assert send(target, deleted, 1, changes=True) == []
    assert rows(far, "select count(*) from t") == [(0,)]


def test_a_null_key_is_put_aside_where_the_table_would_keep_it_twice(postgres: str) -> None:
    run(
        postgres,
        "create table t (id text unique, part int, n bigint, _revision bigint)",
        "create unique index pairs on t (id, part)",
        "create table whole (id text, n bigint, _revision bigint, unique nulls not distinct (id))",
    )
    given = table(id=["a", None, "b"], part=pa.array([1, 1, None], pa.int32()), n=[1, 2, 3])
    (row,) = send(Postgres("t", key=("id",), connection=postgres), given)
    assert (row.position, row.error[:43]) == (1, "the key column 'id' is null, and no unique ")
    assert "create unique index on t (id) nulls not distinct" in row.error
    run(postgres, "delete from t", "delete from tidemark_progress")
    refused = send(Postgres("t", key=("id", "part"), connection=postgres), given)
    assert [(row.position, row.error[:27]) for row in refused] == [
        (1, "the key column 'id' is null"),
        (2, "the key column 'part' is nu"),
    ]
    run(postgres, "delete from tidemark_progress")
    target = Postgres("whole", key=("id",), connection=postgres)
    for number in (0, 1):
        assert send(target, given.drop_columns(["part"]), number) == []
    assert rows(postgres, "select count(*) from whole") == [(3,)]


LONG = random.Random(7).randbytes(6_000).hex()
"""More than an index takes, also compressed."""


TABLE = "create table t (id text)"
DEFERRED = "constraint trigger no after insert on t deferrable initially deferred"


def trigger(does: str, kind: str = "trigger no before insert on t") -> tuple[str, ...]:
    """A table with a trigger that does something for the row `b`."""
    function = f"begin if new.id = 'b' then {does}; end if; return new; end"
    return (
        TABLE,
        f"create function no() returns trigger language plpgsql as $$ {function} $$",
        f"create {kind} for each row execute function no()",
    )


OF_A_ROW: dict[str, tuple[tuple[str, ...], str]] = {
    "deferred key": (
        (
            "create table parent (id text primary key)",
            "insert into parent values ('a'), ('c'), ('d')",
            "create table t (id text references parent (id) deferrable initially deferred)",
        ),
        "b",
    ),
    "deferred unique": (
        ("create table t (id text unique deferrable initially deferred)", "insert into t values ('b')"),
        "b",
    ),
    "trigger": (trigger("raise exception 'no %', new.id"), "b"),
    "deferred trigger": (trigger("raise exception 'no' using errcode = 'insufficient_privilege'", DEFERRED), "b"),
    "failing trigger": (trigger("perform * from nowhere"), "b"),
    "index row": (("create table t (id text unique)",), LONG),
    "policy": (
        (
            TABLE,
            "alter table t enable row level security",
            "alter table t force row level security",
            "create policy own on t using (true) with check (id <> 'b')",
            "grant all on t to clerk",
        ),
        "b",
    ),
    "view": (
        ("create table t0 (id text)", "create view t as select id from t0 where id <> 'b' with check option"),
        "b",
    ),
    "generated": (("create table t (id text, x int generated always as (1 / (id <> 'b')::int) stored)",), "b"),
    "partition": (
        (f"{TABLE} partition by list (id)", "create table ta partition of t for values in ('a', 'c', 'd')"),
        "b",
    ),
}


@pytest.mark.parametrize(("statements", "bad"), OF_A_ROW.values(), ids=[*OF_A_ROW])
def test_an_error_of_a_row_puts_that_row_aside_and_no_other(
    statements: tuple[str, ...], bad: str, postgres: str
) -> None:
    if not rows(postgres, "select 1 from pg_roles where rolname = 'clerk'"):
        run(postgres, "create role clerk login")
    run(postgres, *statements, "grant all on schema public to clerk")
    as_clerk = postgres.replace("user=postgres", "user=clerk") if "row level" in str(statements) else postgres
    target = Postgres("t", connection=as_clerk)
    before = [row[0] for row in rows(postgres, "select id from t")]
    refused = send(target, table(id=["a", bad, "c", "d"]))
    assert [row.position for row in refused] == [1]
    there = sorted(row[0] for row in rows(postgres, "select id from t"))
    assert there == sorted([*before, "a", "c", "d"])
    if "nowhere" not in str(statements):
        assert [row.position for row in send(target, table(id=[bad]), 1)] == [0]


def test_a_trigger_that_cannot_work_at_all_is_waited_for_and_costs_no_row(postgres: str) -> None:
    run(
        postgres,
        "create table t (id text)",
        "create function no() returns trigger language plpgsql as "
        "$$ begin insert into audit values (new.id); return new; end $$",
        "create trigger no before insert on t for each row execute function no()",
    )
    target = Postgres("t", connection=postgres)
    with pytest.raises(
        SinkError, match=r'relation "audit" does not exist\. Correct the function or trigger of the table'
    ):
        send(target, table(id=["a", "b", "c"]))
    run(postgres, "create table audit (id text)")
    assert send(target, table(id=["a", "b", "c"])) == []


def test_a_row_that_refers_to_a_later_one_of_its_batch_arrives_beside_one_that_is_refused(postgres: str) -> None:
    run(
        postgres,
        "create table t (id text primary key check (id <> 'bad'), "
        "of text references t (id) deferrable initially deferred)",
    )
    given = table(id=["child", "bad", "x", "parent", "orphan"], of=["parent", None, None, None, "nobody"])
    refused = send(Postgres("t", connection=postgres), given)
    assert [(row.position, row.error.split(":")[0]) for row in refused] == [
        (1, "CheckViolation"),
        (4, "ForeignKeyViolation"),
    ]
    assert rows(postgres, "select id from t order by 1") == [("child",), ("parent",), ("x",)]


def test_a_database_of_another_encoding_has_the_text_or_refuses_it(postgres_running: Any, postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("drop database if exists latin")
        connection.execute("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
    latin = postgres_running.connection("latin")
    refused = send(Postgres("t", connection=latin), table(id=["é", "Ω"]))
    assert [(row.position, "UntranslatableCharacter" in row.error) for row in refused] == [(1, True)]
    assert rows(latin, "select id, length(id) from t") == [("é", 1)]
