"""What a column of Postgres makes of a value, and what its errors are about, without a server."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streaming.sinks.postgres_comparison import canonical_texts
from streaming.sinks.postgres_sink import is_of_server
from streaming.sinks.postgres_tables import Conversion, TableColumn, array_texts


@pytest.mark.parametrize(
    ("code", "of_server"),
    [
        *((code, True) for code in (None, "08006", "25006", "28P01", "3D000", "40001", "40P01", "53100", "53300")),
        *((code, True) for code in ("55P03", "57014", "57P01", "58030", "XX001", "F0000")),
        *((code, False) for code in ("21000", "22001", "23503", "42501", "44000", "54000", "55000", "P0001", "XX000")),
    ],
)
def test_which_errors_are_of_the_server(code: str | None, of_server: bool) -> None:
    error = psycopg.Error()
    error.sqlstate = code
    assert is_of_server(error) is of_server


def conversion(type_: pa.DataType, declared: str, internal: str, category: str = "N", limit: int = -1) -> Conversion:
    return Conversion(
        pa.field("c", type_), TableColumn("c", declared, declared.split("(")[0], internal, category, "b", limit)
    )


@pytest.mark.parametrize(
    ("given", "value", "is_exact"),
    [
        (conversion(pa.int32(), "bigint", "int8"), '"c"::bigint', None),
        (conversion(pa.int64(), "smallint", "int2"), '"c"::smallint', None),
        (conversion(pa.int32(), "double precision", "float8"), '"c"::double precision', None),
        (conversion(pa.int64(), "double precision", "float8"), '"c"::double precision',
         '"c"::double precision::text::numeric = "c"::numeric'),
        (conversion(pa.int16(), "real", "float4"), '"c"::real', '"c"::real::text::numeric = "c"::numeric'),
        (conversion(pa.float32(), "double precision", "float8"), '"c"::double precision', None),
        (conversion(pa.float64(), "real", "float4"), '"c"::real',
         '"c"::real::text::double precision = "c"::double precision'),
        (conversion(pa.float64(), "numeric", "numeric"), '"c"::text::numeric', None),
        (conversion(pa.float64(), "numeric(10,2)", "numeric", "N", (10 << 16) + 2 + 4), '"c"::text::numeric(10,2)',
         '"c"::text::numeric(10,2)::text::double precision = "c"::double precision'),
        (conversion(pa.decimal128(12, 2), "numeric(10,2)", "numeric", "N", (10 << 16) + 2 + 4),
         '"c"::numeric(10,2)', None),
        (conversion(pa.decimal128(12, 3), "numeric(10,2)", "numeric", "N", (10 << 16) + 2 + 4), '"c"::numeric(10,2)',
         '"c"::numeric(10,2)::text::numeric = "c"::numeric'),
        (conversion(pa.int64(), "numeric(5,-2)", "numeric", "N", ((5 << 16) | (-2 & 0x7FF)) + 4), '"c"::numeric(5,-2)',
         '"c"::numeric(5,-2)::text::numeric = "c"::numeric'),
        (conversion(pa.decimal128(12, 0), "integer", "int4"), '"c"::integer', None),
        (conversion(pa.string(), "text", "text", "S"), '"c"::text', None),
        (conversion(pa.string(), "uuid", "uuid", "U"), '"c"::uuid', None),
        (conversion(pa.string(), "integer", "int4"), '"c"', None),
        (conversion(pa.string(), "jsonb[]", "_jsonb", "A"), '"c"', None),
        (conversion(pa.bool_(), "integer", "int4"), '"c"', None),
        (conversion(pa.list_(pa.string()), "text[]", "_text", "A"), '"c"::text[]', None),
        (conversion(pa.list_(pa.int64()), "integer[]", "_int4", "A"), '"c"::integer[]',
         '"c"::integer[]::text::numeric[] = "c"::numeric[]'),
        (conversion(pa.list_(pa.string()), "varchar(2)[]", "_varchar", "A", 6), '"c"::varchar(2)[]',
         '"c"::varchar(2)[]::varchar = "c"::varchar'),
        (conversion(pa.list_(pa.list_(pa.string())), "text[]", "_text", "A"), '"c"::text[]',
         """("c"::text[]::text <> '{}' or "c" = '{}')"""),
        (conversion(pa.list_(pa.int64()), "integer", "int4"), '"c"::jsonb', None),
        (conversion(pa.map_(pa.string(), pa.int64()), "json", "json", "U"), '"c"::json', None),
        (conversion(pa.timestamp("us", "UTC"), "date", "date", "D"), '"c"::date', None),
        (conversion(pa.timestamp("us", "UTC"), "integer", "int4"), '"c"', None),
    ],
)  # fmt: skip
def test_a_value_is_cast_by_the_column_and_held_against_it_only_where_something_could_be_lost(
    given: Conversion, value: str, is_exact: str | None
) -> None:
    assert given.value.as_string(None) == value
    assert (None if given.is_exact is None else given.is_exact.as_string(None)) == is_exact


def test_arrays_are_written_as_postgres_reads_them() -> None:
    def written(type_: pa.DataType, *values: Any) -> list[str | None]:
        return array_texts(pa.chunked_array([pa.array(values, type_)]))

    assert written(pa.list_(pa.string()), ["a", 'b"', "c\\", None, ""], [], None) == [
        '{"a","b\\"","c\\\\",NULL,""}',
        "{}",
        None,
    ]
    assert written(pa.list_(pa.list_(pa.int64())), [[1, 2], [3, None]]) == ["{{1,2},{3,NULL}}"]
    assert written(pa.list_(pa.bool_()), [True, False]) == ["{True,False}"]
    assert written(pa.list_(pa.float64()), [0.5, float("nan")]) == ['{0.5,"NaN"}']
    assert written(pa.list_(pa.binary()), [b"\xff", None]) == ['{"\\\\xff",NULL}']
    assert written(pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}]) == ['{"{\\"a\\":1}"}']
    assert written(pa.list_(pa.date32()), [date(2026, 1, 2)]) == ['{"2026-01-02"}']


@pytest.mark.parametrize(
    ("values", "declared", "internal", "texts_"),
    [
        (pa.array([1.5, None, float("nan"), -0.0]), "numeric", "numeric", ["1.5", None, "NaN", "0"]),
        (pa.array([Decimal("1.500"), Decimal("10.000"), Decimal("-0.000")]), "numeric", "numeric", ["1.5", "10", "0"]),
        (
            pa.array([float("inf"), float("-inf"), 1e22]),
            "numeric",
            "numeric",
            ["Infinity", "-Infinity", "1" + "0" * 22],
        ),
        (pa.array([100, -7]), "bigint", "int8", ["100", "-7"]),
        (pa.array([1.0, -0.0]), "real", "float4", ["3ff0000000000000", "0000000000000000"]),
        (pa.array([True, None]), "boolean", "bool", ["true", None]),
        (pa.array([date(1970, 1, 2)]), "date", "date", ["1"]),
        (pa.array([date(1970, 1, 2)]), "timestamp", "timestamp", ["86400000000"]),
        (pa.array([-1], pa.int64()).cast(pa.timestamp("us", "UTC")), "date", "date", ["-1"]),
        (pa.array([-1], pa.int64()).cast(pa.timestamp("us", "UTC")), "timestamp", "timestamp", ["-1"]),
        (pa.array([b"\xff"]), "bytea", "bytea", ["ff"]),
        (pa.array([b"\xff"]), "text", "text", ["\\xff"]),
    ],
)
def test_what_is_expected_has_a_text_of_its_own(
    values: pa.Array, declared: str, internal: str, texts_: list[str | None]
) -> None:
    assert canonical_texts(pa.chunked_array([values]), conversion(values.type, declared, internal)) == texts_
