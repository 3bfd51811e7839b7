"""What rows are as text: every value comes back as it was, from readers that know nothing of the writer."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.sinks.encoding import (
    contents,
    csv_table,
    date_text,
    has_broken_text,
    has_repeated_keys,
    instant_text,
    json_objects,
    json_texts,
    plain_texts,
)
from streaming.sinks.files import CSV, JSON_LINES, PARQUET
from streaming.sinks.sink import REVISION, NumberedBatch
from tests.support.typed_values import as_python, read_json, read_text, selected, typed_rows

LARGE = 2**30


def column(type_: pa.DataType, *values: Any) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type_)])


def test_json_lines_have_every_value_as_it_was_computed() -> None:
    rows = selected(typed_rows())
    (content,) = JSON_LINES.encode(rows, LARGE)
    lines = content.decode().split("\n")[:-1]
    assert [read_json(json.loads(line), rows.schema) for line in lines] == as_python(rows)


def test_csv_has_every_value_as_it_was_computed() -> None:
    rows = selected(typed_rows())
    (content,) = CSV.encode(rows, LARGE)
    names, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
    assert names == rows.column_names
    read = [
        {
            # What is empty is null, or an empty text or bytes.
            field.name: read_text(field.type, text, json.loads) if text else None
            for field, text in zip(rows.schema, line, strict=True)
        }
        for line in lines
    ]
    expected = [
        {name: value or None if value in ("", b"") else value for name, value in row.items()} for row in as_python(rows)
    ]
    assert read == expected
    assert CSV.rows_in(content) == rows.num_rows


def test_csv_tells_an_empty_text_from_null() -> None:
    (content,) = CSV.encode(pa.table({"a": ["", None, "x"], "b": [1, 2, 3]}), LARGE)
    assert content == b'"a","b"\n"",1\n,2\n"x",3\n'


def test_a_file_of_one_column_has_a_line_for_every_row() -> None:
    for values in ([1, None, 3], ["a", None, ""], [None, 0.5, float("nan")]):
        (content,) = CSV.encode(pa.table({"only": values}), LARGE)
        assert CSV.rows_in(content) == 3
        assert len([line for line in csv.reader(io.StringIO(content.decode(), newline="")) if line]) == 4


def test_parquet_has_every_value_as_it_was_computed() -> None:
    rows = selected(typed_rows())
    (content,) = PARQUET.encode(rows, LARGE)
    read = pq.read_table(io.BytesIO(content))
    assert as_python(read) == as_python(rows)
    assert list(PARQUET.records(content)) == json_objects(rows)


def test_a_map_is_an_object_whose_keys_are_the_texts_of_their_values() -> None:
    of_text = pa.map_(pa.string(), pa.float64())
    rows = pa.table(
        {
            "text": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
            "day": pa.array([[(date(2026, 1, 2), [("x", 0.5)])], [], None], pa.map_(pa.date32(), of_text)),
            "flag": pa.array([[(True, "x")], [], []], pa.map_(pa.bool_(), pa.string())),
            "bytes": pa.array([[(b"\xff", 1), (b"\\xff", 2)], [], []], pa.map_(pa.binary(), pa.int64())),
        }
    )  # fmt: skip
    assert [json.loads(line) for line in json_objects(rows)] == [
        {
            "text": {"a": 1, "b": None},
            "day": {"2026-01-02": {"x": 0.5}},
            "flag": {"true": "x"},
            "bytes": {"\\xff": 1, "\\\\xff": 2},
        },
        {"text": None, "day": {}, "flag": {}, "bytes": {}},
        {"text": {}, "day": None, "flag": {}, "bytes": {}},
    ]


def test_a_map_with_one_key_twice_is_found_at_every_depth_and_its_row_is_no_row_for_a_target() -> None:
    map_ = pa.map_(pa.string(), pa.int64())
    twice, once = [("a", 1), ("a", 2)], [("a", 1), ("b", 1)]
    nested = pa.struct([("list", pa.list_(map_)), ("of", pa.map_(pa.string(), map_))])
    values = [
        {"list": [once, None, each], "of": [("x", other)]}
        for each, other in ((twice, None), (once, twice), (once, once))
    ]
    assert has_repeated_keys(column(map_, twice, once, None, [])) == [True, False, False, False]
    assert has_repeated_keys(column(nested, *values, None)) == [True, True, False, False]
    assert has_repeated_keys(column(pa.list_(pa.int64()), [1, 1])) == []
    assert json_texts(column(map_, twice, once)) == ['[["a",1],["a",2]]', '{"a":1,"b":1}']

    batch = NumberedBatch(
        "a/b", 0, 0, pa.table({"n": [1, 2, 3], "m": column(map_, once, twice, once), REVISION: [0, 1, 2]})
    )
    (refused,) = batch.unwritable()
    assert refused.position == 1
    assert refused.error.startswith(
        'column \'m\' has a map with one key twice, in [["a",1],["a",2]]; make the keys differ'
    )
    left, positions = batch.without({1})
    assert (left.rows["n"].to_pylist(), list(positions), left.key) == ([1, 3], [0, 2], batch.key)
    assert batch.without(set())[0] is batch


def broken(content: bytes, *others: str) -> pa.ChunkedArray:
    """Texts of which the first is no UTF-8; Arrow itself makes none."""
    return pa.chunked_array([pa.array([content, *(each.encode() for each in others)], pa.binary()).view(pa.string())])


def test_a_text_that_is_no_utf_8_makes_its_row_no_row_for_a_target_and_is_told_as_bytes() -> None:
    texts = broken(b"caf\xe9", "caf\u00e9 \\", "")
    nested = pa.chunked_array(
        [pa.MapArray.from_arrays([0, 1, 1, 3], texts.chunk(0), pa.array([[1], None, [2]], pa.list_(pa.int64())))]
    )
    assert has_broken_text(texts) == [True, False, False]
    assert has_broken_text(nested) == [True, False, False]
    assert has_broken_text(texts.slice(1)) == has_broken_text(column(pa.binary(), b"\xff")) == []
    assert plain_texts(texts) == ["caf\\xe9", "caf\u00e9 \\", ""]
    assert json_texts(nested.slice(0, 1)) == ['{"caf\\\\xe9":[1]}']
    at = pa.array([0], pa.timestamp("us", "UTC"))
    for text in (texts.chunk(0), texts.chunk(0).cast(pa.large_binary()).view(pa.large_string())):
        both = pa.StructArray.from_arrays([text.slice(0, 1), at], ["t", "at"])
        assert json_texts(pa.chunked_array([both])) == ['{"t":"caf\\\\xe9","at":"1970-01-01T00:00:00Z"}']

    batch = NumberedBatch("a/b", 0, 0, pa.table({"n": [1, 2, 3], "t": texts, "m": nested, REVISION: [0, 1, 2]}))
    (refused,) = batch.unwritable()
    assert refused.position == 0
    assert refused.error.startswith("column 't' has a text that is no UTF-8, \"caf\\\\xe9\"; deliver it as bytes")


def test_json_can_tell_bytes_from_the_text_of_their_escapes() -> None:
    assert plain_texts(column(pa.binary(), b"\xff", b"\\xff", b"caf\xc3\xa9", None)) == [
        "\\xff",
        "\\\\xff",
        "café",
        None,
    ]
    assert contents(column(pa.binary(), b"\xff", None)) == [b"\xff", None]
    assert contents(column(pa.int64(), 7, None)) == [b"7", None]


MICROS = 1_000_000
DAY = 86_400 * MICROS


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00Z"),
        (253_402_300_800_000_001 + 366 * DAY, "+10001-01-01T00:00:00.000001Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00Z"),
        (-62_135_596_800_000_001, "0000-12-31T23:59:59.999999Z"),
        (-62_135_596_800_000_000 - 366 * DAY - 1, "-0001-12-31T23:59:59.999999Z"),
        (2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (-(2**63), "-290308-12-21T19:59:05.224192Z"),
    ],
)
def test_an_instant_of_any_year_has_a_text(micros: int, text: str) -> None:
    assert instant_text(micros, utc=True) == text
    assert instant_text(micros, utc=False) == text[:-1]
    assert json.loads(
        json_objects(pa.table({"at": column(pa.int64(), micros).cast(pa.timestamp("us", "UTC"))}))[0]
    ) == {"at": text}


@pytest.mark.parametrize(
    ("days", "text"),
    [(2_932_896, "9999-12-31"), (2_932_897, "+10000-01-01"), (-719_163, "0000-12-31"), (-719_529, "-0001-12-31")],
)
def test_a_day_of_any_year_has_a_text(days: int, text: str) -> None:
    assert date_text(days) == text


def test_numbers_and_durations_have_no_exponent_and_lose_nothing() -> None:
    assert plain_texts(column(pa.decimal128(38, 18), Decimal("1E-18"), Decimal("0E-18"), Decimal(10**19))) == [
        *("0.000000000000000001", "0.000000000000000000", "10000000000000000000.000000000000000000")
    ]
    assert plain_texts(column(pa.float64(), float("nan"), float("inf"), -float("inf"), -0.0, 1e22)) == [
        *("NaN", "Infinity", "-Infinity", "-0.0", "1e+22")
    ]
    durations = (timedelta(hours=-1, microseconds=5), timedelta(seconds=90), timedelta(microseconds=100))
    assert plain_texts(column(pa.duration("us"), *durations)) == ["PT-3599.999995S", "PT90S", "PT0.0001S"]


def test_columns_that_csv_has_a_place_for_stay_as_they_are() -> None:
    rows = pa.table(
        {
            "n": [1],
            "x": [0.5],
            "price": pa.array([Decimal("1.10")], pa.decimal128(12, 2)),
            "at": [datetime(2026, 1, 1, tzinfo=UTC)],
        }
    )
    assert csv_table(rows).select(["n", "x", "price"]).schema == rows.select(["n", "x", "price"]).schema
    assert csv_table(rows)["at"].to_pylist() == ["2026-01-01T00:00:00Z"]
    assert csv_table(pa.table({"x": [0.5, float("inf")]}))["x"].to_pylist() == ["0.5", "Infinity"]


def test_a_column_that_is_counted_in_nanoseconds_is_refused() -> None:
    with pytest.raises(TypeError, match=r"timestamp\[ns\] is not counted in microseconds"):
        json_objects(pa.table({"at": pa.array([1], pa.int64()).cast(pa.timestamp("ns"))}))


def test_rows_without_columns_are_empty_objects() -> None:
    assert json_objects(pa.table({"a": [1, 2]}).select([])) == [b"{}", b"{}"]
    assert json_objects(pa.table({"a": pa.array(["x"]).dictionary_encode()})) == [b'{"a":"x"}']
