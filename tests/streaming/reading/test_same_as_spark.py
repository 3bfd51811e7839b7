"""What is read without Spark is, letter by letter, what Spark prints of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from platform_assets.cli import rows
from platform_assets.cli.selection import Selection
from platform_assets.errors import BadSelection
from streaming.reading.conditions import Untranslatable, translated
from streaming.reading.selection import Choice
from streaming.reading.stored import StoredRows
from streaming.reading.texts import can_be_written, csv_lines, json_lines
from streaming.tables import delta

SCHEMA = (
    "id bigint, n int, s smallint, flag boolean, x double, y float, d decimal(20,4), e decimal(38,18), t string, "
    "at timestamp, local timestamp_ntz, day date, raw binary, many array<double>, "
    "part struct<a: string, b: bigint, c: struct<at: timestamp, x: double>>, map map<string, bigint>, "
    "`odd-name` string, bytes array<binary>"
)
MOST = 2**63 - 1
SOME = datetime(2013, 1, 1, 10, 30, 0, 123456, tzinfo=UTC)
HOSTILE = [
    (0, *(None,) * 17),
    (1, 1, 1, True, 0.1, 0.1, Decimal("1.1000"), Decimal("0"), "plain", SOME, SOME.replace(tzinfo=None),
     date(2013, 1, 1), b"a\xff\n", [1.0, None, float("nan")], ("x", 1, (SOME, -0.0)), {"k": 1, "n": None}, "o",
     [b"\x00\xff", None]),
    (MOST, -(2**31), -(2**15), False, float("nan"), float("nan"), Decimal("-0.0001"), Decimal("1e-18"),
     "it's \"q\" \\ \u2028", datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999),
     date(1, 1, 1), b"", [], (None, MOST, None), {}, "", []),
    (-MOST - 1, 2**31 - 1, 2**15 - 1, True, float("inf"), float("-inf"), Decimal("9999999999999999.9999"),
     Decimal("12345678901234567890.000000000000000001"), "\x01\t\u00e9\U0001f600",
     datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1970, 1, 1), date(9999, 12, 31), b"\xc3\xa9",
     [-0.0, 1e300, 1e-5], ("", None, (None, None)), {"": 0}, "%_", None),
    (2, 0, 0, False, -0.0, -0.0, Decimal("0"), Decimal("-1"), "", SOME, datetime(2013, 1, 1), date(2013, 1, 2), None,
     None, (None, None, None), None, "A", None),
    (3, 2, 2, True, 1e7, 1024.5, Decimal("10"), Decimal("3.5"), "a%b_c", datetime(2013, 1, 1, tzinfo=UTC),
     datetime(2013, 1, 1, 10, 30), date(2012, 2, 29), b"plain", [0.001, 123456.789],
     ("a", -1, (SOME, float("nan"))), {"a": 1}, "a", [b""]),
    (4, 3, 3, None, 9.999e-4, 3.4e38, None, None, "PLAIN", None, None, None, None, [1e16], None, None, None, None),
]  # fmt: skip


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataFrame, StoredRows]]:
    """The hostile rows as Spark reads them, and as they are read without it."""
    uri = str(tmp_path_factory.mktemp("hostile") / "table")
    spark.createDataFrame(HOSTILE, SCHEMA).write.format("delta").save(uri)
    yield spark.read.format("delta").load(uri).orderBy("id"), StoredRows.of(delta.opened(uri), ("id",))


Both = tuple[DataFrame, StoredRows]


def test_every_value_has_the_same_text(frame: Both) -> None:
    by_spark, stored = frame
    chosen = Choice(stored)
    assert can_be_written(stored.schema)
    assert [*json_lines(chosen.names, chosen.batches())] == [*rows.json_lines(by_spark)]
    assert [*csv_lines(chosen.names, chosen.batches())] == [*rows.csv_lines(by_spark)]
    assert [*csv_lines(chosen.names, chosen.batches(0))] == [*rows.csv_lines(by_spark.limit(0))]


SORTS = """
id desc
x,id
x desc,id
y,id
t,id
flag desc,id
at desc,id
day,id
part,id
part desc,id
part.c.at,id
raw,id
odd-name,id
d desc,id
local,id
""".strip().splitlines()


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_is_the_same(frame: Both, sort: str) -> None:
    by_spark, stored = frame
    selection = Selection(columns="id", sort=sort)
    assert numbers(selection.of_stored(stored)) == [row["id"] for row in selection.of(by_spark).collect()]


TRANSLATED = """
x > 0
x = 0.0
x <> 0
isnan(x)
not isnan(x)
y = 0.1
y > 1
x <=> null
id > 3
id >= 9223372036854775807
id < 1.5
id = 1e0
x * 2 > 1
d = 1.1
d > 1
d < 0.00005
e = 3.5
e > 1.0
t = 'plain'
t > 'a'
t like 'a%'
t like '%_b%'
t in ('plain', '', null)
t not in ('plain', '')
t = "PLAIN"
contains(t, 'a')
startswith(t, 'p')
endswith(t, 'c')
length(t) = 4
length(t) > 3
flag
not flag
flag is null
flag is not true
flag = true
flag <=> null and id > 0
at > '2013-01-01'
at = '2013-01-01 10:30:00.123456'
at < timestamp '1970-01-01 00:00:00'
at >= '2013-01-01T10:30:00Z'
local > '2013-01-01'
local = '2013-01-01 10:30:00'
day = '2013-01-01'
day > date '2012-12-31'
day between '2012-01-01' and '2013-01-01'
at > day
year(at) = 2013
month(day) = 2
hour(at) = 10
minute(at) = 30 or day(day) = 29
to_date(at) = '2013-01-01'
part.a = 'x'
part.c.x = 0
PART.B > 0
isnull(t)
isnotnull(day)
coalesce(x, 1.5e0) > 1
abs(x) > 1
coalesce(t, 'none') = 'none'
`odd-name` = 'a'
true
false or id = 1
id in (1, 2, 3)
-1 < id
x between -1 and 1
(flag <=> true) and (n = 1)
id = 1 or id = 2 and flag
""".strip().splitlines()


@pytest.fixture(scope="module")
def chosen_by_spark(frame: Both) -> dict[str, list[int]]:
    """By condition, the rows of which Spark says that it is true; in one query, as each takes longer than its rows."""
    rows = frame[0].selectExpr("id", *TRANSLATED).collect()
    return {where: [row[0] for row in rows if row[place]] for place, where in enumerate(TRANSLATED, 1)}


@pytest.mark.parametrize("where", TRANSLATED)
def test_a_condition_chooses_the_same_rows(frame: Both, chosen_by_spark: dict[str, list[int]], where: str) -> None:
    assert numbers(Selection(columns="id", where=where).of_stored(frame[1])) == chosen_by_spark[where]


LEFT_TO_SPARK = """
id + 1 > 3
abs(n) > 1
null
t = 'it''s'
upper(t) = 'A'
t rlike 'a'
t > 1
x / n > 1
d + 1 > 2
raw = 'a'
many[0] > 1
map['k'] = 1
size(many) > 1
at > '2013'
at > 'now'
day > '2013-1-1'
t like 'a\\\\%'
id > '3'
cast(t as int) = 1
id in (select 1)
exists(many, v -> v > 1)
case when flag then true end
id % 2 = 0
t >
rand() > 0.5
current_date > day
local > at
part = part
id & 1 = 1
t || 'a' = 'a'
1L = id
flag > 0
""".strip().splitlines()


@pytest.mark.parametrize("where", LEFT_TO_SPARK)
def test_nothing_else_is_translated(frame: Both, where: str) -> None:
    with pytest.raises(Untranslatable):
        translated(where, frame[1].schema)


@pytest.mark.parametrize("where", ["nonesuch > 1", "part.z = 1", "id", "t", "x + 1"])
def test_what_is_no_condition_is_told_with_the_columns(frame: Both, where: str) -> None:
    with pytest.raises(BadSelection, match=r"cannot be used: .* Columns are: id, n, s, "):
        Selection(where=where).of_stored(frame[1])


@pytest.mark.parametrize("key", ["1", "t=plain", "flag=true,n=2", "day=2013-01-02", "id=-9223372036854775808"])
def test_a_key_chooses_the_same_rows(frame: Both, key: str) -> None:
    by_spark, stored = frame
    selection = Selection(columns="id", key=key)
    found = numbers(selection.of_stored(stored))
    assert found and found == [row["id"] for row in selection.of(by_spark).collect()]


@pytest.mark.parametrize("small", [16 * 2**20, -1], ids=["at once", "as a dataset"])
def test_files_without_statistics_and_older_ones_without_a_column_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("streaming.tables.arrow._SMALL", small)
    uri = str(tmp_path / "table")
    spark.sql("select 1 as id, date '2013-01-01' as _day").write.format("delta").partitionBy("_day").save(uri)
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        newer = spark.sql("select 2 as id, cast(null as date) as _day, 'x' as t")
        newer.write.format("delta").mode("append").option("mergeSchema", "true").save(uri)
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    rows = StoredRows.of(delta.opened(uri), ("id",))
    assert [*json_lines(rows.columns, Choice(rows).batches())] == [
        '{"id":1,"_day":"2013-01-01","t":null}',
        '{"id":2,"_day":null,"t":"x"}',
    ]
    assert numbers(Choice(rows).where("_day is null")) == [2]


def numbers(choice: Choice) -> list[int]:
    return choice.table().column("id").to_pylist()
