"""Conversion between columns and Python: exact in both directions, and it fails for no value on the way in."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.base import (
    NAN,
    FarDate,
    FarInstant,
    Reading,
    arrow_schema,
    encoder,
    instant_of,
    kept_as,
    normalizer,
    python_values,
    read_back,
)

FAR_DAYS, FAR_MICROS = 6_668_032, 576_117_964_800_000_000
INT64 = 1 << 63


@pytest.fixture(autouse=True, scope="module")
def no_encoder_is_kept() -> None:
    # One that was made before its code was broken would still be right.
    encoder.cache_clear()


def kind_of(ddl: str) -> pa.DataType:
    return arrow_schema(f"v {ddl}").field(0).type


def same(one: Any, other: Any) -> bool:
    """Equality by type and value, NaN equal to itself, the sign of zero seen."""
    return repr(one) == repr(other)


_WIDE = Context(prec=76)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": st.integers(-(1 << 7), (1 << 7) - 1),
    "smallint": st.integers(-(1 << 15), (1 << 15) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "bigint": st.integers(-INT64, INT64 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text("a\x00\u00e9\u2603\U00010348", max_size=6),
    "binary": st.binary(max_size=6),
    "date": st.one_of(st.dates(), st.just(FarDate(FAR_DAYS)), st.just(FarDate(-800_000))),
    "timestamp": st.one_of(st.integers(-(10**17), 10**17), st.just(FAR_MICROS), st.just(-INT64)),
    "decimal(38, 18)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(digits).scaleb(-18, _WIDE)),
}


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[str, st.SearchStrategy[Any]]:
    """A declared type, and its values as conversion in gives them."""
    kinds = ["scalar"] if depth == 0 else ["scalar", "array", "struct", "map"]
    match draw(st.sampled_from(kinds)):
        case "array":
            ddl, values = draw(typed_values(depth - 1))
            return f"array<{ddl}>", st.lists(st.none() | values, max_size=3)
        case "struct":
            first, second = draw(typed_values(depth - 1)), draw(typed_values(depth - 1))
            values = st.tuples(st.none() | first[1], st.none() | second[1])
            return f"struct<a: {first[0]}, b: {second[0]}>", values.map(lambda pair: dict(zip("ab", pair, strict=True)))
        case "map":
            ddl, values = draw(typed_values(depth - 1))
            keys = draw(st.sampled_from(["string", "bigint", "date", "decimal(38, 18)"]))
            return f"map<{keys}, {ddl}>", st.dictionaries(SCALARS[keys], st.none() | values, max_size=3)
    ddl = draw(st.sampled_from(sorted(SCALARS)))
    return ddl, SCALARS[ddl]


@given(st.data())
def test_every_value_of_every_declared_type_comes_back_as_it_went(data: st.DataObject) -> None:
    ddl, of_type = data.draw(typed_values())
    values = data.draw(st.lists(st.none() | of_type, max_size=5))
    kind = kind_of(ddl)
    for exact in (False, True):
        encode = encoder(kind, exact)
        column = pa.array([encode(value) for value in values], kind)
        cut = data.draw(st.integers(0, len(values)))
        assert same(python_values(column), values)
        assert same(python_values(column.slice(cut)), values[cut:])
        assert same(python_values(pa.chunked_array([column[:cut], column[cut:]], kind)), values)


def test_a_nan_is_one_object_at_every_depth() -> None:
    nan = float("nan")
    column = pa.array([{"v": nan, "l": [nan, None]}], pa.struct([("v", pa.float64()), ("l", pa.list_(pa.float32()))]))
    ((row,),) = (python_values(column),)
    assert row["v"] is NAN and row["l"][0] is NAN
    assert python_values(pa.array([nan])) == [NAN]
    (as_key,) = python_values(pa.array([[(nan, 1)]], pa.map_(pa.float64(), pa.int64())))
    assert as_key == {NAN: 1}


def test_decimals_of_38_digits_keep_all_of_them() -> None:
    value = Decimal("12345678901234567890.123456789012345678")
    kind = pa.decimal128(38, 18)
    assert read_back(encoder(kind)(value), kind) == value
    assert str(encoder(pa.decimal128(38, 2))(7)) == "7.00"
    assert str(encoder(pa.decimal128(38, 2))(Decimal("-0"))) == "0.00"


@pytest.mark.parametrize(
    ("ddl", "value", "why"),
    [
        ("decimal(10, 2)", Decimal("1.005"), r"does not fit into decimal\(10, 2\), which has 2 digits.*'0.01'"),
        ("decimal(4, 2)", Decimal("100"), r"^Decimal\('100'\) does not fit into decimal\(4, 2\)$"),
        ("decimal(4, 2)", Decimal("NaN"), "does not fit into .*, which has no such value"),
        ("decimal(4, 2)", Decimal("Infinity"), "does not fit into"),
        ("decimal(4, 2)", 1.5, "1.5 is a float and no decimal"),
        ("decimal(4, 2)", True, "True is a bool and no decimal"),
        ("bigint", INT64, "does not fit into a whole number of 64 bits"),
        ("bigint", -INT64 - 1, "does not fit into a whole number of 64 bits"),
        ("int", 1 << 31, "does not fit into a whole number of 32 bits"),
        ("bigint", 1.0, "1.0 is a float and no whole number"),
        ("bigint", True, "True is a bool and no whole number"),
        ("double", 2**53 + 1, "cannot be kept in a double, the nearest is 9007199254740992.0; declare a bigint"),
        ("double", 10**400, "is greater than any double"),
        ("double", True, "True is a bool and no number"),
        ("double", "1", "'1' is a str and no number"),
        ("string", 1, "1 is a int and no string"),
        ("string", "\ud83d", "is no text in UTF-8"),
        ("binary", "x", "'x' is a str and no binary"),
        ("boolean", 1, "1 is a int and no boolean"),
        ("date", datetime(2026, 1, 1), r"no date; write value\.date\(\)"),
        ("date", "2026-01-01", "is a str and no date"),
        ("timestamp", datetime(2026, 1, 1), "no time in microseconds, nor an instant with a time zone"),
        ("timestamp", 1.0, "1.0 is a float and no time"),
        ("timestamp", True, "True is a bool and no time"),
        ("timestamp", INT64, "have 64 bits"),
        ("timestamp", -INT64 - 1, "have 64 bits"),
        ("timestamp", pd.Timestamp(1, unit="ns", tz="UTC"), "has nanoseconds"),
        ("array<int>", "ab", "'ab' is a str and no list"),
        ("array<int>", [1, "b"], "'b' is a str and no whole number"),
        ("map<string, int>", [1], r"\[1\] is a list and no dict"),
        ("map<string, int>", {None: 1}, "has the key None"),
        ("map<string, int>", [(None, 1)], "has the key None"),
        ("map<string, int>", {"a": "b"}, "'b' is a str and no whole number"),
        ("map<int, int>", {"a": 1}, "'a' is a str and no whole number"),
        ("struct<a: int, b: int>", [1, 2], "is a list and no dict of a, b"),
        ("struct<a: int, b: int>", {"a": 1, "z": 2}, "has 'z'; its fields are: a, b"),
    ],
)
def test_what_would_be_changed_is_refused_with_the_value(ddl: str, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encoder(kind_of(ddl))(value)


@pytest.mark.parametrize(
    ("ddl", "given_value", "kept"),
    [
        ("double", 3, 3.0),
        ("double", 2**53, 2.0**53),
        ("decimal(4, 2)", 7, Decimal("7.00")),
        ("decimal(4, 2)", Decimal("99.99"), Decimal("99.99")),
        ("timestamp", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        ("timestamp", INT64 - 1, INT64 - 1),
        ("array<int>", (1, 2), [1, 2]),
        ("map<string, int>", [("a", 1), ("a", 2)], [("a", 1), ("a", 2)]),
        ("map<struct<x: int>, int>", [({"x": 1}, 2)], [({"x": 1}, 2)]),
        ("map<array<int>, int>", [([1], 2)], [([1], 2)]),
        ("struct<a: int, b: int>", {"a": 1}, {"a": 1, "b": None}),
    ],
)
def test_what_is_meant_is_taken(ddl: str, given_value: Any, kept: Any) -> None:
    kind = kind_of(ddl)
    assert same(read_back(encoder(kind)(given_value), kind), kept)


@pytest.mark.parametrize(
    ("ddl", "value", "why"),
    [
        ("array<int>", (1,), "is a tuple and no list"),
        ("double", 1, "no double; write 1.0 for 1"),
        ("map<string, int>", [("a", 1)], "is a list and no dict"),
        ("struct<a: int, b: int>", {"a": 1}, "lacks fields; give each"),
        ("timestamp", datetime(2026, 1, 1, tzinfo=UTC), "no whole number"),
    ],
)
def test_state_is_taken_only_as_it_would_come_back(ddl: str, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encoder(kind_of(ddl), exact=True)(value)


def test_state_is_normalized_to_what_it_will_be_read_back_as() -> None:
    assert normalizer(pa.int64()) is None
    usual, as_float = normalizer(pa.float64()) or (None, None)
    assert usual is float and as_float is not None
    assert same([as_float(1), as_float(True), as_float(None), as_float("x")], [1.0, True, None, "x"])
    usual, as_decimal = normalizer(pa.decimal128(4, 2)) or (None, None)
    assert usual is type(None) and as_decimal is not None and str(as_decimal(1)) == "1.00"
    assert same(kept_as(pa.float64())(1), 1.0) and same(kept_as(pa.int64())(1), 1)
    with pytest.raises(ValueError, match="no double"):
        kept_as(pa.float64())("x")


def test_a_type_that_no_declaration_gives_is_refused() -> None:
    with pytest.raises(TypeError, match="has no type duration"):
        encoder(pa.duration("us"))


@pytest.mark.parametrize(
    ("days", "text"),
    [(FAR_DAYS, "+20226-06-15"), (-800_000, "-0221-09-04"), (-719_163, "0000-12-31"), (2_932_897, "+10000-01-01")],
)
def test_a_date_that_python_has_not_is_told_in_full(days: int, text: str) -> None:
    (value,) = python_values(pa.array([days], pa.int32()).cast(pa.date32()))
    assert value == FarDate(days) and str(value) == text == value.isoformat()


def test_far_dates_are_ordered_among_dates_and_kept_but_not_computed_with() -> None:
    late, early = FarDate(FAR_DAYS), FarDate(-800_000)
    days: list[Any] = [late, date.max, early, date.min]
    assert sorted(days) == [early, date.min, date.max, late]
    assert late > date.max and date.max < late and early < date.min and date.min > early and not late < date.min
    assert late >= late and FarDate(FAR_DAYS) == late and late != date.max and {late: 1}[FarDate(FAR_DAYS)] == 1
    assert pickle.loads(pickle.dumps(late)) == copy.deepcopy(late) == late
    with pytest.raises(AttributeError, match=r"\+20226-06-15 is beyond the years 1 to 9999 .* no 'year'"):
        _ = late.year
    for compute in (lambda: late - date.max, lambda: date.max - late, lambda: late + 1, lambda: 1 + late):
        with pytest.raises(ValueError, match=r"\+20226-06-15 is beyond the years 1 to 9999"):
            compute()
    for other in (3, datetime(2026, 1, 1)):
        with pytest.raises(TypeError):
            _ = late < other


def test_instants_are_read_in_the_form_that_is_asked_for() -> None:
    micros = [-62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_001]
    column = pa.array([{"at": at} for at in micros], pa.struct([("at", pa.timestamp("us", "UTC"))]))
    assert python_values(column) == [{"at": at} for at in micros]
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    after, before = FarInstant(micros[2]), FarInstant(micros[3])
    read = python_values(column, Reading(instant=instant_of, struct=lambda names, values: (names, values)))
    assert read == [(("at",), (at,)) for at in (first, last, after, before)]
    assert str(after) == "+10000-01-01T00:00:00+00:00" and str(before) == "0000-12-31T23:59:59.999999+00:00"
    assert before < after and instant_of(0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_instants_of_other_units_are_microseconds_too() -> None:
    for unit, number in (("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)):
        assert python_values(pa.array([number, None], pa.timestamp(unit))) == [10**6, None]


def test_a_text_that_is_no_utf_8_stops_nobody_and_is_refused_on_the_way_out() -> None:
    for kind in (pa.string(), pa.large_string()):
        contents = pa.array([b"\xffa", None, b"b"], pa.large_binary() if kind == pa.large_string() else pa.binary())
        texts = pa.StructArray.from_arrays([contents.view(kind)], ["t"])
        values = [each["t"] for each in python_values(texts)]
        assert values == ["\udcffa", None, "b"]
        with pytest.raises(ValueError, match="is no text in UTF-8"):
            encoder(pa.string())(values[0])


def test_nulls_of_all_kinds_are_none_and_others_stay() -> None:
    assert python_values(pa.nulls(2)) == [None, None]
    assert python_values(pa.array([], pa.int64())) == []
    assert python_values(pa.array(["a", None, "a"]).dictionary_encode()) == ["a", None, "a"]
    assert python_values(pa.array([[1], None], pa.large_list(pa.int64()))) == [[1], None]
    assert python_values(pa.array([{}, None], pa.struct([]))) == [{}, None]
    assert math.copysign(1, python_values(pa.array([-0.0]))[0]) == -1
