"""A single value is what was written, exactly, or refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlglot import exp

from streaming.formats.binary_leaves import whole
from streaming.formats.leaves import Leaf, Number, Refused, leaf_of, typed_leaf_of
from streaming.formats.nested import Wrong

HALF = "\ud83d"


def leaf(type_: str) -> Leaf:
    found = leaf_of(exp.DataType.build(type_, dialect="spark"))
    assert found is not None
    return found


def micros(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


TIMES: dict[str, int | None] = {
    "2026-01-01T00:00:00Z": micros("2026-01-01T00:00:00+00:00"),
    "2026-01-01T05:30:00+05:30": micros("2026-01-01T00:00:00+00:00"),
    "2026-01-01T00:00Z": micros("2026-01-01T00:00:00+00:00"),
    "2026-01-01T00:00-01": micros("2026-01-01T01:00:00+00:00"),
    "2026-01-01T00:00:00+0130": micros("2025-12-31T22:30:00+00:00"),
    "2026-01-01T00:00:00-18:00": micros("2026-01-01T18:00:00+00:00"),
    "2026-01-01T00:00:00.5Z": micros("2026-01-01T00:00:00.500000+00:00"),
    "2026-01-01T00:00:00.123456Z": micros("2026-01-01T00:00:00.123456+00:00"),
    "2026-01-01T00:00:00.123456000Z": micros("2026-01-01T00:00:00.123456+00:00"),
    "1969-12-31T23:59:59.999999Z": -1,
    "0001-01-01T00:00:00Z": micros("0001-01-01T00:00:00+00:00"),
    "9999-12-31T23:59:59.999999Z": micros("9999-12-31T23:59:59.999999+00:00"),
    "9999-12-31T23:59:59.999999+00:30": micros("9999-12-31T23:29:59.999999+00:00"),
    "2024-02-29T00:00:00Z": micros("2024-02-29T00:00:00+00:00"),
    # no instant, or one that nobody can keep
    "2026-01-01T00:00:00": None,
    "2026-01-01": None,
    "2026-02-30T00:00:00Z": None,
    "2026-01-01T24:00:00Z": None,
    "2026-01-01T00:00:60Z": None,
    "2026-01-01T00:00:00.1234567Z": None,
    "2026-01-01T00:00:00.1234560001Z": None,
    "2026-01-01T00:00:00.Z": None,
    "2026-01-01T00:00:000Z": None,
    "2026-01-01T00:000Z": None,
    "2026-01-01T00Z": None,
    "2026-01-01T00:00:00+18:01": None,
    "2026-01-01T00:00:00+19": None,
    "2026-01-01T00:00:00+01:60": None,
    "2026-01-01T00:00:00+1": None,
    "0000-12-31T00:00:00Z": None,
    "0001-01-01T00:00:00+00:01": None,
    "9999-12-31T23:59:59-00:01": None,
    "10000-01-01T00:00:00Z": None,
    "20226-03-01T00:00:00Z": None,
    "2026-1-01T00:00:00Z": None,
    "2026-W01-1T00:00:00Z": None,
    "x2026-01-01T00:00:00Z": None,
    "2026-01-01T00:00:00Z\n": None,
    "٢026-01-01T00:00:00Z": None,
    "": None,
}
DATES: dict[str, date | None] = {
    "2026-01-01": date(2026, 1, 1),
    "0001-01-01": date.min,
    "9999-12-31": date.max,
    "0000-01-01": None,
    "2026-02-30": None,
    "2026-1-1": None,
    "20260101": None,
    "2026-01-01T00:00:00Z": None,
    "10000-01-01": None,
}
INTEGERS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
NO_INTEGERS = (True, False, "1", Number("1.0"), Number("1e2"), Number("9" * 5_000), 1.0, None, [1])
DECIMALS: dict[str, Decimal | None] = {
    "0": Decimal("0.00"),
    "-0.00": Decimal("0.00"),
    "1.5": Decimal("1.50"),
    "1.50000000000000000000000000000000000000000": Decimal("1.50"),
    "1.5e0": Decimal("1.50"),
    "15e-1": Decimal("1.50"),
    "99999999.99": Decimal("99999999.99"),
    "-99999999.99": Decimal("-99999999.99"),
    "1e7": Decimal("10000000.00"),
    "0e999999999": Decimal("0.00"),
    "1.005": None,
    "0.004": None,
    "100000000": None,
    "99999999.995": None,
    "1e8": None,
    "1e-3": None,
    "1e999999999": None,
    "1e-999999999": None,
    "9" * 5_000: None,
}
DOUBLES: dict[str, float | None] = {
    "0.1": 0.1,
    "1e308": 1e308,
    "1e-400": 0.0,
    "9007199254740993": 9007199254740992.0,
    "1e400": None,
    "-1e400": None,
    "9" * 400: None,
}
FLOATS: dict[str, float | None] = {"0.5": 0.5, "3.4028234e38": 3.4028234e38, "3.5e38": None, "-3.5e38": None}


def read(convert: Any, value: Any) -> Any:
    """The value, or None where it is refused; none of these values is null."""
    try:
        return convert(value)
    except Refused:
        return None


@pytest.mark.parametrize("type_", INTEGERS)
def test_an_integer_is_whole_and_within_its_type(type_: str) -> None:
    end, of = INTEGERS[type_], leaf(type_)
    for value in (0, 1, -1, end - 1, -end):
        assert read(of.of_json, value) == value and type(read(of.of_json, value)) is int
        assert read(of.of_text, str(value)) == value
    wrong: tuple[Any, ...] = (end, -end - 1, *NO_INTEGERS)
    for refused in wrong:
        assert read(of.of_json, refused) is None, refused
    for text in (str(end), str(-end - 1), "", "1.0", "1e2", "+-1", " 1", "1 ", "1\n", "0x1", "1_0", "٣", "9" * 5_000):
        assert read(of.of_text, text) is None, text
    assert [read(of.of_text, text) for text in ("+5", "007", "-0", "0" * 5_000 + "5")] == [5, 7, 0, 5]
    assert of.in_json == of.in_text == f"a whole number within {type_}"


def test_a_decimal_is_never_rounded() -> None:
    of = leaf("decimal(10, 2)")
    for text, value in DECIMALS.items():
        assert read(of.of_json, Number(text)) == value, text
        assert read(of.of_text, text) == value, text
    assert {read(of.of_json, 5).as_tuple().exponent, read(of.of_json, Number("5e0")).as_tuple().exponent} == {-2}
    assert [read(of.of_json, value) for value in (5, -(10**8) + 1, 10**8, 10**5_000)] == [5, -(10**8) + 1, None, None]
    wrong: tuple[Any, ...] = (True, "1.5", None, 1.5, [], {})
    for refused in wrong:
        assert read(of.of_json, refused) is None, refused
    assert of.in_json == of.in_text == "a number within decimal(10,2)"


def test_the_widest_decimal_keeps_all_its_digits() -> None:
    digits = "1234567890123456789012345678901234567"
    assert read(leaf("decimal(38, 0)").of_json, int(digits + "8")) == int(digits + "8")
    assert read(leaf("decimal(38, 38)").of_json, Number("0." + digits + "8")) == Decimal("0." + digits + "8")
    assert read(leaf("decimal(38, 38)").of_json, 1) is None
    assert (leaf("decimal").in_json, leaf("decimal(3)").in_json) == (
        "a number within decimal(10,0)",
        "a number within decimal(3,0)",
    )


@pytest.mark.parametrize(("type_", "numbers"), [("double", DOUBLES), ("float", FLOATS)])
def test_a_double_is_finite_and_has_one_zero(type_: str, numbers: dict[str, float | None]) -> None:
    of = leaf(type_)
    for text, value in numbers.items():
        assert read(of.of_json, Number(text)) == value, text
        assert read(of.of_text, text) == value, text
    assert read(of.of_json, 5) == 5.0 and type(read(of.of_json, 5)) is float
    assert read(of.of_json, 10**400) is None
    for zero in (read(of.of_json, Number("-0.0")), read(of.of_json, 0), read(of.of_text, "-0")):
        assert zero == 0.0 and math.copysign(1, zero) == 1
    wrong: tuple[Any, ...] = (True, "1.5", None, [], math.nan)
    for refused in wrong:
        assert read(of.of_json, refused) is None, refused
    for text in ("NaN", "Infinity", "inf", "", ".", "e5", "1e", "1,5", " 1", "1_0", "0x1p3", "1d"):
        assert read(of.of_text, text) is None, text
    assert [read(of.of_text, text) for text in ("+1.", ".5", "1E+2")] == [1.0, 0.5, 100.0]
    assert of.in_json == of.in_text == f"a number within {type_}"


@pytest.mark.parametrize("text", TIMES)
def test_an_instant_has_an_offset_and_lies_in_the_years_1_to_9999(text: str) -> None:
    of = leaf("timestamp")
    assert read(of.of_json, text) == TIMES[text]
    assert read(of.of_text, text) == TIMES[text]
    # A field of text may have a space where JSON, as ever, wants the letter.
    spaced = text.replace("T", " ")
    assert (read(of.of_json, spaced), read(of.of_text, spaced)) == (None, TIMES[text])


def test_a_date_lies_in_the_years_1_to_9999() -> None:
    of = leaf("date")
    assert {text: read(of.of_json, text) for text in DATES} == DATES
    assert {text: read(of.of_text, text) for text in DATES} == DATES
    assert of.in_json == of.in_text == "text such as 2026-01-01"


@pytest.mark.parametrize("type_", ["date", "timestamp"])
def test_no_number_is_a_time(type_: str) -> None:
    wrong: tuple[Any, ...] = (0, 20260101, Number("1e3"), True, None, [], {})
    for refused in wrong:
        assert read(leaf(type_).of_json, refused) is None


def test_a_text_is_any_but_half_a_character() -> None:
    of = leaf("string")
    for text in ("", "a", "ü", "\U0001f600", "\0", "\u2028"):
        assert (read(of.of_json, text), read(of.of_text, text)) == (text, text)
    wrong: tuple[Any, ...] = (HALF, f"x{HALF}y", "\udc00", 5, Number("5.0"), True, None, [], {})
    for refused in wrong:
        assert read(of.of_json, refused) is None, refused
    assert (of.in_json, of.in_text) == ("a JSON string", "text")


def test_a_boolean_is_one_of_two_words() -> None:
    of = leaf("boolean")
    assert (read(of.of_json, True), read(of.of_json, False)) == (True, False)
    assert [read(of.of_text, text) for text in ("true", "FALSE", "True")] == [True, False, True]
    for value in ("true", 1, 0, None, Number("1.0")):
        assert read(of.of_json, value) is None
    for text in ("", "t", "1", "yes", " true"):
        assert read(of.of_text, text) is None
    assert (of.in_json, of.in_text) == ("a JSON boolean", "true or false")


def test_types_of_many_values_or_of_bytes_are_none_of_a_leaf() -> None:
    types: tuple[str, ...] = (
        "binary",
        "array<int>",
        "map<string, int>",
        "struct<a: int>",
        "timestamp_ntz",
        "varchar(5)",
        "variant",
    )
    types += ("decimal(39, 2)", "decimal(2, 3)", "decimal(0, 0)")
    assert [leaf_of(exp.DataType.build(type_, dialect="spark")) for type_ in types] == [None] * len(types)


@pytest.mark.parametrize("type_", ["double", "float"])
def test_of_a_table_any_double_is_taken_and_of_other_senders_only_numbers(type_: str) -> None:
    of = typed_leaf_of(exp.DataType.build(type_, dialect="spark"))
    assert of is not None
    written = {
        "NaN": "nan",
        "Infinity": "inf",
        "-Infinity": "-inf",
        Number("-0.0"): "-0.0",
        Number("1.5"): "1.5",
        3: "3.0",
    }
    assert {value: repr(of.of_json(value)) for value in written} == written
    # What Spark does not write is refused, as it is of others.
    wrong: tuple[Any, ...] = ("nan", "+Infinity", "1.5", "", Number("1e400"), Number("NaN"), True, None, [], {})
    for refused in wrong:
        assert read(of.of_json, refused) is None, refused
    strict = leaf(type_)
    assert [read(strict.of_json, value) for value in ("NaN", "Infinity", "-Infinity")] == [None] * 3
    assert repr(strict.of_json(Number("-0.0"))) == "0.0" and repr(of.of_text("-0.0")) == "0.0"
    assert (of.signed_zero, strict.signed_zero) == (True, False)
    assert of.in_json == strict.in_json == f"a number within {type_}"


def test_of_a_table_the_texts_of_other_types_are_no_numbers() -> None:
    for type_ in ("bigint", "decimal(38, 18)", "timestamp", "date", "boolean"):
        of = typed_leaf_of(exp.DataType.build(type_, dialect="spark"))
        assert of is not None and read(of.of_json, "NaN") is None and read(of.of_json, "Infinity") is None
    text = typed_leaf_of(exp.DataType.build("string", dialect="spark"))
    assert text is not None and text.of_json("NaN") == "NaN"
    assert typed_leaf_of(exp.DataType.build("array<double>", dialect="spark")) is None


@pytest.mark.parametrize(("low", "high"), [(-(2**31), 2**31 - 1), (0, 0), (-719_162, 2_932_896)])
def test_a_number_of_a_binary_format_is_within_its_type(low: int, high: int) -> None:
    read = whole(low, high, "a small number")
    assert [read(value) for value in (low, high)] == [low, high]
    for value in (low - 1, high + 1):
        with pytest.raises(Wrong) as error:
            read(value)
        assert error.value.words == f"is not a small number, got {value}"
