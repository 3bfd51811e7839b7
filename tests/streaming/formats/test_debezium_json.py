"""Debezium's envelopes in JSON, without Spark: exact values, Connect's types, and what was not sent."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.base.errors import DeclarationError
from streaming.formats.debezium import Debezium
from streaming.formats.debezium_json import EnvelopeDecoder
from streaming.formats.decoder import Row, Unreadable
from streaming.formats.json import Json

PLACEHOLDER = "__debezium_unavailable_value"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(
    ddl: str, envelope: dict[str, Any] | bytes, decimals: Any = "number", **fields: str
) -> tuple[dict[str, Any], Row]:
    """The columns that are no null of an envelope, by name, and the whole row."""
    form = Debezium(Json(ddl, fields), decimals)
    names = tuple(column.name for column in form.columns)
    of = form.of
    assert isinstance(of, Json)
    decoder = EnvelopeDecoder(names, None, None, of.columns, of.fields, decimals)
    content = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
    row = decoder.row(content, None, None)
    assert len(row.values) == len(names)
    return {name: value for name, value in zip(names, row.values, strict=True) if value is not None}, row


def created(after: str) -> bytes:
    return b'{"op": "c", "ts_ms": 1, "after": ' + after.encode() + b"}"


def with_schema(after: dict[str, Any], fields: list[dict[str, Any]]) -> dict[str, Any]:
    """As Connect's converter writes it where it sends schemas along."""
    sides = [{"type": "struct", "fields": fields, "optional": True, "field": side} for side in ("before", "after")]
    return {
        "schema": {"type": "struct", "fields": [*sides, {"type": "string", "field": "op"}]},
        "payload": {"op": "c", "ts_ms": 1, "before": None, "after": after},
    }


def in_base64(unscaled: int) -> str:
    length = max(1, ((unscaled if unscaled >= 0 else -unscaled - 1).bit_length() + 8) // 8)
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def decimal_of(name: str, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": "38"}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters, "field": name}


def test_no_number_goes_through_a_double_at_any_depth() -> None:
    values, _ = read(
        "m decimal(38,2), t map<string, decimal(38,2)>, s struct<a: array<decimal(38,2)>>, n bigint",
        created(
            '{"m": 99999999999999.99, "t": {"x": 99999999999999.99}, "s": {"a": [0.10, -1e2]}, "n": 9007199254740993}'
        ),
    )
    exact = Decimal("99999999999999.99")
    assert (values["m"], values["t"], values["n"]) == (exact, [("x", exact)], 2**53 + 1)
    assert values["s"] == {"a": [Decimal("0.10"), Decimal("-100.00")]}


@pytest.mark.parametrize(
    ("ddl", "after", "column", "reason"),
    [
        ("m decimal(10,2)", '{"m": 1.005}', "m", "type: m is not a number within decimal(10,2), got 1.005"),
        ("m decimal(10,2)", '{"m": "1.00"}', "m", 'type: m is not a number within decimal(10,2), got "1.00"'),
        ("id int not null", "{}", "id", "required: id is missing"),
        (
            "s struct<a: array<struct<q: int>>>",
            '{"s": {"a": [{"q": 1}, {"q": 2.5}]}}',
            "s",
            "type: s.a[1].q is not a whole number within int, got 2.5",
        ),
        ("at timestamp", '{"at": 1767225600000}', "at", "got 1767225600000"),
    ],
)
def test_a_value_that_is_none_of_its_type_is_told_with_its_path(ddl: str, after: str, column: str, reason: str) -> None:
    _, row = read(ddl, created(after))
    assert row.wrong is not None and set(row.wrong) == {column} and reason in row.wrong[column]


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_a_decimal_in_base64_is_read_by_the_scale_of_its_schema_or_of_its_column(unscaled: int, scale: int) -> None:
    expected = Decimal(f"{unscaled}e-{scale}")
    written = {"m": in_base64(unscaled), "v": {"scale": scale, "value": in_base64(unscaled)}}
    ddl = f"m decimal(38,{scale}), v decimal(38,{scale})"
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "field": "v"}
    for envelope, decimals in (
        (with_schema(written, [decimal_of("m", scale), variable]), "number"),
        ({"op": "c", "after": written}, "base64"),
    ):
        values, row = read(ddl, envelope, decimals)
        assert row.wrong is None
        assert (values["m"], values["v"]) == (expected, expected)


def test_a_scale_that_is_not_the_declared_one_rounds_nothing() -> None:
    fits, _ = read("m decimal(10,2)", with_schema({"m": in_base64(12_500)}, [decimal_of("m", 4)]))
    assert fits["m"] == Decimal("1.25")
    _, row = read("m decimal(10,2)", with_schema({"m": in_base64(12_345)}, [decimal_of("m", 4)]))
    assert row.wrong == {"m": "type: m is not a number within decimal(10,2), got 1.2345"}


@pytest.mark.parametrize("written", ["", "not base64", "AQ", "A" * 500, 5.5, [1], {"scale": 10**9, "value": "AQ=="}])
def test_what_is_no_decimal_in_base64_is_refused(written: Any) -> None:
    _, row = read("m decimal(10,0)", {"op": "c", "after": {"m": written}}, "base64")
    assert row.wrong is not None and row.wrong["m"].startswith("type: m is not a number within decimal(10,0), got ")


def test_a_decimal_as_text_is_read_where_schema_or_declaration_says_so_and_nothing_is_guessed() -> None:
    # Four digits are base64, too.
    text = {"type": "string", "optional": True, "field": "m"}
    assert read("m decimal(10,2)", with_schema({"m": "1234"}, [text]))[0]["m"] == Decimal("1234.00")
    assert read("m decimal(10,2)", {"op": "c", "after": {"m": "-12.5"}}, "text")[0]["m"] == Decimal("-12.50")
    for wrong in ("NaN", "1,5", "1.234", " 1"):
        _, row = read("m decimal(10,2)", {"op": "c", "after": {"m": wrong}}, "text")
        assert row.wrong == {"m": f'type: m is not a number within decimal(10,2), got "{wrong}"'}


def temporal(name: str, field: str, type_: str = "int64") -> dict[str, Any]:
    return {"type": type_, "optional": True, "name": name, "version": 1, "field": field}


INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)).map(
    lambda t: t.replace(tzinfo=UTC)
)


@given(INSTANTS)
def test_dates_and_instants_are_read_by_the_schema_beside_them(time: datetime) -> None:
    micros = (time - EPOCH) // timedelta(microseconds=1)
    days = time.date().toordinal() - date(1970, 1, 1).toordinal()
    written = {
        "d1": days,
        "d2": days,
        "t1": micros // 1000,
        "t2": micros // 1000,
        "t3": micros,
        "t4": micros * 1000,
        "t5": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "n": micros,
        "a": [micros],
        "s": {"d": days},
    }
    connect, debezium = "org.apache.kafka.connect.data", "io.debezium.time"
    schema = [
        temporal(f"{debezium}.Date", "d1", "int32"),
        temporal(f"{connect}.Date", "d2", "int32"),
        temporal(f"{debezium}.Timestamp", "t1"),
        temporal(f"{connect}.Timestamp", "t2"),
        temporal(f"{debezium}.MicroTimestamp", "t3"),
        temporal(f"{debezium}.NanoTimestamp", "t4"),
        temporal(f"{debezium}.ZonedTimestamp", "t5", "string"),
        temporal(f"{debezium}.MicroTimestamp", "n"),
        {"type": "array", "items": temporal(f"{debezium}.MicroTimestamp", ""), "field": "a"},
        {"type": "struct", "fields": [temporal(f"{debezium}.Date", "d", "int32")], "field": "s"},
    ]
    ddl = (
        "d1 date, d2 date, t1 timestamp, t2 timestamp, t3 timestamp, t4 timestamp, t5 timestamp, n bigint, "
        "a array<timestamp>, s struct<d: date>"
    )
    values, row = read(ddl, with_schema(written, schema))
    millis = micros // 1000 * 1000
    assert row.wrong is None
    assert [values[name] for name in ("d1", "d2")] == [time.date()] * 2
    assert [values[name] for name in ("t1", "t2")] == [millis] * 2
    assert [values[name] for name in ("t3", "t4", "t5", "n")] == [micros] * 4
    assert (values["a"], values["s"]) == ([micros], {"d": time.date()})


@pytest.mark.parametrize(
    ("kind", "ddl", "written"),
    [
        ("NanoTimestamp", "v timestamp", 1_767_225_600_000_000_001),
        ("MicroTimestamp", "v timestamp", 2**62),
        ("Timestamp", "v timestamp", -(2**62)),
        ("Date", "v date", 2**31),
        ("Date", "v date", 1.5),
        ("Date", "v timestamp", 20_000),
        ("MicroTime", "v timestamp", 5),
    ],
)
def test_an_instant_that_a_column_cannot_keep_is_refused_and_not_cut(kind: str, ddl: str, written: Any) -> None:
    _, row = read(ddl, with_schema({"v": written}, [temporal(f"io.debezium.time.{kind}", "v")]))
    assert row.wrong is not None and "got" in row.wrong["v"]


@pytest.mark.parametrize(
    ("ddl", "written"),
    [
        ("v string", PLACEHOLDER),
        ("v string", base64.b64encode(PLACEHOLDER.encode()).decode()),
        ("v array<string>", [PLACEHOLDER]),
        ("v array<int>", [*PLACEHOLDER.encode()]),
        ("v array<bigint>", [*PLACEHOLDER.encode()]),
        ("v map<string, string>", {PLACEHOLDER: PLACEHOLDER}),
        ("v decimal(10,2)", PLACEHOLDER),
        ("v struct<a: int>", PLACEHOLDER),
    ],
)
def test_a_value_that_was_not_sent_is_null_and_its_column_is_named(ddl: str, written: Any) -> None:
    envelope = {"op": "u", "after": {"id": 1, "v": written}}
    values, row = read(f"id int, {ddl}", envelope)
    assert (row.wrong, values) == (None, {"id": 1, "change_op": "u", "change_unavailable": ["v"]})
    _, row = read(f"id int, {ddl} not null", envelope)
    assert row.wrong is not None and row.wrong["v"].startswith("required: v is unavailable: the database did not log")


def test_a_text_that_only_holds_the_placeholder_is_a_value() -> None:
    values, _ = read(
        "v string, w array<string>", {"op": "u", "after": {"v": f"{PLACEHOLDER}!", "w": [PLACEHOLDER, "x"]}}
    )
    assert values["v"] == f"{PLACEHOLDER}!" and values["w"] == [PLACEHOLDER, "x"] and "change_unavailable" not in values


@pytest.mark.parametrize(
    ("times", "at"),
    [
        ({"source": {"ts_ms": 5}, "ts_ms": 7}, 5_000),
        ({"source": {"ts_ms": 0}, "ts_ms": 7}, 7_000),
        ({"source": {"ts_ms": None}, "ts_ms": 7}, 7_000),
        ({"source": {}, "ts_ms": 7}, 7_000),
        ({"source": None, "ts_ms": -1}, -1_000),
        ({"ts_ms": 0}, None),
        ({}, None),
    ],
)
def test_a_change_is_of_the_time_of_its_commit_and_a_zero_is_none(times: dict[str, Any], at: int | None) -> None:
    values, row = read("id int", {"op": "r", "after": {"id": 1}, **times})
    assert (values.get("change_at"), row.wrong) == (at, None)


@pytest.mark.parametrize("written", ["soon", "5", 2**62, 1.5, True, [5]])
def test_a_time_that_is_no_number_of_milliseconds_is_refused(written: Any) -> None:
    for envelope in ({"ts_ms": written}, {"source": {"ts_ms": written}, "ts_ms": 7}):
        values, row = read("id int", {"op": "c", "after": {"id": 1}, **envelope})
        assert "change_at" not in values and row.wrong is not None
        assert row.wrong["change_at"].startswith(
            "type: change_at is no number of milliseconds of the years 1 to 9999, got"
        )


def test_a_deleted_row_is_what_was_before_and_need_not_be_whole() -> None:
    ddl = "id int not null, name string not null"
    assert read(ddl, {"op": "d", "before": {"id": 1}, "after": None})[0] == {"id": 1, "change_op": "d"}
    _, row = read(ddl, {"op": "d", "before": {"id": "1"}})
    assert row.wrong == {"id": 'type: id is not a whole number within int, got "1"'}


def test_fields_may_be_called_otherwise_and_others_are_told() -> None:
    values, row = read("id int, s struct<a: int>", created('{"_id": 1, "s": {"a": 1, "b": 2}, "c": 3}'), id="_id")
    assert (values["id"], row.unknown) == (1, ["c", "s.b"])


def test_the_source_is_kept_as_it_was_written() -> None:
    payload = b'{"op": "c", "after": {}, "source": {"lsn": 9007199254740993, "x": 1.10, "name": "\\u00e9"}}'
    assert read("id int", payload)[0]["change_source"] == '{"lsn":9007199254740993,"x":1.10,"name":"é"}'


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "the payload is not one JSON object"),
        (b'{"op": "c", "after": {"id": 1}} {}', "the payload is not one JSON object"),
        (b'{"op": "c", "after": {"id": 1, "id": 2}}', "more than once"),
        (b'{"after": {"id": 1}}', "the payload is no envelope, it has no op"),
        (b'{"payload": {"id": 1}}', "the payload is no envelope, it has no op"),
        (b'{"payload": [1]}', r"payload is not a JSON object, got \[1\]"),
        (b'{"op": "t", "after": {"id": 1}}', r"op t is no change of a row \(c, r, u, d\)"),
        (b'{"op": ["c"], "after": {"id": 1}}', r'op \["c"\] is no change of a row'),
        (b'{"op": "c", "before": {"id": 1}}', "a change c without its row"),
        (b'{"op": "d", "after": {"id": 1}}', "a change d without its row"),
        (b'{"op": "c", "after": "{}"}', 'after is not a JSON object, got "{}"'),
    ],
)
def test_what_is_no_envelope_is_told(payload: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read("id int", payload)


@pytest.mark.parametrize("payload", [b'{"schema": null, "payload": null}', b'{"payload": null}'])
def test_a_tombstone_within_a_payload_is_a_row_of_nothing(payload: bytes) -> None:
    assert read("id int not null", payload)[0] == {}


@settings(max_examples=25)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda i: (
            st.lists(i)
            | st.dictionaries(
                st.sampled_from(["name", "fields", "field", "items", "scale", "value", "parameters", "type", "m"])
                | st.text(),
                i,
            )
        ),
        max_leaves=12,
    )
)
def test_nothing_in_a_schema_or_a_value_makes_it_fail(anything: Any) -> None:
    ddl = "m decimal(10,2), d date, a array<timestamp>, t map<string, decimal(5,1)>, s struct<m: decimal(3,0)>"
    after = dict.fromkeys(("m", "d", "a", "t", "s"), anything)
    for envelope in (
        {"schema": anything, "payload": {"op": "c", "after": after, "source": anything, "ts_ms": anything}},
        *(
            with_schema(
                after,
                [{"field": name, "name": kind, "items": anything, "parameters": anything} for name in after],
            )
            for kind in (anything, "io.debezium.time.Date", "org.apache.kafka.connect.data.Decimal")
        ),
    ):
        try:
            _, row = read(ddl, envelope, "base64")
        except Unreadable:
            continue
        assert row.wrong is None or all(": " in reason for reason in row.wrong.values())


def test_a_way_to_write_decimals_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DeclarationError, match="decimals='precise' of Debezium is unknown; write 'number', 'text' or"):
        read("id int", {}, "precise")
