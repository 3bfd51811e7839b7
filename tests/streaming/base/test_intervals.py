"""Intervals and instants."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from streaming.base.errors import DeclarationError
from streaming.base.intervals import date_literal, from_micros, interval, to_micros


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("15 minutes", timedelta(minutes=15)),
        ("1 minute", timedelta(minutes=1)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        (" 2 Weeks ", timedelta(weeks=2)),
        ("1day", timedelta(days=1)),
        ("250 milliseconds", timedelta(milliseconds=250)),
        ("0 seconds", timedelta()),
    ],
)
def test_an_interval_is_numbers_with_units(text: str, length: timedelta) -> None:
    assert interval(text) == length


@pytest.mark.parametrize("text", ["", "15", "minutes", "fifteen minutes", "-5 minutes", "1.5 hours", "1 month", "1 h!"])
def test_anything_else_is_refused_with_the_text_and_the_units(text: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        interval(text)
    assert repr(text) in str(refused.value)
    assert "millisecond, second, minute, hour, day, week" in str(refused.value)


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)))
def test_microseconds_and_instants_are_the_same_thing(instant: datetime) -> None:
    assert from_micros(to_micros(instant)) == instant


def test_a_date_literal_is_its_day_in_every_year(spark: SparkSession) -> None:
    days = [
        date.min,
        date(99, 12, 31),
        date(999, 3, 1),
        date(1582, 10, 10),
        date(1969, 12, 31),
        date(2024, 2, 29),
        date.max,
    ]
    (row,) = spark.range(1).select(*(date_literal(day).alias(str(day)) for day in days)).collect()
    assert list(row) == days
    assert {field.dataType.simpleString() for field in spark.range(1).select(date_literal(days[0])).schema} == {"date"}
