"""Frames of pandas: what goes in comes out, and what pandas would change is refused. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from streaming.base import FarDate, arrow_schema, encoder, python_values
from streaming.views.functions import arrow_columns, pandas_frame

NAN = float("nan")
FAR_DAYS, FAR_MICROS = 6_668_032, 576_117_964_800_000_000


@pytest.fixture(autouse=True, scope="module")
def no_encoder_is_kept() -> None:
    # One that was made before its code was broken would still be right.
    encoder.cache_clear()


SCHEMA = arrow_schema(
    "i8 tinyint, i32 int, i64 bigint, f32 float, f64 double, dec decimal(38, 18), flag boolean, at timestamp, "
    "day date, text string, bytes binary, nested array<struct<v: double, at: timestamp>>, prices "
    "map<string, decimal(38, 0)>, numbers array<bigint>, doubles array<double>"
)
EXTREMES: dict[str, Any] = {
    "i8": -128,
    "i32": (1 << 31) - 1,
    "i64": 2**53 + 1,
    "f32": NAN,
    "f64": NAN,
    "dec": Decimal("12345678901234567890.000000000000000001"),
    "flag": True,
    "at": FAR_MICROS,
    "day": FAR_DAYS,
    "text": "é☃",
    "bytes": b"\xff",
    "nested": [{"v": NAN, "at": FAR_MICROS}, None, {"v": None, "at": -1}],
    "prices": [("a", 10**37), ("b", None)],
    "numbers": [2**53 + 1, None],
    "doubles": [NAN, None, -0.0],
}
NULLS: dict[str, Any] = dict.fromkeys(SCHEMA.names)
LEAST: dict[str, Any] = {
    **NULLS,
    "i64": -(2**63),
    "f32": -0.0,
    "f64": 5e-324,
    "flag": False,
    "at": -62_135_596_800_000_000,
    "day": -800_000,
    "text": "",
    "nested": [],
    "prices": [],
    "numbers": [],
}


def table(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def back(frame: object, schema: pa.Schema = SCHEMA) -> list[Any]:
    """The values as text, which tells NaN from null and a zero from a negative one."""
    return [repr(python_values(column)) for column in arrow_columns(frame, schema)]


@pytest.mark.parametrize("rows", [(EXTREMES, NULLS, LEAST), (EXTREMES, LEAST), (NULLS,), (NULLS, NULLS), ()])
@pytest.mark.parametrize(
    "handed_on",
    [
        lambda frame: frame,
        lambda frame: frame.iloc[::-1].iloc[::-1].reset_index(drop=True),
        lambda frame: frame.astype({"f64": object, "i64": object, "flag": object, "at": object}),
    ],
)
def test_what_pandas_is_handed_comes_out_of_it_as_it_was(
    rows: tuple[dict[str, Any], ...], handed_on: Callable[[Any], Any]
) -> None:
    given = table(*rows)
    assert back(handed_on(pandas_frame(given))) == [repr(python_values(column)) for column in given.columns]


def test_columns_have_the_types_that_pandas_has_for_them() -> None:
    with_nulls, without = pandas_frame(table(EXTREMES, NULLS)), pandas_frame(table(EXTREMES))
    kinds = {
        "i8": "Int8",
        "i64": "Int64",
        "flag": "boolean",
        "f32": "float32",
        "f64": "float64",
        "at": "datetime64[us]",
    }
    assert {name: str(with_nulls[name].dtype) for name in kinds} == kinds
    plain = {**kinds, "i8": "int8", "i64": "int64", "flag": "bool"}
    assert {name: str(without[name].dtype) for name in plain} == plain
    others = ("dec", "day", "text", "bytes", "nested", "prices", "numbers")
    assert {str(with_nulls[name].dtype) for name in others} == {"object"}
    assert [with_nulls[name][1] for name in others] == [None] * len(others)
    assert with_nulls["day"][0] == FarDate(FAR_DAYS) and with_nulls["numbers"][0] == [2**53 + 1, None]
    assert with_nulls["i64"].dropna().max() == 2**53 + 1 and with_nulls["at"].max() == pd.Timestamp(
        np.datetime64(FAR_MICROS, "us")
    )


def test_a_function_may_change_its_frame() -> None:
    frame = pandas_frame(table(EXTREMES))
    frame.loc[0, "i64"], frame.loc[0, "f64"] = 5, 1.5
    assert (frame["i64"].tolist(), frame["f64"].tolist()) == ([5], [1.5])


@pytest.mark.parametrize(
    ("values", "ddl", "kept"),
    [
        ([1.0, NAN], "bigint", [1, None]),
        ([pd.NA, 1], "bigint", [None, 1]),
        (pd.Series([2.0, None], dtype=object), "bigint", [2, None]),
        (pd.array([2**63 - 1, None], dtype="Int64"), "bigint", [2**63 - 1, None]),
        ([], "bigint", []),
        ([NAN, 1.5], "double", [None, 1.5]),
        ([1, 2], "double", [1.0, 2.0]),
        ([Decimal("1.5"), None], "double", [1.5, None]),
        (pd.array([1.5, None], dtype="Float64"), "double", [1.5, None]),
        (pd.array([1, None], dtype="Int64"), "double", [1.0, None]),
        (np.array([0.5], "float32"), "double", [0.5]),
        (np.array([0.5], "float16"), "double", [0.5]),
        ([0.5, NAN], "float", [0.5, None]),
        ([1, None], "decimal(10, 2)", [Decimal("1.00"), None]),
        ([None, True], "boolean", [None, True]),
        (["a", None, NAN], "string", ["a", None, None]),
        (pd.array(["a", None], dtype="string"), "string", ["a", None]),
        (pd.Categorical(["a", "b"]), "string", ["a", "b"]),
        ([NAN, NAN], "string", [None, None]),
        ([datetime(1970, 1, 2)], "timestamp", [86_400_000_000]),
        ([datetime(1970, 1, 2, tzinfo=UTC), None], "timestamp", [86_400_000_000, None]),
        ([pd.Timestamp("1970-01-01T01:00", tz="Europe/Berlin")], "timestamp", [0]),
        (pd.Series([pd.Timestamp("1970-01-01T01:00", tz="Europe/Berlin"), "x"])[:1], "timestamp", [0]),
        ([np.datetime64(5, "us"), None], "timestamp", [5, None]),
        ([pd.NaT], "timestamp", [None]),
        ([date(2026, 1, 2), None], "date", [date(2026, 1, 2), None]),
        ([pd.Timestamp("2026-01-02")], "date", [date(2026, 1, 2)]),
        ([np.array([1, 2]), [3, np.int64(4)]], "array<bigint>", [[1, 2], [3, 4]]),
        ([[datetime(1970, 1, 1, 0, 0, 1)]], "array<timestamp>", [[1_000_000]]),
        ([[NAN, None]], "array<double>", [[NAN, None]]),
        ([{"a": 1}], "map<string, bigint>", [{"a": 1}]),
        ([[("a", 1), ("a", 2)]], "map<string, bigint>", [[("a", 1), ("a", 2)]]),
        ([Row(a=1, b=None)], "struct<a: bigint, b: string>", [{"a": 1, "b": None}]),
        ([1.5, float("inf"), None], "float", [1.5, float("inf"), None]),
        ([2**24, 2**30], "float", [float(2**24), float(2**30)]),
        ([Decimal("1.5"), Decimal(2**53)], "double", [1.5, float(2**53)]),
    ],
)
def test_what_functions_give_is_taken_as_it_is_meant(values: Any, ddl: str, kept: list[Any]) -> None:
    assert back(pd.DataFrame({"v": values}), arrow_schema(f"v {ddl}")) == [repr(kept)]


@pytest.mark.parametrize(
    ("values", "ddl", "why"),
    [
        ([1.5], "bigint", "1.500000 was truncated"),
        ([2.0**53], "bigint", "9007199254740992.0 is a double, which has not all whole numbers"),
        ([-(2.0**53), None], "bigint", "is a double, which has not all whole numbers"),
        (pd.Series([2.0**53, "x"])[:1], "bigint", "is a double, which has not all whole numbers"),
        ([2**40], "int", "1099511627776 not in range"),
        (["1"], "bigint", "'1' is a str and no whole number"),
        ([True], "bigint", "True is a bool and no whole number"),
        ([1], "string", "1 is a int and no string"),
        ([1], "boolean", "1 is a int and no boolean"),
        ([2**53 + 1], "double", "cannot be kept in a double"),
        ([1.005], "decimal(10, 2)", "1.005 is a float and no decimal"),
        ([Decimal("1.005")], "decimal(10, 2)", "round it first"),
        ([pd.Timestamp("2026-01-01T00:00:00.123456789")], "timestamp", "would lose data"),
        ([[pd.Timestamp("2026-01-01T00:00:00.123456789")]], "array<timestamp>", "Cannot losslessly"),
        ([pd.Timestamp("2026-01-01T12:00")], "date", "an instant within a day is no date"),
        ([pd.Timestamp("2026-01-01")], "string", "instants are no string"),
        ([[1, "a"]], "array<bigint>", "'a' is a str"),
        ([1.0, 1e300], "float", "1e.300 is greater than any float"),
        ([None, -1e300], "float", "1e.300 is greater than any float"),
        ([2**24 + 1], "float", "16777217 cannot be kept in a float, the nearest is 16777216.0"),
        ([[1e300]], "array<float>", "1e.300 is greater than any float"),
        ([Decimal(2**53 + 1)], "double", "9007199254740993 cannot be kept in a double"),
        ([{1}], "struct<a: bigint>", "is a set"),
        ([1, "a"], "decimal(3, 1)", "'a' is a str"),
    ],
)
def test_what_would_be_changed_is_refused_with_its_column(values: Any, ddl: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"column 'v': .*{why}"):
        arrow_columns(pd.DataFrame({"v": values}), arrow_schema(f"v {ddl}"))


def test_what_is_no_frame_or_lacks_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match="it gave a dict and no pandas DataFrame"):
        arrow_columns({"v": [1]}, arrow_schema("v int"))
    with pytest.raises(ValueError, match="its frame lacks 'v', 'w'; it has a, b"):
        arrow_columns(pd.DataFrame({"a": [], "b": []}), arrow_schema("v int, w int"))
    with pytest.raises(ValueError, match="its frame has 'v' more than once"):
        arrow_columns(pd.DataFrame([[1, 2, 3]], columns=["v", "w", "v"]), arrow_schema("v int, w int"))
    with pytest.raises(ValueError, match="it has no column"):
        arrow_columns(pd.DataFrame(), arrow_schema("v int"))
