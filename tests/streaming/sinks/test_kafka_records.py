"""Rows as records, without a broker: times, keys, headers and places."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streaming.sinks.kafka.records import BY_KEY, NOW, Layout, Record, as_json, keys, records_of
from streaming.sinks.sink import CHANGE, REASON, REVISION, TIME, NumberedBatch, RefusedRow
from tests.support.typed_values import as_python, read_json, typed_rows

EVERY = Layout("t", None, None, {}, named=False)


def made(rows: pa.Table, layout: Layout = EVERY, key: tuple[str, ...] = ()) -> list[Record | RefusedRow]:
    return list(records_of(layout, key, NumberedBatch("a/b", 0, 3, rows), as_json))


def at(*micros: int | None, **more: Any) -> pa.Table:
    times = pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"n": list(range(len(micros))), **more, TIME: times})


def test_a_record_has_the_milliseconds_of_its_row_and_one_of_1970_or_before_is_refused() -> None:
    records = made(at(1_000, 1_999, 253_402_300_800_000_000, None, 999, 0, -1, -62_135_596_800_000_000))
    assert [record.at for record in records if isinstance(record, Record)] == [1, 1, 253_402_300_800_000, NOW]
    refused = [record for record in records if isinstance(record, RefusedRow)]
    assert [row.position for row in refused] == [4, 5, 6, 7]
    assert [row.error.split(",")[0] for row in refused] == [
        "its time is 1970-01-01T00:00:00Z",
        "its time is 1970-01-01T00:00:00Z",
        "its time is 1969-12-31T23:59:59.999000Z",
        "its time is 0001-01-01T00:00:00Z",
    ]
    assert "can only have one after 1970-01-01T00:00:00Z; leave such rows out with `where`" in refused[0].error
    assert [record.at for record in made(at(1).drop_columns([TIME])) if isinstance(record, Record)] == [NOW]


def test_every_value_is_in_the_record_as_it_was_computed() -> None:
    rows = typed_rows()
    records = [record for record in made(rows) if isinstance(record, Record)]
    assert [read_json(json.loads(record.value or b""), rows.schema) for record in records] == as_python(rows)


def test_a_key_is_the_bytes_or_the_text_of_one_column_or_an_object_of_several() -> None:
    instant = pa.array([253_402_300_800_000_000, None], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"bytes": [b"\xff", None], "n": [7, 8], "at": instant})
    assert keys(rows, ("bytes",)) == [b"\xff", None]
    assert keys(rows, ("n",)) == [b"7", b"8"]
    assert keys(rows, ("at",)) == [b"+10000-01-01T00:00:00Z", None]
    assert keys(rows, ("n", "at")) == [b'{"n":7,"at":"+10000-01-01T00:00:00Z"}', b'{"n":8,"at":null}']
    assert keys(rows, ()) == [None, None]


def test_columns_say_where_a_row_goes_and_are_not_in_its_value() -> None:
    rows = at(
        *[1_000] * 5, topic=["x", None, "no topic", "x", "x"], part=[0, None, 1, -1, 2], why=["w", None, "w", "w", "w"]
    )
    layout = Layout("t", "topic", "part", {"h": "why"}, named=True)
    first, second, *refused = made(rows, layout)
    assert first == Record(0, "x", 0, None, b'{"n":0}', [("h", b"w"), ("_id", b"a/b/0/3/0")], 1)
    assert second == Record(1, "t", BY_KEY, None, b'{"n":1}', [("h", None), ("_id", b"a/b/0/3/1")], 1)
    assert refused[:2] == [
        RefusedRow(2, "'no topic' cannot name a topic"),
        RefusedRow(3, "-1 is no number of a partition"),
    ]
    assert isinstance(refused[2], Record)
    nowhere = Layout(None, "topic", None, {}, named=False)
    assert made(rows, nowhere)[1] == RefusedRow(1, "topic is null, and no topic is declared for such rows")


@pytest.mark.parametrize("parts", [[1.0, 0.0], [True, False], [[1], [0]], [{"a": 1}, {"a": 0}], ["1", "0"]])
def test_only_a_whole_number_is_one_of_a_partition_whatever_was_asked_before(parts: list[Any]) -> None:
    layout = Layout("t", None, "part", {}, named=False)
    whole = [Record(0, "t", 1, None, b'{"n":0}', [], 1), Record(1, "t", 0, None, b'{"n":1}', [], 1)]
    assert made(at(1_000, 1_000, part=[1, 0]), layout) == whole
    assert made(at(1_000, 1_000, part=parts), layout) == [
        RefusedRow(place, f"{part!r} is no number of a partition") for place, part in enumerate(parts)
    ]
    assert made(at(1_000, 1_000, part=[1, 0]), layout) == whole


def test_a_change_has_headers_and_a_delete_no_value() -> None:
    changes = {CHANGE: ["upsert", "delete"], REVISION: [1, 2], REASON: ["first", "update"]}
    upsert, delete = made(at(1_000, 1_000, **changes))
    assert isinstance(upsert, Record) and isinstance(delete, Record)
    assert upsert.headers == [(CHANGE, b"upsert"), (REVISION, b"1"), (REASON, b"first")]
    assert (upsert.value, delete.value) == (b'{"n":0}', None)
