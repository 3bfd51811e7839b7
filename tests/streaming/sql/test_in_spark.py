"""Spark reads every query that is made, gives what DuckDB gives, and knows each function that queries may call."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming.sql import GLOBAL, Query, functions
from tests.support.sql_views import (
    CHANGES,
    CLASSES,
    EVER,
    SCHEMA,
    Feed,
    Judge,
    Row,
    query_of,
    random_feed,
    spark_to_duckdb,
)

STEP = 2
PREFIX = "sql_views_"


@pytest.fixture(scope="module")
def feed() -> Feed:
    return random_feed(random.Random(11), STEP)


@pytest.fixture(scope="module")
def judge(feed: Feed) -> Judge:
    judge = Judge()
    judge.load(feed)
    judge.move_to(STEP)
    return judge


@pytest.fixture(scope="module")
def views(spark: SparkSession, judge: Judge) -> Iterator[SparkSession]:
    """The session with the rows of the last step as views: those that stand, of any time, and the changed ones."""
    names = []
    for relation, columns in SCHEMA.items():
        typed = ", ".join(f"{name} {type_.replace('varchar', 'string')}" for name, type_ in columns.items())
        for suffix in ("", EVER, CHANGES):
            rows = [*judge.rows(f"select * from {relation}{suffix}").elements()]
            names.append(f"{PREFIX}{relation}{suffix}")
            spark.createDataFrame(rows, typed).coalesce(1).createOrReplaceTempView(names[-1])
    yield spark
    for name in names:
        spark.catalog.dropTempView(name)


def now(relation: str) -> str:
    return PREFIX + relation


def ever(relation: str) -> str:
    return PREFIX + relation + EVER


def changes(relation: str) -> str:
    return PREFIX + relation + CHANGES


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(8))
def test_spark_reads_every_query_with_the_columns_that_are_told(views: SparkSession, block: int) -> None:
    for name in list(CLASSES)[block::8]:
        query = query_of(name)
        assert tuple(views.sql(query.text(now)).columns) == query.columns, name
        keys = views.sql(query.affected(query.relations, changes, ever))
        assert tuple(keys.columns) == (query.key or (GLOBAL,)), name
        keys.createOrReplaceTempView(f"{PREFIX}keys")
        assert tuple(views.sql(query.restricted(now, f"{PREFIX}keys")).columns) == query.columns, name


def rows_of(frame: DataFrame) -> Counter[Row]:
    return Counter(tuple(row) for row in frame.collect())


@pytest.mark.long
@pytest.mark.parametrize("name", CLASSES)
def test_spark_and_duckdb_agree(views: SparkSession, judge: Judge, name: str) -> None:
    query = query_of(name)
    whole = judge.rows(spark_to_duckdb(query.text(lambda relation: relation)))
    assert rows_of(views.sql(query.text(now))) == whole
    keys = views.sql(query.affected(query.relations, changes, ever)).localCheckpoint()
    affected = query.affected(query.relations, lambda relation: relation + CHANGES, lambda relation: relation + EVER)
    assert rows_of(keys) == judge.rows(spark_to_duckdb(affected))
    keys.createOrReplaceTempView(f"{PREFIX}keys")
    touched = {tuple(row) for row in keys.collect()}
    at = [query.columns.index(column) for column in query.key]
    wanted = {row: n for row, n in whole.items() if (tuple(row[each] for each in at) or (1,)) in touched}
    assert rows_of(views.sql(query.restricted(now, f"{PREFIX}keys"))) == Counter(wanted)


def plan_of(frame: DataFrame) -> str:
    return frame._jdf.queryExecution().optimizedPlan().toString()


@pytest.mark.parametrize("name", ["group by", "union all, grouped", "window", "nested aggregates"])
def test_keys_are_chosen_below_aggregates_and_windows(views: SparkSession, name: str) -> None:
    query = query_of(name)
    views.sql(query.affected(query.relations, changes, ever)).createOrReplaceTempView(f"{PREFIX}keys")
    lines = plan_of(views.sql(query.restricted(now, f"{PREFIX}keys"))).splitlines()
    semi = next(at for at, line in enumerate(lines) if "Join LeftSemi" in line)
    above = [line for line in lines[:semi] if re.match(r"[:+ -]*(Aggregate|Window) ", line)]
    assert above, "\n".join(lines)


def test_keys_without_nulls_are_joined_by_their_values_alone(views: SparkSession) -> None:
    """Spark hashes a number by itself only where no null is equal to another."""
    query = query_of("group by")
    keys = views.sql(query.affected(query.relations, changes, ever))
    some = keys.where(" and ".join(f"`{name}` is not null" for name in query.key)).localCheckpoint()
    some.createOrReplaceTempView(f"{PREFIX}keys")
    with_nulls, without = (
        views.sql(query.restricted(now, f"{PREFIX}keys", have_nulls=have_nulls)) for have_nulls in (True, False)
    )
    assert "<=>" in plan_of(with_nulls) and "<=>" not in plan_of(without)
    assert rows_of(without) == rows_of(with_nulls) and without.count()


def test_every_listed_function_is_one_of_spark(spark: SparkSession) -> None:
    listed = functions.OF_ROWS | functions.OF_GROUPS | functions.OF_WINDOWS | functions.SORTED_ONLY
    there = {row.function for row in spark.sql("show functions").collect()}
    # These are syntax of Spark and no entries of its catalog.
    assert listed - there - {"exists", "if", "not"} == set()


def test_no_listed_function_of_spark_is_nondeterministic(spark: SparkSession) -> None:
    volatile = functions.OF_THE_CLOCK | functions.OF_CHANCE | functions.OF_THE_SESSION | functions.OF_ANY_ROW
    assert not volatile & (functions.OF_ROWS | functions.OF_GROUPS)


VALUES = r"""
date_format(at, 'y')
date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS')
date_trunc('week', at)
trunc(cast(at as date), 'MM')
at + interval 3 days
at - interval '1 02' day to hour
at - interval 2 hours 30 minutes
at - interval 1 day 2 hours 30 minutes
interval 2 hours 30 minutes * 3
date_add(cast(at as date), 1)
datediff(at, timestamp '2026-01-01 00:00:00')
extract(year from at)
date '2026-02-03'
1L + n
2.5D * n
1.50BD
-n % 3
n div 2
- -n
~n
n & 3 | 4 ^ 1
not n = 3 or n is null and true
n between 1 and 4 and true
n is not distinct from 5 and true
n is distinct from 5
n in (1, 5, null)
not (n in (1, 2))
text like 'a%'
text not like '%c'
text rlike '^a.c$'
text || '-' || n
text ilike 'A_C'
'back\\slash'
'quo\'te'
"double"
r'\d+'
split(text, '[.]')
substring(text, 1, 2)
left(text, 2)
array(1, 2, n)
size(array(1, 2))
element_at(array(1, 2), 1)
map('k', n)['k']
map('K', n).k
struct(n as Left, text as t)
named_struct('City', text).city
transform(array(1, 2, 3), x -> x + n)
filter(array(1, n), (x, i) -> i = 0)
aggregate(array(1, 2), 0, (acc, x) -> acc + x)
exists(array(1, 2), x -> x > n)
if(n > 3, 'a', 'b')
nvl(null, n)
case n when 5 then 'five' else 'other' end
case when n > 3 then 1 end
coalesce(null, n)
nullif(n, 5)
cast(n as decimal(10, 2))
n::string
try_cast(text as int)
cast(array(n) as array<bigint>)
int(2.7)
string(n)
x'1F'
1e3
.5
try_divide(n, 0)
from_unixtime(n, 'yyyy')
unix_timestamp(at)
to_date('2026-03-04', 'yyyy-MM-dd')
round(2.567, 1)
greatest(n, 3)
concat_ws(',', text, n)
xxhash64(text)
md5(text)
string(make_interval(0, 0, 0, n))
months_between(at, at)
last_day(at)
hour(at)
dayofweek(at)
pmod(-n, 3)
""".strip().splitlines()


def test_values_are_in_spark_what_they_were_as_they_were_written(spark: SparkSession) -> None:
    row = "select 5 as n, 'abc' as text, timestamp '2026-01-07 12:34:56.789' as at"
    spark.sql(row).createOrReplaceTempView(f"{PREFIX}values")
    written = [f"{value} as v{at}" for at, value in enumerate(VALUES)]
    sql = f"select n, {', '.join(written)} from one"
    query = Query.of(sql, {"one": ("n", "text", "at")}, ("n",))
    again = spark.sql(query.text(lambda name: f"{PREFIX}values"))
    first = spark.sql(sql.replace("from one", f"from {PREFIX}values"))
    assert again.collect() == first.collect()
    assert [field.dataType for field in again.schema] == [field.dataType for field in first.schema]
