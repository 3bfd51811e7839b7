"""Rows into Delta and Iceberg tables: once, in order of their revisions, and seen whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import ProgressError, SinkError
from streaming.sinks.sink import CHANGE, REASON, REVISION, Delivered, NumberedBatch, RefusedRow, Target
from streaming.sinks.table_rows import Bounds
from tests.streaming.sinks.contract import LAWS, TRANSACTIONAL_LAWS, Arrivals, deliver
from tests.support.seeds import draws
from tests.support.tables_of_files import DeltaPlace, Place, in_file


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, lake: Lake) -> Place:
    return DeltaPlace(lake) if request.param == "delta" else in_file(lake)


@pytest.fixture
def send(lake: Lake) -> Callable[..., list[RefusedRow]]:
    """Deliver rows as one batch."""

    def sent(target: Target, number: int, *given: dict[str, Any], schema: pa.Schema | None = None) -> list[RefusedRow]:
        sink = target.connect(lake, Delivered("shop/all", "here", target.key, changes=CHANGE in (given or [{}])[0]))
        return deliver(sink, NumberedBatch("shop/all", 0, number, pa.Table.from_pylist(list(given), schema)))

    return sent


Send = Callable[..., list[RefusedRow]]


@pytest.mark.parametrize("law", [*LAWS, *TRANSACTIONAL_LAWS], ids=lambda law: law.__name__)
@pytest.mark.parametrize("key", [(), ("number",)])
def test_tables_keep_the_contract_of_targets(
    law: Callable[[Arrivals], None], key: tuple[str, ...], place: Place, lake: Lake
) -> None:
    law(Arrivals(place.target(key=key), lake, lambda: [row[0] for row in place.rows("number")]))


def change(key: str | None, value: int | None, revision: int, reason: str = "first") -> dict[str, Any]:
    kind = "delete" if value is None else "upsert"
    return {"key": key, "value": value, REVISION: revision, CHANGE: kind, REASON: reason}


def test_changes_are_upserts_and_deletes_and_none_goes_back_behind_a_newer_one(place: Place, send: Send) -> None:
    target = place.target(key=("key",))
    send(target, 0, change("a", 1, 0), change("b", 2, 0), change("c", 3, 0))
    send(target, 1, change("a", 10, 1, "correction"), change("b", None, 1))
    send(target, 2, change("a", 5, 0), change("c", None, 0), change("c", 4, 2, "update"))
    assert place.rows("key", "value", REVISION, REASON) == [("a", 10, 1, "correction"), ("c", 4, 2, "update")]
    send(target, 3, change("a", 10, 2), change("a", 11, 2), change("c", None, 1), change("d", None, 9))
    assert place.rows("key", "value") == [("a", 11), ("c", 4)], "of one revision the later one"


def test_a_key_that_is_null_or_no_number_is_a_key_like_others(place: Place, send: Send) -> None:
    target = place.target(key=("key", "part"))
    nobody = change(None, 2, 0)
    send(target, 0, *({**row, "part": 0.0} for row in (change("a", 1, 0), nobody)))
    send(target, 1, {**nobody, "value": 3, REVISION: 1, "part": -0.0}, {**nobody, "part": float("nan")})
    assert place.rows("key", "value") == [("a", 1), (None, 2), (None, 3)]
    gone = [{**change(None, None, 1), "part": float("nan")}, {**change(None, None, 2), "part": 0.0}]
    send(target, 2, *gone, schema=pa.Table.from_pylist([{**change("a", 1, 0), "part": 0.0}]).schema)
    assert place.rows("key", "value") == [("a", 1)]


def test_every_row_of_changes_is_kept_where_rows_are_appended(place: Place, lake: Lake) -> None:
    sink = place.target(mode="append").connect(lake, Delivered("shop/all", "here", ("key",), changes=True))
    rows = [change("a", 1, 0), change("a", 2, 1, "update"), change("a", None, 2, "correction")]
    deliver(sink, NumberedBatch("shop/all", 0, 0, pa.Table.from_pylist(rows)))
    assert place.rows(REVISION, "key", "value", CHANGE, REASON) == [
        (0, "a", 1, "upsert", "first"),
        (1, "a", 2, "upsert", "update"),
        (2, "a", None, "delete", "correction"),
    ]


def test_of_many_batches_few_files_are_left_and_every_key_once(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.sinks.table_sink._MOST_SMALL", 4)
    target = place.target(key=("key",))
    for number in range(6):
        send(target, number, *(change(f"{number:02}-{row}", number, number) for row in range(3)))
    assert place.rows("key", "value") == [(f"{number:02}-{row}", number) for number in range(6) for row in range(3)]
    sink = target.connect(place_lake(place), Delivered("shop/all", "here", ("key",), changes=True))
    assert (sink.count(), files_of(place)) == (18, 2)


def test_an_upsert_plans_with_the_bounds_of_its_keys_and_seldom_the_whole_table(
    place: Place, send: Send, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.sinks.table_sink._MOST_SMALL", 4)
    target = place.target(key=("key",))
    send(target, 0, change("00", 0, 0))
    sink: Any = target.connect(lake, Delivered("shop/all", "here", ("key",), changes=True))
    kind = type(sink.open())
    planned: list[tuple[int, bool]] = []
    files = kind.files

    def noted(table: Any, bounds: Bounds | None = None) -> Any:
        planned.append((number, bounds is None))
        return files(table, bounds)

    monkeypatch.setattr(kind, "files", noted)
    for number in range(1, 9):
        send(target, number, change(f"{number:02}", number, number))
    assert [number for number, is_whole in planned if is_whole] == [4, 8]
    assert [number for number, is_whole in planned if not is_whole] == [*range(1, 9)]


def test_random_changes_leave_what_a_dict_holds_that_knows_revisions(place: Place, send: Send) -> None:
    chance = draws("upserts")
    target = place.target(key=("key",))
    held: dict[str, tuple[int, int]] = {}
    types = pa.Table.from_pylist([change("a", 1, 0)]).schema
    for number in range(8):
        batch = [
            change(chance.choice("abcdefgh"), chance.choice((None, chance.randint(0, 99))), chance.randint(0, 9))
            for _ in range(chance.randint(0, 12))
        ]
        newest = {row["key"]: row for row in sorted(batch, key=lambda row: row[REVISION])}
        for key, row in newest.items():
            if row[REVISION] >= held.get(key, (0, -1))[1]:
                held.pop(key, None)
                held |= {} if row["value"] is None else {key: (row["value"], row[REVISION])}
        send(target, number, *batch, schema=types)
        assert place.rows("key", "value", REVISION) == [(key, *held[key]) for key in sorted(held)]


def place_lake(place: Place) -> Lake:
    return place.lake if isinstance(place, DeltaPlace) else Lake("/nowhere")


def files_of(place: Place) -> int:
    opened: Any = place.open()  # type: ignore[attr-defined]
    return len(opened.file_uris() if isinstance(place, DeltaPlace) else [*opened.scan().plan_files()])


ROW = {
    "text": "é\x00\U0001d11e",
    "count": 2**63 - 1,
    "share": float("-inf"),
    "yes": True,
    "instant": datetime(1, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
    "local": datetime(9999, 12, 31, 23, 59, 59, 999_999),
    "day": date(2026, 1, 1),
    "price": Decimal("12345678901234567890123456789.123456789"),
    "bytes": b"\x00\xff",
    "list": [{"a": 1, "b": [None, "x"]}, None],
    "map": [("k", Decimal("1.10")), ("", None)],
    "none": None,
    REVISION: 0,
}
TYPES = pa.schema(
    [
        ("text", pa.string()),
        ("count", pa.int64()),
        ("share", pa.float64()),
        ("yes", pa.bool_()),
        ("instant", pa.timestamp("us", "Europe/Paris")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(38, 9)),
        ("bytes", pa.binary()),
        ("list", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))),
        ("map", pa.map_(pa.string(), pa.decimal128(4, 2))),
        ("none", pa.int32()),
        (REVISION, pa.int64()),
    ]
)


@pytest.mark.parametrize(
    "key", [(), ("instant",), ("local",), ("day",), ("text",), ("count", "list"), ("bytes", "map", "none")]
)
def test_a_table_has_the_types_and_values_of_what_is_delivered(key: tuple[str, ...], place: Place, send: Send) -> None:
    target = place.target(key=key)
    for number in range(2):
        send(target, number, ROW, schema=TYPES)
    table = place.table()
    assert table.num_rows == (1 if key else 2)
    (record, *_) = table.to_pylist()
    assert [record[name] for name in ROW if name != REVISION] == [ROW[name] for name in ROW if name != REVISION]
    assert str(table.schema.field("instant").type) == "timestamp[us, tz=UTC]"
    assert [str(table.schema.field(name).type) for name in ("local", "price")] == ["timestamp[us]", "decimal128(38, 9)"]


def test_what_a_table_has_no_type_for_is_the_text_of_json(place: Place, send: Send) -> None:
    row = {"took": timedelta(seconds=90), "parts": [{}], "unsigned": 2**64 - 1, REVISION: 0}
    types = pa.schema(
        [
            ("took", pa.duration("us")),
            ("parts", pa.list_(pa.struct([]))),
            ("unsigned", pa.uint64()),
            (REVISION, pa.int64()),
        ]
    )
    send(place.target(), 0, row, schema=types)
    assert place.rows("took", "parts", "unsigned") == [("PT90S", "[{}]", str(2**64 - 1))]


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_column_or_a_field_that_is_new_is_added_and_older_rows_are_null_there(
    key: tuple[str, ...], place: Place, send: Send
) -> None:
    target = place.target(key=key)
    send(target, 0, {"id": 1, "of": {"a": 1}, REVISION: 0})
    send(target, 1, {"id": 2, "of": {"a": 2, "b": "x"}, "more": Decimal("1.5"), REVISION: 0})
    send(target, 2, {"id": 3, REVISION: 0})
    assert place.rows("id", "of.a", "of.b", "more") == [
        (1, 1, None, None),
        (2, 2, "x", Decimal("1.5")),
        (3, None, None, None),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"id": "one"},
            r"has the column 'id int64', and 'id string' is delivered\. The type of a column stays",
        ),
        ({"ID": 1}, r"has the column 'id', and 'ID' is delivered, whose name differs in case alone"),
        ({"id": 1.5}, r"has the column 'id int64', and 'id double' is delivered"),
    ],
)
def test_a_column_of_another_type_is_refused_in_words(
    row: dict[str, Any], reason: str, place: Place, send: Send
) -> None:
    target = place.target()
    send(target, 0, {"id": 1, REVISION: 0})
    with pytest.raises(SinkError, match=reason):
        send(target, 1, {**row, REVISION: 0})
    assert place.rows("id") == [(1,)]


def test_two_columns_whose_names_differ_in_case_alone_are_refused_and_no_table_is_made(
    place: Place, send: Send
) -> None:
    with pytest.raises(SinkError, match="has the column 'id', and 'ID' is delivered"):
        send(place.target(), 0, {"id": 1, "ID": 2, REVISION: 0})
    send(place.target(), 0, {"iD": 1, REVISION: 0})
    assert place.table().column_names == ["iD"]


def test_a_narrower_number_comes_into_a_wider_column(place: Place, send: Send) -> None:
    target = place.target(key=("id",))
    send(target, 0, {"id": 1, "price": Decimal("1000.25"), "share": 0.5, REVISION: 0})
    narrow = pa.schema(
        [("id", pa.int16()), ("price", pa.decimal128(3, 1)), ("share", pa.float32()), (REVISION, pa.int64())]
    )
    send(target, 1, {"id": 1, "price": Decimal("2.5"), "share": 0.25, REVISION: 1}, schema=narrow)
    assert place.rows("id", "price", "share") == [(1, Decimal("2.50"), 0.25)]


def test_a_delivery_of_the_same_name_in_another_lake_is_kept_out(place: Place, lake: Lake) -> None:
    rows = NumberedBatch("shop/all", 0, 0, pa.Table.from_pylist([{"id": 1, REVISION: 0}]))
    deliver(place.target().connect(lake, Delivered("shop/all", "here")), rows)
    other = place.target().connect(lake, Delivered("shop/all", "there"))
    with pytest.raises(ProgressError, match="progress of another delivery that is called 'shop/all' too"):
        other.delivered_through(0)
    neighbour = place.target().connect(lake, Delivered("shop/other", "there"))
    assert neighbour.delivered_through(0) == -1


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_row_that_is_not_as_it_was_sent_is_found(key: tuple[str, ...], place: Place, lake: Lake, send: Send) -> None:
    target = place.target(key=key)
    given = [{"id": number, "price": Decimal(number), REVISION: number} for number in range(4)]
    send(target, 0, *given[:3])
    send(target, 1, given[3])
    sink = target.connect(lake, Delivered("shop/all", "here", key))

    def compared(*rows: dict[str, Any]) -> tuple[int, int, tuple[str, ...]]:
        comparison = sink.compare(0, [pa.Table.from_pylist([row]) for row in rows])
        assert comparison is not None
        return comparison.records, comparison.differing, comparison.named

    assert compared(*given) == (4, 0, ())
    changed = {**given[2], "price": Decimal(7)}
    assert compared(*given[:2], changed, given[3]) == (4, 1, ('{"id":2}',) if key else ())
    assert compared(*given[:3]) == (3, 1, ('{"id":3}',) if key else ())
    assert compared(*given, given[0])[:2] == (5, 1)
    assert (sink.compare(1, [pa.Table.from_pylist(given)]) is None) == (not key)
