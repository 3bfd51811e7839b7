"""Arrow computes of a row what Spark computes of it, or says that it is doubtful."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.spark import ArrowExpression, Rows, Unproven, arrow_expressions, guarded
from tests.support.seeds import draws

INTEGERS = {"y": 8, "h": 16, "i": 32, "j": 32, "l": 64, "m": 64}
TYPES: dict[str, pa.DataType] = {
    "y": pa.int8(),
    "h": pa.int16(),
    "i": pa.int32(),
    "j": pa.int32(),
    "l": pa.int64(),
    "m": pa.int64(),
    "d": pa.float64(),
    "e": pa.float64(),
    "f": pa.float32(),
    "g": pa.float32(),
    "s": pa.string(),
    "t": pa.string(),
    "k": pa.string(),
    "b": pa.bool_(),
    "c": pa.bool_(),
    "dt": pa.date32(),
    "du": pa.date32(),
    "ts": pa.timestamp("us", tz="UTC"),
    "tu": pa.timestamp("us", tz="UTC"),
    "tn": pa.timestamp("us"),
    "n": pa.decimal128(10, 2),
    "o": pa.decimal128(10, 2),
    "bin": pa.binary(),
    "st": pa.struct([("a", pa.int32()), ("b", pa.string()), ("in", pa.struct([("x", pa.float64())]))]),
    "xs": pa.list_(pa.int32()),
}
DOUBLES = [
    *[0.0, -0.0, 1.0, -1.5, 0.5, 2.5, -2.5, 2.675, 1e15, 123456.785, 0.1, 1e-310, 2.0**31, 2.0**53, 2.0**63],
    *[-(2.0**63), 1e300, -1e300, float("nan"), float("inf"), float("-inf"), 2147483647.9, -129.5],
    *[0.49999999999999994],
]
TEXTS = [
    *["", " ", "a", "A", "ab", "abc", "a b", " a", "a ", "\ta", "a\n", "a\r\n", "a\r", "\n", "é", "e\u0301"],
    *["ß", "İ", "\u017f", "\u212a", "k", "K", "😀", "a😀b", "\ud7ff", "\ue000", "\uffff", "\U0010ffff"],
    *["a\u2028", "a\x85", "\x00", "\x0b", "%", "_", "a_c", "a%c", "\\", "a\\", "abcabc"],
    *["xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "ÀÉ", "a.c", "a-b", "foo@bar.com", "AbC", "\ufffd", "12"],
    *["I"],
]
PLAIN = [
    *["1", "-1", "007", "+5", " 5", "5 ", "1.5", "-0", "1e3", "abc", "", "2147483648", "127", "128"],
    *["99999999999999999999", "9223372036854775807", "NaN", "Infinity", "1.", ".5", "0x10", "1d", "1f"],
    *["1_000", "true", "T", "no", "0", "Yes", "\u0661", "2024-02-29", "2023-02-29", "2024-2-9", "0000-01-01"],
    *["0001-01-01", "9999-12-31", "10000-01-01", "2024-13-01", "2024-01-01 00:00:00", "2024-01-01T12:34:56"],
    *["2024-01-01T12:34:56Z", "2024-01-01T12:34:56.123456Z", "1500-03-01", "2024-01-01 12:34:56.5"],
    *["2024-01-01T12:34:56+05:30", "2024-01-01T12:34:56.1-18:00", "2024-01-01T12:34:56+18:01"],
    *["2024-01-01 24:00:00", "2024-01-01 23:59:60", "2024-01-01 12:34", "2024-01-01 "],
    *["2024-01-01T12:34:56.1234567", "1e309", "1e-400", "123456789012345678901234567890.5", "0.1", "16777217"],
    *["2024-01-01 12:34:56 UTC", "1969-12-31"],
]
"""Texts of numbers, dates and timestamps, and such that are nearly."""
DAYS = [
    *[0, -1, 1, 19_000, 20_000, -719_162, -719_163, -141_428, -141_427, 2_932_896, 2_932_897, 2**31 - 1],
    *[-(2**31), 11_016],
]
MICROSECONDS = [
    *[0, -1, 1, 1_700_000_000_123_456, 1_700_000_000_000_000, -62_135_596_800_000_000, -62_135_596_800_000_001],
    *[253_402_300_799_999_999, 253_402_300_800_000_000, 2**63 - 1, -(2**63), -12_219_292_800_000_001],
    *[-86_400_000_000],
]
ROWS = 100
UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def _table(random: Random, usual: float = 0.4) -> pa.Table:
    def one(name: str) -> Any:
        if random.random() < 0.1:
            return None
        is_usual = random.random() < usual
        match name:
            case "y" | "h" | "i" | "j" | "l" | "m":
                high = 2 ** (INTEGERS[name] - 1)
                odd = [0, 1, -1, 2, 3, 7, high - 1, -high, high - 2, 10, 60, min(high - 1, 2**53 + 1)]
                return random.randint(-20, 100) if is_usual else random.choice(odd)
            case "d" | "e" | "f" | "g":
                return round(random.uniform(-100, 1000), random.randint(0, 4)) if is_usual else random.choice(DOUBLES)
            case "s" | "t":
                return "".join(random.choices("abcABC d", k=random.randint(0, 8))) if is_usual else random.choice(TEXTS)
            case "k":
                return str(random.randint(-1000, 10**6)) if is_usual else random.choice(PLAIN)
            case "b" | "c":
                return random.random() < 0.5
            case "dt" | "du":
                return random.randint(10_000, 25_000) if is_usual else random.choice(DAYS)
            case "ts" | "tu" | "tn":
                return random.randint(10**15, 2 * 10**15) if is_usual else random.choice(MICROSECONDS)
            case "n" | "o":
                return Decimal(random.choice([0, 1, -1, 350, 99, 9_999_999_999, -9_999_999_999, 123])) / 100
            case "bin":
                return random.choice([b"", b"a", b"\xff", b"\x00", b"ab"])
            case "st":
                return {"a": one("i"), "b": one("s"), "in": None if random.random() < 0.2 else {"x": one("d")}}
            case _:
                return [one("i") for _ in range(random.randint(0, 4))]

    columns = {}
    for name, type_ in TYPES.items():
        values = [one(name) for _ in range(ROWS)]
        stored = {"dt": pa.int32(), "du": pa.int32(), "ts": pa.int64(), "tu": pa.int64(), "tn": pa.int64()}.get(name)
        columns[name] = pa.array(values, type_) if stored is None else pa.array(values, stored).cast(type_)
    return pa.table(columns)


LIKES = [
    *["a%", "%a", "%a%", "a_c", "_", "%", "", "a%c", "a\\\\%c", "a\\\\_c", "%b_", "__", "é%", "%\\\\\\\\"],
    *["%😀%", "%.%"],
]
REGEXES = [
    *["^a", "a$", "^a.*c$", "[a-c]+", "[^a-c]", "\\\\d+", "^\\\\w+$", "\\\\s", "a|b", "(ab)+c", "^(a|b)?c"],
    *["(?i)abc", "(?i)[j-l]", ".", "^.$", "a{2,3}", "\\\\bfoo\\\\b", "^[^@]+@[^@]+$", "\\\\.", "[\\\\w.-]+"],
    *["x{10}", "\\\\S+", "^$", "", "(?i)[^k]", "a.c", "\\\\x41", "[😀é]", "^..$", "\\\\u00e9", "(?:a|bc)*?d"],
    *["[-a]", "[a\\\\d]", "^a\\\\z", "]", "}", "\\\\W", "\\\\D$", "\\\\Aab"],
]
"""As SQL writes them, which takes a backslash for one of its own."""
LITERALS = {
    "integer": ["0", "1", "-1", "2", "7", "100", "2147483647", "-2147483648", "null"],
    "long": ["0L", "1L", "-1L", "3L", "9223372036854775807L", "4294967296L", "cast(null as bigint)"],
    "double": [
        *["0.0D", "-0.0D", "1.5D", "-2.5D", "1e10D", "double('NaN')", "double('inf')"],
        *["cast(null as double)", "0.5"],
    ],
    "float": ["float(0)", "float(1.5)", "float('NaN')", "float('-0.0')"],
    "string": ["''", "'a'", "'abc'", "'é'", "'😀'", "'K'", "'zz'", "cast(null as string)", "'a '"],
    "boolean": ["true", "false", "cast(null as boolean)"],
    "date": ["date'2024-02-29'", "date'1970-01-01'", "date'1500-03-01'", "cast(null as date)"],
    "timestamp": ["timestamp'2024-01-31 12:34:56.789'", "timestamp'1969-12-31 23:59:59.999999'"],
    "decimal": ["3.50", "0", "1", "cast(null as decimal(10,2))"],
    "interval": ["interval '1' day", "interval '-3' hour", "interval '1 02:03:04.5' day to second"],
}
COLUMNS = {
    "byte": ["y"],
    "short": ["h"],
    "integer": ["i", "j", "st.a"],
    "long": ["l", "m"],
    "double": ["d", "e", "st.in.x"],
    "float": ["f", "g"],
    "string": ["s", "t", "k", "st.b"],
    "boolean": ["b", "c"],
    "date": ["dt", "du"],
    "timestamp": ["ts", "tu"],
    "decimal": ["n", "o"],
    "interval": ["(ts - tu)", "(dt - du)"],
}
ANY = [type_ for type_ in COLUMNS if type_ != "interval"]
MADE = {
    "boolean": [
        *[
            "bin = cast(<string> as binary)",
            "bin < bin",
            "tn < ts",
            "tn + interval '1' day > tn",
            "n in (1.00, 0, null)",
            "n = <byte>",
            "<boolean> in (true, null)",
            "xs is null",
            "st is null",
            "<integer> > 1.5",
            "<double> in (1, 2.5)",
            "<interval> in (interval '1' day)",
        ],
        *["<any> = <any>", "<any> <=> <any>", "<any> < <any>", "<any> <= <any>", "<any> > <any>", "<any> >= <any>"] * 2,
        *["<boolean> and <boolean>", "<boolean> or <boolean>", "not <boolean>"] * 3,
        *["<any> is null", "<any> is not null", "<any> between <any> and <any>"],
        *["<any> in (<literal>, <literal>, <literal>)", "<any> not in (<literal>, <literal>)"],
        *["isnan(<double>)", "isnan(<float>)", "<string> like '<like>'", "<string> rlike '<regex>'"],
        *["startswith(<string>, 'a')", "endswith(<string>, 'c')", "contains(<string>, 'b')"],
        *["<string> ilike 'A%'", "cast(<integer> as boolean)", "cast(<string> as boolean)"],
        *["cast(<double> as boolean)", "<any> is not distinct from <any>", "<interval> > <interval>"],
    ],
    "integer": [
        *["hour(tn)", "year(tn)"],
        *["<integer> + <integer>", "<integer> - <integer>", "<integer> * <integer>"] * 2,
        *["<integer> % <integer>", "pmod(<integer>, <integer>)", "- <integer>", "abs(<integer>)"],
        *["cast(<long> as int)", "cast(<double> as int)", "cast(<float> as int)", "cast(<string> as int)"],
        *["cast(<boolean> as int)", "cast(<timestamp> as int)", "length(<string>)", "octet_length(<string>)"],
        *["size(xs)", "xs[0]", "xs[2]", "element_at(xs, -2)", "element_at(xs, 1)", "year(<date>)"],
        *["month(<date>)", "day(<date>)", "quarter(<timestamp>)", "dayofweek(<date>)", "weekday(<date>)"],
        *["dayofyear(<date>)", "weekofyear(<date>)", "hour(<timestamp>)", "minute(<timestamp>)"],
        *["second(<timestamp>)", "extract(year from <timestamp>)", "datediff(<date>, <date>)"],
        *["instr(<string>, 'b')", "<integer> & <integer>", "<integer> | <integer>", "<integer> ^ <integer>"],
        *["~<integer>", "round(<integer>)", "try_cast(<string> as int)"],
    ],
    "long": [
        *[
            "unix_timestamp(<date>)",
            "unix_seconds(<timestamp>)",
            "to_unix_timestamp(<string>, 'yyyy-MM-dd')",
            "<integer> + 1 + <integer> + 2",
            "<integer> * 3 * <integer>",
        ],
        *["<long> + <long>", "<long> - <integer>", "<long> * <long>"] * 2,
        *["<integer> * <long>", "<long> % <long>", "<long> div <long>", "<integer> div <integer>"],
        *["pmod(<long>, <long>)", "- <long>", "abs(<long>)", "cast(<double> as bigint)"],
        *["cast(<float> as bigint)", "cast(<string> as bigint)", "cast(<integer> as bigint)"],
        *["cast(<timestamp> as bigint)", "unix_timestamp(<timestamp>)", "unix_timestamp(<string>)"],
        *["unix_millis(<timestamp>)", "unix_micros(<timestamp>)", "floor(<double>)", "ceil(<double>)"],
    ],
    "short": [
        *["<short> + <short>", "<short> * <short>", "<short> % <short>", "cast(<string> as smallint)"],
        *["cast(<long> as smallint)"],
    ],
    "byte": [
        *["<byte> + <byte>", "<byte> * <byte>", "- <byte>", "cast(<double> as tinyint)"],
        *["cast(<integer> as tinyint)"],
    ],
    "double": [
        *["<double> + <double>", "<double> - <double>", "<double> * <double>", "<double> / <double>"] * 2,
        *["<integer> / <integer>", "<double> % <double>", "- <double>", "abs(<double>)"],
        *["cast(<long> as double)", "cast(<float> as double)", "cast(<string> as double)"],
        *["cast(<timestamp> as double)", "round(<double>)", "round(<double>, 2)", "sqrt(<double>)"],
        *["nanvl(<double>, <double>)", "<integer> + <double>", "try_divide(<double>, <double>)"],
    ],
    "float": [
        *["<float> + <float>", "<float> * <float>", "cast(<double> as float)", "cast(<string> as float)"],
        *["cast(<long> as float)"],
    ],
    "string": [
        *["cast(tn as string)"],
        *["lower(<string>)", "upper(<string>)", "trim(<string>)", "ltrim(<string>)", "rtrim(<string>)"],
        *["trim(both 'ab' from <string>)", "substring(<string>, 2)", "substring(<string>, 1, 3)"],
        *["substring(<string>, -2)", "substring(<string>, -4, 2)", "substring(<string>, -3, 5)"],
        *["substring(<string>, 0, 2)", "substring(<string>, 2, 0)", "left(<string>, 2)"],
        *["right(<string>, 2)", "concat(<string>, <string>)", "<string> || '-' || <string>"],
        *["concat_ws('-', <string>, <string>)", "cast(<integer> as string)", "cast(<long> as string)"],
        *["cast(<boolean> as string)", "cast(<date> as string)", "cast(<timestamp> as string)"],
        *["date_format(<timestamp>, 'yyyy-MM-dd')", "date_format(<timestamp>, \"yyyy/MM/dd'T'HH:mm:ss\")"],
        *["from_unixtime(<long>)", "replace(<string>, 'a', 'xy')"],
    ],
    "date": [
        *["cast(tn as date)", "date_add(<date>, <byte>)"],
        *["to_date(<string>)", "cast(<timestamp> as date)", "date_add(<date>, <integer>)"],
        *["date_sub(<date>, 7)", "<date> + interval '2' day", "<date> - interval '1' month"],
        *["add_months(<date>, <integer>)", "trunc(<date>, 'year')", "trunc(<date>, 'quarter')"],
        *["trunc(<date>, 'month')", "trunc(<date>, 'week')", "to_date(<string>, 'yyyy-MM-dd')"],
    ],
    "timestamp": [
        *[
            f"date_trunc('{unit}', <timestamp>)"
            for unit in ("year", "quarter", "month", "week", "day", "hour", "minute")
        ],
        *["date_trunc('second', <timestamp>)", "date_trunc('millisecond', <timestamp>)"],
        *["to_timestamp(<string>)", "cast(<string> as timestamp)", "cast(<date> as timestamp)"],
        *["<timestamp> + <interval>", "<timestamp> - interval '90' minute"],
        *["<timestamp> + interval '1' month", "timestamp_seconds(<integer>)", "timestamp_millis(<long>)"],
        *["timestamp_micros(<long>)", "cast(<long> as timestamp)", "cast(tn as timestamp)"],
        *["to_timestamp(<string>, 'yyyy-MM-dd HH:mm:ss')"],
        *["to_timestamp(<string>, \"yyyy-MM-dd'T'HH:mm:ss\")"],
    ],
    "decimal": ["cast(<byte> as decimal(10, 2))"],
    "interval": [],
}
OF_ANY = [
    "case when <boolean> then <same> else <same> end",
    "case when <boolean> then <same> when <boolean> then <same> end",
    "if(<boolean>, <same>, <same>)",
    "coalesce(<same>, <same>)",
    "nullif(<same>, <same>)",
    "greatest(<same>, <same>)",
    "least(<same>, <same>, <same>)",
    "nvl2(<boolean>, <same>, <same>)",
    "case <same> when <same> then <same> else <same> end",
]


def _filled(template: str, type_: str, random: Random, depth: int) -> str:
    """The SQL of a template, with other SQL in its gaps."""
    of_any = random.choice(ANY)
    literal = LITERALS.get(of_any, ["1", "null"])
    parts = []
    for part in template.replace("<", "\0<").replace(">", ">\0").split("\0"):
        match part:
            case "<any>":
                parts.append(drawn(of_any, random, depth - 1))
            case "<literal>":
                parts.append(random.choice(literal))
            case "<same>":
                parts.append(drawn(type_, random, depth - 1))
            case "<like>":
                parts.append(random.choice(LIKES))
            case "<regex>":
                parts.append(random.choice(REGEXES))
            case _ if part[1:-1] in COLUMNS and part.startswith("<"):
                parts.append(drawn(part[1:-1], random, depth - 1))
            case _:
                parts.append(part)
    return f"({''.join(parts)})"


def drawn(type_: str, random: Random, depth: int) -> str:
    """The SQL of an expression of a type."""
    if depth <= 0 or random.random() < 0.15:
        chance = random.random() < 0.8 or type_ not in LITERALS
        return random.choice(COLUMNS[type_] if chance else LITERALS[type_])
    if random.random() < 0.2 or not MADE[type_]:
        if type_ == "interval":
            return random.choice(LITERALS[type_])
        return _filled(random.choice(OF_ANY), type_, random, depth)
    return _filled(random.choice(MADE[type_]), type_, random, depth)


@dataclass
class Compared:
    """What Spark and Arrow make of the same expressions over the same rows."""

    translated: dict[str, ArrowExpression | Unproven]
    doubtful: dict[str, np.ndarray]
    differences: list[str]


def _same(left: pa.Array, right: pa.Array) -> np.ndarray:
    """For each row, whether both are null or the same value, to the sign of a zero."""
    assert left.type == right.type, f"{left.type} is not {right.type}"
    if pa.types.is_floating(left.type):
        bits = np.dtype("int64" if left.type == pa.float64() else "int32")
        nan = [np.isnan(each.to_numpy(zero_copy_only=False)) for each in (left, right)]
        values = [each.fill_null(0).to_numpy(zero_copy_only=False).view(bits) for each in (left, right)]
        nulls = [each.is_null().to_numpy(zero_copy_only=False) for each in (left, right)]
        return (nulls[0] == nulls[1]) & ((values[0] == values[1]) | (nan[0] & nan[1]))
    if pa.types.is_temporal(left.type):
        # Python has no such dates.
        width = pa.int32() if pa.types.is_date(left.type) else pa.int64()
        left, right = left.cast(width), right.cast(width)
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.array([a == b for a, b in pairs], dtype=bool)


def _within_another(array: pa.Array) -> pa.Array:
    """The array as a part of a longer one, as are those of blocks."""
    return pa.concat_arrays([array[:3], array, array[:3]])[3:-3]


def compare(rows: DataFrame, table: pa.Table, expressions: list[str]) -> Compared:
    """Compares both for each expression and row."""
    spark = rows.sparkSession
    empty = spark.createDataFrame([], rows.schema)
    names = {f"v{place}": sql for place, sql in enumerate(expressions)}
    columns = {name: F.expr(sql) for name, sql in names.items()}
    trees = arrow_expressions(empty.select(*(column.alias(name) for name, column in columns.items())))
    proven = [name for name in names if isinstance(trees[name], ArrowExpression)]
    # Spark takes some values for never null, and then has no place for those of failures.
    nullable = {name: F.when(F.col("i").isNull().isin(True, False), columns[name]) for name in proven}
    by_spark = rows.select(*(guarded(value, "i").alias(name) for name, value in nullable.items())).toArrow()
    blocks = {name: _within_another(table[name].combine_chunks()) for name in table.column_names}
    differences, doubtful = [], {}
    for name in proven:
        tree = pickle.loads(pickle.dumps(trees[name]))
        assert tree.reads <= set(blocks)
        block = Rows({each: blocks[each] for each in tree.reads}, len(table))
        computed = block.array_of(tree)
        doubtful[names[name]] = block.doubtful
        made = by_spark[name].combine_chunks()
        (values,) = made.flatten()
        failed = made.is_null().to_numpy(zero_copy_only=False)
        wrong = ~block.doubtful & (failed | ~_same(values, computed))
        for row in np.flatnonzero(wrong)[:1]:
            read = {each: _shown(blocks[each], int(row)) for each in sorted(tree.reads)}
            spark_made = "a failure" if failed[row] else _shown(values, int(row))
            differences.append(f"{names[name]}: Spark {spark_made}, Arrow {_shown(computed, int(row))}, of {read}")
    return Compared({names[name]: tree for name, tree in trees.items()}, doubtful, differences)


def _shown(array: pa.Array, row: int) -> str:
    value = array[row]
    return repr(value.value if pa.types.is_temporal(array.type) else value.as_py())


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return _table(draws("rows of hostile values"))


@pytest.fixture(scope="module")
def rows(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    # From a file, as Spark computes rows that it knows while it plans.
    path: Path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table, path)
    return spark.read.parquet(str(path))


USUAL = [
    *["i = 1", "i <=> j", "s < t", "d <= e", "ts > timestamp'2020-01-01'", "dt >= date'2020-01-01'", "n > 3.5"],
    *["b = c", "i in (1, 2, null)", "s in ('a', 'b')", "d in (0.5D, 1.0D)", "dt in (date'2020-01-01')"],
    *["i in (1, 2, 3, 4, 5, 6, 7)", "i in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)", "n in (1.00, 2.50)"],
    *["i between 1 and 30", "not b", "b and c", "b or c", "i is null", "s is not null", "st is null"],
    *["isnan(d)", "nanvl(d, 0D)", "nullif(i, 3)", "nvl(s, 'none')", "coalesce(i, j, 0)", "if(b, i, j)"],
    *["case when i > 3 then 'a' when i > 1 then 'b' else 'c' end", "nvl2(i, s, t)", "i + j", "l - m", "i * j"],
    *["d / 3D", "i / 7", "l % 7", "pmod(l, 7)", "l div 7", "-i", "abs(d)", "sqrt(abs(d))", "i & 3", "i | j"],
    *["i ^ j", "~i", "round(d)", "round(d, 1)", "floor(d)", "ceil(d)", "greatest(i, j)", "least(d, e)"],
    *["cast(i as bigint)", "cast(l as int)", "cast(d as int)", "cast(i as double)", "cast(d as float)"],
    *["cast(i as string)", "cast(b as string)", "cast(k as int)", "cast(k as bigint)", "cast(k as double)"],
    *["cast(i as boolean)", "cast(b as int)", "cast(dt as string)", "cast(ts as string)"],
    *["cast(cast(dt as string) as date)", "cast(cast(ts as string) as timestamp)", "to_date(ts)"],
    *["cast(dt as timestamp)", "cast(ts as bigint)", "cast(ts as double)", "cast(l as timestamp)"],
    *["cast(i as decimal(12, 2))"],
    *["to_timestamp(date_format(ts, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')", "from_unixtime(l)"],
    *["cast(tn as timestamp)", "year(ts)", "quarter(dt)", "month(dt)", "day(dt)", "dayofyear(dt)"],
    *["dayofweek(dt)", "weekday(dt)", "weekofyear(dt)", "hour(ts)", "minute(ts)", "second(ts)"],
    *["extract(hour from ts)", "unix_timestamp(ts)", "unix_millis(ts)", "timestamp_millis(l)"],
    *["date_trunc('hour', ts)", "date_trunc('month', ts)", "trunc(dt, 'week')", "date_add(dt, i)"],
    *["date_sub(dt, 1)", "datediff(ts, dt)", "dt + interval '1' day", "ts + interval '2' hour"],
    *["ts - interval '1' month", "add_months(dt, 1)", "ts - tu > interval '1' day", "dt - du", "length(s)"],
    *["lower(s)", "upper(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "substring(s, 2, 3)", "left(s, 2)"],
    *["right(s, 2)", "s || t", "concat_ws('-', s, t)", "startswith(s, 'a')", "endswith(s, 'a')"],
    *["contains(s, 'a')", "s like 'a%b'", "s ilike 'a%'", "s rlike '^[a-c ]+$'", "replace(s, 'a', 'b')"],
    *["instr(s, 'b')", "st.a", "st.in.x > 1.5", "size(xs)", "try_divide(i, 7)", "try_cast(k as int)"],
    *["octet_length(s)", "bin", "tn", "n"],
]
"""Of each function one, over values as they usually are."""

LEFT_TO_SPARK = {
    "regexp_replace(s, 'a', 'b')": "the function regexp_replace runs in Spark",
    "n * 2": "the function multiply of decimal(10,2) runs in Spark",
    "cast(d as string)": "a cast of double to string runs in Spark",
    "s collate UTF8_LCASE = 'A'": "a value of string collate UTF8_LCASE runs in Spark",
    "s like 'a!%' escape '!'": "a pattern with an escape character of its own runs in Spark",
    "s like concat(t, '%')": "a pattern that differs from row to row runs in Spark",
    "s rlike '(?=a)b'": "the pattern '(?=a)b' runs in Spark, as it has a group of a special kind",
    "ts < now()": "what changes from run to run runs in Spark",
    "dt < current_date() - 1": "what changes from run to run runs in Spark",
    "rand() < 0.5": "what changes from run to run runs in Spark",
    "s = cast(x'ff' as string)": "a text that may be no UTF-8 runs in Spark",
    "bin = x'ff'": "a literal of binary runs in Spark",
    "dt > date'+12000-01-01'": "a date outside of the years 1 to 9999 runs in Spark",
    "cast(cast(l as float) as double)": "a cast of whole numbers to float and double runs in Spark",
    "round(f, 1)": "rounding of float runs in Spark",
    "to_timestamp(s, 'dd.MM.yyyy')": "reading a time with another pattern runs in Spark",
}


def test_drawn_expressions_are_computed_as_by_spark(rows: DataFrame, table: pa.Table) -> None:
    random = draws("drawn expressions")
    expressions = [drawn(random.choice(ANY), random, random.randint(1, 3)) for _ in range(50)]
    compared = compare(rows, table, list(dict.fromkeys(expressions)))
    assert compared.differences == []


@pytest.fixture
def uncompiled(spark: SparkSession) -> Iterator[None]:
    """Spark compiles no expression; compiling many takes ten times as long as computing them for a few rows."""
    for key, value in UNCOMPILED.items():
        spark.conf.set(key, value)
    yield
    for key in UNCOMPILED:
        spark.conf.unset(key)


@pytest.mark.usefixtures("uncompiled")
def test_every_function_is_computed_as_by_spark(rows: DataFrame, table: pa.Table) -> None:
    random = draws("expressions of every function")
    expressions = [_filled(template, type_, random, 1) for type_, made in MADE.items() for template in made]
    compared = compare(rows, table, list(dict.fromkeys(expressions)))
    assert compared.differences == []


@pytest.mark.usefixtures("uncompiled")
def test_values_as_they_usually_are_are_not_doubtful(spark: SparkSession, tmp_path: Path) -> None:
    table = _table(draws("usual values"), usual=1.0)
    pq.write_table(table, tmp_path / "usual.parquet")
    compared = compare(spark.read.parquet(str(tmp_path)), table, USUAL)
    assert compared.differences == []
    assert [tree for tree in compared.translated.values() if isinstance(tree, Unproven)] == []
    assert {sql: doubt.mean() for sql, doubt in compared.doubtful.items() if doubt.mean() > 0.02} == {}


def test_what_is_not_proven_is_left_to_spark_for_a_reason(rows: DataFrame) -> None:
    trees = arrow_expressions(rows.select(*(F.expr(sql).alias(sql) for sql in LEFT_TO_SPARK)))
    assert trees == {sql: Unproven(reason) for sql, reason in LEFT_TO_SPARK.items()}


def test_columns_that_are_selected_from_selected_ones_are_made_of_the_input(rows: DataFrame) -> None:
    frame = rows.select("i", F.expr("i + 1").alias("next"), F.expr("now()").alias("now"))
    frame = frame.withColumn("product", F.expr("next * i")).withColumn("hour", F.expr("hour(now)"))
    trees = arrow_expressions(frame)
    assert isinstance(trees["product"], ArrowExpression) and trees["product"].reads == {"i"}
    assert trees["hour"] == trees["now"] == Unproven("what changes from run to run runs in Spark")
    block = Rows({"i": pa.array([1, 2, None], pa.int32())}, 3)
    assert block.array_of(trees["product"]).to_pylist() == [2, 6, None]


def test_a_part_that_is_not_asked_for_makes_no_row_doubtful(rows: DataFrame) -> None:
    guarded_by = ["if(i = 0, 0, 7 div i)", "i = 0 or 7 div i > 1", "i <> 0 and 7 div i > 1", "coalesce(j, 7 div i)"]
    trees = arrow_expressions(rows.select(*(F.expr(sql).alias(sql) for sql in guarded_by)))
    block = Rows({"i": pa.array([0, 1], pa.int32()), "j": pa.array([1, 1], pa.int32())}, 2)
    for tree in trees.values():
        assert isinstance(tree, ArrowExpression)
        block.array_of(tree)
    assert not block.doubtful.any()
    (failing,) = arrow_expressions(rows.selectExpr("7 div i")).values()
    assert isinstance(failing, ArrowExpression)
    block.array_of(failing)
    assert block.doubtful.tolist() == [True, False]


def test_what_branches_have_in_common_is_computed_first(rows: DataFrame, table: pa.Table) -> None:
    fails_for_zero = "7 div i > 1"
    expressions = [
        f"(b and {fails_for_zero}) or (c and {fails_for_zero})",
        f"(b or {fails_for_zero}) and (c or {fails_for_zero})",
        f"not (b and {fails_for_zero}) and (c or not ({fails_for_zero}))",
        f"b and (c or {fails_for_zero}) or d > 0 and (c or 1 < 7 div i)",
        f"if(b, (b and {fails_for_zero}) or (c and {fails_for_zero}), c)",
        f"if(b is not null, {fails_for_zero}, false) or (c and {fails_for_zero})",
        "y * 2 * y * 3",
        "0Y + y + y",
        "sqrt(d) in (double('NaN'), 0D)",
    ]
    assert compare(rows, table, expressions).differences == []


def test_a_session_of_other_settings_leaves_all_to_spark(spark: SparkSession) -> None:
    for setting, value in (("spark.sql.ansi.enabled", "false"), ("spark.sql.session.timeZone", "Europe/Berlin")):
        other = spark.newSession()
        other.conf.set(setting, value)
        (tree,) = arrow_expressions(other.createDataFrame([], "i int").selectExpr("i")).values()
        assert isinstance(tree, Unproven)


def test_what_needs_other_rows_is_left_to_spark(rows: DataFrame) -> None:
    trees = arrow_expressions(rows.selectExpr("i", "row_number() over (order by i) as place"))
    assert trees == dict.fromkeys(("i", "place"), Unproven("the step Window runs in Spark"))
    assert arrow_expressions(rows.selectExpr("sum(i)")) == {"sum(i)": Unproven("the step Aggregate runs in Spark")}


def test_blocks_without_rows_or_values_are_computed(rows: DataFrame) -> None:
    trees = arrow_expressions(rows.select(*(F.expr(sql).alias(sql) for sql in USUAL)))
    for number in (0, 3):
        block = Rows({name: pa.nulls(number, type_) for name, type_ in TYPES.items()}, number)
        for sql, tree in trees.items():
            assert isinstance(tree, ArrowExpression)
            assert len(block.array_of(tree)) == number, sql
        assert not block.doubtful.any()
