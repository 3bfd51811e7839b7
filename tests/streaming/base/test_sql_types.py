"""What is refused of an expression, Spark refuses too; and what Spark takes is never refused."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.base.errors import DeclarationError
from streaming.base.sql_types import Types, check_aggregate, check_condition, check_value

TYPES: Types = {
    "v": "bigint",
    "d": "double",
    "s": "string",
    "b": "boolean",
    "at": "timestamp",
    "xs": "array<bigint>",
    "st": "struct<b: boolean, v: bigint>",
    "m": "map<string, bigint>",
    "o": None,
}
SCHEMA = ", ".join(f"{name} {type_ or 'boolean'}" for name, type_ in TYPES.items())

CONDITIONS = (
    *("b", "o", "not b", "!b", "b and o", "st.b", "v > 0", "v + 1 > d", "s = 'x'", "s like 'a%'", "s rlike 'a'"),
    *("v between 1 and 2", "s in ('a', 'b')", "s is null", "isnull(s)", "isnotnull(s)", "b <=> true", "b is not true"),
    *("if(b, s is null, d between -1 and 2)", "case when b then o end", "coalesce(b, false)", "nvl(b, true)", "true"),
    *("size(xs) = 5", "exists(xs, x -> x > 1)", "forall(xs, x -> x > 1)", "array_contains(xs, 1)", "isnan(d)"),
    *("cast(s as boolean)", "s::boolean", "boolean(s)", "startswith(s, 'a')", "contains(s, 'a')", "luhn_check(s)"),
    *("map_contains_key(m, 'a')", "m['a'] > 1", "xs[0] = 1", "at > current_timestamp()", "at <= at - interval 1 day"),
    *("equal_null(v, 1)", "nullif(b, o)", "greatest(b, o)", "element_at(array(b), 1)", "get(split(s, ','), 1) = 'x'"),
    *("is_valid_utf8(s)", "date(at) > date'2026-01-01'", "timestamp_millis(v) > timestamp'2026-01-01'", "(v > 1) = b"),
    *("try_cast(get(split(s, ','), 1) as bigint) is not null", "aggregate(xs, 0L, (a, x) -> a + x) > 1", "v % 2 = 0"),
)
NO_CONDITIONS = (
    *("v", "v + 1", "s || 'x'", "1", "at", "xs", "m", "st", "case when b then 1 else 2 end", "-d"),
    *("cast(v as int)", "upper(s)", "date(at)", "at - interval 1 day", "size(xs)"),
)
UNKNOWN_FUNCTIONS = ("foo(v) > 0", "lenght(s) = 1", "median_of(v) > 1")

AGGREGATES = (
    *("count(1)", "count(*)", "count_if(b)", "avg(v)", "sum(v) / count(v)", "sum(v) filter (where b)", "max(s)"),
    *("min_by(v, d)", "mode(v, true)", "percentile(v, 0.5)", "stddev_samp(v)", "size(collect_set(v))", "every(b)"),
    *(
        "some(b)",
        "any(b)",
        "bool_and(b)",
        "try_sum(v)",
        "histogram_numeric(v, 5)",
        "bit_and(v)",
        "corr(v, d)",
        "first(v)",
    ),
    *("array_sort(collect_list(struct(at as place, v as value))).value", "approx_percentile(v, 0.5)", "listagg(s)"),
    *("if(count(1) > 1, sum(v), null)", "round(avg(v), 2)", "regr_count(v, d)", "kurtosis(v)", "first(v)"),
    *("approx_count_distinct(v)", "max(struct(d, v)).v", "avg(cast((v > 1) as double))", "cast(sum(v) as int) + 1"),
)
NO_AGGREGATES = ("v + 1", "upper(s)", "v", "if(b, v, 0)", "cast(v as double)", "coalesce(v, 0) > 1 and b")


@pytest.mark.parametrize("expression", CONDITIONS)
def test_a_condition_that_spark_takes_is_taken(expression: str) -> None:
    check_condition("where", expression, TYPES)


@pytest.mark.parametrize("expression", [*NO_CONDITIONS, *UNKNOWN_FUNCTIONS])
def test_what_is_true_of_no_row_is_refused_as_a_condition(expression: str) -> None:
    with pytest.raises(DeclarationError, match=r"write|Correct") as refused:
        check_condition("where of view 'x'", expression, TYPES)
    assert repr(expression) in str(refused.value)


@pytest.mark.parametrize("expression", AGGREGATES)
def test_an_aggregate_that_spark_takes_is_taken(expression: str) -> None:
    check_aggregate("aggregate", expression, TYPES)


@pytest.mark.parametrize("expression", NO_AGGREGATES)
def test_what_aggregates_nothing_is_refused_as_an_aggregate(expression: str) -> None:
    with pytest.raises(DeclarationError, match="say how to aggregate") as refused:
        check_aggregate("aggregate 'x'", expression, TYPES)
    assert repr(expression) in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "type_"),
    [("v + 1", "bigint"), ("s || 'x'", "string"), ("o", None), ("timestamp_millis(v)", None), ("d * 2", "double")],
)
def test_the_type_of_a_value_is_told_where_it_is_certain(expression: str, type_: str | None) -> None:
    assert check_value("derived column", expression, TYPES) == type_


def test_spark_takes_what_is_taken_and_refuses_what_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], SCHEMA)

    def refused_by_spark(expression: str, *, aggregates: bool) -> bool:
        try:
            # An aggregate in the place of a condition is refused as well.
            rows.groupBy().agg(F.expr(expression)) if aggregates else rows.where(F.expr(expression))
        except PySparkException:
            return True
        return False

    assert [text for text in CONDITIONS if refused_by_spark(text, aggregates=False)] == []
    assert [text for text in AGGREGATES if refused_by_spark(text, aggregates=True)] == []
    taken = [text for text in (*NO_CONDITIONS, *UNKNOWN_FUNCTIONS) if not refused_by_spark(text, aggregates=False)]
    assert taken == []
    assert [text for text in NO_AGGREGATES if not refused_by_spark(text, aggregates=True)] == []


def test_every_function_that_spark_has_may_be_called(spark: SparkSession) -> None:
    names = [row["function"] for row in spark.sql("show system functions").collect()]
    assert len(names) > 400
    refused = []
    for name in names:
        try:
            check_value("derived column", f"{name}(v)", TYPES)
        except DeclarationError as error:
            refused += [name] if "no function of Spark SQL" in str(error) else []
    assert refused == []
