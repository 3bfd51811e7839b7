"""What lies beside a report: every value as it was computed, and rounded only where that is declared."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from html import unescape
from typing import Any

import pyarrow as pa
import pytest

from platform_assets.reports.files import as_csv, as_html, with_decimals
from platform_assets.reports.report import Section
from streaming.base import DeclarationError
from tests.support.typed_values import as_python, read_text, selected, typed_rows

TABLE = pa.table(
    {
        "id": ["a", "b", "c"],
        "n": pa.array([9_007_199_254_740_993, None, 3], pa.int64()),
        "rate": [0.00004, 52.520008, None],
        "price": pa.array([Decimal("1.005"), None, Decimal("-0.125")], pa.decimal128(38, 3)),
        "tags": [[1, 2], None, []],
    }
)


def csv_rows(table: pa.Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(as_csv(table).decode(), newline="")))


def cells(table: pa.Table) -> list[str]:
    return [unescape(cell) for cell in re.findall("<td>(.*?)</td>", as_html(table, "t", (), None).decode(), re.DOTALL)]


def test_files_show_integers_beside_a_null_small_numbers_and_lists_as_they_are() -> None:
    rows = [
        ["a", "9007199254740993", "4e-05", "1.005", "[1,2]"],
        ["b", "", "52.520008", "", ""],
        ["c", "3", "", "-0.125", "[]"],
    ]
    assert [
        [cell if place != 2 or cell == "" else str(float(cell)) for place, cell in enumerate(row)]
        for row in csv_rows(TABLE)[1:]
    ] == rows
    assert cells(TABLE) == [cell for row in rows for cell in row]


def test_files_have_every_value_of_every_type() -> None:
    table = selected(typed_rows())
    expected = [[*row.values()] for row in as_python(table)]
    names, *lines = csv_rows(table)
    assert names == table.column_names
    shown = cells(table)
    in_html = [shown[place : place + len(names)] for place in range(0, len(shown), len(names))]
    for rows in (lines, in_html):
        assert [[_read(field.type, text) for field, text in zip(table.schema, row, strict=True)] for row in rows] == [
            [None if value in ("", b"") else value for value in row] for row in expected
        ]


def _read(type_: pa.DataType, text: str) -> Any:
    return read_text(type_, text, json.loads) if text else None


def test_only_declared_columns_are_rounded() -> None:
    shown = with_decimals(TABLE, {"rate": 2, "price": 2, "n": 0})
    assert shown["rate"].to_pylist() == ["0.00", "52.52", None]
    assert shown["price"].to_pylist() == ["1.00", None, "-0.12"]
    assert shown["n"].to_pylist() == ["9007199254740993", None, "3"]
    assert with_decimals(pa.table({"x": [float("nan"), float("-inf"), 1e22]}), {"x": 1})["x"].to_pylist() == [
        *("NaN", "-Infinity", "10000000000000000000000.0")
    ]
    assert with_decimals(TABLE, {}) is TABLE


@pytest.mark.parametrize("name", ["nobody", "id", "tags"])
def test_decimals_of_what_is_no_column_of_numbers_are_refused(name: str) -> None:
    with pytest.raises(
        DeclarationError, match=rf"decimals has '{name}', which is no column of numbers; there are: id \("
    ):
        with_decimals(TABLE, {name: 2})


@pytest.mark.parametrize("given", [{"rate": -1}, {"rate": True}, {1: 2}, ("rate", 2)])
def test_digits_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(DeclarationError, match="decimals of section 'r'"):
        Section("r", "", lambda sources: None, lambda sources: None, decimals=given)  # type: ignore[arg-type,return-value]
