"""What is known of SQL text without Spark."""

from __future__ import annotations

import pytest

from streaming.base.errors import DeclarationError
from streaming.base.sql import Column, columns_of, names_in, replaced


def test_a_schema_is_names_types_and_what_is_required() -> None:
    assert columns_of("id STRING not null, n bigint, at timestamp NOT NULL, d decimal(12, 2), `a b` array<int>") == (
        Column("id", "string", True),
        Column("n", "bigint", False),
        Column("at", "timestamp", True),
        Column("d", "decimal(12, 2)", False),
        Column("a b", "array<int>", False),
    )


def test_the_fields_of_a_struct_are_no_columns() -> None:
    assert [column.name for column in columns_of("id string, address struct<zip: string, city: string>")] == [
        "id",
        "address",
    ]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a + b * 2 > c", {"a", "b", "c"}),
        ("address.zip = '1'", {"address"}),
        ("count_if(delay between -120 and 3000)", {"delay"}),
        ("`a b` is not null", {"a b"}),
        ("1 = 1", set()),
        ("timestamp_millis(ts) > timestamp'2026-01-01'", {"ts"}),
    ],
)
def test_an_expression_tells_the_columns_it_reads(expression: str, names: set[str]) -> None:
    assert names_in(expression) == names


@pytest.mark.parametrize("text", ["a +", "(a", "a b c"])
def test_what_is_not_sql_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(DeclarationError, match="cannot read the expression") as refused:
        names_in(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(("ddl", "reason"), [("", "''"), ("id", "'id'"), ("a int, b int, a string", "repeats a")])
def test_a_schema_that_is_none_is_refused(ddl: str, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        columns_of(ddl)


@pytest.mark.parametrize(
    ("ddl", "culprit"),
    [
        ("id, at timestamp", "'id'"),
        ("id: string, n int", "'id'"),
        ("*", "'*'"),
        ("a.b int", "'a.b INT'"),
        ("id string, primary key (id)", "PRIMARY KEY"),
        ("id string default 'x'", "DEFAULT"),
        ("id bigint generated always as identity", "GENERATED"),
        ("id string unique", "UNIQUE"),
        ("id string) using delta partitioned by (id", "goes on behind its columns"),
    ],
)
def test_nothing_of_a_schema_is_left_out_without_a_word(ddl: str, culprit: str) -> None:
    with pytest.raises(DeclarationError, match="write") as refused:
        columns_of(ddl)
    assert culprit in str(refused.value)
    assert repr(ddl) in str(refused.value)


def test_a_column_may_say_that_it_may_be_null_and_what_it_means() -> None:
    assert columns_of("id string not null comment 'who', n int null") == (
        Column("id", "string", True, "who"),
        Column("n", "int", False),
    )


def test_names_within_a_type_keep_their_case() -> None:
    (column,) = columns_of("address STRUCT<zipCode: STRING NOT NULL, `Street: Nr`: ARRAY<STRUCT<aB DECIMAL(4, 1)>>>")
    assert column.type == "struct<zipCode: string not null, `Street: Nr`: array<struct<aB: decimal(4, 1)>>>"


def test_columns_are_replaced_where_they_are_columns() -> None:
    sql = "min_by(a, struct(_order._batch, `_order`, x._order, '_order', _ordered))"
    assert replaced(sql, {"_order": "struct(a as at)", "b": "c"}) == (
        "min_by(a, struct(struct(a as at)._batch, struct(a as at), x._order, '_order', _ordered))"
    )


@pytest.mark.parametrize(
    "text",
    [f"{'(' * 100}a{')' * 100}", "[ percentile( date_trunc(", "unnest( interval null ? 1bd if(", "date_trunc( )"],
    ids=["too deep", "no value", "no number", "no argument"],
)
def test_what_the_parser_fails_for_is_refused_as_what_it_refuses(text: str) -> None:
    with pytest.raises(DeclarationError, match=r"cannot read the expression .*Write it as Spark SQL"):
        names_in(text)
