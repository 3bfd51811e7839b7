"""Keys that are typed: which rows of a table they are true of."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from streaming.reading.keys import instant_of, key_as_typed, near_keys, rows_of_key, value_as_typed, value_of_typed
from streaming.reading.stored import StoredRows
from streaming.tables.arrow import Between

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
EVENING = datetime(2025, 12, 31, 22, 30, tzinfo=UTC)


def stored(**columns: pa.Array) -> StoredRows:
    table = pa.table(columns)
    return StoredRows(table, tuple(table.column_names))


def chosen(rows: StoredRows, **key: str) -> list[int]:
    """The numbers of the rows of a key, as it is typed."""
    texts = {name: value_of_typed(typed) for name, typed in key.items()}
    return sorted(rows_of_key(rows, texts)["number"].to_pylist())


def test_an_instant_with_an_offset_is_of_its_day_in_utc() -> None:
    """```
    2025-12-31 22:30 UTC    is 2026-01-01 00:30 two hours further east
    ```
    """
    typed = instant_of("window_start", "2026-01-01T00:30+02:00")
    assert (typed, typed.date(), typed.tzinfo) == (EVENING, date(2025, 12, 31), UTC)
    rows = stored(
        number=pa.array([1, 2]),
        window_start=pa.array([EVENING, MIDNIGHT], pa.timestamp("us", "UTC")),
        _day=pa.array([EVENING.date(), MIDNIGHT.date()]),
    )
    assert chosen(rows, window_start="2026-01-01T00:30+02:00") == [1]
    of_day = rows_of_key(rows, {"window_start": "2026-01-01T00:30+02:00"}, typed.date())
    assert of_day["number"].to_pylist() == [1]


def test_files_are_chosen_by_the_day_in_utc_of_an_instant_with_an_offset() -> None:
    east = datetime.fromisoformat("2026-01-01T00:30+02:00")
    assert Between(east, east).has_some_of(date(2025, 12, 31))
    assert not Between(east, east).has_some_of(date(2026, 1, 1))


def test_the_day_of_a_row_is_not_taken_for_that_of_a_column_of_some_name() -> None:
    rows = stored(
        number=pa.array([1]),
        window_start=pa.array([EVENING], pa.timestamp("us", "UTC")),
        _day=pa.array([MIDNIGHT.date()]),
    )
    assert chosen(rows, window_start="2025-12-31T22:30") == [1]


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ("12345678901234567890123456789012345.67", [1]),
        ("12345678901234567890123456789012345.68", [2]),
        ("12345678901234567890123456789012345.680", [2]),
        ("12345678901234567890123456789012345.681", []),
        ("0.5", [3]),
        ("5e-1", [3]),
        ("a half", []),
        ("NaN", []),
        ("Infinity", []),
        ("1e60", []),
        ("null", [4]),
    ],
)
def test_decimals_are_told_apart_by_their_last_digit(typed: str, numbers: list[int]) -> None:
    values = [Decimal("12345678901234567890123456789012345.67"), Decimal("12345678901234567890123456789012345.68")]
    amounts = pa.array([*values, Decimal("0.50"), None], pa.decimal128(38, 2))
    assert chosen(stored(number=pa.array([1, 2, 3, 4]), amount=amounts), amount=typed) == numbers


@pytest.mark.parametrize(("typed", "numbers"), [("0.1", [1]), ("NaN", [2]), ("-0.0", [3]), ("x", [])])
def test_a_float_is_that_of_its_shortest_text(typed: str, numbers: list[int]) -> None:
    values = pa.array([0.1, float("nan"), 0.0], pa.float32())
    assert chosen(stored(number=pa.array([1, 2, 3]), value=values), value=typed) == numbers


@pytest.mark.parametrize(
    ("value", "typed", "number"),
    [
        (None, "null", 1),
        ("null", '"null"', 2),
        ("", "", 3),
        ('"null"', '""null""', 4),
        ('"', '"', 5),
        ("NULL", "NULL", 6),
    ],
)
def test_a_null_and_each_text_are_typed_in_their_own_way(value: str | None, typed: str, number: int) -> None:
    rows = stored(number=pa.array(range(1, 7)), country=pa.array([None, "null", "", '"null"', '"', "NULL"]))
    assert (value_as_typed(value), value_of_typed(typed)) == (typed, value)
    assert chosen(rows, country=typed) == [number]
    assert near_keys(rows, {"country": value}, ("country",))[0] == key_as_typed({"country": value})
