"""Rules and derived columns that fail for some rows: these rows are rejected, with the values, and no others are.

What fails, and for which rows, is told by an oracle in plain Python over random expressions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Rule, Stream
from streaming.log.validate import RowValidator
from tests.support.instants import NOW
from tests.support.seeds import draws

Row = dict[str, Any]
NUMBERS = (None, 0, 1, -1, 2, 7, 255, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 10**15)
TEXTS = (None, "", "x", "7", " 12 ", "2147483648", "1.5", "NaN", "-0", "y" * 12_000)
LISTS: tuple[list[int | None] | None, ...] = (None, [], [0], [1, 2], [None, 5, 0])
LEAST, MOST = {"int": -(2**31), "bigint": -(2**63)}, {"int": 2**31 - 1, "bigint": 2**63 - 1}


class Failed(Exception):
    """Spark would raise."""


@dataclass(frozen=True)
class Expression:
    """SQL, the columns that it reads, and what it is of a row, as Spark computes with ANSI mode."""

    sql: str
    reads: frozenset[str]
    of: Callable[[Row], Any]


def within(type_: str, value: int) -> int:
    if not LEAST[type_] <= value <= MOST[type_]:
        raise Failed
    return value


def quotient(row: Row, left: str, right: str) -> float | None:
    if row[left] is None or row[right] is None:
        return None
    if row[right] == 0:
        raise Failed
    return float(row[left]) / float(row[right])


def remainder(row: Row, left: str, right: str) -> int | None:
    if row[left] is None or row[right] is None:
        return None
    if row[right] == 0:
        raise Failed
    size = abs(row[left]) % abs(row[right])
    return size if row[left] >= 0 else -size


def whole(row: Row, name: str) -> int | None:
    if row[name] is None:
        return None
    text = row[name].strip()
    if not text.lstrip("-").isdecimal():
        raise Failed
    return within("int", int(text))


def element(row: Row, place: int) -> int | None:
    if row["xs"] is None:
        return None
    if place >= len(row["xs"]):
        raise Failed
    found: int | None = row["xs"][place]
    return found


def calculated(row: Row, left: str, by: int, how: Callable[[int, int], int], type_: str) -> int | None:
    return None if row[left] is None else within(type_, how(row[left], by))


def number(random: Random, names: tuple[str, ...] = ("a", "b")) -> Expression:
    """A number that may fail."""
    left, right, by = random.choice(names), random.choice(names), random.choice((2, 3, 10**4, 2**40))
    return random.choice(
        (
            Expression(f"{left} / {right}", frozenset({left, right}), partial(quotient, left=left, right=right)),
            Expression(f"{left} % {right}", frozenset({left, right}), partial(remainder, left=left, right=right)),
            Expression("cast(code as int)", frozenset({"code"}), partial(whole, name="code")),
            Expression(f"xs[{by % 4}]", frozenset({"xs"}), partial(element, place=by % 4)),
            Expression(
                f"{left} * {by}",
                frozenset({left}),
                partial(calculated, left=left, by=by, how=int.__mul__, type_="bigint"),
            ),
            Expression(
                f"cast({left} as int)",
                frozenset({left}),
                partial(calculated, left=left, by=0, how=int.__add__, type_="int"),
            ),
        )
    )


def compared(value: Expression, than: int) -> Expression:
    def of(row: Row) -> bool | None:
        found = value.of(row)
        return None if found is None else found > than

    return Expression(f"{value.sql} > {than}", value.reads, of)


def conjunction(one: Expression, other: Expression) -> Expression:
    def of(row: Row) -> bool | None:
        first = one.of(row)
        if first is False:
            return False
        second = other.of(row)
        return False if second is False else None if None in (first, second) else True

    return Expression(f"({one.sql} and {other.sql})", one.reads | other.reads, of)


def disjunction(one: Expression, other: Expression) -> Expression:
    def of(row: Row) -> bool | None:
        first = one.of(row)
        if first is True:
            return True
        second = other.of(row)
        return True if second is True else None if None in (first, second) else False

    return Expression(f"({one.sql} or {other.sql})", one.reads | other.reads, of)


def choice(condition: Expression, one: Expression, other: Expression) -> Expression:
    def of(row: Row) -> bool | None:
        chosen: bool | None = (one if condition.of(row) is True else other).of(row)
        return chosen

    reads = condition.reads | one.reads | other.reads
    return Expression(f"case when {condition.sql} then {one.sql} else {other.sql} end", reads, of)


def condition(random: Random) -> Expression:
    """A condition in which the same numbers occur again and again, as Spark computes what is common only once.

    No two are compared with the same, as Spark leaves out a comparison that decides nothing where it occurs twice, and
    with it what it fails for: of `case when c then x else x end` the `c`.
    """
    return nested(random, 2, random.sample(range(-6, 7), 9))


def nested(random: Random, depth: int, thresholds: list[int]) -> Expression:
    if depth == 0:
        return compared(number(random), thresholds.pop())
    parts = [nested(random, depth - 1, thresholds) for _ in range(3)]
    how = random.randrange(4)
    if how == 0:
        return conjunction(parts[0], parts[1])
    if how == 1:
        return disjunction(parts[0], parts[1])
    return choice(*parts) if how == 2 else parts[0]


def shown(row: Row, names: frozenset[str]) -> str:
    def of(name: str) -> str:
        value = row[name]
        if value is None:
            return "null"
        if isinstance(value, str):
            return f"'{value if len(value) <= 200 else value[:200] + '...'}'"
        return (
            "[" + ", ".join("null" if each is None else str(each) for each in value) + "]"
            if name == "xs"
            else str(value)
        )

    return ", ".join(f"{name}={of(name)}" for name in sorted(names))


def verdict(row: Row, derived: dict[str, Expression], rules: dict[str, Expression]) -> tuple[Row, list[str] | None]:
    """The derived values of a row and the reasons against it."""
    values, failed, reasons = dict(row), set[str](), []
    for name, expression in derived.items():
        made_of_failed = bool(expression.reads & failed)
        try:
            values[name] = expression.of(values)
        except Failed:
            values[name] = None
            if not made_of_failed:
                reasons.append(
                    f"derived: {name} cannot be computed: {expression.sql}, of {shown(values, expression.reads)}"
                )
            failed.add(name)
        if made_of_failed:
            failed.add(name)
    for name, expression in rules.items():
        if expression.reads & failed:
            continue
        try:
            if expression.of(values) is not True:
                reasons.append(f"{name}: not ({expression.sql})")
        except Failed:
            reasons.append(f"{name}: cannot be judged: {expression.sql}, of {shown(values, expression.reads)}")
    return values, list(dict.fromkeys(reasons)) or None


def judged(
    spark: SparkSession, random: Random
) -> tuple[list[Row], dict[str, Expression], dict[str, Expression], list[Any]]:
    derived = {f"d{place}": number(random) for place in range(4)}
    left, right = random.choice(("ab", "ba", "bb"))
    derived["rest"] = Expression(
        f"{left} % {right}", frozenset({left, right}), partial(remainder, left=left, right=right)
    )
    # Of a column that may have failed itself.
    derived["shifted"] = Expression(
        "rest * 1099511627776",
        frozenset({"rest"}),
        partial(calculated, left="rest", by=2**40, how=int.__mul__, type_="bigint"),
    )
    rules = {f"r{place}": condition(random) for place in range(8)}
    rules["of_derived"] = compared(Expression("shifted", frozenset({"shifted"}), lambda row: row["shifted"]), 0)
    stream = Stream(
        "hostile",
        Files("landing/hostile"),
        Json("at timestamp, a bigint, b bigint, code string, xs array<int>"),
        "at",
        BoundedOutOfOrderness("0 seconds"),
        derived={name: each.sql for name, each in derived.items()},
        rules=tuple(Rule(name, each.sql) for name, each in rules.items()),
    )
    rows = [
        {
            "a": random.choice(NUMBERS),
            "b": random.choice(NUMBERS),
            "code": random.choice(TEXTS),
            "xs": random.choice(LISTS),
        }
        for _ in range(250)
    ]
    payloads = [(json.dumps({"at": "2026-01-01T00:00:00Z", **row}).encode(), place) for place, row in enumerate(rows)]
    raw = spark.createDataFrame(payloads, "_raw binary, _origin bigint").repartition(1)
    return rows, derived, rules, RowValidator(stream)(stream.format.parse(raw), NOW).orderBy("_origin").collect()


@pytest.mark.sampled
@pytest.mark.parametrize("number_of_draw", range(3))
def test_exactly_the_rows_that_an_expression_fails_for_are_rejected_for_it_and_no_row_is_lost(
    spark: SparkSession, number_of_draw: int
) -> None:
    rows, derived, rules, got = judged(spark, draws("failing rows", number_of_draw))
    assert len(got) == len(rows)
    expected = [verdict(row, derived, rules) for row in rows]
    for row, (values, reasons), judgement in zip(rows, expected, got, strict=True):
        assert judgement["_rejected"] == reasons, row
        assert {name: judgement[name] for name in derived} == {name: values[name] for name in derived}, row
    texts = " ".join(reason for _, reasons in expected for reason in reasons or ())
    assert "cannot be judged" in texts and "cannot be computed" in texts
